//! Operations on a session and on clusters of them. Attempts never overlap, counters add up, and what was removed
//! is silent.
#![no_main]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libfuzzer_sys::{arbitrary, arbitrary::Arbitrary, fuzz_target};
use xds_health::cluster::{Action, Clusters, SessionId, Share, Update};
use xds_health::config::{CheckerConfig, ClusterConfig, Discovery, HealthCheck, TypedConfig};
use xds_health::event::{Failure, FailureType, Outcome, Reason};
use xds_health::host::{Address, EdsHealth, Host};
use xds_health::session::AttemptId;
use xds_health::stats::{ClusterStats, Counter, Stats};

#[derive(Arbitrary, Debug)]
struct Told {
    port: u8,
    elsewhere: bool,
    health: u8,
    disabled: bool,
}

#[derive(Arbitrary, Debug)]
struct Check {
    named: u8,
    timeout: u16,
    interval: u16,
    jitter: u16,
    percent: u8,
    thresholds: (u8, u8),
    log: bool,
}

#[derive(Arbitrary, Debug)]
enum Op {
    Set {
        checks: Vec<Check>,
        ignore_new: bool,
        ignore_removal: bool,
        renamed: bool,
        hosts: Option<Vec<Told>>,
    },
    Gone,
    Reset(Vec<Told>),
    Upsert(Vec<Told>),
    Remove(Vec<u8>),
    Unavailable,
    Pass(u16),
    Postpone(u16),
    End {
        which: u8,
        how: u8,
    },
    EndAgain(u8),
    Sent(u8),
    SetUnhealthy(u8),
    Traffic,
}

fn address(port: u8) -> Address {
    SocketAddr::from(([127, 0, 0, 1], 1 + u16::from(port % 8))).into()
}

fn hosts(told: &[Told]) -> Vec<Arc<Host>> {
    let host = |told: &Told| {
        let mut host = Host::new(address(told.port));
        if told.elsewhere {
            host = host.with_check_address(address(7));
        }
        host.eds_health = match told.health % 4 {
            0 => EdsHealth::Unknown,
            1 => EdsHealth::Unhealthy,
            2 => EdsHealth::Draining,
            _ => EdsHealth::Degraded,
        };
        host.check_disabled = told.disabled;
        Arc::new(host)
    };
    told.iter().take(8).map(host).collect()
}

fn check(check: &Check) -> HealthCheck {
    let ms = |value: u16| Duration::from_millis(value.into());
    let (unhealthy, healthy) = check.thresholds;
    let checker = CheckerConfig::Custom(TypedConfig::default());
    let mut built = HealthCheck::new(
        checker,
        ms(check.timeout),
        ms(check.interval),
        u32::from(unhealthy % 4),
        u32::from(healthy % 4),
    );
    built.name = ["", "a", "b", "c"][usize::from(check.named % 4)].into();
    built.initial_jitter = ms(check.jitter);
    built.interval_jitter = ms(check.jitter / 2);
    built.interval_jitter_percent = check.percent.into();
    built.no_traffic_interval = ms(check.interval.saturating_mul(2).max(1));
    built.always_log_failures = check.log;
    built.always_log_success = check.log;
    built
}

struct World {
    clusters: Clusters,
    stats: Stats,
    now: Instant,
    last: u32,
    running: Vec<(SessionId, AttemptId)>,
    ended: Vec<(SessionId, AttemptId)>,
    config: Option<(Arc<ClusterConfig>, Arc<ClusterStats>)>,
}

impl World {
    fn update(&mut self, update: Update) {
        self.clusters.handle_update(self.now, update);
    }

    fn act(&mut self) {
        let mut expired = Vec::new();
        loop {
            let Some(action) = self.clusters.poll_action() else {
                let Some((session, attempt)) = expired.pop() else {
                    break;
                };
                self.end(session, attempt, Outcome::timeout(Reason::Silent));
                continue;
            };
            match action {
                Action::Start(session) => {
                    let id = AttemptId(self.last + 1);
                    if self.clusters.start(self.now, session, id).is_some() {
                        self.last += 1;
                        let runs = self.running.iter().any(|(other, _)| *other == session);
                        assert!(!runs, "attempts of a session overlap");
                        self.running.push((session, id));
                    }
                }
                Action::Expire(session, attempt) => expired.push((session, attempt)),
                Action::Cancel(session, attempt) => {
                    let before = self.running.len();
                    self.running.retain(|r| *r != (session, attempt));
                    assert_eq!(self.running.len(), before - 1, "what is cancelled ran");
                }
                Action::Forget(session) => {
                    assert!(self.running.iter().all(|(other, _)| *other != session));
                }
                Action::Event(notice) => {
                    assert!(
                        self.config.is_some(),
                        "an event of a cluster that went: {notice:?}"
                    );
                }
                _ => (),
            }
        }
        while self.clusters.poll_part().is_some() {}
    }

