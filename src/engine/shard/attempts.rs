//! The attempts of a shard: which begin, which are polled, and what they come to.

use std::time::{Duration, Instant};

use tokio::task::coop;
use tracing::Span;

use super::{Shard, runtime_of};
use crate::checker::Target;
use crate::cluster::SessionId;
use crate::engine::clock;
use crate::engine::journal::Ending;
use crate::engine::queue::TOGETHER;
use crate::engine::running::{self, Kept, Polled, Report, Run};
use crate::event::{Outcome, Reason};
use crate::session::AttemptId;

/// Attempts begun in one turn.
const STARTS: usize = 128;
/// After so many of them, answers to the first are looked for. Not after each: to begin many, then to end many, costs
/// less than to do both in turns.
const LOOK_EVERY: usize = 32;
/// Attempts that wait for what others do not need, looked at in one turn.
const ASIDE: usize = 8;
/// An attempt that begins later than this is a sign of overload.
const LATE: Duration = Duration::from_secs(1);
/// How often overload is told of.
const TELL_EVERY: Duration = Duration::from_secs(10);

impl Shard {
    /// Polls the attempts that were told of by the poller or woken by others.
    pub(super) fn poll_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        self.attempts.woken().take(&mut ready);
        self.reactor.drain(|slot| ready.push(slot));
        let mut polled = 0;
        for slot in &ready {
            if !coop::has_budget_remaining() {
                break;
            }
            self.poll(*slot);
            polled += 1;
        }
        ready.drain(..polled);
        self.ready = ready;
    }

    /// Ends an attempt whose time is up, with what it finds in a last poll.
    pub(super) fn expire(&mut self, now: Instant, attempt: AttemptId) {
        if !coop::has_budget_remaining() {
            self.overdue.push(attempt);
        } else if let Some(report) = self.attempts.expire(attempt, clock::now) {
            self.ended(now, report);
        }
    }

    /// Ends attempts for whose last poll nothing was left in the turn before.
    pub(super) fn expire_overdue(&mut self, now: Instant) {
        if self.overdue.is_empty() {
            return;
        }
        for attempt in std::mem::take(&mut self.overdue) {
            self.expire(now, attempt);
        }
        self.act(now);
    }

    /// Polls attempts that were sent a little earlier.
    pub(super) fn look_for_answers(&mut self, now: Instant) {
        while let Some(slot) = self.early.pop(now) {
            self.poll(slot);
            self.early.looked(!self.attempts.runs(slot));
        }
    }

    /// Polls attempts that wait for room, the longest waiting first, until one finds none.
    pub(super) fn look_for_room(&mut self) {
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

    pub(super) fn start_attempts(&mut self) {
        let due = self.queue.len();
        let mut now = None;
        for begun in 0..STARTS {
            if !self.has_room() || !coop::has_budget_remaining() {
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
            if begun % LOOK_EVERY == LOOK_EVERY - 1
                && let Some(now) = now
            {
                self.look_for_answers(now);
            }
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
        let local_port = started.local_port;
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
        let checker = runtime.and_then(|runtime| runtime.checkers.get(started.check));
        let reason = match checker {
            Some(_) => Reason::Panicked,
            None => Reason::Other("the check has no checker".into()),
        };
        let slot = runtime.zip(checker).and_then(|(runtime, checker)| {
            let target = Target::new(started.host).with_bind(runtime.config.bind.as_ref());
            let run = |io| match kept {
                Some(kept) if kept.is_of(checker) => Run::keeping(kept, io),
                _ if checker.keeps_connections() => Run::keeping(Kept::new(checker, target), io),
                _ => Run::Once(checker.only_attempt(target, io)),
            };
            self.attempts
                .begin(id, (session, tag, span), looks_later, local_port, run)
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
                    outcome: Outcome::network(reason),
                    sent: None,
                    local_port,
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

    pub(super) fn poll(&mut self, slot: usize) {
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

    pub(super) fn ended(&mut self, now: Instant, report: Report) {
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
        if let Some(checker) = report.checker {
            let not_kept = match self.keeps(report.session) {
                true => self.kept.insert(report.session, checker),
                false => Some(checker),
            };
            running::guard(|| drop(not_kept));
        }
        self.clusters
            .note_local_port(report.session, report.local_port);
        self.clusters.handle_outcome(
            now,
            report.session,
            report.attempt,
            report.outcome,
            round_trip,
        );
    }

    fn keeps(&self, session: SessionId) -> bool {
        let Some((cluster, check)) = self.clusters.check_of(session) else {
            return false;
        };
        runtime_of(&self.runtimes, cluster)
            .and_then(|runtime| runtime.checkers.get(check))
            .and_then(|checker| running::guard(|| checker.keeps_connections()))
            .unwrap_or(false)
    }
}
