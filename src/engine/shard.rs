//! A driver: one task that owns the sessions of its share of all hosts.
//!
//! It waits for the first of a change, an answer, a woken attempt or a deadline, feeds it in and does what
//! comes out. Each turn is bounded, so that no input starves another.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::clock;
use super::entry::Entry;
use super::reactor::Reactor;
use super::running::{Attempts, Polled, Report};
use crate::checker::{Checker, HostChecker, Target};
use crate::cluster::{Action, ClusterId, Clusters, SessionId, SessionView, Share, Update};
use crate::config::ClusterConfig;
use crate::event::{HealthCheckEvent, Outcome};
use crate::feed::EventSink;
use crate::host::{Address, Host};
use crate::session::IntervalLimits;
use crate::stats::{ClusterStats, Stats};

/// Changes taken in one turn.
const INPUTS: usize = 16;
/// Attempts begun in one turn.
const STARTS: usize = 128;
/// The shortest time between two views of a shard.
const PUBLISH_EVERY: Duration = Duration::from_millis(2);
/// How soon attempts that wait for room look again by themselves.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(10);

/// What a driver is told.
pub(super) enum Input {
    /// A change of a cluster or its hosts, with what the cluster is run by if that has changed too.
    Update(Update, Option<Runtime>, MembershipChange),
    /// Bounds of all waits set from now on.
    Limits(IntervalLimits),
    /// A cluster has had traffic.
    Traffic(Arc<str>),
    /// A host is unhealthy.
    SetUnhealthy(Arc<str>, Address),
    /// What sessions are up to.
    Explain(Arc<str>, Address, oneshot::Sender<Vec<SessionView>>),
}

/// A change that several shards are told counts once in `membership_change`, if it changed hosts at all.
#[derive(Clone)]
pub(super) struct MembershipChange(Arc<(AtomicBool, Option<Arc<ClusterStats>>)>);

impl MembershipChange {
    pub(super) fn new(stats: Option<Arc<ClusterStats>>) -> Self {
        Self(Arc::new((AtomicBool::new(false), stats)))
    }

    fn count(&self) {
        let (counted, stats) = &*self.0;
        if let Some(stats) = stats
            && !counted.swap(true, Relaxed)
        {
            stats.membership.change.inc();
        }
    }
}

/// What a cluster is run by, beside its configuration.
#[derive(Clone)]
pub(super) struct Runtime {
    pub(super) entry: Arc<Entry>,
    pub(super) config: Arc<ClusterConfig>,
    pub(super) checkers: Vec<Arc<dyn Checker>>,
    pub(super) sinks: Vec<Vec<Arc<dyn EventSink>>>,
}

pub(super) struct Shard {
    index: usize,
    clusters: Clusters,
    runtimes: HashMap<ClusterId, Runtime>,
    attempts: Attempts,
    reactor: Reactor,
    /// Sessions whose attempts are due and wait for their turn.
    queue: VecDeque<SessionId>,
    /// Slots of attempts that wait for room.
    waiting: VecDeque<usize>,
    /// Checkers of hosts that keep connections.
    kept: HashMap<SessionId, Box<dyn HostChecker>>,
    inputs: mpsc::Receiver<Input>,
    in_flight: usize,
    published: Option<Instant>,
    dirty: bool,
    stats: Arc<Stats>,
}

impl Shard {
    pub(super) fn new(
        share: Share,
        index: usize,
        seed: u64,
        in_flight: usize,
        inputs: mpsc::Receiver<Input>,
        stats: Arc<Stats>,
    ) -> std::io::Result<Self> {
        let reactor = Reactor::new()?;
        Ok(Self {
            index,
            clusters: Clusters::new(clock::now(), share, seed),
            runtimes: HashMap::new(),
            attempts: Attempts::new(Arc::clone(reactor.registry())),
            reactor,
            queue: VecDeque::new(),
            waiting: VecDeque::new(),
            kept: HashMap::new(),
            inputs,
            in_flight,
            published: None,
            dirty: false,
            stats,
        })
    }

    /// Runs until nobody can tell it anything any more.
    pub(super) async fn run(mut self) {
        loop {
            let open = self.take_inputs();
            if !open {
                return;
            }
            let now = clock::now();
            self.clusters.handle_timeout(now);
            self.act(now);
            self.poll_ready();
            self.look_for_room();
            self.start_attempts();
            self.publish();
            if self.busy() {
                if self.attempts.len() > 0
                    && let Err(error) = self.reactor.look()
                {
                    tracing::error!(%error, "poller failed");
                }
                tokio::task::consume_budget().await;
                continue;
            }
            if !self.wait().await {
                return;
            }
        }
    }

