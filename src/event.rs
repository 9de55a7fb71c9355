//! What a check finds and what is told of it: outcomes, failure types with finer reasons, and events.
//!
//! Envoy knows two failures of a UDP check, `NETWORK` and `NETWORK_TIMEOUT`; both are kept, since thresholds,
//! counters and events speak of them, and beside them a [`Reason`] that says what was really seen.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::host::{HealthFlags, Host};

/// The kind of a checker, as events name it.
///
/// Source: `envoy.data.core.v3.HealthCheckerType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are Envoy's and say all there is")]
pub enum HealthCheckerType {
    Http,
    Tcp,
    Grpc,
    Redis,
    Thrift,
    DynamicModule,
    Udp,
}

impl HealthCheckerType {
    /// The proto name of the value, as `UDP`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Tcp => "TCP",
            Self::Grpc => "GRPC",
            Self::Redis => "REDIS",
            Self::Thrift => "THRIFT",
            Self::DynamicModule => "DYNAMIC_MODULE",
            Self::Udp => "UDP",
        }
    }
}

/// The kind of a failure, which decides counters, thresholds and flags.
///
/// Source: `envoy.data.core.v3.HealthCheckFailureType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureType {
    /// The host answered that it is unhealthy: it fails at once, whatever the threshold.
    Active,
    /// Set unhealthy from outside, not by a check.
    Passive,
    /// The network, or this machine, refused: counts toward `unhealthy_threshold`.
    Network,
    /// No satisfying answer in time: counts toward `unhealthy_threshold`.
    NetworkTimeout,
}

impl FailureType {
    /// The proto name of the value, as `NETWORK_TIMEOUT`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Passive => "PASSIVE",
            Self::Network => "NETWORK",
            Self::NetworkTimeout => "NETWORK_TIMEOUT",
        }
    }
}

/// What this process ran short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shortage {
    /// File descriptors (`EMFILE`, `ENFILE`).
    Descriptors,
    /// Local ports (`EADDRINUSE`, `EADDRNOTAVAIL`, `EAGAIN` of `bind` and `connect`).
    Ports,
    /// Kernel memory or buffers (`ENOBUFS`, `ENOMEM`).
    Buffers,
}

impl Shortage {
    /// All kinds, in the order of [`Shortage::index`].
    pub const ALL: [Self; 3] = [Self::Descriptors, Self::Ports, Self::Buffers];

    /// A word for stats and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptors",
            Self::Ports => "ports",
            Self::Buffers => "buffers",
        }
    }

    /// Position in [`Shortage::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

/// How datagrams that did not match differed from what was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatch {
    /// Datagrams passed over in the attempt.
    pub datagrams: u32,
    /// Offset in bytes of the first difference in the last of them.
    pub first_difference: u32,
    /// Length in bytes of the last of them. Where the system does not tell it of a datagram that was cut, that of
    /// what was read: more than wanted.
    pub length: u32,
    /// Beginning of the last of them, at most [`Mismatch::SAMPLE`] bytes unless the checker was told to keep more.
    pub sample: Box<[u8]>,
}

impl Mismatch {
    /// How many bytes of a datagram are kept.
    pub const SAMPLE: usize = 64;

    /// Notes one more datagram, `got`, where `wanted` was waited for.
    pub fn note(earlier: Option<Self>, wanted: &[u8], got: &[u8]) -> Self {
        Self::note_sample(earlier, wanted, got, Self::SAMPLE)
    }

    /// The last of them was that long, though less of it was read.
    pub(crate) fn of_length(self, length: usize) -> Self {
        Self {
            length: u32::try_from(length).unwrap_or(u32::MAX),
            ..self
        }
    }

    /// As [`Mismatch::note`], but keeps at most `sample` bytes.
    pub(crate) fn note_sample(
        earlier: Option<Self>,
        wanted: &[u8],
        got: &[u8],
        sample: usize,
    ) -> Self {
        let differs = wanted
            .iter()
            .zip(got)
            .position(|(a, b)| a != b)
            .unwrap_or_else(|| wanted.len().min(got.len()));
        Self {
            datagrams: earlier.map_or(0, |m| m.datagrams).saturating_add(1),
            first_difference: u32::try_from(differs).unwrap_or(u32::MAX),
            length: u32::try_from(got.len()).unwrap_or(u32::MAX),
            sample: got[..got.len().min(sample)].into(),
        }
    }
}

/// Why an attempt failed, finer than the [`FailureType`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Nothing was heard until the timeout.
    Silent,
    /// Only datagrams that did not match were heard until the timeout.
    Mismatch(Arc<Mismatch>),
    /// The port is closed: the network reported it unreachable.
    Refused,
    /// No way to the host or its network: the error number.
    Unreachable(i32),
    /// This process had no room for the attempt until its deadline.
    Shortage(Shortage),
    /// Another error of a local socket call: the call and the error number.
    Local {
        /// The system call, as `connect`.
        call: &'static str,
        /// The error number.
        errno: i32,
    },
    /// The checker panicked; taken as a local error.
    Panicked,
    /// Set unhealthy from outside.
    Passive,
    /// The host answered that it is unhealthy.
    Unhealthy,
    /// What a checker from outside this crate has to say.
    Other(Arc<str>),
}

impl Reason {
    /// Labels of all reasons, in the order of [`Reason::index`].
    pub const LABELS: [&'static str; 10] = [
        "silent",
        "mismatch",
        "refused",
        "unreachable",
        "shortage",
        "local",
        "panicked",
        "passive",
        "unhealthy",
        "other",
    ];

