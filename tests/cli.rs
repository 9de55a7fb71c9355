//! The command as it is run: its answers, its exit codes, and the daemon from start to end.
#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    missing_docs,
    reason = "a test ends at what it does not expect, and is read by nobody's compiler"
)]

#[path = "common/control_plane.rs"]
mod control_plane;
#[path = "common/http.rs"]
mod http;
#[path = "common/peer.rs"]
mod peer;

#[path = "cli/check.rs"]
mod check;
#[path = "cli/command.rs"]
mod command;
#[path = "cli/config.rs"]
mod config;
#[path = "cli/daemon.rs"]
mod daemon;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/end.rs"]
mod end;
#[path = "cli/events.rs"]
mod events;
#[path = "cli/explain.rs"]
mod explain;
#[path = "cli/live.rs"]
mod live;
#[path = "cli/log.rs"]
mod log;
#[path = "cli/manners.rs"]
mod manners;
#[cfg(feature = "otlp")]
#[path = "cli/otlp.rs"]
mod otlp;
#[path = "cli/output.rs"]
mod output;
#[path = "common/prometheus.rs"]
mod prometheus;
#[path = "cli/ready.rs"]
mod ready;
#[path = "cli/refused.rs"]
mod refused;
#[path = "cli/reload.rs"]
mod reload;
#[path = "cli/settings.rs"]
mod settings;
#[path = "cli/snapshot.rs"]
mod snapshot;
#[path = "cli/status.rs"]
mod status;
#[path = "cli/told.rs"]
mod told;
#[path = "cli/traps.rs"]
mod traps;
#[path = "cli/validate.rs"]
mod validate;
