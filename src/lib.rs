//! Active health checking with Envoy's configuration.

pub mod proto;
pub mod validate;
