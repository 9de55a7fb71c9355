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
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use crate::config::{ClusterConfig, HealthCheck};
use crate::event::{Reason, Shortage};
use crate::host::Address;
use crate::schedule::Wheel;
use crate::session::{AttemptId, Context, Due, IntervalLimits, Session, Traffic, most_jitter};
use crate::snapshot::{HostView, Part};
use crate::stats::{CheckStats, ClusterStats};

mod action;
mod changes;
mod hosts;
mod members;
mod outcomes;
mod sessions;

pub use action::{Action, Last, Notice, SessionView, Started};
pub(crate) use changes::Begun;
pub use changes::Update;
pub(crate) use hosts::Reset;
use members::Members;

/// Names a session of a [`Clusters`]; given anew once its session is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(NonZeroU32);

impl SessionId {
    #[cfg(test)]
    pub(crate) const FIRST: Self = Self(NonZeroU32::MIN);

    #[cfg(test)]
    pub(crate) fn numbered(number: NonZeroU32) -> Self {
        Self(number)
    }

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
    #[cfg(test)]
    pub(crate) fn numbered(number: u32) -> Self {
        Self(number)
    }

    #[cfg(test)]
    pub(crate) const FIRST: Self = Self(0);

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

    /// Which of `of` parts, counted from 0, the host at `address` belongs to.
    pub(crate) fn of(address: &Address, of: usize) -> usize {
        match of {
            0 | 1 => 0,
            // Less than `of`.
            of => usize::try_from(address.hash64() % of as u64).unwrap_or_default(),
        }
    }

    /// Whether the host at `address` belongs to this part.
    pub fn takes(self, address: &Address) -> bool {
        Self::of(address, self.of) == self.index
    }
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
    /// The local port of the last attempt, if it told of one.
    local_port: Option<NonZeroU16>,
    check: u8,
}

