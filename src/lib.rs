//! Active health checking with Envoy's configuration.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod config;
pub mod event;
pub mod host;
pub mod proto;
pub mod schedule;
pub mod session;
pub mod stats;
pub mod validate;
