//! What the driver is to do, and what it is told about sessions.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::{ClusterId, SessionId};
use crate::event::{EventKind, HealthCheckEvent, HealthCheckerType, Reason};
use crate::host::Host;
use crate::session::{AttemptId, IntervalKind};

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
            timestamp,
            reason: self.reason,
            round_trip: self.round_trip,
        }
    }
}