// What ARCHITECTURE.md says of a host's bytes.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Slot>() <= 64 && size_of::<HostView>() <= 40);

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

    /// What a session under `check` is told with each call.
    fn context<'a>(
        &self,
        check: &'a Check,
        limits: IntervalLimits,
        random: &'a mut dyn FnMut() -> u64,
    ) -> Context<'a> {
        Context {
            check: &check.config,
            traffic: self.traffic(),
            limits,
            random,
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
    /// Why the last attempt failed, of sessions whose host's view does not tell it: those that still pass the
    /// host, and those of hosts with several.
    failures: HashMap<SessionId, Reason>,
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
            failures: HashMap::new(),
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
            local_port: slot.local_port,
        })
    }

    /// The session's attempt had this local port: its next one is to have another.
    pub(crate) fn note_local_port(&mut self, id: SessionId, port: Option<NonZeroU16>) {
        if let Some(slot) = self.sessions.get_mut(id.index()) {
            slot.local_port = port;
        }
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

    /// The cluster has had traffic: the no-traffic intervals no longer rule. Waits by them are cut short to
    /// what they would be with traffic; Envoy lets those that have begun finish. The first call costs a look at
    /// each session of the cluster, others nothing.
    pub fn note_traffic(&mut self, now: Instant, id: ClusterId) {
        let Some(cluster) = self.clusters.get_mut(id.index()) else {
            return;
        };
        if std::mem::replace(&mut cluster.traffic, true) {
            return;
        }
        for host in 0..cluster.part.hosts.slots() {
            let Ok(host) = u32::try_from(host) else {
                return;
            };
            let mut next = cluster.members.session(host);
            while let Some(id) = next {
                let Some(slot) = self.sessions.get_mut(id.index()) else {
                    break;
                };
                next = slot.next;
                let Some(check) = cluster.checks.get(usize::from(slot.check)) else {
                    continue;
                };
                let mut random = || self.random.u64(..);
                let mut cx = cluster.context(check, self.limits, &mut random);
                if slot.session.handle_traffic(now, &mut cx)
                    && let Some(at) = slot.session.poll_timeout()
                {
                    self.wheel.set(id.key(), at);
                }
            }
        }
    }

    /// Whether the view of a cluster has changed since it was last taken.
    pub fn has_changed(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The view of a cluster that has changed since it was last taken, if there is one.
    pub fn poll_part(&mut self) -> Option<(ClusterId, Part)> {
        self.poll_part_but(&[])
    }

    /// The same but for clusters whose hosts are being changed.
    pub(crate) fn poll_part_but(&mut self, changing: &[ClusterId]) -> Option<(ClusterId, Part)> {
        loop {
            let at = self.dirty.iter().rposition(|id| !changing.contains(id))?;
            let id = self.dirty.swap_remove(at);
            if let Some(cluster) = self.clusters.get_mut(id.index())
                && std::mem::take(&mut cluster.dirty)
            {
                cluster.part.version += 1;
                cluster.part.unchecked = cluster.unchecked;
                return Some((id, cluster.part.clone()));
            }
        }
    }

    /// Whether a session has completed no attempt.
    pub fn first_check(&self, id: SessionId) -> bool {
        let slot = self.sessions.get(id.index());
        slot.is_some_and(|slot| slot.session.first_check())
    }

    /// The cluster and the position of the check that a session belongs to.
    pub fn check_of(&self, id: SessionId) -> Option<(ClusterId, usize)> {
        let slot = self.sessions.get(id.index())?;
        Some((slot.cluster, usize::from(slot.check)))
    }

    /// The cluster that a session belongs to, the slot of its host, and the position of its check.
    pub(crate) fn place_of(&self, id: SessionId) -> Option<(ClusterId, u32, usize)> {
        let slot = self.sessions.get(id.index())?;
        Some((slot.cluster, slot.host, usize::from(slot.check)))
    }

    /// The host in a slot of a cluster.
    pub(crate) fn host(&self, cluster: ClusterId, slot: u32) -> Option<&HostView> {
        let cluster = self.clusters.get(cluster.index())?;
        cluster.part.hosts.get(slot as usize)
    }

    /// The hosts at `address` in a cluster, each with its sessions in the order of the cluster's checks.
    pub fn explain_hosts(
        &self,
        cluster: ClusterId,
        address: &Address,
    ) -> Vec<(HostView, Vec<SessionView>)> {
        let Some(at) = self.clusters.get(cluster.index()) else {
            return Vec::new();
        };
        let hosts = members::slots_at(&at.part.hosts, address).into_iter();
        hosts
            .filter_map(|host| {
                let view = at.part.hosts.get(host as usize)?;
                Some((view.clone(), self.sessions_of(at, host, view)))
            })
            .collect()
    }

    /// The sessions of the hosts at `address` in a cluster, in the order of the cluster's checks.
    pub fn explain(&self, cluster: ClusterId, address: &Address) -> Vec<SessionView> {
        let hosts = self.explain_hosts(cluster, address).into_iter();
        hosts.flat_map(|(_, sessions)| sessions).collect()
    }

    fn sessions_of(&self, cluster: &Cluster, host: u32, view: &HostView) -> Vec<SessionView> {
        let mut views = Vec::new();
        let mut next = cluster.members.session(host);
        while let Some((id, slot)) = next.and_then(|id| Some((id, self.sessions.get(id.index())?)))
        {
            next = slot.next;
            let Some(check) = cluster.checks.get(usize::from(slot.check)) else {
                continue;
            };
            let (session, check) = (&slot.session, &check.config);
            let (successes, failures) = session.counts();
            let last = session.last_passed().map(|passed| match passed {
                true => Last::Success,
                false => Last::Failure(
                    self.failures
                        .get(&id)
                        .or_else(|| view.reason.as_deref().filter(|_| session.failed()))
                        .cloned(),
                ),
            });
            views.push(SessionView {
                check: Arc::clone(&check.name),
                state: session.state(),
                failed: session.failed(),
                degraded: session.degraded(),
                first_check: session.first_check(),
                successes,
                healthy_threshold: check.healthy_threshold,
                failures,
                unhealthy_threshold: check.unhealthy_threshold,
                last,
                round_trip: (slot.round_trip_micros > 0)
                    .then(|| Duration::from_micros(slot.round_trip_micros.into())),
                timeout: check.timeout,
                waits_by: session.waits_by(),
                interval: session.waits_by().of(check),
                jitter: most_jitter(session.waits_by(), check),
                limits: self.limits,
                traffic: cluster.traffic(),
            });
        }
        views
    }
}

fn check_of<'a>(clusters: &'a Slab<Cluster>, slot: &Slot) -> Option<&'a Check> {
    let cluster = clusters.get(slot.cluster.index())?;
    cluster.checks.get(usize::from(slot.check))
}

#[cfg(test)]
mod tests;
