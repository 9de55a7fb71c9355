//! The client of the health discovery service against a scripted server.

#![cfg(feature = "hds")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
#[cfg(feature = "admin")]
#[path = "common/http.rs"]
mod http;

#[cfg(feature = "admin")]
#[path = "hds/dump.rs"]
mod dump;
#[path = "hds/server.rs"]
mod server;

#[path = "hds/fetch.rs"]
mod fetch;
#[path = "hds/specifiers.rs"]
mod specifiers;
#[path = "hds/streams.rs"]
mod streams;
