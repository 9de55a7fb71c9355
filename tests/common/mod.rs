//! Scripted hosts and what tests need to build clusters.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    missing_debug_implementations,
    reason = "each test file uses its part of this"
)]

#[cfg(feature = "dns")]
pub mod dns_server;
pub mod panics;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use xds_health::checker::{Attempt, AttemptIo, Checker, HostChecker, Target};
use xds_health::config::{CheckerConfig, ClusterConfig, Discovery, HealthCheck, TypedConfig};
use xds_health::engine::{Cluster, Engine, Origin};
use xds_health::event::{HealthCheckEvent, HealthCheckerType, Outcome};
use xds_health::feed::EventSink;
use xds_health::host::Host;
use xds_health::registry::Update;
use xds_health::snapshot::HostView;

pub const SECOND: Duration = Duration::from_secs(1);

/// What a scripted host does in an attempt.
#[derive(Clone, Debug)]
pub enum Step {
    /// Ends after so long with an outcome.
    After(Duration, Outcome),
    /// Passes once its sender says `true`.
    Held(watch::Receiver<bool>),
    /// Never ends.
    Silent,
    /// Panics.
    Panic,
}

impl Step {
    pub fn pass() -> Self {
        Self::After(Duration::ZERO, Outcome::SUCCESS)
    }
}

/// A checker whose hosts do as they were told: the steps of their port, the last one over and over.
#[derive(Clone, Debug, Default)]
pub struct Scripted(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    scripts: HashMap<u16, VecDeque<Step>>,
    attempts: HashMap<u16, Vec<Instant>>,
    running: usize,
    most_running: usize,
}

impl Scripted {
    pub fn script(&self, port: u16, steps: impl IntoIterator<Item = Step>) {
        let mut state = self.0.lock().unwrap();
        state.scripts.insert(port, steps.into_iter().collect());
    }

    pub fn attempts(&self, port: u16) -> usize {
        self.began(port).len()
    }

    /// When the attempts at a port began.
    pub fn began(&self, port: u16) -> Vec<Instant> {
        let state = self.0.lock().unwrap();
        state.attempts.get(&port).cloned().unwrap_or_default()
    }

    pub fn running(&self) -> usize {
        self.0.lock().unwrap().running
    }

    pub fn most_running(&self) -> usize {
        self.0.lock().unwrap().most_running
    }
}

struct Guard(Scripted);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.0.lock() {
            state.running -= 1;
        }
    }
}

impl Checker for Scripted {
    fn health_checker_type(&self) -> HealthCheckerType {
        HealthCheckerType::Udp
    }

    fn for_host(&self, target: Target<'_>) -> Box<dyn HostChecker> {
        let address = target.host.checked_at().socket_addr();
        // Hosts without a port share the script of port 0.
        Box::new(ScriptedHost(self.clone(), address.map_or(0, |a| a.port())))
    }
}

struct ScriptedHost(Scripted, u16);

impl HostChecker for ScriptedHost {
    fn attempt<'a>(&'a mut self, io: &'a AttemptIo) -> Attempt<'a> {
        Box::pin(async move {
            let (step, _guard) = {
                let mut state = self.0.0.lock().unwrap();
                let attempts = state.attempts.entry(self.1).or_default();
                attempts.push(Instant::now());
                state.running += 1;
                state.most_running = state.most_running.max(state.running);
                let script = state.scripts.entry(self.1).or_default();
                let step = if script.len() > 1 {
                    script.pop_front()
                } else {
                    script.front().cloned()
                };
                (step.unwrap_or_else(Step::pass), Guard(self.0.clone()))
            };
            io.sent();
            match step {
                Step::After(wait, outcome) => {
                    if !wait.is_zero() {
                        tokio::time::sleep(wait).await;
                    }
                    outcome
                }
                Step::Held(mut released) => {
                    // Released or not, it ends when its test does.
                    let _ = released.wait_for(|released| *released).await;
                    Outcome::SUCCESS
                }
                Step::Silent => std::future::pending().await,
                Step::Panic => panic!("as the script says"),
            }
        })
    }
}

/// Keeps all events.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Mutex<Vec<HealthCheckEvent>>>);

impl Events {
    pub fn take(&self) -> Vec<HealthCheckEvent> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl EventSink for Events {
    fn record(&self, event: &HealthCheckEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// A check of one second's timeout and interval, thresholds of two.
pub fn check() -> HealthCheck {
    let checker = CheckerConfig::Custom(TypedConfig::default());
    let mut check = HealthCheck::new(checker, SECOND, SECOND, 2, 2);
    check.no_traffic_interval = SECOND;
    check.no_traffic_healthy_interval = SECOND;
    check
}

/// A check that is done once: its interval is longer than any test.
pub fn once(name: &str) -> HealthCheck {
    let mut check = HealthCheck::new(
        CheckerConfig::Custom(TypedConfig::default()),
        SECOND * 300,
        SECOND * 600,
        1,
        1,
    );
    check.name = Arc::from(name);
    check.no_traffic_interval = check.interval;
    check.no_traffic_healthy_interval = check.interval;
    check
}

pub fn host(port: u16) -> Arc<Host> {
    Arc::new(Host::new(SocketAddr::from(([127, 0, 0, 1], port))))
}

pub fn hosts(ports: impl IntoIterator<Item = u16>) -> Vec<Arc<Host>> {
    ports.into_iter().map(host).collect()
}

/// A static cluster under one check.
pub fn cluster(name: &str, check: HealthCheck, hosts: Vec<Arc<Host>>) -> ClusterConfig {
    ClusterConfig::new(name, Discovery::Static(hosts)).with_health_check(check)
}

/// Runs a cluster by a checker, its events kept.
pub async fn run(
    engine: &Engine,
    config: ClusterConfig,
    checker: impl Checker + Clone + 'static,
    events: &Events,
) -> Cluster {
    run_as(engine, config, checker, events, Origin::Static).await
}

/// The same, of either origin.
pub async fn run_as(
    engine: &Engine,
    config: ClusterConfig,
    checker: impl Checker + Clone + 'static,
    events: &Events,
    origin: Origin,
) -> Cluster {
    let checks = config.health_checks.len();
    let update = Update::new(
        Arc::new(config),
        (0..checks)
            .map(|_| Arc::new(checker.clone()) as Arc<dyn Checker>)
            .collect(),
        (0..checks)
            .map(|_| vec![Arc::new(events.clone()) as Arc<dyn EventSink>])
            .collect(),
    );
    engine.set_cluster(update, origin).await.unwrap()
}

/// Waits until a cluster's hosts are as wanted.
pub async fn until(cluster: &Cluster, wanted: impl Fn(&[HostView]) -> bool) -> Vec<HostView> {
    let mut changes = cluster.changes();
    loop {
        changes.mark_unchanged();
        let views: Vec<HostView> = cluster.snapshot().hosts().cloned().collect();
        if wanted(&views) {
            return views;
        }
        changes.changed().await.unwrap();
    }
}

/// Waits until every host of a cluster has had its first check.
pub async fn until_initialized(cluster: &Cluster) {
    let mut changes = cluster.changes();
    while !cluster.snapshot().initialized() {
        changes.changed().await.unwrap();
    }
}
