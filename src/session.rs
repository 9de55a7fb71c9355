//! One host under one health check: when to try, and what the outcomes amount to.
//!
//! A [`Session`] is a state machine without I/O, clock or random source of its own: instants and random
//! numbers are handed in, and what follows is handed back. It owns the schedule, the counts toward the
//! thresholds and the verdict of its check. It never knows other checks of the host, nor what an attempt is.
//! The rules are Envoy's, as its `HealthCheckerImplBase` was seen to apply them.

use std::time::{Duration, Instant};

use crate::config::HealthCheck;
pub use crate::config::IntervalLimits;
use crate::event::{EventKind, Failure, FailureType, Outcome, Transition};

mod waits;

pub use waits::IntervalKind;
pub(crate) use waits::most_jitter;
use waits::{next_interval, part_of, wait, with_traffic};

/// Names one attempt among all of a driver; given by whoever starts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttemptId(pub u32);

/// Whether a cluster counts as having had traffic, which decides the intervals that rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Traffic {
    /// It has had none: the no-traffic intervals rule.
    None,
    /// It will have as soon as its hosts are known to be healthy: the shorter of both waits rules.
    Expected,
    /// It has.
    Had,
}

impl From<bool> for Traffic {
    fn from(had: bool) -> Self {
        if had { Self::Had } else { Self::None }
    }
}

/// What the world around a session is like when it is called.
pub struct Context<'a> {
    /// The session's health check.
    pub check: &'a HealthCheck,
    /// Whether the cluster counts as having had traffic.
    pub traffic: Traffic,
    /// Bounds of waits.
    pub limits: IntervalLimits,
    /// Gives uniformly distributed numbers, for jitter.
    pub random: &'a mut dyn FnMut() -> u64,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("check", &self.check.name)
            .field("traffic", &self.traffic)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// What a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It waits until the next attempt is due.
    Waiting {
        /// When that is.
        until: Instant,
    },
    /// An attempt is due, and waits for its turn to start.
    Queued {
        /// When it was due.
        since: Instant,
    },
    /// An attempt runs.
    Attempting {
        /// Which.
        id: AttemptId,
        /// When its time is up.
        deadline: Instant,
    },
}

/// What is due in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// An attempt: to be begun with [`Session::handle_start`].
    Start,
    /// The end of the attempt: to be ended with [`Session::handle_outcome`].
    Expire(AttemptId),
}

/// What a completion, or a verdict from outside, amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// What it did to the verdict.
    pub transition: Transition,
    /// It was the first of this session.
    pub first_check: bool,
    /// What the event log is told, in order.
    pub events: [Option<EventKind>; 3],
}

/// One host under one health check.
#[derive(Clone, Debug)]
pub struct Session {
    state: State,
    successes: u32,
    failures: u32,
    failed: bool,
    degraded: bool,
    timed_out: bool,
    first_check: bool,
    known: bool,
    waits_by: IntervalKind,
}

impl Session {
    /// A session that begins at `now`. It starts as failed, or with the verdict of `before`, an earlier
    /// session of the host, which stands until the first completion decides.
    pub fn new(now: Instant, before: Option<&Self>, cx: &mut Context<'_>) -> Self {
        let before = before.filter(|session| session.known);
        let mut session = Self {
            state: State::Waiting { until: now },
            successes: 0,
            failures: 0,
            failed: before.is_none_or(|session| session.failed),
            degraded: before.is_some_and(|session| session.degraded),
            timed_out: before.is_some_and(|session| session.timed_out),
            first_check: true,
            known: before.is_some(),
            waits_by: IntervalKind::Initial,
        };
        let jitter = part_of(cx.check.initial_jitter, cx.random);
        if cx.check.initial_jitter >= IntervalLimits::FLOOR {
            session.state = State::Waiting {
                until: later(now, cx.limits.bound(jitter)),
            };
        }
        session
    }

    /// The same, but that a host without a verdict is taken as healthy until it fails: one of `LOGICAL_DNS`.
    pub fn taken_as_healthy(mut self) -> Self {
        self.failed &= self.known;
        self
    }

