//! Answers that are looked for before sockets are watched.
//!
//! To watch a socket costs a fifth of all that an attempt takes. Where hosts are near, most answers are there by
//! the time the driver has begun a few more attempts: a look finds them, and only sockets without an answer are
//! watched then. Where looks are mostly in vain, or few attempts begin, sockets are watched at once.
//!
//! An answer that was there before the look is noticed by it, and its round trip is taken for longer than it was.
//! So looks come about when most answers do, which is learned from them: a little sooner after each answer that is
//! found, much later after each look in vain.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long an answer may take at most before it is looked for: less than a tick of the schedule.
const MOST_AFTER: Duration = Duration::from_micros(500);
/// And at least: as long as it takes to begin a few attempts.
const LEAST_AFTER: Duration = Duration::from_micros(20);
/// How long at first.
const FIRST_AFTER: Duration = Duration::from_micros(100);
/// What is taken off this time for each answer that is found, one part of so many; and what is added for a look in
/// vain. So one look of eight is in vain: those answers come when they come, and are told of by the poller.
const SOONER: u32 = 64;
const LATER: u32 = 8;
/// Looks that are to come within so long are made together, since waking up costs as much as several of them.
const TOGETHER: Duration = Duration::from_micros(100);
/// Fewer attempts than these are watched at once: each answer is then told of when it comes.
const FEW: usize = 4;
/// What a look that finds an answer is worth, where one in vain costs 1.
const FOUND: u32 = 3;
/// The most that looks may be thought of.
const MOST: u32 = 256;
/// What they are thought of at first, and when they are tried again.
const FIRST: u32 = 64;
/// Attempts that are watched at once before looks are tried again.
const REST: u32 = 4096;

/// Attempts whose sockets are not watched yet.
#[derive(Debug)]
pub(super) struct Early {
    /// Their slots, with when they were sent.
    slots: VecDeque<(Instant, usize)>,
    /// How long after that they are looked at.
    after: Duration,
    worth: u32,
    rests: u32,
}

impl Early {
    pub(super) fn new() -> Self {
        Self {
            slots: VecDeque::new(),
            after: FIRST_AFTER,
            worth: FIRST,
            rests: 0,
        }
    }

    /// Whether the next attempt, of so many that are due, is to be looked at before it is watched.
    pub(super) fn is_worthwhile(&mut self, due: usize) -> bool {
        if self.worth > 0 {
            return due >= FEW;
        }
        self.rests += 1;
        if self.rests == REST {
            (self.rests, self.worth) = (0, FIRST);
        }
        false
    }

    /// The attempt in a slot was sent, and is to be looked at.
    pub(super) fn push(&mut self, sent: Instant, slot: usize) {
        self.slots.push_back((sent, slot));
    }

    /// A slot that is to be looked at now.
    pub(super) fn pop(&mut self, now: Instant) -> Option<usize> {
        if self.next()? > now {
            return None;
        }
        self.slots.pop_front().map(|(_, slot)| slot)
    }

    /// When looks are worth waking up for: for all that are to come within a while, or as many as were sent.
    pub(super) fn wake(&self) -> Option<Instant> {
        let (last, _) = self.slots.back()?;
        Some((self.next()? + self.after.min(TOGETHER)).min(*last + self.after))
    }

    /// When a slot is next to be looked at.
    fn next(&self) -> Option<Instant> {
        self.slots.front().map(|(sent, _)| *sent + self.after)
    }

