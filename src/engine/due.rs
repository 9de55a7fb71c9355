//! Which attempts that are due begin next.

use super::queue::{Queue, TOGETHER};
use crate::cluster::{ClusterId, SessionId};

/// While first attempts are held back, one of so many that begin is one of them all the same.
const ONE_OF: usize = 8;
/// While both wait for room and first attempts are not held back, they have one turn of so many.
const TURNS: usize = 4;

/// Attempts that are due and wait for their turn: the first of each session apart from all others, since they
/// may be very many at once and are nobody's schedule yet. While both wait, they have turns.
#[derive(Debug, Default)]
pub(super) struct Due {
    first: Queue,
    others: Queue,
    /// Counts what begins while both wait.
    turn: usize,
}

impl Due {
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.others.len()
    }

    pub(super) fn push(&mut self, cluster: ClusterId, session: SessionId, first: bool) {
        let queue = if first {
            &mut self.first
        } else {
            &mut self.others
        };
        queue.push(cluster, session);
    }

    /// Whether first attempts wait.
    pub(super) fn has_first(&self) -> bool {
        !self.first.is_empty()
    }

    /// Whether [`Due::pop`] would give one, while first attempts are `held` back or not.
    pub(super) fn may_pop(&self, held: bool) -> bool {
        !self.others.is_empty() || (self.has_first() && !held)
    }

    /// The next that is to begin, while first attempts are `held` back or not.
    pub(super) fn pop(&mut self, held: bool) -> Option<SessionId> {
        if !self.may_pop(held) {
            return None;
        }
        let first = match (self.first.is_empty(), self.others.is_empty()) {
            (false, false) => {
                self.turn = self.turn.wrapping_add(1);
                if held {
                    self.turn.is_multiple_of(ONE_OF)
                } else {
                    self.turn / TOGETHER % TURNS == 1
                }
            }
            (no_first, _) => !no_first,
        };
        if first {
            self.first.pop()
        } else {
            self.others.pop()
        }
    }

    /// About those that will begin next.
    pub(super) fn next(&self) -> impl Iterator<Item = SessionId> {
        self.others.next().chain(self.first.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    /// First attempts have even numbers.
    fn due(firsts: u32, others: u32) -> Due {
        let mut due = Due::default();
        for (count, first) in [(firsts, true), (others, false)] {
            for number in 1..=count {
                let number = number * 2 + u32::from(!first);
                let session = SessionId::numbered(NonZeroU32::new(number).unwrap());
                due.push(ClusterId::numbered(0), session, first);
            }
        }
        due
    }

    /// Which of the next are first attempts.
    fn firsts(due: &mut Due, held: bool, count: usize) -> Vec<bool> {
        let one = |_| {
            let before = due.first.len();
            due.pop(held).map(|_| due.first.len() < before)
        };
        (0..count).map_while(one).collect()
    }

    #[test]
    fn first_attempts_and_others_have_turns() {
        let begun = firsts(&mut due(100, 200), false, TURNS * TOGETHER * 5);
        assert_eq!(begun.iter().filter(|first| **first).count(), TOGETHER * 5);
        assert_eq!(firsts(&mut due(3, 0), false, 9), [true; 3]);
        assert_eq!(firsts(&mut due(0, 3), false, 9), [false; 3]);
    }

    #[test]
    fn first_attempts_can_be_held_back_but_not_for_ever() {
        let mut alone = due(1, 0);
        assert!(!alone.may_pop(true) && alone.may_pop(false));
        assert_eq!(alone.pop(true), None);
        let begun = firsts(&mut due(100, 100), true, ONE_OF * 5);
        assert_eq!(begun.iter().filter(|first| **first).count(), 5);
    }
}
