//! A checker whose attempts end as their host's port says, at once, and clusters of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use xds_health::checker::{Attempt, AttemptIo, Checker, HostChecker, Target};
use xds_health::config::{CheckerConfig, ClusterConfig, Discovery, HealthCheck, TypedConfig};
use xds_health::engine::{Cluster, Engine, Origin, Snapshot};
use xds_health::event::{HealthCheckerType, Outcome, Reason};
use xds_health::host::Host;
use xds_health::registry::Update;

/// Attempts at this port fail.
pub const FAILING: u16 = 1;
/// Attempts at this port time out.
pub const SILENT: u16 = 2;
/// Attempts at this port succeed once the script is released.
pub const HELD: u16 = 3;
/// Attempts at this port, and all others, succeed.
pub const PASSING: u16 = 4;

/// The checker; attempts at [`HELD`] wait for its sender to say `true`.
#[derive(Clone, Debug)]
pub struct Scripted(pub watch::Receiver<bool>);

impl Scripted {
    /// With attempts at [`HELD`] released.
    pub fn released() -> Self {
        Self(watch::channel(true).1)
    }
}

impl Checker for Scripted {
    fn health_checker_type(&self) -> HealthCheckerType {
        HealthCheckerType::Udp
    }

    fn for_host(&self, target: Target<'_>) -> Box<dyn HostChecker> {
        let port = target
            .host
            .checked_at()
            .socket_addr()
            .map_or(PASSING, |a| a.port());
        Box::new(OfHost(port, self.0.clone()))
    }
}

struct OfHost(u16, watch::Receiver<bool>);

impl HostChecker for OfHost {
    fn attempt<'a>(&'a mut self, _: &'a AttemptIo) -> Attempt<'a> {
        Box::pin(async move {
            match self.0 {
                FAILING => Outcome::network(Reason::Refused),
                SILENT => Outcome::timeout(Reason::Silent),
                HELD => {
                    let _ = self.1.wait_for(|released| *released).await;
                    Outcome::SUCCESS
                }
                _ => Outcome::SUCCESS,
            }
        })
    }
}

/// A host at a port of `127.0.0.1`.
pub fn host(port: u16) -> Host {
    Host::new(SocketAddr::from(([127, 0, 0, 1], port)))
}

/// A check that is done once: its interval is longer than any test.
pub fn check(name: &str) -> HealthCheck {
    let config = TypedConfig::default();
    let (timeout, interval) = (Duration::from_secs(300), Duration::from_secs(600));
    let mut check = HealthCheck::new(CheckerConfig::Custom(config), timeout, interval, 1, 1);
    check.name = Arc::from(name);
    check.no_traffic_interval = interval;
    check.no_traffic_healthy_interval = interval;
    check
}

/// A cluster of `hosts` with a check for each of `checks`.
pub fn cluster(name: &str, hosts: Vec<Host>, checks: &[&str]) -> ClusterConfig {
    let hosts = hosts.into_iter().map(Arc::new).collect();
    let cluster = ClusterConfig::new(name, Discovery::Static(hosts));
    checks.iter().fold(cluster, |cluster, name| {
        cluster.with_health_check(check(name))
    })
}

/// Gives `engine` a cluster that `script` checks.
pub async fn set(
    engine: &Engine,
    config: ClusterConfig,
    script: &Scripted,
    origin: Origin,
) -> Cluster {
    let checkers = config.health_checks.iter();
    let checkers = checkers.map(|_| Arc::new(script.clone()) as Arc<dyn Checker>);
    let checkers = checkers.collect();
    let sinks = config.health_checks.iter().map(|_| Vec::new()).collect();
    let update = Update::new(Arc::new(config), checkers, sinks);
    engine.set_cluster(update, origin).await.unwrap()
}

/// Waits until a snapshot of `cluster` is as wanted.
pub async fn until(cluster: &Cluster, wanted: impl Fn(&Snapshot) -> bool) {
    let mut changes = cluster.changes();
    while !wanted(&cluster.snapshot()) {
        changes.changed().await.unwrap();
    }
}