    /// Position of this reason's label in [`Reason::LABELS`].
    pub fn index(&self) -> usize {
        match self {
            Self::Silent => 0,
            Self::Mismatch(_) => 1,
            Self::Refused => 2,
            Self::Unreachable(_) => 3,
            Self::Shortage(_) => 4,
            Self::Local { .. } => 5,
            Self::Panicked => 6,
            Self::Passive => 7,
            Self::Unhealthy => 8,
            Self::Other(_) => 9,
        }
    }

    /// A word for stats and filters.
    pub fn label(&self) -> &'static str {
        Self::LABELS[self.index()]
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("no answer within the timeout"),
            Self::Mismatch(m) => write!(
                f,
                "no matching answer within the timeout: {} passed over, the last of {} bytes differs at byte {}",
                m.datagrams, m.length, m.first_difference
            ),
            Self::Refused => f.write_str("connection refused: the port is closed"),
            Self::Unreachable(errno) => {
                write!(
                    f,
                    "unreachable: {}",
                    std::io::Error::from_raw_os_error(*errno)
                )
            }
            Self::Shortage(what) => write!(f, "out of {} until the deadline", what.name()),
            Self::Local { call, errno } => {
                write!(f, "{call}: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Self::Panicked => f.write_str("the checker panicked"),
            Self::Passive => f.write_str("set unhealthy from outside"),
            Self::Unhealthy => f.write_str("the host answered that it is unhealthy"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// What counters and thresholds go by.
    pub failure_type: FailureType,
    /// What was really seen.
    pub reason: Reason,
    /// An [`FailureType::Active`] failure that counts toward the threshold all the same
    /// (`retriable_statuses` of HTTP).
    pub retriable: bool,
    /// The host asked to be taken out of panic calculations too (`x-envoy-immediate-health-check-fail`).
    pub immediate: bool,
    /// Status of an HTTP answer, 0 when there was none.
    pub http_status_code: u16,
}

impl Failure {
    /// A failure that is neither retriable nor immediate and has no HTTP status.
    pub fn new(failure_type: FailureType, reason: Reason) -> Self {
        Self {
            failure_type,
            reason,
            retriable: false,
            immediate: false,
            http_status_code: 0,
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The host passed; perhaps as degraded.
    Success {
        /// The host says that it is degraded.
        degraded: bool,
    },
    /// The host, or the attempt, failed.
    Failure(Failure),
}

impl Outcome {
    /// A plain success.
    pub const SUCCESS: Self = Self::Success { degraded: false };

    /// A failure of type [`FailureType::Network`].
    pub fn network(reason: Reason) -> Self {
        Self::Failure(Failure::new(FailureType::Network, reason))
    }

    /// A failure of type [`FailureType::NetworkTimeout`].
    pub fn timeout(reason: Reason) -> Self {
        Self::Failure(Failure::new(FailureType::NetworkTimeout, reason))
    }
}

/// What a completion did to the verdict of its check.
///
/// Source: Envoy's `HealthTransition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transition {
    /// Nothing.
    Unchanged,
    /// It has changed.
    Changed,
    /// It will, if more completions of the kind follow.
    ChangePending,
}

/// What an event tells.
///
/// Source: the oneof `event` of `envoy.data.core.v3.HealthCheckEvent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// The check failed the host, which it had passed before.
    EjectUnhealthy {
        /// The failure's type.
        failure_type: FailureType,
        /// HTTP status, 0 when there was none.
        http_status_code: u16,
    },
    /// The check passes the host, which was failed before.
    AddHealthy {
        /// By the first check of the host.
        first_check: bool,
    },
    /// An attempt failed: told for a first check and with `always_log_health_check_failures`.
    Failure {
        /// The failure's type.
        failure_type: FailureType,
        /// In the first check of the host.
        first_check: bool,
        /// HTTP status, 0 when there was none.
        http_status_code: u16,
    },
    /// The host became degraded.
    Degraded,
    /// The host is no longer degraded.
    NoLongerDegraded,
    /// An attempt succeeded: told with `always_log_health_check_success`.
    Success,
}

/// What a check did to a host: one line of the event log, with what Envoy's line leaves out.
///
/// Source: `envoy.data.core.v3.HealthCheckEvent`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HealthCheckEvent {
    /// The checker's kind.
    pub health_checker_type: HealthCheckerType,
    /// The host, by its own address, not the one that is checked.
    pub host: Arc<Host>,
    /// The cluster's name (never its `alt_stat_name`).
    pub cluster: Arc<str>,
    /// Name of the check, empty when it has none. Envoy's events do not tell it.
    pub check: Arc<str>,
    /// What happened.
    pub kind: EventKind,
    /// What it did to the verdict of the check. The host's is told by the flags: it has to pass all of its checks.
    pub transition: Transition,
    /// The host's flags before it.
    pub before: HealthFlags,
    /// The host's flags after it.
    pub after: HealthFlags,
    /// When, by the wall clock.
    pub timestamp: SystemTime,
    /// Why, for failures.
    pub reason: Option<Reason>,
    /// From sending to the answer, for successes.
    pub round_trip: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_tells_where_the_first_difference_is() {
        let first = Mismatch::note(None, b"pong", b"poxg");
        assert_eq!((first.datagrams, first.first_difference), (1, 2));
        let longer = Mismatch::note(Some(first), b"pong", b"pongX");
        assert_eq!((longer.datagrams, longer.first_difference), (2, 4));
        let empty = Mismatch::note(Some(longer), b"pong", b"");
        assert_eq!((empty.datagrams, empty.first_difference), (3, 0));
        assert_eq!(
            Mismatch::note(None, b"", &[7; 100]).sample.len(),
            Mismatch::SAMPLE
        );
    }

    #[test]
    fn every_reason_has_its_label() {
        assert_eq!(Reason::Silent.label(), "silent");
        assert_eq!(Reason::Other("x".into()).label(), "other");
        assert_eq!(Reason::Passive.label(), "passive");
    }
}