    /// Whether there is something to do without waiting for it.
    fn busy(&self) -> bool {
        !self.queue.is_empty() && self.has_room()
    }

    fn has_room(&self) -> bool {
        self.attempts.len() < self.in_flight && self.waiting.is_empty()
    }

    /// Waits for the first of all inputs; false when there will be no more.
    async fn wait(&mut self) -> bool {
        let deadline = self.next_deadline();
        let sleep = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let woken = Arc::clone(self.attempts.woken());
        tokio::select! {
            biased;
            input = self.inputs.recv() => match input {
                Some(input) => self.take(input),
                None => return false,
            },
            ready = self.reactor.ready() => if let Err(error) = ready {
                tracing::error!(%error, "poller failed");
            },
            () = woken.wait() => (),
            () = sleep => (),
        }
        true
    }

    fn next_deadline(&self) -> Option<Instant> {
        let room = (!self.waiting.is_empty()).then(|| clock::now() + LOOK_FOR_ROOM);
        let publish = self
            .published
            .filter(|_| self.dirty)
            .map(|at| at + PUBLISH_EVERY);
        let timer = self.clusters.poll_timeout();
        [room, publish, timer].into_iter().flatten().min()
    }

    /// Takes changes that wait; false when there will be no more.
    fn take_inputs(&mut self) -> bool {
        for _ in 0..INPUTS {
            match self.inputs.try_recv() {
                Ok(input) => self.take(input),
                Err(mpsc::error::TryRecvError::Empty) => return true,
                Err(mpsc::error::TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    fn take(&mut self, input: Input) {
        let now = clock::now();
        self.dirty = true;
        match input {
            Input::Update(update, runtime, membership) => {
                let name = runtime
                    .as_ref()
                    .map(|runtime| Arc::clone(&runtime.entry.key));
                let removed = match &update {
                    Update::RemoveCluster(name) => self.clusters.id(name),
                    _ => None,
                };
                if self.clusters.handle_update(now, update) {
                    membership.count();
                }
                if let Some(id) = removed {
                    self.runtimes.remove(&id);
                }
                if let (Some(id), Some(runtime)) =
                    (name.and_then(|name| self.clusters.id(&name)), runtime)
                {
                    self.runtimes.insert(id, runtime);
                }
            }
            Input::Limits(limits) => self.clusters.set_limits(limits),
            Input::Traffic(name) => {
                if let Some(id) = self.clusters.id(&name) {
                    self.clusters.note_traffic(id);
                }
            }
            Input::SetUnhealthy(name, address) => {
                if let Some(id) = self.clusters.id(&name) {
                    self.clusters.set_unhealthy(now, id, &address);
                }
            }
            Input::Explain(name, address, reply) => {
                let views = self
                    .clusters
                    .id(&name)
                    .map(|id| self.clusters.explain(id, &address));
                // Whoever asked may have gone.
                let _ = reply.send(views.unwrap_or_default());
            }
        }
        self.act(now);
    }

    /// Does what the clusters want.
    fn act(&mut self, now: Instant) {
        while let Some(action) = self.clusters.poll_action() {
            match action {
                Action::Start(session) => {
                    self.stats.engine.attempts_queued.inc();
                    self.queue.push_back(session);
                }
                Action::Expire(_, attempt) => {
                    if let Some(report) = self.attempts.expire(attempt, clock::now) {
                        self.ended(now, report);
                    }
                }
                Action::Cancel(_, attempt) => {
                    self.attempts.cancel(attempt);
                    self.stats.engine.attempts_in_flight.dec();
                }
                Action::Forget(session) => {
                    self.kept.remove(&session);
                }
                Action::Event(notice) => {
                    let Some(runtime) = self.runtimes.get(&notice.cluster) else {
                        continue;
                    };
                    let Some(checker) = runtime.checkers.get(notice.check) else {
                        continue;
                    };
                    let check = notice.check;
                    let event = notice.at(checker.health_checker_type(), clock::wall());
                    trace(&event);
                    for sink in runtime.sinks.get(check).into_iter().flatten() {
                        sink.record(&event);
                    }
                }
            }
        }
    }

    /// Polls the attempts that were told of by the poller or woken by others.
    fn poll_ready(&mut self) {
        let mut ready = self.attempts.woken().take();
        self.reactor.drain(|slot| ready.push(slot));
        for slot in ready {
            self.poll(slot);
        }
    }

    /// Polls attempts that wait for room, the longest waiting first, until one finds none.
    fn look_for_room(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(slot) = self.waiting.pop_front() else {
                return;
            };
            self.poll(slot);
            if self.attempts.waits(slot) {
                self.waiting.push_front(slot);
                return;
            }
        }
    }

    fn start_attempts(&mut self) {
        for _ in 0..STARTS {
            if !self.has_room() {
                return;
            }
            let Some(session) = self.queue.pop_front() else {
                return;
            };
            self.stats.engine.attempts_queued.dec();
            self.start(session);
        }
    }

    fn start(&mut self, session: SessionId) {
        let Some(id) = self.attempts.next_id() else {
            return;
        };
        let Some(started) = self.clusters.start(clock::now(), session, id) else {
            return;
        };
        self.stats.engine.schedule_lag.record(started.lag);
        let checker = self.kept.remove(&session).or_else(|| {
            let runtime = self.runtimes.get(&started.cluster)?;
            let checker = runtime.checkers.get(started.check)?;
            let host: &Host = started.host;
            let target = Target::new(host).with_bind(runtime.config.bind.as_ref());
            Some(checker.for_host(target))
        });
        let Some(checker) = checker else {
            return;
        };
        self.stats.engine.attempts_in_flight.inc();
        let slot = self.attempts.begin(id, session, checker);
        self.poll(slot);
    }

    fn poll(&mut self, slot: usize) {
        match self.attempts.poll(slot, clock::now) {
            Polled::Pending => (),
            Polled::SentLate(session, attempt) => {
                self.clusters.handle_sent(clock::now(), session, attempt);
            }
            Polled::Short(session, what) => {
                self.clusters.handle_shortage(session, what);
                self.waiting.push_back(slot);
            }
            Polled::Ended(report) => {
                let now = clock::now();
                self.ended(now, report);
                self.act(now);
            }
        }
    }

    fn ended(&mut self, now: Instant, report: Report) {
        self.stats.engine.attempts_in_flight.dec();
        let success = matches!(report.outcome, Outcome::Success { .. });
        let round_trip = report
            .sent
            .filter(|_| success)
            .map(|sent| now.saturating_duration_since(sent));
        if let Some(round_trip) = round_trip {
            self.stats.engine.round_trip.record(round_trip);
        }
        if let Some(checker) = report.checker
            && self.keeps(report.session)
        {
            self.kept.insert(report.session, checker);
        }
        self.clusters.handle_outcome(
            now,
            report.session,
            report.attempt,
            report.outcome,
            round_trip,
        );
        self.dirty = true;
    }

    fn keeps(&self, session: SessionId) -> bool {
        let Some((cluster, check)) = self.clusters.check_of(session) else {
            return false;
        };
        self.runtimes
            .get(&cluster)
            .and_then(|runtime| runtime.checkers.get(check))
            .is_some_and(|checker| checker.keeps_connections())
    }

    /// Shows readers what has changed, at most every [`PUBLISH_EVERY`].
    fn publish(&mut self) {
        if !self.dirty {
            return;
        }
        let now = clock::now();
        if self.published.is_some_and(|at| now < at + PUBLISH_EVERY) {
            return;
        }
        self.dirty = false;
        while let Some((id, part)) = self.clusters.poll_part() {
            self.published = Some(now);
            if let Some(runtime) = self.runtimes.get(&id) {
                runtime.entry.publish(self.index, part);
            }
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        for _ in 0..self.attempts.len() {
            self.stats.engine.attempts_in_flight.dec();
        }
        for _ in 0..self.queue.len() {
            self.stats.engine.attempts_queued.dec();
        }
    }
}

fn trace(event: &HealthCheckEvent) {
    use crate::event::EventKind::{AddHealthy, EjectUnhealthy};
    let (cluster, host) = (&*event.cluster, &event.host.address);
    match event.kind {
        EjectUnhealthy { failure_type, .. } => {
            let reason = event.reason.as_ref().map(tracing::field::display);
            tracing::info!(cluster, %host, check = %event.check, failure_type = failure_type.name(), reason, "host unhealthy");
        }
        AddHealthy { first_check } => {
            tracing::info!(cluster, %host, check = %event.check, first_check, "host healthy");
        }
        _ => (),
    }
}
