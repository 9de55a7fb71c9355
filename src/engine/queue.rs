//! Sessions whose attempt is due and has no room yet.
//!
//! Each cluster has its own line, and clusters have turns: so one with very many hosts that are all due, or that
//! are all silent, stretches its own schedule and not that of others. Within a cluster the order is that in which
//! attempts were due.

use std::collections::VecDeque;

use crate::cluster::{ClusterId, SessionId};

/// Sessions of a cluster that have their turn together.
pub(super) const TOGETHER: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By the clusters' indices.
    lines: Vec<VecDeque<SessionId>>,
    /// Clusters that have someone waiting, the next one first.
    turns: VecDeque<usize>,
    /// How many of the first of them have had their turn.
    taken: usize,
    len: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, cluster: ClusterId, session: SessionId) {
        let index = cluster.index();
        if self.lines.len() <= index {
            self.lines.resize_with(index + 1, VecDeque::new);
        }
        let line = &mut self.lines[index];
        if line.is_empty() {
            self.turns.push_back(index);
        }
        line.push_back(session);
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<SessionId> {
        let index = *self.turns.front()?;
        let line = &mut self.lines[index];
        let session = line.pop_front()?;
        self.len -= 1;
        self.taken += 1;
        let empty = line.is_empty();
        if empty && line.capacity() > 64 * TOGETHER {
            // A burst is not paid for ever after.
            *line = VecDeque::new();
        }
        if empty || self.taken >= TOGETHER {
            self.taken = 0;
            self.turns.pop_front();
            if !empty {
                self.turns.push_back(index);
            }
        }
        Some(session)
    }

    /// Those who come next, up to the end of the turn.
    pub(super) fn next(&self) -> impl Iterator<Item = SessionId> {
        let line = self.turns.front().and_then(|index| self.lines.get(*index));
        let rest = TOGETHER - self.taken;
        line.into_iter().flatten().take(rest).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn session(number: u32) -> SessionId {
        SessionId::numbered(NonZeroU32::new(number).unwrap())
    }

    #[test]
    fn a_small_cluster_does_not_wait_for_all_of_a_large_one() {
        let mut queue = Queue::default();
        let (large, small) = (ClusterId::numbered(0), ClusterId::numbered(7));
        for number in 1..=1_000 {
            queue.push(large, session(number));
        }
        queue.push(small, session(2_000));
        assert_eq!(queue.len(), 1_001);
        assert_eq!(queue.next().count(), TOGETHER);
        let mut order = Vec::new();
        while let Some(session) = queue.pop() {
            order.push(session);
        }
        assert!(queue.is_empty() && queue.next().next().is_none());
        let at = order.iter().position(|s| *s == session(2_000)).unwrap();
        assert_eq!(at, TOGETHER);
        order.remove(at);
        assert!(order.into_iter().eq((1..=1_000).map(session)));
    }

    #[test]
    fn turns_go_round() {
        let mut queue = Queue::default();
        for number in 1..=20 {
            queue.push(ClusterId::numbered(0), session(number));
            queue.push(ClusterId::numbered(1), session(100 + number));
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let wanted = (1..=8).chain(101..=108).chain(9..=16).chain(109..=116);
        let wanted = wanted.chain(17..=20).chain(117..=120);
        assert!(order.into_iter().eq(wanted.map(session)));
    }
}
