//! How long a session waits: which of its check's intervals rules, and what chance adds.

use std::time::Duration;

use super::{Context, Traffic};
use crate::config::HealthCheck;
use crate::event::Transition;

/// Which interval a session waits by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IntervalKind {
    /// The first attempt: at once, or after part of `initial_jitter`.
    Initial,
    /// `interval`.
    Interval,
    /// `unhealthy_interval`.
    Unhealthy,
    /// `unhealthy_edge_interval`.
    UnhealthyEdge,
    /// `healthy_edge_interval`.
    HealthyEdge,
    /// `no_traffic_interval`.
    NoTraffic,
    /// `no_traffic_healthy_interval`.
    NoTrafficHealthy,
}

impl IntervalKind {
    /// When this interval rules, in a few words.
    pub fn why(self) -> &'static str {
        match self {
            Self::Initial => "no attempt yet",
            Self::Interval => "the host passes and the cluster has traffic",
            Self::Unhealthy => "the host is failed and the cluster has traffic",
            Self::UnhealthyEdge => "a failure, but fewer in a row than unhealthy_threshold",
            Self::HealthyEdge => "a success, but fewer in a row than healthy_threshold",
            Self::NoTraffic => "no traffic yet when the wait began, or the first round ran",
            Self::NoTrafficHealthy => {
                "the host passes; no traffic yet when the wait began, or the first round ran"
            }
        }
    }

    /// The name of the field that rules, as `no_traffic_interval`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial_jitter",
            Self::Interval => "interval",
            Self::Unhealthy => "unhealthy_interval",
            Self::UnhealthyEdge => "unhealthy_edge_interval",
            Self::HealthyEdge => "healthy_edge_interval",
            Self::NoTraffic => "no_traffic_interval",
            Self::NoTrafficHealthy => "no_traffic_healthy_interval",
        }
    }

    /// How long it is under a check, without jitter and bounds.
    pub fn of(self, check: &HealthCheck) -> Duration {
        match self {
            Self::Initial => Duration::ZERO,
            Self::Interval => check.interval,
            Self::Unhealthy => check.unhealthy_interval,
            Self::UnhealthyEdge => check.unhealthy_edge_interval,
            Self::HealthyEdge => check.healthy_edge_interval,
            Self::NoTraffic => check.no_traffic_interval,
            Self::NoTrafficHealthy => check.no_traffic_healthy_interval,
        }
    }
}

pub(super) fn next_interval(
    success: bool,
    transition: Transition,
    cx: &Context<'_>,
) -> IntervalKind {
    let pending = transition == Transition::ChangePending;
    let without = if success && !pending {
        IntervalKind::NoTrafficHealthy
    } else {
        IntervalKind::NoTraffic
    };
    let with = with_traffic(success, pending);
    match cx.traffic {
        Traffic::None => without,
        Traffic::Expected if without.of(cx.check) < with.of(cx.check) => without,
        Traffic::Expected | Traffic::Had => with,
    }
}

pub(super) fn with_traffic(success: bool, pending: bool) -> IntervalKind {
    match (success, pending) {
        (true, false) => IntervalKind::Interval,
        (true, true) => IntervalKind::HealthyEdge,
        (false, false) => IntervalKind::Unhealthy,
        (false, true) => IntervalKind::UnhealthyEdge,
    }
}

/// What is added to a wait of `kind` by chance is less than this.
pub(crate) fn most_jitter(kind: IntervalKind, check: &HealthCheck) -> Duration {
    match kind {
        IntervalKind::Initial => check.initial_jitter,
        kind => percent_of(kind.of(check), check).saturating_add(check.interval_jitter),
    }
}

fn percent_of(base: Duration, check: &HealthCheck) -> Duration {
    match check.interval_jitter_percent {
        0 => Duration::ZERO,
        percent => base.saturating_mul(percent) / 100,
    }
}

/// The wait of `kind` with its jitter, within the limits.
pub(super) fn wait(kind: IntervalKind, cx: &mut Context<'_>) -> Duration {
    let base = kind.of(cx.check);
    let percent = percent_of(base, cx.check);
    let jitter = part_of(percent, cx.random) + part_of(cx.check.interval_jitter, cx.random);
    cx.limits.bound(base.saturating_add(jitter))
}

/// A random duration below `whole`, which is taken in milliseconds as Envoy takes it: below 1 ms, none.
pub(super) fn part_of(whole: Duration, random: &mut dyn FnMut() -> u64) -> Duration {
    if whole < Duration::from_millis(1) {
        return Duration::ZERO;
    }
    let micros = u64::try_from(whole.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random() % micros)
}
