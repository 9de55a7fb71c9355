//! Random updates, outcomes and times: what must hold whatever comes.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Set(&'static str, Shape),
    RemoveCluster(&'static str),
    Reset(&'static str, Vec<Told>),
    Upsert(&'static str, Vec<Told>),
    Remove(&'static str, Vec<u16>),
    Unavailable(&'static str),
    Pass(u32),
    /// One of the attempts that run ends so.
    End(prop::sample::Index, char),
    /// One that has ended before ends again.
    EndAgain(prop::sample::Index),
    Sent(prop::sample::Index),
    SetUnhealthy(&'static str, u16),
    Traffic(&'static str),
}

/// A cluster: its checks, each in one of two forms, and what else there is.
#[derive(Clone, Debug)]
struct Shape {
    checks: Vec<(&'static str, bool)>,
    hosts: Option<Vec<Told>>,
    ignore_new: bool,
    ignore_removal: bool,
    alt_stat_name: bool,
}

#[derive(Clone, Debug)]
struct Told {
    port: u16,
    check_port: Option<u16>,
    eds_health: EdsHealth,
    disabled: bool,
    weight: u32,
}

impl Told {
    fn host(&self) -> Host {
        let mut told = host(self.port)
            .with_eds_health(self.eds_health)
            .with_weight(self.weight);
        told.check_disabled = self.disabled;
        match self.check_port {
            Some(port) => told.with_check_address(address(port)),
            None => told,
        }
    }
}

impl Shape {
    fn config(&self, name: &str) -> ClusterConfig {
        let discovery = self.hosts.as_ref().map_or(Discovery::Dynamic, |hosts| {
            Discovery::Static(hosts.iter().map(|told| Arc::new(told.host())).collect())
        });
        let config = ClusterConfig {
            ignore_new_hosts_until_first_hc: self.ignore_new,
            ignore_health_on_host_removal: self.ignore_removal,
            alt_stat_name: self.alt_stat_name.then(|| format!("{name}_alt").into()),
            ..ClusterConfig::new(name, discovery)
        };
        let checks = self.checks.iter().map(|(name, other)| HealthCheck {
            unhealthy_threshold: if *other { 1 } else { 2 },
            initial_jitter: if *other { 50 * MS } else { Duration::ZERO },
            interval_jitter: 30 * MS,
            always_log_failures: *other,
            ..check(name)
        });
        checks.fold(config, ClusterConfig::with_health_check)
    }
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["c", "c", "d"])
}

fn told() -> impl Strategy<Value = Told> {
    let health = prop::sample::select(vec![
        EdsHealth::Unknown,
        EdsHealth::Unknown,
        EdsHealth::Unhealthy,
        EdsHealth::Draining,
        EdsHealth::Degraded,
    ]);
    let check_port = prop::option::weighted(0.2, 90..92_u16);
    let disabled = prop::bool::weighted(0.1);
    (1..7_u16, check_port, health, disabled, 1..3_u32).prop_map(
        |(port, check_port, eds_health, disabled, weight)| Told {
            port,
            check_port,
            eds_health,
            disabled,
            weight,
        },
    )
}

fn hosts() -> impl Strategy<Value = Vec<Told>> {
    prop::collection::vec(told(), 0..6)
}

fn shape() -> impl Strategy<Value = Shape> {
    let checks = prop::sample::select(vec![
        vec![],
        vec![""],
        vec![""],
        vec!["a"],
        vec!["a", "b"],
        vec!["b", "a"],
        vec!["a", "b", "x"],
        vec!["", ""],
    ]);
    let others = prop::array::uniform3(any::<bool>());
    let flags = prop::array::uniform3(prop::bool::weighted(0.2));
    let hosts = prop::option::weighted(0.3, hosts());
    (checks, others, hosts, flags).prop_map(|(checks, others, hosts, flags)| Shape {
        checks: checks.into_iter().zip(others).collect(),
        hosts,
        ignore_new: flags[0],
        ignore_removal: flags[1],
        alt_stat_name: flags[2],
    })
}

fn step() -> impl Strategy<Value = Step> {
    let letters = prop::sample::select(vec!['S', 'S', 'S', 'D', 'R', 'T', 'A']);
    prop_oneof![
        2 => (name(), shape()).prop_map(|(name, shape)| Step::Set(name, shape)),
        1 => name().prop_map(Step::RemoveCluster),
        2 => (name(), hosts()).prop_map(|(name, hosts)| Step::Reset(name, hosts)),
        3 => (name(), hosts()).prop_map(|(name, hosts)| Step::Upsert(name, hosts)),
        2 => (name(), prop::collection::vec(1..7_u16, 0..4))
            .prop_map(|(name, ports)| Step::Remove(name, ports)),
        1 => name().prop_map(Step::Unavailable),
        6 => (0..700_u32).prop_map(Step::Pass),
        20 => (any::<prop::sample::Index>(), letters).prop_map(|(at, letter)| Step::End(at, letter)),
        1 => any::<prop::sample::Index>().prop_map(Step::EndAgain),
        1 => any::<prop::sample::Index>().prop_map(Step::Sent),
        1 => (name(), 1..7_u16).prop_map(|(name, port)| Step::SetUnhealthy(name, port)),
        1 => name().prop_map(Step::Traffic),
    ]
}

fn outcome(letter: char) -> Outcome {
    match letter {
        'S' => Outcome::SUCCESS,
        'D' => Outcome::Success { degraded: true },
        'R' => refused(),
        'T' => Outcome::timeout(Reason::Silent),
        _ => Outcome::Failure(Failure {
            immediate: true,
            ..Failure::new(FailureType::Active, Reason::Unhealthy)
        }),
    }
}

/// A world, and what has to be known beside it.
struct Model {
    world: World,
    ended: Vec<(SessionId, AttemptId)>,
}

impl Model {
    fn take(&mut self, step: Step) {
        let world = &mut self.world;
        match step {
            Step::Set(name, shape) => world.set(shape.config(name)),
            Step::RemoveCluster(name) => {
                let id = world.clusters.id(name);
                let stats = id.map(|id| Arc::clone(&world.clusters.clusters[id.index()].stats));
                world.update(Update::RemoveCluster(name.into()));
                if let Some(stats) = stats {
                    assert_all_zero(&stats);
                    world.stats.remove_cluster(name);
                }
            }
            Step::Reset(name, told) => world.update(Update::Reset {
                cluster: name.into(),
                hosts: told.iter().map(|told| Arc::new(told.host())).collect(),
            }),
            Step::Upsert(name, told) => world.update(Update::Upsert {
                cluster: name.into(),
                hosts: told.iter().map(|told| Arc::new(told.host())).collect(),
            }),
            Step::Remove(name, ports) => world.update(Update::Remove {
                cluster: name.into(),
                addresses: ports.into_iter().map(address).collect(),
            }),
            Step::Unavailable(name) => world.update(Update::HostsUnavailable(name.into())),
            Step::Pass(millis) => world.pass(millis * MS),
            Step::End(at, letter) => {
                if world.running.is_empty() {
                    return;
                }
                let Running { session, id, .. } = *at.get(&world.running);
                self.ended.push((session, id));
                world.end(session, id, outcome(letter));
            }
            Step::EndAgain(at) => {
                if self.ended.is_empty() {
                    return;
                }
                let (session, id) = *at.get(&self.ended);
                let before = world.cluster_counts();
                world.end(session, id, Outcome::SUCCESS);
                assert_eq!(world.cluster_counts(), before);
            }
            Step::Sent(at) => {
                if world.running.is_empty() {
                    return;
                }
                let Running { session, id, .. } = *at.get(&world.running);
                world.clusters.handle_sent(world.now, session, id);
                world.act();
            }
            Step::SetUnhealthy(name, port) => {
                if let Some(cluster) = world.clusters.id(name) {
                    let clusters = &mut world.clusters;
                    clusters.set_unhealthy(world.now, cluster, &address(port));
                    world.act();
                }
            }
            Step::Traffic(name) => {
                if let Some(cluster) = world.clusters.id(name) {
                    world.clusters.note_traffic(world.now, cluster);
                }
            }
        }
    }

    /// The hosts that are there, by cluster and identity.
    fn present(&self) -> HashSet<(u32, *const Host)> {
        let clusters = self.world.clusters.clusters.iter();
        let views = clusters.flat_map(|(key, cluster)| {
            let views = cluster.part.hosts.iter();
            views.map(move |view| (u32::try_from(key).unwrap(), Arc::as_ptr(&view.host)))
        });
        views.collect()
    }
}

impl World {
    /// Attempts that have ended, under any check.
    fn cluster_counts(&self) -> u64 {
        let clusters = self.clusters.clusters.iter();
        let checks = clusters.flat_map(|(_, cluster)| &cluster.checks);
        let ended = checks.map(|check| check.stats.success.value() + check.stats.failure.value());
        ended.sum()
    }
}

fn assert_all_zero(stats: &ClusterStats) {
    let membership = &stats.membership;
    let mut gauges = vec![
        membership.total.value(),
        membership.healthy.value(),
        membership.degraded.value(),
        membership.excluded.value(),
        stats.healthy.value(),
        stats.degraded.value(),
    ];
    for name in ["", "a", "b", "x"] {
        let check = stats.check(&name.into());
        gauges.extend([check.healthy.value(), check.degraded.value()]);
        let ended = [&check.success, &check.failure, &check.cancelled];
        let ended: u64 = ended.into_iter().map(Counter::value).sum();
        assert_eq!(check.attempt.value(), ended);
    }
    assert!(gauges.iter().all(|gauge| *gauge == 0), "{gauges:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Each step ends with [`World::assert_consistent`].
    #[test]
    fn any_sequence_of_updates_and_outcomes_leaves_clusters_consistent(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut model = Model { world: World::new(), ended: Vec::new() };
        for step in steps {
            let before = model.present();
            // What comes in a step is not told of in it: its first attempt has yet to end.
            model.take(step);
            for event in std::mem::take(&mut model.world.events) {
                let host = (event.cluster.0, Arc::as_ptr(&event.host));
                prop_assert!(before.contains(&host), "an event of a host that is gone: {event:?}");
            }
        }

        // Once hosts are told and attempts end, every cluster is initialized.
        let names: Vec<_> = model.world.clusters.names.keys().cloned().collect();
        for name in &names {
            model.world.update(Update::HostsUnavailable(Arc::clone(name)));
        }
        for _ in 0..3 {
            model.world.pass(INTERVAL + 100 * MS);
            model.world.end_all(&Outcome::SUCCESS);
        }
        for (_, cluster) in &model.world.clusters.clusters {
            prop_assert!(cluster.part.initialized);
        }
        for name in names {
            model.take(Step::RemoveCluster(if &*name == "c" { "c" } else { "d" }));
        }
        prop_assert_eq!(model.world.clusters.sessions(), 0);
        prop_assert_eq!(model.world.running.len(), 0);
        prop_assert_eq!(model.world.clusters.poll_timeout(), None);
    }
}