    /// Whether the check fails the host: it has not passed yet, or failed too often since.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Whether the check found the host degraded.
    pub fn degraded(&self) -> bool {
        self.degraded
    }

    /// Whether the host is failed and its last failure was a timeout.
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }

    /// Whether no attempt has been completed yet.
    pub fn first_check(&self) -> bool {
        self.first_check
    }

    /// Whether the verdict stands on a completion, of this session or of the one before it.
    pub fn known(&self) -> bool {
        self.known
    }

    /// The attempt that runs, if one does.
    pub fn attempting(&self) -> Option<AttemptId> {
        match self.state {
            State::Attempting { id, .. } => Some(id),
            State::Waiting { .. } | State::Queued { .. } => None,
        }
    }

    /// What it does now.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether the last attempt, or word from outside, passed the host; none before the first.
    pub fn last_passed(&self) -> Option<bool> {
        // Each completion sets the count of the other kind to nothing.
        let passed = if self.failed {
            self.successes > 0
        } else {
            self.failures == 0
        };
        (!self.first_check).then_some(passed)
    }

    /// Successes and failures in a row, as far as they count toward a change of the verdict.
    pub fn counts(&self) -> (u32, u32) {
        (self.successes, self.failures)
    }

    /// The interval that the session waits by, or waited by before the attempt that runs.
    pub fn waits_by(&self) -> IntervalKind {
        self.waits_by
    }

    /// When [`Session::handle_timeout`] is next due; none while the attempt waits for its turn.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { until } => Some(until),
            State::Queued { .. } => None,
            State::Attempting { deadline, .. } => Some(deadline),
        }
    }

    /// Advances time to `now` and tells what is due. An expired attempt goes on being due until it is
    /// ended; a due start is told once.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Due> {
        match self.state {
            State::Waiting { until } if until <= now => {
                self.state = State::Queued { since: until };
                Some(Due::Start)
            }
            State::Attempting { id, deadline } if deadline <= now => Some(Due::Expire(id)),
            State::Waiting { .. } | State::Queued { .. } | State::Attempting { .. } => None,
        }
    }

    /// Begins the attempt that was due as `id`, and tells by how much it is late. Nothing unless one was due.
    pub fn handle_start(
        &mut self,
        now: Instant,
        id: AttemptId,
        check: &HealthCheck,
    ) -> Option<Duration> {
        let State::Queued { since } = self.state else {
            return None;
        };
        self.state = State::Attempting {
            id,
            deadline: later(now, check.timeout),
        };
        Some(now.saturating_duration_since(since))
    }

    /// Attempt `id`, which had to wait for room, has been sent only at `now`: its timeout begins anew.
    pub fn handle_sent(&mut self, now: Instant, id: AttemptId, check: &HealthCheck) {
        if let State::Attempting { id: runs, deadline } = &mut self.state
            && *runs == id
        {
            *deadline = later(now, check.timeout);
        }
    }

    /// Reports how attempt `id` ended; an id that does not run is ignored.
    pub fn handle_outcome(
        &mut self,
        now: Instant,
        id: AttemptId,
        outcome: &Outcome,
        cx: &mut Context<'_>,
    ) -> Option<Completion> {
        if self.attempting() != Some(id) {
            return None;
        }
        let completion = match outcome {
            Outcome::Success { degraded } => self.succeed(*degraded, cx.check),
            Outcome::Failure(failure) => self.fail(failure, cx.check),
        };
        let success = matches!(outcome, Outcome::Success { .. });
        self.waits_by = next_interval(success, completion.transition, cx);
        self.state = State::Waiting {
            until: later(now, wait(self.waits_by, cx)),
        };
        Some(completion)
    }

    /// Fails the host from outside, whatever the threshold says. The schedule goes on as it is.
    pub fn set_unhealthy(&mut self, failure: &Failure, check: &HealthCheck) -> Completion {
        self.fail(failure, check)
    }

    /// Everything that is due later, or runs, is put off: this process could not do its part for so long.
    pub fn postpone(&mut self, by: Duration) {
        match &mut self.state {
            State::Waiting { until: at }
            | State::Queued { since: at }
            | State::Attempting { deadline: at, .. } => *at = later(*at, by),
        }
    }

    /// A longer wait is cut short: traffic has ended the no-traffic interval. Tells whether it was. Envoy lets a
    /// running wait finish.
    pub fn handle_traffic(&mut self, now: Instant, cx: &mut Context<'_>) -> bool {
        let State::Waiting { until } = self.state else {
            return false;
        };
        if !matches!(
            self.waits_by,
            IntervalKind::NoTraffic | IntervalKind::NoTrafficHealthy
        ) {
            return false;
        }
        let kind = with_traffic(self.last_passed() == Some(true), self.counts() != (0, 0));
        let sooner = later(now, wait(kind, cx));
        if sooner < until {
            self.waits_by = kind;
            self.state = State::Waiting { until: sooner };
        }
        sooner < until
    }

    fn succeed(&mut self, degraded: bool, check: &HealthCheck) -> Completion {
        let first_check = std::mem::replace(&mut self.first_check, false);
        let had_verdict = std::mem::replace(&mut self.known, true);
        self.failures = 0;
        let mut transition = Transition::Unchanged;
        let mut events = [None; 3];
        if self.failed {
            if !first_check {
                self.successes = self.successes.saturating_add(1);
            }
            // Equality, not order: a threshold of 0 is never reached.
            if first_check || self.successes == check.healthy_threshold {
                self.failed = false;
                self.timed_out = false;
                self.successes = 0;
                transition = Transition::Changed;
                events[0] = Some(EventKind::AddHealthy { first_check });
            } else {
                transition = Transition::ChangePending;
            }
        } else if first_check && had_verdict {
            // The verdict is that of the check before this one. Envoy begins anew, so tells of it anew.
            events[0] = Some(EventKind::AddHealthy { first_check });
        }
        if degraded != self.degraded {
            self.degraded = degraded;
            events[1] = Some(if degraded {
                EventKind::Degraded
            } else {
                EventKind::NoLongerDegraded
            });
            if transition == Transition::Unchanged {
                transition = Transition::Changed;
            }
        }
        if check.always_log_success && events[0].is_none() {
            events[2] = Some(EventKind::Success);
        }
        Completion {
            transition,
            first_check,
            events,
        }
    }

    fn fail(&mut self, failure: &Failure, check: &HealthCheck) -> Completion {
        let first_check = std::mem::replace(&mut self.first_check, false);
        // What a changed check fails at first has never passed it: as with Envoy, it is failed at once, and not
        // ejected.
        let anew = std::mem::replace(&mut self.known, true) && first_check;
        self.successes = 0;
        let mut transition = Transition::Unchanged;
        let mut events = [None; 3];
        let Failure {
            failure_type,
            http_status_code,
            ..
        } = *failure;
        let network = matches!(
            failure_type,
            FailureType::Network | FailureType::NetworkTimeout
        );
        if !self.failed {
            self.failures = self.failures.saturating_add(1);
            let at_once = (!network && !failure.retriable) || anew;
            if at_once || self.failures == check.unhealthy_threshold {
                self.failed = true;
                self.failures = 0;
                transition = Transition::Changed;
                events[0] = (!anew).then_some(EventKind::EjectUnhealthy {
                    failure_type,
                    http_status_code,
                });
            } else {
                transition = Transition::ChangePending;
            }
        }
        self.timed_out = self.failed && failure_type == FailureType::NetworkTimeout;
        if first_check || check.always_log_failures {
            events[1] = Some(EventKind::Failure {
                failure_type,
                first_check,
                http_status_code,
            });
        }
        Completion {
            transition,
            first_check,
            events,
        }
    }
}

/// `wait` after `now`; in thirty years, if the sum cannot be told.
fn later(now: Instant, wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
    now.checked_add(wait).unwrap_or_else(|| now + FAR)
}

#[cfg(test)]
mod tests;
