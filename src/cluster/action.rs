//! What the driver is to do, and what it is told about sessions.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::{ClusterId, SessionId};
use crate::config::IntervalLimits;
use crate::event::{EventKind, HealthCheckEvent, HealthCheckerType, Reason, Transition};
use crate::host::{HealthFlags, Host};
use crate::session::{AttemptId, IntervalKind, State, Traffic};

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Begin an attempt when there is room: see [`Clusters::start`](super::Clusters::start).
    Start(SessionId),
    /// The attempt's time is up: end it with [`Clusters::handle_outcome`](super::Clusters::handle_outcome).
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
    /// What it did to the verdict of the check.
    pub transition: Transition,
    /// The host's flags before it.
    pub before: HealthFlags,
    /// The host's flags after it.
    pub after: HealthFlags,
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
    /// The local port of the attempt before it, if that is known.
    pub(crate) local_port: Option<NonZeroU16>,
}

/// What a session is up to, for whoever asks why a host is as it is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SessionView {
    /// Name of the check, empty if it has none.
    pub check: Arc<str>,
    /// Waiting, waiting for its turn, or attempting; with when.
    pub state: State,
    /// The check fails the host.
    pub failed: bool,
    /// The check finds the host degraded.
    pub degraded: bool,
    /// No attempt has been completed.
    pub first_check: bool,
    /// Successes in a row, toward `healthy_threshold`; 0 while the check passes the host.
    pub successes: u32,
    /// As many bring a failed host back.
    pub healthy_threshold: u32,
    /// Failures in a row, toward `unhealthy_threshold`; 0 while the check fails the host.
    pub failures: u32,
    /// As many eject a host.
    pub unhealthy_threshold: u32,
    /// How the last attempt ended; none before the first.
    pub last: Option<Last>,
    /// The last success's round trip.
    pub round_trip: Option<Duration>,
    /// How long an attempt may take from being sent.
    pub timeout: Duration,
    /// The interval that rules the wait, or ruled the one before the attempt that runs:
    /// [`IntervalKind::why`] says for what reason.
    pub waits_by: IntervalKind,
    /// How long that is, without jitter and bounds.
    pub interval: Duration,
    /// Less than so much is added to it by chance: `interval_jitter` and `interval_jitter_percent`, or
    /// `initial_jitter` before the first attempt.
    pub jitter: Duration,
    /// Between these every wait is kept.
    pub limits: IntervalLimits,
    /// What counts as traffic now; the next completion goes by it.
    pub traffic: Traffic,
}

impl SessionView {
    /// Whether an attempt runs.
    pub fn attempting(&self) -> bool {
        matches!(self.state, State::Attempting { .. })
    }

    /// Since when the attempt runs, or since it was sent if it had to wait for room.
    pub fn running_since(&self) -> Option<Instant> {
        match self.state {
            State::Attempting { deadline, .. } => deadline.checked_sub(self.timeout),
            State::Waiting { .. } | State::Queued { .. } => None,
        }
    }

    /// When the next attempt is due, or when the running one's time is up; none while it waits for its turn.
    pub fn due(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { until: at } | State::Attempting { deadline: at, .. } => Some(at),
            State::Queued { .. } => None,
        }
    }
}

/// How the last attempt of a session ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Last {
    /// The host passed.
    Success,
    /// It failed, and why; the reason has the bytes that were heard, if any were.
    Failure(Option<Reason>),
}

impl Notice {
    /// The event, as of `timestamp`.
    pub fn at(
        self,
        health_checker_type: HealthCheckerType,
        timestamp: SystemTime,
    ) -> HealthCheckEvent {
        HealthCheckEvent {
            health_checker_type,
            host: self.host,
            cluster: self.name,
            check: self.check_name,
            kind: self.kind,
            transition: self.transition,
            before: self.before,
            after: self.after,
            timestamp,
            reason: self.reason,
            round_trip: self.round_trip,
        }
    }
}
