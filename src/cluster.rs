//! Clusters and their hosts: which sessions exist as both come and go, and what they add up to.
//!
//! [`Clusters`] is all that one driver checks. It owns hosts, their sessions, the wheel of deadlines and
//! the view that readers get. It does no I/O: the driver hands in instants, updates and outcomes, and takes
//! [`Action`]s out until there are none. An owner of its own event loop can drive it as well.
//!
//! Invariants: a checked host has one session for each check of its cluster, any other host none; a session
//! has a deadline in the wheel unless its attempt waits for its turn; flags, gauges and the view always
//! equal what the sessions say.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use crate::config::{ClusterConfig, HealthCheck};
use crate::event::{EventKind, Failure, FailureType, HealthCheckEvent, Outcome, Reason, Shortage};
use crate::host::{Address, HealthFlags, Host};
use crate::schedule::Wheel;
use crate::session::{
    AttemptId, Completion, Context, Due, IntervalKind, IntervalLimits, Session, Traffic,
};
use crate::snapshot::Part;
use crate::stats::{CheckStats, ClusterStats};

mod changes;
mod members;

pub(crate) use changes::Reset;
pub use changes::Update;
use members::Members;

/// Names a session of a [`Clusters`]; given anew once its session is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(NonZeroU32);

impl SessionId {
    #[cfg(test)]
    pub(crate) const FIRST: Self = Self(NonZeroU32::MIN);

    fn new(index: usize) -> Option<Self> {
        let key = u32::try_from(index).ok()?;
        NonZeroU32::new(key.checked_add(1)?).map(Self)
    }

    fn index(self) -> usize {
        self.key() as usize
    }

    /// The session's key in the wheel.
    fn key(self) -> u32 {
        self.0.get() - 1
    }
}

/// Names a cluster of a [`Clusters`]; given anew once its cluster is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterId(u32);

impl ClusterId {
    /// Small, and unlike that of any other cluster there is.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which hosts are one driver's, of several that share all clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    index: usize,
    of: usize,
}

impl Share {
    /// Every host.
    pub const ALL: Self = Self { index: 0, of: 1 };

    /// Part `index` of `of` parts, counted from 0.
    pub fn new(index: usize, of: usize) -> Self {
        Self {
            index,
            of: of.max(1),
        }
    }

    /// Which part it is, counted from 0.
    pub fn index(self) -> usize {
        self.index
    }

    /// Whether the host at `address` belongs to this part.
    pub fn takes(self, address: &Address) -> bool {
        self.of == 1 || members::hash(address) % self.of as u64 == self.index as u64
    }
}

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Begin an attempt when there is room: see [`Clusters::start`].
    Start(SessionId),
    /// The attempt's time is up: end it with [`Clusters::handle_outcome`].
    Expire(SessionId, AttemptId),
    /// End the attempt and report nothing.
    Cancel(SessionId, AttemptId),
    /// The session is gone: whatever was kept for it can go too.
    Forget(SessionId),
    /// Tell whoever listens to events.
    Event(Notice),
}

/// A [`HealthCheckEvent`] to be, but for the wall clock's time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Notice {
    /// The cluster.
    pub cluster: ClusterId,
    /// Position of the check in its cluster.
    pub check: usize,
    /// The cluster's name.
    pub name: Arc<str>,
    /// The check's name.
    pub check_name: Arc<str>,
    /// The host.
    pub host: Arc<Host>,
    /// What happened.
    pub kind: EventKind,
    /// Why, for failures.
    pub reason: Option<Reason>,
    /// From sending to the answer, for successes.
    pub round_trip: Option<Duration>,
}

/// An attempt that was begun.
#[derive(Debug)]
#[non_exhaustive]
pub struct Started<'a> {
    /// By how much it begins late.
    pub lag: Duration,
    /// It is the first of its session.
    pub first_check: bool,
    /// The cluster.
    pub cluster: ClusterId,
    /// Position of the check in its cluster.
    pub check: usize,
    /// The host.
    pub host: &'a Arc<Host>,
}

/// What a session is up to, for whoever asks why a host is as it is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SessionView {
    /// Name of the check.
    pub check: Arc<str>,
    /// The check fails the host.
    pub failed: bool,
    /// No attempt has been completed.
    pub first_check: bool,
    /// Successes in a row, toward `healthy_threshold`.
    pub successes: u32,
    /// Failures in a row, toward `unhealthy_threshold`.
    pub failures: u32,
    /// An attempt runs.
    pub attempting: bool,
    /// The next attempt, or the running one's deadline; none while it waits for its turn.
    pub due: Option<Instant>,
    /// The interval that rules the wait.
    pub waits_by: IntervalKind,
    /// The last success's round trip.
    pub round_trip: Option<Duration>,
}

