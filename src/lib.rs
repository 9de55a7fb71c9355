//! Active health checking with Envoy's configuration.
//!
//! A proxy that is configured as an Envoy is can have Envoy's health checks by this crate: the same
//! configuration, the same verdicts at the same times, the same counters and events. It can also be had as a
//! daemon: see the README.
//!
//! The way through it:
//!
//! 1. [`config`] turns messages, bytes or text into checked types: a [`config::Bootstrap`], or one
//!    [`config::ClusterConfig`].
//! 2. A [`registry::Registry`] builds the checkers that a cluster asks for: an [`registry::Update`].
//! 3. An [`engine::Engine`] runs it and gives a [`engine::Cluster`] handle, whose
//!    [`snapshot`](engine::Cluster::snapshot) has each host with its [verdict](snapshot::Verdict).
//!
//! ```
//! use std::sync::Arc;
//! use xds_health::config::{ClusterConfig, Warnings, text::Document};
//! use xds_health::engine::{Engine, Options, Origin};
//! use xds_health::registry::Registry;
//! use xds_health::snapshot::Verdict;
//! use xds_health::stats::Stats;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A host that answers.
//! let peer = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
//! let port = peer.local_addr()?.port();
//! tokio::spawn(async move {
//!     let mut ping = [0; 4];
//!     while let Ok((_, from)) = peer.recv_from(&mut ping).await {
//!         peer.send_to(b"pong", from).await.ok();
//!     }
//! });
//!
//! let yaml = format!(r#"
//! name: games
//! load_assignment:
//!   cluster_name: games
//!   endpoints:
//!   - lb_endpoints:
//!     - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}
//! health_checks:
//! - timeout: 5s
//!   interval: 1s
//!   unhealthy_threshold: 3
//!   healthy_threshold: 2
//!   custom_health_check:
//!     name: envoy.health_checkers.udp
//!     typed_config:
//!       "@type": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck
//!       send: {{text: "70696e67"}}
//!       receive: {{text: "706f6e67"}}
//! "#);
//! let document = Document::from_yaml(&yaml)?;
//! let config = ClusterConfig::from_document(&document, &mut Warnings::default())?;
//! let update = Registry::default().build(Arc::new(config))?;
//!
//! let engine = Engine::start(Options::default(), Arc::new(Stats::default()))?;
//! let cluster = engine.set_cluster(update, Origin::Static).await?;
//! let mut changes = cluster.changes();
//! while !cluster.snapshot().initialized() {
//!     changes.changed().await?;
//! }
//! let snapshot = cluster.snapshot();
//! let host = snapshot.hosts().next().ok_or("no host")?;
//! assert_eq!(host.verdict(), Verdict::Healthy);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

#[cfg(feature = "admin")]
pub mod admin;
pub mod checker;
#[cfg(feature = "cli")]
pub mod cli;
pub mod cluster;
pub mod config;
#[cfg(feature = "dns")]
pub mod dns;
pub mod engine;
pub mod event;
pub mod feed;
#[cfg(feature = "hds")]
pub mod hds;
pub mod host;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod proto;
pub mod registry;
pub mod schedule;
pub mod session;
pub mod snapshot;
mod sockopt;
pub mod stats;
#[cfg(feature = "tower")]
pub mod tower;
pub mod validate;
#[cfg(feature = "xds")]
pub mod xds;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
