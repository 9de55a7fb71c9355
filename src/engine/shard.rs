//! A driver: one task or thread that owns the sessions of its share of all hosts.
//!
//! It waits for the first of a change, an answer, a woken attempt or a deadline, feeds it in and does what
//! comes out. Each turn is bounded, so that no input starves another.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{self, Waker};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::clock;
use super::door::{Inbox, Stopper};
use super::due::Due;
use super::early::Early;
use super::entry::{Entry, Live};
use super::journal::Journal;
use super::pace::Pace;
use super::reactor::Reactor;
use super::running::{Attempts, Kept};
use crate::checker::Checker;
use crate::cluster::{ClusterId, Clusters, SessionId, Share};
use crate::config::ClusterConfig;
use crate::feed::{Broadcast, EventSink};
use crate::session::AttemptId;
use crate::stats::Stats;

mod actions;
mod attempts;
mod input;
mod lines;
mod shown;
mod wait;

pub(super) use input::{Input, MembershipChange};

use lines::Lines;
use shown::Tally;

/// A turn that takes longer, beside its waiting, means that this process was not let run.
const STALL: Duration = Duration::from_millis(500);
/// Sockets that attempts left are closed when no attempt is to come for so long.
const KEEP_SPARES: Duration = Duration::from_secs(1);

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
    /// Goes with the last of them. Whether one of them ended though nobody told it to.
    pub(super) alive: watch::Sender<bool>,
    /// All of them end when one of them ends so.
    pub(super) all: Arc<[Stopper]>,
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
    /// Slots to be polled. Between turns, those that nothing of the runtime's budget was left for.
    ready: Vec<usize>,
    /// Attempts whose time is up and that are still to be polled for the last time, for the same reason.
    overdue: Vec<AttemptId>,
    /// Slots of attempts whose answers are looked for before their sockets are watched.
    early: Early,
    /// Slots of attempts that wait for room.
    waiting: VecDeque<usize>,
    /// Attempts that wait for what others do not need.
    aside: VecDeque<usize>,
    /// Checkers of hosts that keep connections.
    kept: HashMap<SessionId, Kept>,
    inputs: Inbox,
    /// What it was told and has not done yet.
    lines: Lines,
    in_flight: usize,
    published: Option<Instant>,
    /// Who waits until all of a cluster is published.
    to_show: Vec<(Arc<str>, oneshot::Sender<()>)>,
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
    alive: Alive,
}

/// Tells how a shard ended.
#[derive(Debug)]
struct Alive {
    broken: watch::Sender<bool>,
    all: Arc<[Stopper]>,
    /// It was told to end, or nobody can tell it anything any more.
    to_end: bool,
}

impl Drop for Alive {
    fn drop(&mut self) {
        if !self.to_end {
            self.broken.send_replace(true);
            // A part of a cluster that nobody checks must not pass for one that is checked.
            for shard in &*self.all {
                shard.stop();
            }
        }
    }
}

impl Shard {
    pub(super) fn new(
        share: Share,
        seed: u64,
        in_flight: usize,
        inputs: Inbox,
        shared: Shared,
        reactor: Reactor,
    ) -> Self {
        let Shared {
            journal,
            spares,
            events,
            stats,
            alive,
            all,
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
            overdue: Vec::new(),
            early: Early::new(),
            waiting: VecDeque::new(),
            aside: VecDeque::new(),
            kept: HashMap::new(),
            inputs,
            lines: Lines::default(),
            in_flight,
            published: None,
            to_show: Vec::new(),
            tally: Tally::default(),
            told: None,
            turn: None,
            to_wait: Duration::ZERO,
            stats,
            alive: Alive {
                broken: alive,
                all,
                to_end: false,
            },
        }
    }

    /// Runs as a task until nobody can tell it anything any more.
    pub(super) async fn run(mut self) {
        loop {
            match self.turn() {
                Next::End => break,
                // Pieces of a change take long: others of the runtime have their turn after each.
                Next::Turn if !self.lines.is_empty() => tokio::task::yield_now().await,
                Next::Turn => tokio::task::consume_budget().await,
                Next::Wait(deadline) => {
                    if !self.wait(deadline).await {
                        break;
                    }
                    // What attempts wait for may be there at once, each time.
                    tokio::task::consume_budget().await;
                }
            }
        }
        self.alive.to_end = true;
    }

    /// Runs on this thread until nobody can tell it anything any more. `unpark` ends the reactor's waits.
    pub(super) fn run_here(mut self, unpark: &Waker) {
        let mut cx = task::Context::from_waker(unpark);
        loop {
            match self.turn() {
                Next::End => break,
                Next::Turn => (),
                Next::Wait(deadline) => {
                    if !self.park(deadline, &mut cx) {
                        break;
                    }
                }
            }
        }
        self.alive.to_end = true;
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
        self.expire_overdue(now);
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
            if deadline.is_some() && deadline == self.early.wake() {
                self.reactor.end_wait_in(self.to_wait);
            }
            return Next::Wait(deadline);
        }
        if self.attempts.len() > 0 {
            self.look_at_sockets();
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
        let spent = !self.ready.is_empty() || !self.overdue.is_empty();
        spent || !self.lines.is_empty() || (self.may_begin() && self.has_room())
    }

    /// Whether an attempt is due and may begin, if there is room.
    fn may_begin(&self) -> bool {
        self.queue.may_pop(self.pace.wait().is_some())
    }

    fn has_room(&self) -> bool {
        self.attempts.len() < self.in_flight && self.waiting.is_empty()
    }

    fn anyone_waits(&self) -> bool {
        !self.waiting.is_empty() || !self.aside.is_empty()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::door::door;

    #[test]
    fn a_shard_that_panics_ends_all_and_one_that_was_to_end_does_not() {
        for panics in [true, false] {
            let (broken, running) = watch::channel(false);
            let (door, mut other) = door();
            let mut alive = Alive {
                broken,
                all: [door.stopper()].into(),
                to_end: false,
            };
            let shard = std::thread::spawn(move || {
                let alive = &mut alive;
                assert!(!panics, "as this test wants it");
                alive.to_end = true;
            });
            assert_eq!(shard.join().is_err(), panics);
            assert_eq!(*running.borrow(), panics);
            let told = other.try_recv().map(|told| told.input);
            assert_eq!(matches!(told, Ok(Input::Stop)), panics);
        }
    }
}
