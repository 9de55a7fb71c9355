//! Active health checking with Envoy's configuration, for proxies to embed.
//!
//! A proxy that is configured as an Envoy is can have Envoy's health checks by this crate: the same
//! configuration, the same verdicts at the same times, the same counters and events. It can also be had as a
//! daemon: see the README.
//!
//! # In one page
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use xds_health::config::{CheckerConfig, ClusterConfig, Discovery, HealthCheck};
//! use xds_health::engine::{Engine, Options, Origin};
//! use xds_health::host::Host;
//! use xds_health::registry::Registry;
//! use xds_health::stats::Stats;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A host that answers.
//! let peer = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
//! let address = peer.local_addr()?;
//! tokio::spawn(async move {
//!     let mut ping = [0; 4];
//!     while let Ok((_, from)) = peer.recv_from(&mut ping).await {
//!         peer.send_to(b"pong", from).await.ok();
//!     }
//! });
//!
//! // What to check, and how. A second for an answer, five seconds between attempts, three failures eject.
//! let second = Duration::from_secs(1);
//! let check = HealthCheck::new(CheckerConfig::udp(b"ping", b"pong")?, second, 5 * second, 3, 2);
//! let config = ClusterConfig::new("games", Discovery::Dynamic).with_health_check(check);
//!
//! // An engine on this runtime, and the cluster in it.
//! let engine = Engine::start(Options::default(), Arc::new(Stats::default()))?;
//! let update = Registry::default().build(config)?;
//! let cluster = engine.set_cluster(update, Origin::Static).await?;
//! cluster.reset([Host::new(address)]).await?;
//!
//! // Once each host was checked:
//! let snapshot = cluster.initialized().await?;
//! assert_eq!(snapshot.eligible().count(), 1);
//! // And with every packet:
//! let mut hosts = cluster.reader();
//! assert!(hosts.eligible(address));
//! # Ok(())
//! # }
//! ```
//!
//! # The way through it
//!
//! 1. [`config`] turns messages, bytes or text into checked types: a whole [`config::Bootstrap`], or one
//!    [`config::ClusterConfig`] ([`from_message`](config::ClusterConfig::from_message),
//!    [`from_bytes`](config::ClusterConfig::from_bytes), [`from_yaml`](config::ClusterConfig::from_yaml), or put
//!    together by hand as above).
//! 2. A [`registry::Registry`] builds the checkers that a cluster asks for by their type URLs: an
//!    [`registry::Update`]. [`Registry::with_checker`](registry::Registry::with_checker) makes your own known.
//! 3. An [`engine::Engine`] runs it, [as tasks](engine::Engine::start) of the runtime that you are on or
//!    [on threads](engine::Engine::start_threads) of its own, and gives a cheap handle: [`engine::Cluster`].
//! 4. Hosts come with the configuration (`STATIC`), from you ([`reset`](engine::Cluster::reset),
//!    [`upsert`](engine::Cluster::upsert), [`remove`](engine::Cluster::remove) for a cluster of
//!    [`Discovery::Dynamic`](config::Discovery::Dynamic)), or by the features `dns`, `xds` and `hds`.
//! 5. You read: what fits your proxy of the following.
//!
//! | you want | use |
//! |---|---|
//! | one host's verdict with every packet | a [`Reader`](engine::Cluster::reader) per thread |
//! | all hosts as they are now | [`snapshot`](engine::Cluster::snapshot), unchanging once taken |
//! | the hosts to balance over | [`Snapshot::eligible`](engine::Snapshot::eligible); with Envoy's panic and priorities, [`Snapshot::panic_aware`](engine::Snapshot::panic_aware) |
//! | to keep a list of your own up to date | [`eligible_changes`](engine::Cluster::eligible_changes); by the feature `tower`, a `Discover` stream |
//! | to know when to look again | [`changes`](engine::Cluster::changes): versions, those within 2 ms told once |
//! | what happened and why | [`events`](engine::Cluster::events) |
//! | why a host is as it is | [`explain`](engine::Cluster::explain) |
//! | to know that nobody checks any longer | [`Cluster::ended`](engine::Cluster::ended), [`Reader::ended`](engine::Reader::ended) |
//! | counters | [`Stats::export`](stats::Stats::export), under Envoy's names |
//!
//! And you may tell: that the cluster [has traffic](engine::Cluster::note_traffic), or that a host
//! [failed for you](engine::Cluster::set_unhealthy).
//!
//! A host that you [`remove`](engine::Cluster::remove), or leave out of a [`reset`](engine::Cluster::reset), **stays
//! eligible as long as it passes its checks**, as with Envoy. For it to go at once, configure the cluster
//! [`with_ignore_health_on_host_removal`](config::ClusterConfig::with_ignore_health_on_host_removal).
//!
//! When the cluster is removed, or its engine is dropped or stopped, what is read of it stays as it was last: old
//! verdicts, that nobody checks any more. `ended` tells so at once and for little; calls that tell, ask or wait give
//! [`Ended`](engine::Ended); events and changes end; and of `eligible_changes` all hosts leave first.
//!
//! # Picking with every packet
//!
//! Envoy's rules of panic and priorities need a look at all hosts. So a task makes a list whenever there is something
//! new, and whoever has a packet picks from the last one. At the start it waits for the first checks: a cluster none
//! of whose hosts is known to pass is in panic, and would get load at all of them:
//!
//! ```no_run
//! use std::net::SocketAddr;
//! use std::sync::Arc;
//! use tokio::sync::watch;
//! use xds_health::engine::Cluster;
//!
//! async fn keep(cluster: Cluster, list: watch::Sender<Arc<[SocketAddr]>>) {
//!     let mut changes = cluster.changes();
//!     if cluster.initialized().await.is_err() {
//!         return;
//!     }
//!     loop {
//!         let (snapshot, rules) = (cluster.snapshot(), cluster.balance_rules());
//!         let hosts = snapshot.panic_aware(rules);
//!         let now: Arc<[_]> = hosts.filter_map(|view| view.host.address.socket_addr()).collect();
//!         list.send_replace(now);
//!         if changes.changed().await.is_err() {
//!             list.send_replace(Arc::new([]));
//!             return;
//!         }
//!     }
//! }
//!
//! fn pick(list: &watch::Receiver<Arc<[SocketAddr]>>, packet: u64) -> Option<SocketAddr> {
//!     let list = list.borrow();
//!     let index = packet % u64::try_from(list.len()).ok().filter(|len| *len > 0)?;
//!     list.get(usize::try_from(index).ok()?).copied()
//! }
//! ```
//!
//! # What a verdict means
//!
//! A host is [`Unknown`](snapshot::Verdict::Unknown) until its first check is completed; no load is to go there, or
//! a start would send load to dead hosts. One completion decides: it is `Healthy` or `Unhealthy`, whatever the
//! thresholds. From then on `unhealthy_threshold` failures in a row eject it, and `healthy_threshold` successes in a
//! row bring it back. `Degraded` is for checkers that can tell so; degraded hosts are eligible, as a second choice.
//! Under several checks a host has to pass them all.
//!
//! [`HostView`](snapshot::HostView) has since when and why; a [`Reason`](event::Reason) tells silence from a wrong
//! answer (and where the first difference is), a closed port, no route, or trouble of this machine. What a control
//! plane says (`health_status`) counts beside the checks: a host that it drains is not eligible, however well it
//! answers.
//!
//! # Which interval when
//!
//! From the end of an attempt to the next one, by what it found and by whether the cluster has traffic:
//!
//! | the attempt | without traffic | with traffic |
//! |---|---|---|
//! | passed, and the host is healthy | `no_traffic_healthy_interval` | `interval` |
//! | passed, but too few in a row yet | `no_traffic_interval` | `healthy_edge_interval` |
//! | failed, but too few in a row yet | `no_traffic_interval` | `unhealthy_edge_interval` |
//! | failed, and the host is failed | `no_traffic_interval` | `unhealthy_interval` |
//!
//! A cluster has no traffic until [`note_traffic`](engine::Cluster::note_traffic) says so, unless the engine was
//! started with [`Traffic::Always`](engine::Traffic::Always). The no-traffic intervals are **60 s** if they are not
//! set: who wonders why hosts are checked so seldom has not noted traffic. Jitter is added, and the whole is kept
//! within limits that [can change while running](engine::Engine::set_limits): Envoy's `health_check.min_interval` and
//! `max_interval`. [`SessionView`](cluster::SessionView) tells which interval a host waits by, and why.
//!
//! # What differs from Envoy
//!
//! The README has the whole list. What an embedder may notice: an attempt's socket is closed when it ends; want of
//! descriptors or ports makes attempts wait, it fails no host; `note_traffic` cuts a running no-traffic wait short; a
//! cluster is [`initialized`](engine::Cluster::initialized) after each host's first completion, also of hosts that come
//! later.
//!
//! # Checkers of your own
//!
//! A [`CheckerFactory`](checker::CheckerFactory) turns a configuration into a [`Checker`](checker::Checker), that
//! makes a [`HostChecker`](checker::HostChecker) whose attempts are futures. Attempts have no timeout and no
//! threshold; one that takes too long is dropped, and a panic is a failure of its attempt and nothing else. But one
//! that blocks is not timed out, and holds up the other hosts of its shard. One that needs its engine had better hold a
//! [`Cluster`](engine::Cluster): an [`Engine`](engine::Engine) in a checker would keep itself going. For its
//! configuration to be told as YAML or JSON, the factory gives its
//! [descriptors](checker::CheckerFactory::descriptor_set). The example `dns_checker` is a whole one.
//!
//! # Tests of your own
//!
//! All is scheduled by tokio's clock, so `tokio::time::pause` makes hours pass at once for an engine by
//! [`Engine::start`](engine::Engine::start) (not for one on threads of its own), and by a
//! [seed](engine::Options::with_seed), so jitter is the same each time. The example `paused_time` shows it. Not with
//! real sockets: a paused clock jumps to the timeout before their answers are there. The core under the engine,
//! [`cluster::Clusters`], is handed the time: the example `event_loop` drives it without tokio.
//!
//! # Manners
//!
//! [`Engine::start`](engine::Engine::start) uses the runtime it is called on; only
//! [`start_threads`](engine::Engine::start_threads) makes threads, with a small runtime for checkers that need one.
//! There is no global state, no signal handler and no logger: logs are events of `tracing`. No lock is held across an
//! await. Dropping the last [`Engine`](engine::Engine) ends its attempts; clusters, readers and followers do not keep
//! it going and are told, as they are when it [breaks](engine::Engine::broken). Futures may be dropped at any time: a
//! call that had not ended has done nothing, but for [`set_unhealthy`](engine::Cluster::set_unhealthy), which may wait
//! for no more than its answer, and [`stop`](engine::Engine::stop), which may wait for the end. Each engine has
//! [`Stats`](stats::Stats) of its own: on the same, two would add up.
//!
//! Types of other crates that are not at 1.0 stand in public signatures only where they must, and are re-exported
//! there: [`proto`] has prost's, `admin` axum's; the features `tower` and `metrics` are about the crates they name.
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
#[cfg(any(feature = "admin", feature = "xds"))]
mod pattern;
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
