//! A driver: one task or thread that owns the sessions of its share of all hosts.
//!
//! It waits for the first of a change, an answer, a woken attempt or a deadline, feeds it in and does what
//! comes out. Each turn is bounded, so that no input starves another.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{self, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tracing::Span;

use super::clock;
use super::due::Due;
use super::early::Early;
use super::entry::{Entry, Live};
use super::journal::{Ending, Journal, PastAttempt};
use super::pace::Pace;
use super::queue::TOGETHER;
use super::reactor::Reactor;
use super::running::{self, Attempts, Polled, Report, Run};
use super::told::Explanation;
use crate::checker::{Checker, HostChecker, Target};
use crate::cluster::{Action, ClusterId, Clusters, Reset, SessionId, Share, Update};
use crate::config::ClusterConfig;
use crate::event::{EventKind, HealthCheckEvent, Outcome, Reason};
use crate::feed::{Broadcast, EventSink};
use crate::host::Address;
use crate::session::IntervalLimits;
use crate::stats::{ClusterStats, EngineStats, LocalHistogram, Stats};

/// Changes taken in one turn.
const INPUTS: usize = 16;
/// Hosts of one change looked at in one turn, in a few milliseconds at most.
const HOSTS: usize = 2048;
/// Attempts begun in one turn.
const STARTS: usize = 128;
/// Attempts that wait for what others do not need, looked at in one turn.
const ASIDE: usize = 8;
/// The shortest time between two views of a shard.
const PUBLISH_EVERY: Duration = Duration::from_millis(2);
/// A turn that takes longer, beside its waiting, means that this process was not let run.
const STALL: Duration = Duration::from_millis(500);
/// An attempt that begins later than this is a sign of overload.
const LATE: Duration = Duration::from_secs(1);
/// How often overload is told of.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Sockets that attempts left are closed when no attempt is to come for so long.
const KEEP_SPARES: Duration = Duration::from_secs(1);
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
    /// A host is unhealthy; whether there is one that is checked.
    SetUnhealthy(Arc<str>, Address, oneshot::Sender<bool>),
    /// What the hosts at an address are up to, with so many of their last attempts.
    Explain(Arc<str>, Address, usize, oneshot::Sender<Vec<Explanation>>),
    /// So many of the last attempts, of one cluster or of all.
    Attempts(Option<Arc<str>>, usize, oneshot::Sender<Vec<PastAttempt>>),
    /// To be told once readers see all that came before.
    Published(oneshot::Sender<()>),
    /// There is nothing more to do.
    Stop,
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
    pub(super) live: Arc<Live>,
    /// Since when the shard has the cluster; set by the shard.
    pub(super) since: Option<Instant>,
    pub(super) config: Arc<ClusterConfig>,
    pub(super) checkers: Vec<Arc<dyn Checker>>,
    pub(super) sinks: Vec<Vec<Arc<dyn EventSink>>>,
}

/// What all shards of an engine have in common.
#[derive(Clone)]
pub(super) struct Shared {
    /// How many attempts each of them notes.
    pub(super) journal: usize,
    /// Sockets that a shard keeps for attempts to come.
    pub(super) spares: usize,
    /// Events of all clusters.
    pub(super) events: Arc<Broadcast>,
    pub(super) stats: Arc<Stats>,
    /// Goes with the last of them. Whether one of them panicked.
    pub(super) alive: watch::Sender<bool>,
}

/// What follows a turn.
enum Next {
    /// Another one at once.
    Turn,
    /// One when something has happened, or then.
    Wait(Option<Instant>),
    /// None.
    End,
}

/// What ends a wait, beside the reactor and time.
enum Told {
    Input(Option<Input>),
    Woken,
}

/// What a shard counts by itself and adds to the stats of all once a turn.
#[derive(Default)]
struct Tally {
    lag: LocalHistogram,
    round_trip: LocalHistogram,
    /// What it has told of its gauges.
    in_flight: u64,
    queued: u64,
}

