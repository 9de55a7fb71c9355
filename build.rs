//! Compiles `proto/`.
fn main() {}
