//! How fast first attempts begin when many are due at once.
//!
//! Hosts come back an interval after their attempt has ended. If a thousand first attempts were begun as fast
//! as this machine can, they would come back as fast, each round again, with nothing left for whatever else is
//! due then. So a part of the time is left unused while first attempts wait.

use std::time::{Duration, Instant};

/// How much of the time may be spent while first attempts wait: a ratio.
const SHARE: u32 = 4;
const OF: u32 = 5;
/// Time that is spent at once, without regard to that: hundreds of attempts.
const AT_ONCE: Duration = Duration::from_millis(5);

/// A bucket of time spent, from which [`SHARE`] of the time that passes runs out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    spent: Duration,
    at: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            spent: Duration::ZERO,
            at: now,
        }
    }

    /// The time since this was last called, up to `now`, was spent if `busy`, or passed.
    pub(super) fn pass(&mut self, now: Instant, busy: bool) {
        let passed = now.saturating_duration_since(self.at);
        self.at = now;
        if busy {
            self.spent += passed;
        }
        // What else took long is not held against those who wait.
        let spent = self.spent.min(AT_ONCE * 2);
        self.spent = spent.saturating_sub(passed * SHARE / OF);
    }

    /// How long first attempts are to wait; none if they need not.
    pub(super) fn wait(&self) -> Option<Duration> {
        let over = self.spent.checked_sub(AT_ONCE)?;
        (!over.is_zero()).then(|| over * OF / SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_part_of_the_time_is_left_unused() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let (mut now, mut busy) = (start, Duration::ZERO);
        while now < start + 1000 * MS {
            if let Some(wait) = pace.wait() {
                now += wait.max(MS);
                pace.pass(now, false);
            } else {
                now += MS;
                busy += MS;
                pace.pass(now, true);
            }
        }
        assert!((790 * MS..820 * MS).contains(&busy), "{busy:?}");
    }

    #[test]
    fn a_few_attempts_need_not_wait() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.pass(start + AT_ONCE, true);
        assert_eq!(pace.wait(), None);
    }

    #[test]
    fn what_took_long_is_soon_forgotten() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.pass(start + 1000 * MS, true);
        assert!(pace.wait().is_none_or(|wait| wait < 10 * MS), "{pace:?}");
    }
}