    /// A look found an answer, or did not.
    pub(super) fn looked(&mut self, found: bool) {
        self.worth = if found {
            (self.worth + FOUND).min(MOST)
        } else {
            self.worth.saturating_sub(1)
        };
        // It counts what looks came to, whether they came on time or not: that bounds what they cost.
        let after = if found {
            self.after - self.after / SOONER
        } else {
            self.after + self.after / LATER
        };
        self.after = after.clamp(LEAST_AFTER, MOST_AFTER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_end_where_they_are_in_vain_and_are_tried_again() {
        let mut early = Early::new();
        assert!(!early.is_worthwhile(1), "one is watched");
        for _ in 0..FIRST {
            assert!(early.is_worthwhile(FEW));
            early.looked(false);
        }
        for _ in 0..REST {
            assert!(!early.is_worthwhile(FEW));
        }
        assert!(early.is_worthwhile(FEW));
        // Two found of five are enough.
        for _ in 0..1000 {
            for found in [false, true, false, true, false] {
                early.looked(found);
            }
            assert!(early.is_worthwhile(FEW));
        }
    }

    #[test]
    fn a_slot_is_looked_at_once_and_not_at_once() {
        let mut early = Early::new();
        let now = Instant::now();
        early.push(now, 7);
        assert_eq!(early.pop(now), None);
        assert_eq!(early.next(), Some(now + FIRST_AFTER));
        assert_eq!(early.pop(now + FIRST_AFTER), Some(7));
        assert_eq!((early.pop(now + FIRST_AFTER), early.next()), (None, None));
    }

    /// What a look finds of answers that take so many microseconds, one after the other: how long after the
    /// answers they are noticed, all together, and how many looks were in vain. Looks come so much later than they were
    /// to.
    fn noticed(round_trips: impl Iterator<Item = u64>, later: Duration) -> (Duration, usize) {
        let (mut early, mut now) = (Early::new(), Instant::now());
        let (mut late, mut in_vain) = (Duration::ZERO, 0);
        for (count, micros) in round_trips.enumerate() {
            early.push(now, count);
            let at = early.next().unwrap() + later;
            assert_eq!(early.pop(at), Some(count));
            let answered = now + Duration::from_micros(micros);
            let found = answered <= at;
            early.looked(found);
            if count >= 1000 {
                // One that is not found is watched, and noticed when it comes.
                late += at.saturating_duration_since(answered);
                in_vain += usize::from(!found);
            }
            now += Duration::from_millis(1);
        }
        (late, in_vain)
    }

    #[test]
    fn looks_come_soon_after_the_answers() {
        for micros in [30, 60, 100, 200, 300, 400] {
            let (late, in_vain) = noticed(std::iter::repeat_n(micros, 2000), Duration::ZERO);
            assert!(late < 1000 * Duration::from_micros(micros) / 5, "{late:?}");
            assert!(in_vain < 1000 / 7, "{in_vain}");
        }
        // From 50 to 150 microseconds, in no order.
        let (late, in_vain) = noticed((0..2000).map(|i| 50 + i * 37 % 101), Duration::ZERO);
        assert!(late < 1000 * Duration::from_micros(75), "{late:?}");
        assert!(in_vain < 1000 / 7, "{in_vain}");
    }

    #[test]
    fn looks_that_come_late_are_asked_for_sooner() {
        let later = Duration::from_micros(80);
        let (late, in_vain) = noticed(std::iter::repeat_n(200, 2000), later);
        assert!(late < 1000 * Duration::from_micros(40), "{late:?}");
        assert!(in_vain < 1000 / 7, "{in_vain}");
    }

    #[test]
    fn answers_that_take_long_are_not_waited_for() {
        let (late, in_vain) = noticed(std::iter::repeat_n(5000, 2000), Duration::ZERO);
        assert_eq!((late, in_vain), (Duration::ZERO, 1000));
    }

    #[test]
    fn looks_that_are_close_are_made_together() {
        let (mut early, now) = (Early::new(), Instant::now());
        assert_eq!(early.wake(), None);
        early.push(now, 0);
        assert_eq!(early.wake(), Some(now + FIRST_AFTER));
        early.push(now + TOGETHER / 2, 1);
        let both = now + FIRST_AFTER + TOGETHER / 2;
        assert_eq!(early.wake(), Some(both));
        early.push(now + 10 * TOGETHER, 2);
        assert_eq!(early.wake(), Some(now + FIRST_AFTER + TOGETHER));
        let at = early.wake().unwrap();
        let slots: Vec<_> = std::iter::from_fn(|| early.pop(at)).collect();
        assert_eq!(slots, [0, 1]);
    }
}
