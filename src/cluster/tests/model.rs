//! Random edits, outcomes and times against a plain oracle: what must hold whatever comes.
//!
//! Each seed is a list of steps. After each step all that can be seen is compared with what an [`Oracle`] says:
//! flags, sessions, counters, gauges, events. When a seed fails, the shortest list of steps that still fails is
//! printed. `XDS_HEALTH_MODEL_STEPS` asks for more steps than the million that are taken otherwise, and
//! `XDS_HEALTH_MODEL_SEED` for other ones.

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use super::oracle::{Counts, Oracle, Phase, Steps, Told as ToldEvent, Window};
use super::*;

/// Steps of one seed: enough for every slot to be used often.
const LENGTH: usize = 2_000;
/// How long a failing list of steps is cut down.
const ENOUGH: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
enum Step {
    Set(&'static str, Shape),
    RemoveCluster(&'static str),
    Reset(&'static str, Vec<Told>),
    /// So many hosts at a time, with time and outcomes between.
    ResetInSteps(&'static str, Vec<Told>, usize),
    Upsert(&'static str, Vec<Told>),
    Remove(&'static str, Vec<u16>),
    Unavailable(&'static str),
    Pass(u32),
    Postpone(u32),
    /// The attempt of this number, of those that run, ends so.
    End(usize, char),
    /// One that has ended before ends again.
    EndAgain(usize),
    Sent(usize),
    SetUnhealthy(&'static str, u16),
    Traffic(&'static str),
    /// So many attempts may run.
    Room(usize),
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
    priority: u8,
}

impl Told {
    fn random(random: &mut fastrand::Rng) -> Self {
        let health = [
            EdsHealth::Unknown,
            EdsHealth::Unknown,
            EdsHealth::Healthy,
            EdsHealth::Unhealthy,
            EdsHealth::Draining,
            EdsHealth::Degraded,
        ];
        Self {
            port: random.u16(1..9),
            check_port: (random.u8(0..5) == 0).then(|| random.u16(90..92)),
            eds_health: health[random.usize(0..health.len())],
            disabled: random.u8(0..10) == 0,
            weight: random.u32(1..3),
            priority: random.u8(0..2),
        }
    }

    fn host(&self) -> Arc<Host> {
        let mut told = host(self.port)
            .with_eds_health(self.eds_health)
            .with_weight(self.weight)
            .with_priority(self.priority);
        told.check_disabled = self.disabled;
        Arc::new(match self.check_port {
            Some(port) => told.with_check_address(address(port)),
            None => told,
        })
    }
}

impl Shape {
    fn random(random: &mut fastrand::Rng) -> Self {
        let names: [&[&str]; 9] = [
            &[],
            &[""],
            &[""],
            &["a"],
            &["a", "b"],
            &["b", "a"],
            &["a", "b", "x"],
            &["x", "a", "b"],
            &["", ""],
        ];
        let names = names[random.usize(0..names.len())];
        let one_of_five = |random: &mut fastrand::Rng| random.u8(0..5) == 0;
        Self {
            checks: names.iter().map(|name| (*name, random.bool())).collect(),
            hosts: (random.u8(0..3) == 0).then(|| some_hosts(random)),
            ignore_new: one_of_five(random),
            ignore_removal: one_of_five(random),
            alt_stat_name: one_of_five(random),
        }
    }

    fn config(&self, name: &str) -> ClusterConfig {
        let discovery = self.hosts.as_ref().map_or(Discovery::Dynamic, |told| {
            Discovery::Static(told.iter().map(Told::host).collect())
        });
        let config = ClusterConfig {
            ignore_new_hosts_until_first_hc: self.ignore_new,
            ignore_health_on_host_removal: self.ignore_removal,
            alt_stat_name: self.alt_stat_name.then(|| format!("{name}_alt").into()),
            ..ClusterConfig::new(name, discovery)
        };
        let checks = self.checks.iter().map(|(name, other)| HealthCheck {
            unhealthy_threshold: if *other { 1 } else { 3 },
            healthy_threshold: if *other { 2 } else { 1 },
            initial_jitter: if *other { 50 * MS } else { Duration::ZERO },
            interval_jitter: if *other { 30 * MS } else { Duration::ZERO },
            interval_jitter_percent: if *other { 20 } else { 0 },
            unhealthy_interval: 400 * MS,
            unhealthy_edge_interval: 300 * MS,
            healthy_edge_interval: 200 * MS,
            no_traffic_interval: 700 * MS,
            no_traffic_healthy_interval: 450 * MS,
            always_log_failures: *other,
            always_log_success: !*other,
            ..check(name)
        });
        checks.fold(config, ClusterConfig::with_health_check)
    }
}

fn some_hosts(random: &mut fastrand::Rng) -> Vec<Told> {
    let count = random.usize(0..7);
    (0..count).map(|_| Told::random(random)).collect()
}

impl Step {
    fn random(random: &mut fastrand::Rng) -> Self {
        let name = ["c", "c", "d"][random.usize(0..3)];
        match random.u8(0..50) {
            0..=2 => Self::Set(name, Shape::random(random)),
            3 if random.u8(0..4) == 0 => Self::RemoveCluster(name),
            3..=5 => Self::Reset(name, some_hosts(random)),
            6 => Self::ResetInSteps(name, some_hosts(random), random.usize(1..4)),
            7..=9 => Self::Upsert(name, some_hosts(random)),
            10 | 11 => {
                let count = random.usize(0..4);
                Self::Remove(name, (0..count).map(|_| random.u16(1..9)).collect())
            }
            12 => Self::Unavailable(name),
            13..=22 => Self::Pass(random.u32(0..700)),
            23 => Self::Postpone(random.u32(0..2_000)),
            24 => Self::EndAgain(random.usize(..)),
            25 => Self::Sent(random.usize(..)),
            26 => Self::SetUnhealthy(name, random.u16(1..9)),
            27 => Self::Traffic(name),
            28 => Self::Room(if random.bool() {
                usize::MAX
            } else {
                random.usize(0..6)
            }),
            _ => {
                let letters = ['S', 'S', 'S', 'D', 'R', 'T', 'A'];
                Self::End(random.usize(..), letters[random.usize(0..letters.len())])
            }
        }
    }

    /// Simpler forms of the same step.
    fn simpler(&self) -> Vec<Self> {
        let without = |told: &[Told]| -> Vec<Vec<Told>> {
            let shorter = (0..told.len()).map(|at| {
                let mut told = told.to_vec();
                told.remove(at);
                told
            });
            shorter.collect()
        };
        match self {
            Self::Set(name, shape) => {
                let mut simpler = vec![Shape {
                    ignore_new: false,
                    ignore_removal: false,
                    alt_stat_name: false,
                    ..shape.clone()
                }];
                for hosts in shape.hosts.iter().flat_map(|told| without(told)) {
                    simpler.push(Shape {
                        hosts: Some(hosts),
                        ..shape.clone()
                    });
                }
                simpler
                    .into_iter()
                    .map(|shape| Self::Set(name, shape))
                    .collect()
            }
            Self::Reset(name, told) => without(told)
                .into_iter()
                .map(|t| Self::Reset(name, t))
                .collect(),
            Self::Upsert(name, told) => without(told)
                .into_iter()
                .map(|t| Self::Upsert(name, t))
                .collect(),
            Self::ResetInSteps(name, told, at) => {
                let shorter = without(told).into_iter();
                shorter.map(|t| Self::ResetInSteps(name, t, *at)).collect()
            }
            _ => Vec::new(),
        }
    }
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

/// Clusters under a driver, and the oracle beside them.
struct Model {
    world: World,
    oracle: Oracle,
    room: usize,
    /// Sessions whose attempt is due and has no room.
    waiting: VecDeque<SessionId>,
    ended: Vec<(SessionId, AttemptId)>,
}

impl Model {
    fn new(share: Share) -> Self {
        Self {
            world: World::of(share),
            oracle: Oracle::default(),
            room: usize::MAX,
            waiting: VecDeque::new(),
            ended: Vec::new(),
        }
    }

    fn run(share: Share, steps: &[Step]) {
        let mut model = Self::new(share);
        for step in steps {
            model.take(step);
            model.compare();
        }
        model.finish();
    }

    fn mine(&self, told: &[Told]) -> (Arc<[Arc<Host>]>, Vec<Arc<Host>>) {
        let all: Arc<[Arc<Host>]> = told.iter().map(Told::host).collect();
        let share = self.world.clusters.share;
        let mine = all.iter().filter(|host| share.takes(&host.address));
        (Arc::clone(&all), mine.cloned().collect())
    }

    fn update(&mut self, update: Update, changed: bool) {
        let told = self.world.clusters.handle_update(self.world.now, update);
        assert_eq!(told, changed, "whether hosts came or went");
        self.act();
    }

    fn take(&mut self, step: &Step) {
        let now = self.world.now;
        match step {
            Step::Set(name, shape) => {
                let config = Arc::new(shape.config(name));
                let share = self.world.clusters.share;
                let mut mine = (*config).clone();
                if let Discovery::Static(hosts) = &config.discovery {
                    let hosts = hosts.iter().filter(|host| share.takes(&host.address));
                    mine.discovery = Discovery::Static(hosts.cloned().collect());
                }
                let changed = self.oracle.set(now, &Arc::new(mine));
                let stats = self.world.stats.cluster(config.key(), config.stat_name());
                let update = Update::Cluster {
                    config,
                    stats,
                    traffic: false,
                };
                self.update(update, changed);
            }
            Step::RemoveCluster(name) => {
                let id = self.world.clusters.id(name);
                let clusters = &self.world.clusters.clusters;
                let stats = id.map(|id| Arc::clone(&clusters[id.index()].stats));
                self.oracle.clusters.remove(*name);
                self.update(Update::RemoveCluster((*name).into()), false);
                if let Some(stats) = stats {
                    assert_all_zero(&stats);
                    self.world.stats.remove_cluster(name);
                }
            }
            Step::Reset(name, told) => {
                let (hosts, mine) = self.mine(told);
                let changed = self.oracle.reset(now, name, &mine);
                let cluster = (*name).into();
                self.update(Update::Reset { cluster, hosts }, changed);
            }
            Step::ResetInSteps(name, told, at) => self.reset_in_steps(name, told, *at),
            Step::Upsert(name, told) => {
                let (hosts, mine) = self.mine(told);
                let changed = self.oracle.upsert(now, name, &mine);
                let cluster = (*name).into();
                self.update(Update::Upsert { cluster, hosts }, changed);
            }
            Step::Remove(name, ports) => {
                let addresses: Arc<[Address]> = ports.iter().map(|port| address(*port)).collect();
                let changed = self.oracle.remove(name, &addresses);
                let cluster = (*name).into();
                self.update(Update::Remove { cluster, addresses }, changed);
            }
            Step::Unavailable(name) => {
                self.oracle.unavailable(name);
                self.update(Update::HostsUnavailable((*name).into()), false);
            }
            Step::Pass(millis) => self.pass(*millis * MS),
            Step::Postpone(millis) => {
                self.oracle.postpone(*millis * MS);
                self.world.clusters.postpone(*millis * MS);
            }
            Step::End(at, letter) => {
                if let Some((session, id)) = self.running(*at) {
                    self.end(session, id, outcome(*letter));
                }
            }
            Step::EndAgain(at) => {
                if !self.ended.is_empty() {
                    let (session, id) = self.ended[at % self.ended.len()];
                    self.end(session, id, Outcome::SUCCESS);
                }
            }
            Step::Sent(at) => {
                if let Some((session, id)) = self.running(*at) {
                    let place = self.place(session).unwrap();
                    self.oracle.sent(now, (&place.0, place.1, place.2), id);
                    self.world.clusters.handle_sent(now, session, id);
                }
            }
            Step::SetUnhealthy(name, port) => {
                if let Some(cluster) = self.world.clusters.id(name) {
                    self.oracle.set_unhealthy(name, &address(*port));
                    let clusters = &mut self.world.clusters;
                    clusters.set_unhealthy(now, cluster, &address(*port));
                }
            }
            Step::Traffic(name) => {
                self.oracle.traffic(now, name);
                if let Some(cluster) = self.world.clusters.id(name) {
                    self.world.clusters.note_traffic(now, cluster);
                }
            }
            Step::Room(room) => self.room = *room,
        }
        self.act();
    }

    fn reset_in_steps(&mut self, name: &str, told: &[Told], at: usize) {
        let (hosts, _) = self.mine(told);
        // Its own share is left to the steps, which are counted over all that are told.
        let share = self.world.clusters.share;
        let Some(mut steps) = self.oracle.begin(name, &hosts) else {
            return;
        };
        let mut reset = self.world.begin_reset(name, hosts);
        for turn in 0_u32.. {
            let now = self.world.now;
            let done = self.world.clusters.continue_reset(now, &mut reset, at);
            let expected = self.step(share, &mut steps, at);
            assert_eq!(done, expected, "how far the reset is");
            self.act();
            if done.is_some() {
                return;
            }
            self.pass(turn % 3 * 20 * MS);
            if let Some((session, id)) = self.running(turn as usize) {
                self.end(session, id, outcome(['T', 'S'][turn as usize % 2]));
            }
        }
    }

    fn step(&mut self, share: Share, steps: &mut Steps, at: usize) -> Option<bool> {
        self.oracle
            .step(self.world.now, steps, at, |host| share.takes(&host.address))
    }

    fn running(&self, at: usize) -> Option<(SessionId, AttemptId)> {
        let running = &self.world.running;
        let Running { session, id, .. } = running.get(at % running.len().max(1))?;
        Some((*session, *id))
    }

    /// Where a session is, if there is one.
    fn place(&self, id: SessionId) -> Option<(Arc<str>, usize, usize)> {
        let clusters = &self.world.clusters;
        let slot = clusters.sessions.get(id.index())?;
        let cluster = &clusters.clusters[slot.cluster.index()];
        let name = Arc::clone(cluster.config.key());
        Some((name, slot.host as usize, usize::from(slot.check)))
    }

    fn end(&mut self, session: SessionId, id: AttemptId, outcome: Outcome) {
        if let Some((name, slot, check)) = self.place(session) {
            let at = (&*name, slot, check);
            self.oracle.ended(self.world.now, at, id, &outcome);
        }
        if self.ended.len() > 64 {
            self.ended.clear();
        }
        self.ended.push((session, id));
        self.world.tell(session, id, outcome);
        self.act();
    }

    fn pass(&mut self, time: Duration) {
        let target = self.world.now + time;
        while let Some(next) = self.world.clusters.poll_timeout()
            && next <= target
        {
            self.world.now = self.world.now.max(next);
            self.world.clusters.handle_timeout(self.world.now);
            self.act();
        }
        self.world.now = target;
        self.world.clusters.handle_timeout(target);
        self.act();
    }

    /// Does what is to be done, as far as there is room.
    fn act(&mut self) {
        let mut expired = Vec::new();
        loop {
            let Some(action) = self.world.clusters.poll_action() else {
                let Some((session, id)) = expired.pop() else {
                    break;
                };
                self.end(session, id, Outcome::timeout(Reason::Silent));
                continue;
            };
            let world = &mut self.world;
            match action {
                Action::Start(session) => {
                    // Told twice where one that began was replaced by another within an update.
                    if !self.waiting.contains(&session) {
                        let (name, slot, check) = self.place(session).unwrap();
                        self.oracle.due(self.world.now, (&name, slot, check));
                        self.waiting.push_back(session);
                    }
                }
                Action::Expire(session, id) => expired.push((session, id)),
                Action::Cancel(session, id) => {
                    let before = world.running.len();
                    world.running.retain(|r| (r.session, r.id) != (session, id));
                    assert_eq!(world.running.len(), before - 1, "what is cancelled ran");
                }
                Action::Forget(session) => {
                    let runs = world.running.iter().any(|r| r.session == session);
                    assert!(!runs, "what is forgotten does not run");
                    self.waiting.retain(|waiting| *waiting != session);
                }
                Action::Event(notice) => world.events.push(notice),
            }
        }
        while self.world.running.len() < self.room
            && let Some(session) = self.waiting.pop_front()
        {
            let before = self.world.running.len();
            self.world.start(session);
            assert_eq!(self.world.running.len(), before + 1, "what is due begins");
            let id = AttemptId(self.world.last_attempt);
            let (name, slot, check) = self.place(session).unwrap();
            self.oracle
                .started(self.world.now, (&name, slot, check), id);
        }
        while let Some((id, part)) = self.world.clusters.poll_part() {
            self.world.parts.insert(id.0, part);
        }
    }

    /// All that can be seen is as the oracle says.
    fn compare(&mut self) {
        self.world.assert_consistent();
        let (world, oracle) = (&mut self.world, &mut self.oracle);
        let told = world.events.drain(..).map(|notice| -> ToldEvent {
            let port = notice.host.address.socket_addr().unwrap().port();
            (notice.name, notice.check, port, notice.kind)
        });
        assert_eq!(told.collect::<Vec<_>>(), std::mem::take(&mut oracle.events));
        let clusters = &world.clusters;
        let names: BTreeSet<_> = clusters.names.keys().cloned().collect();
        assert!(names.iter().eq(oracle.clusters.keys()), "{names:?}");
        for (name, expected) in &oracle.clusters {
            let id = clusters.id(name).unwrap();
            let (cluster, part) = (&clusters.clusters[id.index()], &world.parts[&id.0]);
            assert_eq!(part.initialized, expected.initialized, "{name} initialized");
            let there = expected.hosts.iter().flatten().count();
            assert_eq!(part.hosts.len(), there, "hosts of {name}");
            for (slot, host) in expected.hosts.iter().enumerate() {
                let view = part.hosts.get(slot);
                assert_eq!(view.is_some(), host.is_some(), "{name}, slot {slot}");
                let (Some(view), Some(host)) = (view, host) else {
                    continue;
                };
                let at = &host.host.address;
                assert_eq!(*view.host, *host.host);
                assert_eq!(view.flags, host.flags(), "{name} {at}");
                assert_eq!(view.reason.as_deref(), host.reason.as_ref(), "{name} {at}");
                let mut next = cluster.members.session(u32::try_from(slot).unwrap());
                for expected in &host.sessions {
                    let found = &clusters.sessions[next.unwrap().index()];
                    next = found.next;
                    let session = &found.session;
                    let verdict = (session.failed(), session.degraded(), session.timed_out());
                    let wanted = (expected.failed, expected.degraded, expected.timed_out);
                    assert_eq!(verdict, wanted, "{name} {at}");
                    let known = (session.first_check(), session.known(), session.counts());
                    let counts = (expected.successes, expected.failures);
                    assert_eq!(
                        known,
                        (expected.first, expected.known, counts),
                        "{name} {at}"
                    );
                    let (runs, due) = (session.attempting(), session.poll_timeout());
                    let fits = match &expected.phase {
                        Phase::Waiting(Window(earliest, latest)) => due.is_some_and(|due| {
                            runs.is_none()
                                && (*earliest..=*latest).contains(&due)
                                && due + MS > world.now
                        }),
                        Phase::Queued => runs.is_none() && due.is_none(),
                        Phase::Attempting(id, deadline) => {
                            runs == Some(*id) && due == Some(*deadline)
                        }
                    };
                    assert!(fits, "{name} {at}: {session:?} is not {:?}", expected.phase);
                }
                assert_eq!(next, None);
            }
            let membership = &cluster.stats.membership;
            assert_eq!(membership.change.value(), expected.change, "{name}");
            for check in &cluster.config.health_checks {
                let stats = cluster.stats.check(&check.name);
                let counts = expected
                    .counts
                    .get(&check.name)
                    .cloned()
                    .unwrap_or_default();
                let found = Counts {
                    attempt: stats.attempt.value(),
                    success: stats.success.value(),
                    failure: stats.failure.value(),
                    network: stats.network_failure.value(),
                    passive: stats.passive_failure.value(),
                    cancelled: stats.cancelled.value(),
                    reasons: std::array::from_fn(|at| stats.reasons[at].value()),
                };
                assert_eq!(found, counts, "{name}, check {:?}", check.name);
            }
        }
    }

    /// Once hosts are told and attempts end, every cluster is initialized; once clusters go, nothing is left.
    fn finish(mut self) {
        self.take(&Step::Room(usize::MAX));
        for name in ["c", "d"] {
            self.take(&Step::Unavailable(name));
        }
        for _ in 0..3 {
            self.pass(1_000 * MS);
            while let Some((session, id)) = self.running(0) {
                self.end(session, id, Outcome::SUCCESS);
            }
        }
        self.compare();
        for (_, cluster) in &self.world.clusters.clusters {
            assert!(cluster.part.initialized);
        }
        for name in ["c", "d"] {
            self.take(&Step::RemoveCluster(name));
        }
        assert_eq!(self.world.clusters.sessions(), 0);
        assert_eq!(self.world.running.len(), 0);
        assert!(self.waiting.is_empty());
        assert_eq!(self.world.clusters.poll_timeout(), None);
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

thread_local! {
    static QUIET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Panics that are caught are many, and each would print itself.
fn hush() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                loud(panic);
            }
        }));
    });
}

/// What a list of steps fails by, if it does.
fn fault(run: &dyn Fn(&[Step]), steps: &[Step]) -> Option<String> {
    hush();
    QUIET.set(true);
    let caught = catch_unwind(AssertUnwindSafe(|| run(steps)));
    QUIET.set(false);
    let panic = caught.err()?;
    let text = panic.downcast_ref::<String>().cloned();
    Some(text.unwrap_or_else(|| {
        panic
            .downcast_ref::<&str>()
            .copied()
            .unwrap_or("?")
            .to_owned()
    }))
}

/// The shortest list found that still fails: without parts, then without steps, then with simpler steps.
fn shrunk(run: &dyn Fn(&[Step]), mut steps: Vec<Step>) -> Vec<Step> {
    let began = Instant::now();
    let fails = |steps: &[Step]| began.elapsed() < ENOUGH && fault(run, steps).is_some();
    // What comes after the first failure is of no use.
    let (mut good, mut bad) = (0, steps.len());
    while good + 1 < bad {
        let middle = good.midpoint(bad);
        if fails(&steps[..middle]) {
            bad = middle;
        } else {
            good = middle;
        }
    }
    steps.truncate(bad);
    let mut size = steps.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + size).min(steps.len()));
            if fails(&fewer) {
                steps = fewer;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    let mut at = 0;
    while at < steps.len() {
        let simpler = steps[at].simpler().into_iter().find_map(|simpler| {
            let mut changed = steps.clone();
            changed[at] = simpler;
            fails(&changed).then_some(changed)
        });
        match simpler {
            Some(simpler) => steps = simpler,
            None => at += 1,
        }
    }
    steps
}

fn steps_of(seed: u64) -> (Share, Vec<Step>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let share = match random.u8(0..3) {
        0 => Share::new(random.usize(0..2), 2),
        _ => Share::ALL,
    };
    (
        share,
        (0..LENGTH).map(|_| Step::random(&mut random)).collect(),
    )
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn a_million_random_steps_end_as_a_plain_oracle_says() {
    // Builds for single features have the same core: there a short run will do.
    let usual = if cfg!(feature = "cli") {
        1_000_000
    } else {
        20_000
    };
    let steps = number("XDS_HEALTH_MODEL_STEPS").unwrap_or(usual);
    let first = number("XDS_HEALTH_MODEL_SEED").unwrap_or(1);
    let seeds = steps.div_ceil(LENGTH as u64);
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= seeds {
                        return;
                    }
                    let (share, steps) = steps_of(first + at);
                    let run = |steps: &[Step]| Model::run(share, steps);
                    if let Some(failed) = fault(&run, &steps) {
                        next.store(seeds, Ordering::Relaxed);
                        let steps = shrunk(&run, steps);
                        let least = fault(&run, &steps).unwrap_or(failed);
                        let steps = steps.iter().map(|step| format!("{step:?}\n"));
                        let steps: String = steps.collect();
                        panic!("seed {}, {share:?}: {least}\n{steps}", first + at);
                    }
                }
            });
        }
    });
}

#[test]
fn a_failing_list_of_steps_is_cut_down_to_what_fails() {
    let (_, mut steps) = steps_of(3);
    steps.insert(1_000, Step::Remove("c", vec![7, 7, 7, 7]));
    let run = |steps: &[Step]| {
        let culprit = |step: &Step| matches!(step, Step::Remove(_, ports) if ports.len() == 4);
        assert!(!steps.iter().any(culprit), "found");
    };
    assert_eq!(shrunk(&run, steps).len(), 1);
}
