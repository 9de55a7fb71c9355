//! The last attempts of a shard: a ring of small entries, so that hosts need no memory of their own for it.
//!
//! An entry names its host by a tag made of the cluster's key and the host's address, and by the slot where
//! the host stands: a slot whose host has another tag by now has another host.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::cluster::ClusterId;
use crate::event::{FailureType, Outcome, Reason};
use crate::host::Host;

/// An attempt that has ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PastAttempt {
    /// When it ended.
    pub at: Instant,
    /// The same by the wall clock as it is now.
    pub timestamp: SystemTime,
    /// The cluster's name.
    pub cluster: Arc<str>,
    /// The host; none when it has gone since.
    pub host: Option<Arc<Host>>,
    /// Name of the check, empty if it has none or has gone since.
    pub check: Arc<str>,
    /// How it ended.
    pub outcome: PastOutcome,
    /// From sending to its end, the round trip of a success; none when it was not sent.
    pub took: Option<Duration>,
}

/// How an attempt ended, in as few bytes as keep the essence of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PastOutcome {
    /// The host passed.
    Success {
        /// It said that it is degraded.
        degraded: bool,
    },
    /// It failed.
    Failure {
        /// What counters and thresholds go by.
        failure_type: FailureType,
        /// The label of the reason, as `mismatch`: one of [`Reason::LABELS`].
        label: &'static str,
        /// Offset of the first difference in bytes for `mismatch`, the error number for `unreachable` and `local`.
        detail: Option<u32>,
    },
}

impl fmt::Display for PastOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Success { degraded: false } => f.write_str("success"),
            Self::Success { degraded: true } => f.write_str("success, degraded"),
            Self::Failure { label, detail, .. } => {
                f.write_str(label)?;
                match detail {
                    Some(at) if label == "mismatch" => write!(f, " at byte {at}"),
                    Some(errno) => {
                        let errno = i32::try_from(errno).unwrap_or(i32::MAX);
                        write!(f, ": {}", std::io::Error::from_raw_os_error(errno))
                    }
                    None => Ok(()),
                }
            }
        }
    }
}

/// The last attempts of a shard, in a ring.
#[derive(Debug)]
pub(super) struct Journal {
    /// Grows to its capacity, and is written over from its beginning then.
    entries: Vec<Entry>,
    capacity: usize,
    /// Where the next entry goes once the ring is full.
    next: usize,
    since: Instant,
}

/// What is noted of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Microseconds since the journal began.
    micros: u64,
    pub(super) cluster: ClusterId,
    pub(super) slot: u32,
    pub(super) tag: u32,
    /// From sending to the end; `u32::MAX` when it was not sent.
    took_micros: u32,
    detail: u32,
    /// [`check_tag`] of the check's name.
    pub(super) check: u16,
    /// [`PASSED`], [`DEGRADED`] or a reason's index after them.
    outcome: u8,
    failure_type: FailureType,
}

const _: () = assert!(size_of::<Entry>() <= 32);

const NOT_SENT: u32 = u32::MAX;
const NO_DETAIL: u32 = u32::MAX;
const PASSED: u8 = 0;
const DEGRADED: u8 = 1;
const REASONS: u8 = 2;

/// How an attempt ended, ready to be noted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    outcome: u8,
    failure_type: FailureType,
    detail: u32,
}

impl Ending {
    pub(super) fn of(outcome: &Outcome) -> Self {
        let failure = match outcome {
            Outcome::Success { degraded } => {
                return Self {
                    outcome: if *degraded { DEGRADED } else { PASSED },
                    failure_type: FailureType::Network,
                    detail: NO_DETAIL,
                };
            }
            Outcome::Failure(failure) => failure,
        };
        let detail = match &failure.reason {
            Reason::Mismatch(mismatch) => mismatch.first_difference,
            Reason::Unreachable(errno) | Reason::Local { errno, .. } => {
                u32::try_from(*errno).unwrap_or(NO_DETAIL)
            }
            _ => NO_DETAIL,
        };
        // There are a few labels.
        let index = u8::try_from(failure.reason.index()).unwrap_or_default();
        Self {
            outcome: REASONS + index,
            failure_type: failure.failure_type,
            detail,
        }
    }
}

impl Journal {
    /// A journal of so many entries that begins at `now`; none if it is to hold nothing.
    pub(super) fn new(capacity: usize, now: Instant) -> Option<Self> {
        (capacity > 0).then(|| Self {
            entries: Vec::new(),
            capacity,
            next: 0,
            since: now,
        })
    }

    pub(super) fn note(
        &mut self,
        now: Instant,
        (cluster, slot, tag): (ClusterId, u32, u32),
        check: u16,
        ending: Ending,
        took: Option<Duration>,
    ) {
        let micros = now.saturating_duration_since(self.since).as_micros();
        let took = took.map(|took| u32::try_from(took.as_micros()).unwrap_or(NOT_SENT - 1));
        let entry = Entry {
            micros: u64::try_from(micros).unwrap_or(u64::MAX),
            cluster,
            slot,
            tag,
            took_micros: took.unwrap_or(NOT_SENT),
            detail: ending.detail,
            check,
            outcome: ending.outcome,
            failure_type: ending.failure_type,
        };
        if self.entries.len() < self.capacity {
            self.entries.push(entry);
        } else if let Some(place) = self.entries.get_mut(self.next) {
            *place = entry;
            self.next = (self.next + 1) % self.capacity;
        }
    }

    /// All entries, the newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Entry> {
        let (newer, older) = self.entries.split_at(self.next);
        newer.iter().rev().chain(older.iter().rev())
    }

    /// When an attempt ended.
    pub(super) fn at(&self, entry: &Entry) -> Instant {
        let since = Duration::from_micros(entry.micros);
        self.since.checked_add(since).unwrap_or(self.since)
    }
}

impl Entry {
    pub(super) fn outcome(&self) -> PastOutcome {
        match self.outcome {
            PASSED => PastOutcome::Success { degraded: false },
            DEGRADED => PastOutcome::Success { degraded: true },
            reason => PastOutcome::Failure {
                failure_type: self.failure_type,
                label: Reason::LABELS
                    .get(usize::from(reason - REASONS))
                    .copied()
                    .unwrap_or_default(),
                detail: (self.detail != NO_DETAIL).then_some(self.detail),
            },
        }
    }

    pub(super) fn took(&self) -> Option<Duration> {
        let sent = self.took_micros != NOT_SENT;
        sent.then(|| Duration::from_micros(self.took_micros.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_journal_forgets_its_oldest_entries() {
        let start = Instant::now();
        let mut journal = Journal::new(3, start).unwrap();
        let ending = Ending::of(&Outcome::network(Reason::Unreachable(113)));
        for second in 1..=5 {
            let now = start + Duration::from_secs(u64::from(second));
            let took = Some(Duration::from_micros(7));
            journal.note(now, (ClusterId::FIRST, second, 9), 0, ending, took);
        }
        let slots: Vec<u32> = journal.newest_first().map(|entry| entry.slot).collect();
        assert_eq!(slots, [5, 4, 3]);
        let newest = journal.newest_first().next().unwrap();
        assert_eq!(journal.at(newest), start + Duration::from_secs(5));
        assert_eq!(newest.took(), Some(Duration::from_micros(7)));
        assert_eq!(
            newest.outcome().to_string(),
            "unreachable: No route to host (os error 113)"
        );
        assert!(Journal::new(0, start).is_none());
    }
}