/// A session with its place.
#[derive(Debug)]
struct Slot {
    session: Session,
    cluster: ClusterId,
    host: u32,
    /// The next session of the same host.
    next: Option<SessionId>,
    /// Round trip of the last success in microseconds; 0 when there was none.
    round_trip_micros: u32,
    check: u8,
}

/// One check of a cluster and its counters.
#[derive(Clone, Debug)]
struct Check {
    config: Arc<HealthCheck>,
    stats: Arc<CheckStats>,
}

#[derive(Debug)]
struct Cluster {
    config: Arc<ClusterConfig>,
    stats: Arc<ClusterStats>,
    checks: Vec<Check>,
    members: Members,
    part: Part,
    /// Sessions whose first check is still to be completed.
    unchecked: usize,
    /// Hosts were told, or are not to be waited for.
    hosts_known: bool,
    traffic: bool,
    dirty: bool,
}

impl Cluster {
    /// No cluster can have had traffic before its hosts were checked.
    fn traffic(&self) -> Traffic {
        match (self.traffic, self.part.initialized) {
            (false, _) => Traffic::None,
            (true, false) => Traffic::Expected,
            (true, true) => Traffic::Had,
        }
    }
}

/// All clusters that one driver checks.
#[derive(Debug)]
pub struct Clusters {
    share: Share,
    names: HashMap<Arc<str>, ClusterId>,
    clusters: Slab<Cluster>,
    sessions: Slab<Slot>,
    wheel: Wheel,
    actions: VecDeque<Action>,
    /// Sessions that the update at hand began and whose first attempt is due at once.
    begun: Vec<SessionId>,
    /// Keys that the wheel gave out; empty but for its room between calls.
    due: Vec<u32>,
    dirty: Vec<ClusterId>,
    limits: IntervalLimits,
    random: fastrand::Rng,
}

