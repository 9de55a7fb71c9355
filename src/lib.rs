//! Active health checking with Envoy's configuration.

pub mod config;
pub mod proto;
pub mod validate;