impl Tally {
    fn tell(&mut self, stats: &EngineStats, in_flight: usize, queued: usize) {
        let [in_flight, queued] = [in_flight, queued].map(|n| n as u64);
        stats.attempts_in_flight.change(self.in_flight, in_flight);
        stats.attempts_queued.change(self.queued, queued);
        (self.in_flight, self.queued) = (in_flight, queued);
        stats.schedule_lag.take(&mut self.lag);
        stats.round_trip.take(&mut self.round_trip);
    }
}

pub(super) struct Shard {
    index: usize,
    pub(super) clusters: Clusters,
    /// What clusters are run by, by their ids.
    pub(super) runtimes: Vec<Option<Runtime>>,
    attempts: Attempts,
    reactor: Reactor,
    /// Sessions whose attempts are due and wait for their turn.
    queue: Due,
    pace: Pace,
    /// The turn before was followed by this one at once.
    spent: bool,
    /// Slots to be polled; empty but for its room between turns.
    ready: Vec<usize>,
    /// Slots of attempts whose answers are looked for before their sockets are watched.
    early: Early,
    /// Slots of attempts that wait for room.
    waiting: VecDeque<usize>,
    /// Attempts that wait for what others do not need.
    aside: VecDeque<usize>,
    /// Checkers of hosts that keep connections.
    kept: HashMap<SessionId, Box<dyn HostChecker>>,
    inputs: mpsc::Receiver<Input>,
    /// A change of hosts that is being made; others wait for it, and so do readers.
    reset: Option<(Reset, MembershipChange)>,
    in_flight: usize,
    published: Option<Instant>,
    /// Who waits until all is published.
    to_show: Vec<oneshot::Sender<()>>,
    tally: Tally,
    /// When an overload was last told of.
    told: Option<Instant>,
    /// When this turn began, by the real clock, and how long it was to wait at its end.
    turn: Option<Instant>,
    to_wait: Duration,
    /// The last attempts, if they are to be noted.
    pub(super) journal: Option<Journal>,
    /// Events of all clusters.
    events: Arc<Broadcast>,
    stats: Arc<Stats>,
    /// Goes when all else has gone: fields are dropped in their order.
    _alive: Alive,
}

/// Tells how a shard ended.
#[derive(Debug)]
struct Alive(watch::Sender<bool>);

impl Drop for Alive {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send_replace(true);
        }
    }
}

impl Shard {
    pub(super) fn new(
        share: Share,
        seed: u64,
        in_flight: usize,
        inputs: mpsc::Receiver<Input>,
        shared: Shared,
        reactor: Reactor,
    ) -> Self {
        let Shared {
            journal,
            spares,
            events,
            stats,
            alive,
        } = shared;
        Self {
            journal: Journal::new(journal, clock::now()),
            events,
            index: share.index(),
            clusters: Clusters::new(clock::now(), share, seed),
            runtimes: Vec::new(),
            attempts: Attempts::new(Arc::clone(reactor.registry()), spares),
            reactor,
            queue: Due::default(),
            pace: Pace::new(clock::now()),
            spent: false,
            ready: Vec::new(),
            early: Early::new(),
            waiting: VecDeque::new(),
            aside: VecDeque::new(),
            kept: HashMap::new(),
            inputs,
            reset: None,
            in_flight,
            published: None,
            to_show: Vec::new(),
            tally: Tally::default(),
            told: None,
            turn: None,
            to_wait: Duration::ZERO,
            stats,
            _alive: Alive(alive),
        }
    }

    /// Runs as a task until nobody can tell it anything any more.
    pub(super) async fn run(mut self) {
        loop {
            match self.turn() {
                Next::End => return,
                Next::Turn => tokio::task::consume_budget().await,
                Next::Wait(deadline) => {
                    if !self.wait(deadline).await {
                        return;
                    }
                }
            }
        }
    }

    /// Runs on this thread until nobody can tell it anything any more. `unpark` ends the reactor's waits.
    pub(super) fn run_here(mut self, unpark: &Waker) {
        let mut cx = task::Context::from_waker(unpark);
        loop {
            match self.turn() {
                Next::End => return,
                Next::Turn => (),
                Next::Wait(deadline) => {
                    if !self.park(deadline, &mut cx) {
                        return;
                    }
                }
            }
        }
    }

