//! Hosts that the responder answers for, and an engine that checks them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use xds_health::checker::udp::UdpChecker;
use xds_health::config::{
    CheckerConfig, ClusterConfig, Discovery, HealthCheck, Payload, TypedConfig, UdpConfig,
};
use xds_health::engine::{Engine, Options, Origin, Traffic};
use xds_health::host::Host;
use xds_health::registry::Update;
use xds_health::stats::{CheckStats, Stats};

use super::responder::{ANSWER, ASK};

/// The cluster's name.
pub(crate) const CLUSTER: &str = "fleet";
/// Long, so that a busy machine fails no attempt.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// The address of host `index`: one of 127.0.0.0/8, each of its own.
pub(crate) fn address(index: usize, port: u16) -> SocketAddr {
    let first = u32::from(Ipv4Addr::new(127, 16, 0, 0));
    let ip = Ipv4Addr::from(first + u32::try_from(index).unwrap());
    SocketAddr::from((ip, port))
}

/// A check every `interval`, the first one within `initial_jitter`.
pub(crate) fn check(interval: Duration, initial_jitter: Duration) -> HealthCheck {
    let checker = CheckerConfig::Custom(TypedConfig::default());
    let mut check = HealthCheck::new(checker, TIMEOUT, interval, 2, 2);
    check.initial_jitter = initial_jitter;
    check
}

/// One shard, and the same jitter each time.
pub(crate) fn options() -> Options {
    Options::default()
        .with_shards(1)
        .with_seed(1)
        .with_traffic(Traffic::Always)
}

/// An engine of one shard that checks one cluster.
pub(crate) struct Fleet {
    runtime: Runtime,
    engine: Engine,
    stats: Arc<Stats>,
    /// Counters of the cluster's check.
    pub(crate) check: Arc<CheckStats>,
    name: Arc<str>,
}

impl Fleet {
    /// An engine with the cluster, still without hosts.
    pub(crate) fn start(check: HealthCheck) -> Self {
        Self::with(options(), check)
    }

    /// The same with other options.
    pub(crate) fn with(options: Options, check: HealthCheck) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let stats = Arc::new(Stats::default());
        let engine = Engine::start_threads(options, Arc::clone(&stats)).unwrap();
        let cluster = ClusterConfig::new(CLUSTER, Discovery::Dynamic).with_health_check(check);
        let name = Arc::clone(&cluster.name);
        let of_check = stats.cluster(&name, &name).check(&Arc::from(""));
        let payload = |bytes: &'static [u8]| Payload::new(bytes).unwrap();
        let config = UdpConfig::new(payload(ASK), payload(ANSWER));
        let checker = Arc::new(UdpChecker::new(config));
        let update = Update::new(Arc::new(cluster), vec![checker], vec![Vec::new()]);
        runtime
            .block_on(engine.set_cluster(update, Origin::Static))
            .unwrap();
        Self {
            runtime,
            engine,
            stats,
            check: of_check,
            name,
        }
    }

    /// Has `count` hosts checked, in place of those there were.
    pub(crate) fn set_hosts(&self, count: usize, port: u16) {
        let hosts = (0..count).map(|index| Arc::new(Host::new(address(index, port))));
        self.apply(hosts.collect());
    }

    /// Has these hosts checked, in place of those there were.
    pub(crate) fn apply(&self, hosts: Arc<[Arc<Host>]>) {
        self.runtime
            .block_on(self.engine.reset_hosts(&self.name, hosts))
            .unwrap();
    }

    /// How often hosts came or went.
    pub(crate) fn membership_changes(&self) -> u64 {
        let cluster = self.stats.cluster(&self.name, &self.name);
        cluster.membership.change.value()
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Waits until the cluster has so many hosts.
    pub(crate) fn wait_for_members(&self, count: u64) {
        let cluster = self.stats.cluster(&self.name, &self.name);
        while cluster.membership.total.value() < count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until each host has been checked once.
    pub(crate) fn wait_for_first_checks(&self) {
        let cluster = self.engine.cluster(&self.name).unwrap();
        while cluster.snapshot().is_empty() || !cluster.snapshot().initialized() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until so many attempts have succeeded.
    pub(crate) fn wait_for_successes(&self, count: u64) {
        while self.check.success.value() < count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How long the last attempts took, if the engine notes them.
    pub(crate) fn round_trips(&self, most: usize) -> Vec<Duration> {
        let attempts = self.runtime.block_on(self.engine.attempts(most)).unwrap();
        attempts.iter().filter_map(|attempt| attempt.took).collect()
    }

    /// Ends the engine and waits until its shard is gone. Tells how many attempts failed.
    pub(crate) fn stop(self) -> u64 {
        let Self {
            engine,
            stats,
            check,
            ..
        } = self;
        drop(engine);
        while Arc::strong_count(&stats) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        check.failure.value()
    }
}