    fn end(&mut self, session: SessionId, attempt: AttemptId, outcome: Outcome) {
        self.running.retain(|r| *r != (session, attempt));
        self.clusters
            .handle_outcome(self.now, session, attempt, outcome, None);
    }

    fn check(&self) {
        let sessions: HashSet<_> = self.running.iter().map(|(session, _)| session).collect();
        assert_eq!(sessions.len(), self.running.len());
        assert!(self.clusters.sessions() >= self.running.len());
        let Some((config, stats)) = &self.config else {
            assert_eq!(self.clusters.sessions(), 0);
            return;
        };
        let mut names: Vec<_> = config.health_checks.iter().map(|c| &c.name).collect();
        names.sort();
        names.dedup();
        let mut running = 0;
        for name in names {
            let check = stats.check(name);
            let ended = [&check.success, &check.failure, &check.cancelled];
            let ended: u64 = ended.into_iter().map(Counter::value).sum();
            running += check.attempt.value() - ended;
        }
        assert_eq!(running, self.running.len() as u64);
    }
}

fuzz_target!(|ops: Vec<Op>| {
    let now = Instant::now();
    let mut world = World {
        clusters: Clusters::new(now, Share::ALL, 1),
        stats: Stats::default(),
        now,
        last: 0,
        running: Vec::new(),
        ended: Vec::new(),
        config: None,
    };
    for op in ops.iter().take(256) {
        match op {
            Op::Set {
                checks,
                ignore_new,
                ignore_removal,
                renamed,
                hosts: told,
            } => {
                let discovery = told
                    .as_ref()
                    .map_or(Discovery::Dynamic, |told| Discovery::Static(hosts(told)));
                let mut config = ClusterConfig::new("c", discovery);
                config.ignore_new_hosts_until_first_hc = *ignore_new;
                config.ignore_health_on_host_removal = *ignore_removal;
                config.alt_stat_name = renamed.then(|| "other".into());
                config.health_checks = checks.iter().take(8).map(|c| Arc::new(check(c))).collect();
                let config = Arc::new(config);
                let stats = world.stats.cluster(config.key(), config.stat_name());
                world.config = Some((Arc::clone(&config), Arc::clone(&stats)));
                world.update(Update::Cluster {
                    config,
                    stats,
                    traffic: false,
                });
            }
            Op::Gone => {
                world.config = None;
                world.stats.remove_cluster("c");
                world.update(Update::RemoveCluster("c".into()));
            }
            Op::Reset(told) => world.update(Update::Reset {
                cluster: "c".into(),
                hosts: hosts(told).into(),
            }),
            Op::Upsert(told) => world.update(Update::Upsert {
                cluster: "c".into(),
                hosts: hosts(told).into(),
            }),
            Op::Remove(ports) => world.update(Update::Remove {
                cluster: "c".into(),
                addresses: ports.iter().map(|port| address(*port)).collect(),
            }),
            Op::Unavailable => world.update(Update::HostsUnavailable("c".into())),
            Op::Pass(ms) => {
                world.now += Duration::from_millis((*ms).into());
                world.clusters.handle_timeout(world.now);
            }
            Op::Postpone(ms) => world.clusters.postpone(Duration::from_millis((*ms).into())),
            Op::End { which, how } => {
                let count = world.running.len();
                if count > 0 {
                    let (session, attempt) = world.running[usize::from(*which) % count];
                    world.ended.push((session, attempt));
                    let failure = |kind| Failure::new(kind, Reason::Refused);
                    let outcome = match how % 5 {
                        0 | 1 => Outcome::Success {
                            degraded: *how > 128,
                        },
                        2 => Outcome::Failure(failure(FailureType::Network)),
                        3 => Outcome::Failure(failure(FailureType::NetworkTimeout)),
                        _ => Outcome::Failure(failure(FailureType::Active)),
                    };
                    world.end(session, attempt, outcome);
                }
            }
            Op::EndAgain(which) => {
                let count = world.ended.len();
                if count > 0 {
                    let (session, attempt) = world.ended[usize::from(*which) % count];
                    world.end(session, attempt, Outcome::SUCCESS);
                }
            }
            Op::Sent(which) => {
                let count = world.running.len();
                if count > 0 {
                    let (session, attempt) = world.running[usize::from(*which) % count];
                    world.clusters.handle_sent(world.now, session, attempt);
                }
            }
            Op::SetUnhealthy(port) => {
                if let Some(id) = world.clusters.id("c") {
                    world.clusters.set_unhealthy(world.now, id, &address(*port));
                }
            }
            Op::Traffic => {
                if let Some(id) = world.clusters.id("c") {
                    world.clusters.note_traffic(world.now, id);
                }
            }
        }
        world.act();
        world.check();
    }
});
