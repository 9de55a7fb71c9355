//! What attempts came to, and the verdicts by it.

use std::time::Duration;

use super::probe::Row;
use crate::event::Reason;

/// What is said of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// All attempts passed.
    Passed,
    /// Some did.
    Flaky,
    /// None did.
    Failed,
    /// There was none.
    Unchecked,
}

impl Verdict {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Flaky => "flaky",
            Self::Failed => "failed",
            Self::Unchecked => "unchecked",
        }
    }
}

/// Round trips of the attempts that passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrips {
    pub(super) min: Duration,
    pub(super) median: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

impl RoundTrips {
    fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        // The least time that so many percent do not exceed.
        let rank = |percent: usize| {
            let place = (times.len() * percent).div_ceil(100);
            times.get(place.max(1) - 1).copied()
        };
        Some(Self {
            min: *times.first()?,
            median: rank(50)?,
            p99: rank(99)?,
            max: *times.last()?,
        })
    }
}

impl Row {
    pub(super) fn passed(&self) -> usize {
        self.attempts
            .iter()
            .filter(|attempt| attempt.is_ok())
            .count()
    }

    pub(super) fn verdict(&self) -> Verdict {
        match (self.passed(), self.attempts.len()) {
            (_, 0) => Verdict::Unchecked,
            (passed, all) if passed == all => Verdict::Passed,
            (0, _) => Verdict::Failed,
            _ => Verdict::Flaky,
        }
    }

    pub(super) fn round_trips(&self) -> Option<RoundTrips> {
        let passed = self
            .attempts
            .iter()
            .filter_map(|attempt| attempt.as_ref().ok());
        RoundTrips::of(passed.copied().collect())
    }

    /// Why the last attempt that failed did.
    pub(super) fn reason(&self) -> Option<&Reason> {
        self.attempts.iter().rev().find_map(|a| a.as_ref().err())
    }

    /// Whether an attempt failed by what went wrong on this machine.
    pub(super) fn local(&self) -> bool {
        let mut failures = self.attempts.iter().filter_map(|a| a.as_ref().err());
        failures.any(|reason| {
            matches!(
                reason,
                Reason::Local { .. } | Reason::Shortage(_) | Reason::Panicked
            )
        })
    }

    /// What stands for the host: its name, if it has one, and its address.
    pub(super) fn label(&self) -> String {
        let address = &self.host.address;
        let label = match self.host.hostname() {
            Some(name) => format!("{name} ({address})"),
            None => address.to_string(),
        };
        match self.host.checked_at() {
            other if other != address => format!("{label} at {other}"),
            _ => label,
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) rows: Vec<Row>,
    /// Hosts that are not to be checked.
    pub(super) disabled: usize,
}

impl Report {
    pub(super) fn verdict(&self) -> Verdict {
        let verdicts = || self.rows.iter().map(Row::verdict);
        verdicts().max().unwrap_or(Verdict::Unchecked)
    }

    pub(super) fn local(&self) -> bool {
        self.rows.iter().any(Row::local)
    }

    pub(super) fn total(&self, of: impl Fn(&Row) -> usize) -> usize {
        self.rows.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use std::net::SocketAddr;
    use std::sync::Arc;

    fn row(attempts: Vec<Result<Duration, Reason>>) -> Row {
        Row {
            host: Arc::new(Host::new(SocketAddr::from(([127, 0, 0, 1], 7)))),
            check: "".into(),
            receive: None,
            attempts,
            sent: 0,
            others: 0,
        }
    }

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let times = (1..=100).map(|ms| Ok(Duration::from_millis(ms)));
        let trips = row(times.collect()).round_trips().unwrap();
        let millis = [trips.min, trips.median, trips.p99, trips.max];
        assert_eq!(millis.map(|time| time.as_millis()), [1, 50, 99, 100]);
        let one = row(vec![Ok(Duration::from_millis(3))]);
        let trips = one.round_trips().unwrap();
        assert_eq!((trips.min, trips.p99), (trips.max, trips.median));
        assert!(row(vec![Err(Reason::Silent)]).round_trips().is_none());
    }

    #[test]
    fn a_host_that_passes_at_times_is_flaky() {
        let ok = || Ok(Duration::ZERO);
        let err = || Err(Reason::Silent);
        for (attempts, verdict) in [
            (vec![], Verdict::Unchecked),
            (vec![ok(), ok()], Verdict::Passed),
            (vec![ok(), err()], Verdict::Flaky),
            (vec![err()], Verdict::Failed),
        ] {
            assert_eq!(row(attempts).verdict(), verdict);
        }
    }
}
