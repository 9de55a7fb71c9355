//! Answers that are looked for before sockets are watched.
//!
//! To watch a socket costs a fifth of all that an attempt takes. Where hosts are near, most answers are there by
//! the time the driver has begun a few more attempts: a look finds them, and only sockets without an answer are
//! watched then. Where looks are mostly in vain, or few attempts begin, sockets are watched at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long an answer may take before it is looked for: less than a tick of the schedule.
const AFTER: Duration = Duration::from_micros(500);
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
    worth: u32,
    rests: u32,
}

impl Early {
    pub(super) fn new() -> Self {
        Self {
            slots: VecDeque::new(),
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

    /// When a slot is next to be looked at.
    pub(super) fn next(&self) -> Option<Instant> {
        self.slots.front().map(|(sent, _)| *sent + AFTER)
    }

    /// A look found an answer, or did not.
    pub(super) fn looked(&mut self, found: bool) {
        self.worth = if found {
            (self.worth + FOUND).min(MOST)
        } else {
            self.worth.saturating_sub(1)
        };
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
        assert_eq!(early.next(), Some(now + AFTER));
        assert_eq!(early.pop(now + AFTER), Some(7));
        assert_eq!((early.pop(now + AFTER), early.next()), (None, None));
    }
}
