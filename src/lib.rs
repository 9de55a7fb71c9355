//! Active health checking with Envoy's configuration.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

#[cfg(feature = "admin")]
pub mod admin;
pub mod checker;
#[cfg(feature = "cli")]
pub mod cli;
pub mod cluster;
pub mod config;
pub mod engine;
pub mod event;
pub mod feed;
#[cfg(feature = "hds")]
pub mod hds;
pub mod host;
pub mod proto;
pub mod registry;
pub mod schedule;
pub mod session;
pub mod snapshot;
mod sockopt;
pub mod stats;
pub mod validate;
#[cfg(feature = "xds")]
pub mod xds;