impl Clusters {
    /// No clusters; time begins at `now`, and jitter follows from `seed`.
    pub fn new(now: Instant, share: Share, seed: u64) -> Self {
        Self {
            share,
            names: HashMap::new(),
            clusters: Slab::new(),
            sessions: Slab::new(),
            wheel: Wheel::new(now),
            actions: VecDeque::new(),
            begun: Vec::new(),
            due: Vec::new(),
            dirty: Vec::new(),
            limits: IntervalLimits::default(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Bounds every wait that is set from now on.
    pub fn set_limits(&mut self, limits: IntervalLimits) {
        self.limits = limits;
    }

    /// The cluster of this name, or of this key if it has one.
    pub fn id(&self, name: &str) -> Option<ClusterId> {
        self.names.get(name).copied()
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The next thing to do, if any. To be drained after each `handle_*`.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Clusters::handle_timeout`] is next due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.next()
    }

    /// Advances time to `now`: what is due becomes actions.
    pub fn handle_timeout(&mut self, now: Instant) {
        let (sessions, actions) = (&mut self.sessions, &mut self.actions);
        let due = &mut self.due;
        self.wheel.advance(
            now,
            |key| {
                let slot = sessions.get(key as usize);
                slot.and_then(|s| s.session.poll_timeout()).unwrap_or(now)
            },
            |key| due.push(key),
        );
        for key in due.drain(..) {
            let Some(slot) = sessions.get_mut(key as usize) else {
                continue;
            };
            let Some(id) = SessionId::new(key as usize) else {
                continue;
            };
            match slot.session.handle_timeout(now) {
                Some(Due::Start) => actions.push_back(Action::Start(id)),
                Some(Due::Expire(attempt)) => actions.push_back(Action::Expire(id, attempt)),
                None => {
                    if let Some(at) = slot.session.poll_timeout() {
                        self.wheel.set(key, at);
                    }
                }
            }
        }
    }

    /// Reads what [`Clusters::start`] and whoever calls it will read of these sessions. Hosts lie all over
    /// the memory, and a loop that does nothing else waits for many of them at once, not for each in turn.
    pub(crate) fn fetch(&self, sessions: impl Iterator<Item = SessionId>) {
        let mut addresses = 0_usize;
        for id in sessions {
            let Some(slot) = self.sessions.get(id.index()) else {
                continue;
            };
            let cluster = self.clusters.get(slot.cluster.index());
            if let Some(view) = cluster.and_then(|c| c.part.hosts.get(slot.host as usize)) {
                addresses += usize::from(matches!(view.host.checked_at(), Address::Ip(_)));
            }
        }
        // So that the reads are made, though nothing comes of them.
        std::hint::black_box(addresses);
    }

    /// Begins the attempt that [`Action::Start`] asked for, under a name that no other running attempt has;
    /// none if it is no longer wanted.
    pub fn start(
        &mut self,
        now: Instant,
        id: SessionId,
        attempt: AttemptId,
    ) -> Option<Started<'_>> {
        let slot = self.sessions.get_mut(id.index())?;
        let cluster = self.clusters.get(slot.cluster.index())?;
        let check = cluster.checks.get(usize::from(slot.check))?;
        let lag = slot.session.handle_start(now, attempt, &check.config)?;
        check.stats.attempt.inc();
        if let Some(deadline) = slot.session.poll_timeout() {
            self.wheel.set(id.key(), deadline);
        }
        let view = cluster.part.hosts.get(slot.host as usize)?;
        Some(Started {
            lag,
            first_check: slot.session.first_check(),
            cluster: slot.cluster,
            check: usize::from(slot.check),
            host: &view.host,
        })
    }

    /// The attempt had to wait for room and was sent only `now`: its timeout begins anew.
    pub fn handle_sent(&mut self, now: Instant, id: SessionId, attempt: AttemptId) {
        let Some(slot) = self.sessions.get_mut(id.index()) else {
            return;
        };
        let Some(check) = check_of(&self.clusters, slot) else {
            return;
        };
        slot.session.handle_sent(now, attempt, &check.config);
        if let Some(deadline) = slot.session.poll_timeout() {
            self.wheel.set(id.key(), deadline);
        }
    }

    /// The attempt waits for something that this process is short of.
    pub fn handle_shortage(&mut self, id: SessionId, what: Shortage) {
        let slot = self.sessions.get(id.index());
        if let Some(check) = slot.and_then(|slot| check_of(&self.clusters, slot)) {
            check.stats.shortages[what.index()].inc();
        }
    }

    /// Reports how an attempt ended; one that does not run is ignored.
    pub fn handle_outcome(
        &mut self,
        now: Instant,
        id: SessionId,
        attempt: AttemptId,
        outcome: Outcome,
        round_trip: Option<Duration>,
    ) {
        let Some(slot) = self.sessions.get_mut(id.index()) else {
            return;
        };
        let Some(cluster) = self.clusters.get(slot.cluster.index()) else {
            return;
        };
        let Some(check) = cluster.checks.get(usize::from(slot.check)) else {
            return;
        };
        let mut random = || self.random.u64(..);
        let mut cx = Context {
            check: &check.config,
            traffic: cluster.traffic(),
            limits: self.limits,
            random: &mut random,
        };
        let was = Was::of(&slot.session);
        let Some(completion) = slot.session.handle_outcome(now, attempt, &outcome, &mut cx) else {
            return;
        };
        match &outcome {
            Outcome::Success { .. } => {
                check.stats.success.inc();
                if let Some(rtt) = round_trip {
                    let micros = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX);
                    slot.round_trip_micros = micros.max(1);
                }
            }
            Outcome::Failure(failure) => {
                check.stats.failure.inc();
                check.stats.reasons[failure.reason.index()].inc();
                if matches!(
                    failure.failure_type,
                    FailureType::Network | FailureType::NetworkTimeout
                ) {
                    check.stats.network_failure.inc();
                }
            }
        }
        match slot.session.poll_timeout() {
            Some(at) => self.wheel.set(id.key(), at),
            None => self.wheel.clear(id.key()),
        }
        let failure = match outcome {
            Outcome::Success { .. } => None,
            Outcome::Failure(failure) => Some(failure),
        };
        self.complete(now, id, was, &completion, failure, round_trip);
    }

    /// Fails a host from outside under every check of it, whatever the thresholds: Envoy's passive failure.
    pub fn set_unhealthy(&mut self, now: Instant, cluster: ClusterId, address: &Address) {
        let Some(at) = self.clusters.get(cluster.index()) else {
            return;
        };
        let hosts = at.members.at_address(&at.part.hosts, address);
        for host in hosts {
            let mut next = self.clusters[cluster.index()].members.session(host);
            while let Some(id) = next {
                // A host pending removal goes with the first of its sessions that fails it.
                let Some(slot) = self.sessions.get_mut(id.index()) else {
                    break;
                };
                next = slot.next;
                let Some(check) = check_of(&self.clusters, slot) else {
                    continue;
                };
                let failure = Failure::new(FailureType::Passive, Reason::Passive);
                let was = Was::of(&slot.session);
                let completion = slot.session.set_unhealthy(&failure, &check.config);
                check.stats.passive_failure.inc();
                self.complete(now, id, was, &completion, Some(failure), None);
            }
        }
    }

    /// This process could not run for so long: every deadline is put off, so that no attempt fails and no
    /// burst of them follows for what was missed. Costs a look at each session.
    pub fn postpone(&mut self, by: Duration) {
        for (key, slot) in &mut self.sessions {
            slot.session.postpone(by);
            if let (Ok(key), Some(at)) = (u32::try_from(key), slot.session.poll_timeout()) {
                self.wheel.set(key, at);
            }
        }
    }

    /// The cluster has had traffic: the no-traffic intervals no longer rule, from the next wait on.
    pub fn note_traffic(&mut self, cluster: ClusterId) {
        if let Some(cluster) = self.clusters.get_mut(cluster.index()) {
            cluster.traffic = true;
        }
    }

    /// The view of a cluster that has changed since it was last taken, if there is one.
    pub fn poll_part(&mut self) -> Option<(ClusterId, Part)> {
        loop {
            let id = self.dirty.pop()?;
            if let Some(cluster) = self.clusters.get_mut(id.index())
                && std::mem::take(&mut cluster.dirty)
            {
                cluster.part.version += 1;
                return Some((id, cluster.part.clone()));
            }
        }
    }

    /// The cluster and the position of the check that a session belongs to.
    pub fn check_of(&self, id: SessionId) -> Option<(ClusterId, usize)> {
        let slot = self.sessions.get(id.index())?;
        Some((slot.cluster, usize::from(slot.check)))
    }

    /// The sessions of the hosts at `address` in a cluster, in the order of the cluster's checks.
    pub fn explain(&self, cluster: ClusterId, address: &Address) -> Vec<SessionView> {
        let Some(at) = self.clusters.get(cluster.index()) else {
            return Vec::new();
        };
        let mut views = Vec::new();
        for host in at.members.at_address(&at.part.hosts, address) {
            let mut next = at.members.session(host);
            while let Some(slot) = next.and_then(|id| self.sessions.get(id.index())) {
                next = slot.next;
                let (successes, failures) = slot.session.counts();
                views.push(SessionView {
                    check: at
                        .checks
                        .get(usize::from(slot.check))
                        .map_or_else(Arc::default, |c| Arc::clone(&c.config.name)),
                    failed: slot.session.failed(),
                    first_check: slot.session.first_check(),
                    successes,
                    failures,
                    attempting: slot.session.attempting().is_some(),
                    due: slot.session.poll_timeout(),
                    waits_by: slot.session.waits_by(),
                    round_trip: (slot.round_trip_micros > 0)
                        .then(|| Duration::from_micros(slot.round_trip_micros.into())),
                });
            }
        }
        views
    }

    /// What follows from a completion: gauges, flags, events, removal.
    fn complete(
        &mut self,
        now: Instant,
        id: SessionId,
        was: Was,
        completion: &Completion,
        failure: Option<Failure>,
        round_trip: Option<Duration>,
    ) {
        let slot = &self.sessions[id.index()];
        let (cluster_id, host) = (slot.cluster, slot.host);
        let cluster = &mut self.clusters[cluster_id.index()];
        let check = &cluster.checks[usize::from(slot.check)];
        let is = Was::of(&slot.session);
        check.stats.healthy.shift(!was.failed, !is.failed);
        check.stats.degraded.shift(was.degraded, is.degraded);
        if was == is && failure.is_none() && completion.events == [None; 3] {
            // One more success of many: the host's view says so already, and need not be fetched.
            return;
        }
        if was.first_check {
            cluster.unchecked -= 1;
        }
        let Some(view) = cluster.part.hosts.get(host as usize) else {
            return;
        };
        for kind in completion.events.into_iter().flatten() {
            self.actions.push_back(Action::Event(Notice {
                cluster: cluster_id,
                check: usize::from(slot.check),
                name: Arc::clone(&cluster.config.name),
                check_name: Arc::clone(&check.config.name),
                host: Arc::clone(&view.host),
                kind,
                reason: failure.as_ref().map(|f| f.reason.clone()),
                round_trip,
            }));
        }
        let mut flags = view.flags.with(HealthFlags::PENDING_ACTIVE_HC, false);
        if let Some(failure) = &failure
            && failure.immediate
        {
            flags = flags.with(HealthFlags::EXCLUDED_VIA_IMMEDIATE_HC_FAIL, true);
        }
        let (failed, degraded) = (view.failed(), view.degraded());
        let reason = failure.filter(|_| is.failed).map(|f| f.reason);
        self.refresh(now, cluster_id, host, flags, reason);
        let cluster = &self.clusters[cluster_id.index()];
        let Some(view) = cluster.part.hosts.get(host as usize) else {
            return;
        };
        cluster.stats.healthy.shift(!failed, !view.failed());
        cluster.stats.degraded.shift(degraded, view.degraded());
        if view.failed() && view.flags.intersects(HealthFlags::PENDING_DYNAMIC_REMOVAL) {
            self.remove_host(now, cluster_id, host);
            let cluster = &self.clusters[cluster_id.index()];
            cluster.stats.membership.change.inc();
        }
        self.settle(cluster_id);
    }

    /// Makes a host's view and the membership equal what its sessions and `flags`, the rest, say.
    fn refresh(
        &mut self,
        now: Instant,
        id: ClusterId,
        host: u32,
        flags: HealthFlags,
        reason: Option<Reason>,
    ) {
        let Some(cluster) = self.clusters.get_mut(id.index()) else {
            return;
        };
        let (mut failed, mut degraded, mut timed_out, mut unknown) = (false, false, false, false);
        let mut next = cluster.members.session(host);
        let checked = next.is_some();
        while let Some(slot) = next.and_then(|id| self.sessions.get(id.index())) {
            failed |= slot.session.failed();
            degraded |= slot.session.degraded();
            timed_out |= slot.session.timed_out();
            unknown |= !slot.session.known();
            next = slot.next;
        }
        let Some(view) = cluster.part.hosts.get(host as usize) else {
            return;
        };
        let flags = flags
            .with(HealthFlags::FAILED_ACTIVE_HC, failed)
            .with(HealthFlags::DEGRADED_ACTIVE_HC, degraded)
            .with(HealthFlags::ACTIVE_HC_TIMEOUT, timed_out)
            .with(
                HealthFlags::PENDING_ACTIVE_HC,
                checked && flags.intersects(HealthFlags::PENDING_ACTIVE_HC),
            )
            .with(
                HealthFlags::EXCLUDED_VIA_IMMEDIATE_HC_FAIL,
                failed && flags.intersects(HealthFlags::EXCLUDED_VIA_IMMEDIATE_HC_FAIL),
            );
        let was = view.flags;
        let new_reason = match (failed, reason) {
            (false, _) => view.reason.is_some().then_some(None),
            (true, Some(reason)) if view.reason.as_deref() != Some(&reason) => {
                Some(Some(Arc::new(reason)))
            }
            (true, _) => None,
        };
        if was == flags && view.unchecked == unknown && new_reason.is_none() {
            return;
        }
        cluster.stats.membership.shift(was, flags);
        if let Some(view) = cluster.part.hosts.get_mut(host as usize) {
            if was != flags {
                view.flags = flags;
                view.since = now;
            }
            view.unchecked = unknown;
            if let Some(reason) = new_reason {
                view.reason = reason;
            }
        }
        self.touch(id);
    }

    /// Marks a cluster's view as changed.
    fn touch(&mut self, id: ClusterId) {
        if let Some(cluster) = self.clusters.get_mut(id.index())
            && !std::mem::replace(&mut cluster.dirty, true)
        {
            self.dirty.push(id);
        }
    }

    /// A cluster whose hosts are known and all checked once is initialized, and stays so.
    fn settle(&mut self, id: ClusterId) {
        let Some(cluster) = self.clusters.get_mut(id.index()) else {
            return;
        };
        if !cluster.part.initialized && cluster.hosts_known && cluster.unchecked == 0 {
            cluster.part.initialized = true;
            self.touch(id);
        }
    }
}

impl Notice {
    /// The event, as of `timestamp`.
    pub fn at(
        self,
        health_checker_type: crate::event::HealthCheckerType,
        timestamp: std::time::SystemTime,
    ) -> HealthCheckEvent {
        HealthCheckEvent {
            health_checker_type,
            host: self.host,
            cluster: self.name,
            check: self.check_name,
            kind: self.kind,
            timestamp,
            reason: self.reason,
            round_trip: self.round_trip,
        }
    }
}

/// What a session's verdict was before a completion.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Was {
    failed: bool,
    degraded: bool,
    first_check: bool,
}

impl Was {
    fn of(session: &Session) -> Self {
        Self {
            failed: session.failed(),
            degraded: session.degraded(),
            first_check: session.first_check(),
        }
    }
}

fn check_of<'a>(clusters: &'a Slab<Cluster>, slot: &Slot) -> Option<&'a Check> {
    let cluster = clusters.get(slot.cluster.index())?;
    cluster.checks.get(usize::from(slot.check))
}

#[cfg(test)]
mod tests;
