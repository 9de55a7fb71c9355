//! The client of the health discovery service against a scripted server.

#![cfg(feature = "hds")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

#[path = "hds/server.rs"]
mod server;

#[path = "hds/fetch.rs"]
mod fetch;
#[path = "hds/specifiers.rs"]
mod specifiers;
#[path = "hds/streams.rs"]
mod streams;
