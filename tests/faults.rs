//! The daemon among faults, over real sockets: what is counted and logged, that hosts which have nothing to do with
//! a fault keep their verdict and their schedule, and that memory and descriptors go back to where they were.
//!
//! What changes the network runs in a network namespace of its own, where one can be had; else it is skipped, and
//! says so.
#![cfg(all(feature = "cli", target_os = "linux"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

#[path = "faults/bed.rs"]
mod bed;
#[path = "common/control_plane.rs"]
mod control_plane;
#[path = "faults/files.rs"]
mod files;
#[path = "faults/hosts.rs"]
mod hosts;
#[path = "faults/network.rs"]
mod network;
#[path = "faults/process.rs"]
mod process;
#[path = "faults/scarcity.rs"]
mod scarcity;
#[path = "faults/secrets.rs"]
mod secrets;
#[path = "faults/servers.rs"]
mod servers;
