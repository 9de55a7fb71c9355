//! Configuration: bytes to checked types, with every error at its field path.

pub mod text;
