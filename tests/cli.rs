//! The command as it is run: its answers, its exit codes, and the daemon from start to end.
#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    missing_docs,
    reason = "a test ends at what it does not expect, and is read by nobody's compiler"
)]

#[path = "common/http.rs"]
mod http;
#[path = "common/peer.rs"]
mod peer;

#[path = "cli/command.rs"]
mod command;
#[path = "cli/config.rs"]
mod config;
#[path = "cli/daemon.rs"]
mod daemon;
#[path = "cli/end.rs"]
mod end;
#[path = "cli/events.rs"]
mod events;
#[path = "cli/log.rs"]
mod log;
#[path = "cli/refused.rs"]
mod refused;
#[path = "cli/settings.rs"]
mod settings;
#[path = "cli/told.rs"]
mod told;
#[path = "cli/validate.rs"]
mod validate;