    /// Does what is to be done now, up to a bound.
    fn turn(&mut self) -> Next {
        self.notice_stall();
        let open = self.take_inputs();
        if !open {
            return Next::End;
        }
        let now = clock::now();
        self.pace.pass(now, std::mem::take(&mut self.spent));
        self.clusters.handle_timeout(now);
        self.act(now);
        self.poll_ready();
        self.look_for_answers(now);
        self.look_for_room();
        self.start_attempts();
        self.publish();
        self.count();
        if !self.busy() {
            let now = clock::now();
            self.pace.pass(now, true);
            let deadline = self.next_deadline(now);
            self.to_wait = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(now));
            if self.attempts.len() == 0 && self.to_wait > KEEP_SPARES {
                self.attempts.close_spares();
            }
            return Next::Wait(deadline);
        }
        if self.attempts.len() > 0
            && let Err(error) = self.reactor.look()
        {
            tracing::error!(%error, "poller failed");
        }
        self.spent = true;
        Next::Turn
    }

    /// When the last turn took much longer than it was to wait, the process was stopped or had no processor:
    /// what was due meanwhile is put off by as much.
    fn notice_stall(&mut self) {
        let to_wait = std::mem::take(&mut self.to_wait);
        let now = clock::real();
        let turn = self.turn.replace(now).unwrap_or(now);
        let stalled = now.saturating_duration_since(turn).saturating_sub(to_wait);
        if stalled < STALL {
            return;
        }
        self.stats.engine.stalls.inc();
        tracing::warn!(
            ?stalled,
            "did not run for a while: checks are put off by as much"
        );
        self.clusters.postpone(stalled);
        self.turn = Some(clock::real());
    }

    /// Whether there is something to do without waiting for it.
    fn busy(&self) -> bool {
        self.reset.is_some() || (self.may_begin() && self.has_room())
    }

    /// Whether an attempt is due and may begin, if there is room.
    fn may_begin(&self) -> bool {
        self.queue.may_pop(self.pace.wait().is_some())
    }

    fn has_room(&self) -> bool {
        self.attempts.len() < self.in_flight && self.waiting.is_empty()
    }

    /// Waits for the first of all inputs; false when there will be no more.
    async fn wait(&mut self, deadline: Option<Instant>) -> bool {
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

    /// The same on a thread of its own, which it blocks.
    fn park(&mut self, deadline: Option<Instant>, cx: &mut task::Context<'_>) -> bool {
        match self.told(deadline, cx) {
            Poll::Ready(Told::Input(Some(input))) => self.take(input),
            Poll::Ready(Told::Input(None)) => return false,
            Poll::Ready(Told::Woken) | Poll::Pending => (),
        }
        true
    }

    /// What ends the wait at once; pending after the reactor's.
    fn told(&mut self, deadline: Option<Instant>, cx: &mut task::Context<'_>) -> Poll<Told> {
        let woken = Arc::clone(self.attempts.woken());
        let inputs = &mut self.inputs;
        let mut told = pin!(async {
            tokio::select! {
                biased;
                input = inputs.recv() => Told::Input(input),
                () = woken.wait() => Told::Woken,
            }
        });
        // It is kept while the reactor waits: what comes meanwhile ends the wait through `cx`, and is found in
        // the next turn.
        let polled = told.as_mut().poll(cx);
        if polled.is_pending() {
            let timeout = deadline.map(|at| at.saturating_duration_since(clock::now()));
            if let Err(error) = self.reactor.wait(timeout) {
                tracing::error!(%error, "poller failed");
            }
        }
        polled
    }

    fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let room = self.anyone_waits().then(|| now + LOOK_FOR_ROOM);
        let first = self
            .pace
            .wait()
            .filter(|_| self.queue.has_first() && self.has_room());
        let first = first.map(|wait| now + wait);
        let publish = self
            .published
            .filter(|_| self.clusters.has_changed())
            .map(|at| at + PUBLISH_EVERY);
        let timer = self.clusters.poll_timeout();
        let early = self.early.next();
        [room, first, publish, timer, early]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes changes that wait; false when there will be no more.
    fn take_inputs(&mut self) -> bool {
        for _ in 0..INPUTS {
            if self.reset.is_some() {
                self.continue_reset();
                return true;
            }
            match self.inputs.try_recv() {
                Ok(input) => self.take(input),
                Err(mpsc::error::TryRecvError::Empty) => return true,
                Err(mpsc::error::TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    fn continue_reset(&mut self) {
        let now = clock::now();
        let Some((reset, membership)) = &mut self.reset else {
            return;
        };
        if let Some(changed) = self.clusters.continue_reset(now, reset, HOSTS) {
            if changed {
                membership.count();
            }
            self.reset = None;
        }
        self.act(now);
    }

    fn take(&mut self, input: Input) {
        let now = clock::now();
        match input {
            Input::Update(Update::Reset { cluster, hosts }, _, membership) => {
                let reset = self.clusters.begin_reset(&cluster, hosts);
                self.reset = reset.map(|reset| (reset, membership));
            }
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
                    self.set_runtime(id, None);
                }
                if let (Some(id), Some(runtime)) =
                    (name.and_then(|name| self.clusters.id(&name)), runtime)
                {
                    self.set_runtime(id, Some(runtime));
                }
            }
            Input::Limits(limits) => self.clusters.set_limits(limits),
            Input::Published(reply) => self.to_show.push(reply),
            // What was told before is still taken, then there will be no more.
            Input::Stop => self.inputs.close(),
            Input::Traffic(name) => {
                if let Some(id) = self.clusters.id(&name) {
                    self.clusters.note_traffic(now, id);
                }
            }
            Input::SetUnhealthy(name, address, reply) => {
                let id = self.clusters.id(&name);
                let failed = id.is_some_and(|id| self.clusters.set_unhealthy(now, id, &address));
                // Whoever told may have gone.
                let _ = reply.send(failed);
            }
            Input::Explain(name, address, attempts, reply) => {
                let _ = reply.send(self.explain(&name, &address, attempts));
            }
            Input::Attempts(name, attempts, reply) => {
                let _ = reply.send(self.past_attempts(name.as_deref(), attempts));
            }
        }
        self.act(now);
    }

    fn set_runtime(&mut self, id: ClusterId, runtime: Option<Runtime>) {
        if self.runtimes.len() <= id.index() {
            self.runtimes.resize_with(id.index() + 1, || None);
        }
        let place = &mut self.runtimes[id.index()];
        let since = place.as_ref().and_then(|before| before.since);
        *place = runtime.map(|runtime| Runtime {
            since: since.or_else(|| Some(clock::now())),
            ..runtime
        });
    }

    /// Does what the clusters want.
    fn act(&mut self, now: Instant) {
        while let Some(action) = self.clusters.poll_action() {
            match action {
                Action::Start(session) => {
                    // One that is gone by now has nothing to begin.
                    if let Some((cluster, _)) = self.clusters.check_of(session) {
                        let first = self.clusters.first_check(session);
                        self.queue.push(cluster, session, first);
                    }
                }
                Action::Expire(_, attempt) => {
                    if let Some(report) = self.attempts.expire(attempt, clock::now) {
                        self.ended(now, report);
                    }
                }
                Action::Cancel(_, attempt) => {
                    self.attempts.cancel(attempt);
                }
                Action::Forget(session) => {
                    self.kept.remove(&session);
                }
                Action::Event(notice) => {
                    let Some(runtime) = runtime_of(&self.runtimes, notice.cluster) else {
                        continue;
                    };
                    let Some(checker) = runtime.checkers.get(notice.check) else {
                        continue;
                    };
                    let check = notice.check;
                    let event = notice.at(checker.health_checker_type(), clock::wall());
                    trace(&event);
                    for sink in runtime.sinks.get(check).into_iter().flatten() {
                        running::guard(|| sink.record(&event));
                    }
                    let here = runtime.live.events.followed();
                    if here || self.events.followed() {
                        let event = Arc::new(event);
                        runtime.live.events.send(&event);
                        self.events.send(&event);
                    }
                }
            }
        }
    }

    /// Polls the attempts that were told of by the poller or woken by others.
    fn poll_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        self.attempts.woken().take(&mut ready);
        self.reactor.drain(|slot| ready.push(slot));
        for slot in ready.drain(..) {
            self.poll(slot);
        }
        self.ready = ready;
    }

    /// Polls attempts that were sent a little earlier.
    fn look_for_answers(&mut self, now: Instant) {
        while let Some(slot) = self.early.pop(now) {
            self.poll(slot);
            self.early.looked(!self.attempts.runs(slot));
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
                break;
            }
        }
        for _ in 0..self.aside.len().min(ASIDE) {
            let Some(slot) = self.aside.pop_front() else {
                return;
            };
            self.poll(slot);
            if self.attempts.waits(slot) {
                self.aside.push_back(slot);
            }
        }
    }

    fn anyone_waits(&self) -> bool {
        !self.waiting.is_empty() || !self.aside.is_empty()
    }

    fn start_attempts(&mut self) {
        let due = self.queue.len();
        let mut now = None;
        for begun in 0..STARTS {
            if !self.has_room() {
                return;
            }
            if begun % TOGETHER == 0 {
                // Few enough to be in the caches still when the last one's turn comes.
                self.clusters.fetch(self.queue.next());
            }
            let Some(session) = self.queue.pop(self.pace.wait().is_some()) else {
                return;
            };
            let looks_later = self.early.is_worthwhile(due);
            now = self.start(now.unwrap_or_else(clock::now), session, looks_later);
        }
    }

    /// Begins an attempt, and tells what the clock said when it had been sent.
    fn start(&mut self, now: Instant, session: SessionId, looks_later: bool) -> Option<Instant> {
        let id = self.attempts.next_id()?;
        let Some(started) = self.clusters.start(now, session, id) else {
            return Some(now);
        };
        self.tally.lag.record(started.lag);
        let late = started.lag > LATE && !started.first_check;
        let kept = if self.kept.is_empty() {
            None
        } else {
            self.kept.remove(&session)
        };
        let runtime = runtime_of(&self.runtimes, started.cluster);
        let tag = match (&self.journal, runtime) {
            (Some(_), Some(runtime)) => runtime.tag(&started.host.address),
            _ => 0,
        };
        let wanted = runtime.filter(|_| tracing::enabled!(tracing::Level::DEBUG));
        let span = wanted.map_or_else(Span::none, |runtime| {
            let host = &started.host.address;
            let check = runtime.config.health_checks.get(started.check);
            let check = check
                .map(|check| &*check.name)
                .filter(|name| !name.is_empty());
            tracing::debug_span!("attempt", cluster = &*runtime.entry.name, %host, check)
        });
        let slot = runtime.and_then(|runtime| {
            let checker = runtime.checkers.get(started.check)?;
            let target = Target::new(started.host).with_bind(runtime.config.bind.as_ref());
            let run = |io| match kept {
                Some(kept) => Run::keeping(kept, io),
                None if checker.keeps_connections() => Run::keeping(checker.for_host(target), io),
                None => Run::Once(checker.only_attempt(target, io)),
            };
            self.attempts
                .begin(id, (session, tag, span), looks_later, run)
        });
        if late {
            self.tell_overload(now);
        }
        match slot {
            Some(slot) => {
                self.poll(slot);
                let sent = self.attempts.sent(slot);
                if let Some(sent) = sent
                    && self.attempts.looks_again(slot)
                {
                    self.early.push(sent, slot);
                }
                sent
            }
            None => {
                let report = Report {
                    session,
                    tag,
                    span: Span::none(),
                    attempt: id,
                    outcome: Outcome::network(Reason::Panicked),
                    sent: None,
                    checker: None,
                };
                self.ended(now, report);
                self.act(now);
                None
            }
        }
    }

    /// The schedule cannot be held. The checks of a cluster are stretched alike, since attempts have their turns
    /// in the order in which they were due; clusters have turns, so it is those with the most that are late.
    fn tell_overload(&mut self, now: Instant) {
        self.stats.engine.attempts_late.inc();
        if self.told.is_none_or(|at| now >= at + TELL_EVERY) {
            self.told = Some(now);
            let (queued, in_flight) = (self.queue.len(), self.attempts.len());
            tracing::warn!(
                queued,
                in_flight,
                "overloaded: attempts begin over a second late"
            );
        }
    }

    fn poll(&mut self, slot: usize) {
        match self.attempts.poll(slot, clock::now) {
            Polled::Pending => (),
            Polled::SentLate(session, attempt) => {
                self.clusters.handle_sent(clock::now(), session, attempt);
            }
            Polled::Short(session, what, alone) => {
                self.clusters.handle_shortage(session, what);
                if alone {
                    self.aside.push_back(slot);
                } else {
                    self.waiting.push_back(slot);
                }
            }
            Polled::Ended(report) => {
                let now = clock::now();
                self.ended(now, report);
                self.act(now);
            }
        }
    }

    fn ended(&mut self, now: Instant, report: Report) {
        report
            .span
            .in_scope(|| tracing::trace!(outcome = ?report.outcome, "attempt ended"));
        let success = matches!(report.outcome, Outcome::Success { .. });
        let took = report.sent.map(|sent| now.saturating_duration_since(sent));
        let round_trip = took.filter(|_| success);
        if let Some(journal) = &mut self.journal
            && let Some((cluster, slot, check)) = self.clusters.place_of(report.session)
            && let Some(runtime) = runtime_of(&self.runtimes, cluster)
        {
            let check = runtime.check_tag(check);
            let ending = Ending::of(&report.outcome);
            journal.note(now, (cluster, slot, report.tag), check, ending, took);
        }
        if let Some(round_trip) = round_trip {
            self.tally.round_trip.record(round_trip);
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
    }

    fn count(&mut self) {
        let (in_flight, queued) = (self.attempts.len(), self.queue.len());
        self.tally.tell(&self.stats.engine, in_flight, queued);
    }

    fn keeps(&self, session: SessionId) -> bool {
        let Some((cluster, check)) = self.clusters.check_of(session) else {
            return false;
        };
        runtime_of(&self.runtimes, cluster)
            .and_then(|runtime| runtime.checkers.get(check))
            .is_some_and(|checker| checker.keeps_connections())
    }

    /// Shows readers what has changed, at most every [`PUBLISH_EVERY`].
    fn publish(&mut self) {
        if self.reset.is_some() {
            return;
        }
        if !self.clusters.has_changed() {
            self.tell_shown();
            return;
        }
        let now = clock::now();
        if self.published.is_some_and(|at| now < at + PUBLISH_EVERY) {
            return;
        }
        while let Some((id, part)) = self.clusters.poll_part() {
            self.published = Some(now);
            if let Some(runtime) = runtime_of(&self.runtimes, id) {
                runtime.entry.publish(self.index, part);
                runtime.live.changed.send_modify(|version| *version += 1);
            }
        }
        self.tell_shown();
    }

    fn tell_shown(&mut self) {
        for reply in self.to_show.drain(..) {
            // Whoever asked may have gone.
            let _ = reply.send(());
        }
    }
}

pub(super) fn runtime_of(runtimes: &[Option<Runtime>], id: ClusterId) -> Option<&Runtime> {
    runtimes.get(id.index())?.as_ref()
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.tally.tell(&self.stats.engine, 0, 0);
    }
}

fn trace(event: &HealthCheckEvent) {
    let (cluster, host) = (&*event.cluster, &event.host.address);
    let check = Some(&*event.check).filter(|name| !name.is_empty());
    let reason = event.reason.as_ref().map(tracing::field::display);
    match event.kind {
        EventKind::EjectUnhealthy { failure_type, .. } => {
            let failure_type = failure_type.name();
            tracing::info!(cluster, %host, check, failure_type, reason, "host unhealthy");
        }
        EventKind::Failure {
            failure_type,
            first_check: true,
            ..
        } => {
            let failure_type = failure_type.name();
            tracing::info!(cluster, %host, check, failure_type, reason, "first check failed");
        }
        EventKind::AddHealthy { first_check } => {
            tracing::info!(cluster, %host, check, first_check, "host healthy");
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_panics_is_told_of_and_one_that_ends_is_not() {
        for panics in [true, false] {
            let (alive, running) = watch::channel(false);
            let alive = Alive(alive);
            let shard = std::thread::spawn(move || {
                let _alive = alive;
                assert!(!panics, "as this test wants it");
            });
            assert_eq!(shard.join().is_err(), panics);
            assert_eq!(*running.borrow(), panics);
        }
    }
}
