//! Slots by hash, so that readers find a host without a look at others.
//!
//! A table of small tables, each for a range of hashes. A writer changes its own copy; publishing shares all
//! tables that did not change. A change of health leaves the index as it is.

use std::sync::Arc;

use hashbrown::HashTable;

/// Slots in one small table, on average and at most: few enough that nearly all fit in 512 places of five bytes.
const EACH: usize = 400;

type Leaf = HashTable<u32>;

/// Slots by hash; a hash may have several.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    leaves: Arc<Vec<Arc<Leaf>>>,
    len: usize,
}

impl Index {
    /// The slots under a hash, and others now and then.
    pub(super) fn find(&self, hash: u64) -> impl Iterator<Item = u32> + Clone {
        let leaf = self.leaves.get(place(hash, self.leaves.len()));
        leaf.into_iter()
            .flat_map(move |leaf| leaf.iter_hash(hash))
            .copied()
    }

    /// The first slot under a hash that is the one looked for.
    pub(super) fn first(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let leaf = self.leaves.get(place(hash, self.leaves.len()))?;
        leaf.find(hash, |slot| is(*slot)).copied()
    }

    pub(super) fn insert(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        if self.len >= self.leaves.len() * EACH {
            // Each slot is moved a few times at most, however many come one by one.
            self.spread(self.leaves.len() * EACH * 3 / 2 + 1, &hash_of);
        }
        let leaves = Arc::make_mut(&mut self.leaves);
        let place = place(hash, leaves.len());
        if let Some(leaf) = leaves.get_mut(place) {
            Arc::make_mut(leaf).insert_unique(hash, slot, |slot| hash_of(*slot));
            self.len += 1;
        }
    }

    pub(super) fn remove(&mut self, hash: u64, slot: u32) {
        let leaves = Arc::make_mut(&mut self.leaves);
        let place = place(hash, leaves.len());
        let Some(leaf) = leaves.get_mut(place) else {
            return;
        };
        if let Ok(entry) = Arc::make_mut(leaf).find_entry(hash, |other| *other == slot) {
            entry.remove();
            self.len -= 1;
        }
    }

    /// Makes room for so many slots at once.
    pub(super) fn reserve(&mut self, more: usize, hash_of: impl Fn(u32) -> u64) {
        let all = self.len + more;
        if all > self.leaves.len() * EACH {
            self.spread(all, hash_of);
        }
    }

    /// Spreads all slots over as many tables as `all` of them need.
    fn spread(&mut self, all: usize, hash_of: impl Fn(u32) -> u64) {
        let mut leaves = vec![Leaf::new(); all.div_ceil(EACH)];
        for slot in self.leaves.iter().flat_map(|leaf| leaf.iter()) {
            let hash = hash_of(*slot);
            let place = place(hash, leaves.len());
            leaves[place].insert_unique(hash, *slot, |slot| hash_of(*slot));
        }
        self.leaves = Arc::new(leaves.into_iter().map(Arc::new).collect());
    }
}

/// Which of so many tables a hash belongs to. By its middle, since the tables go by both ends of it.
fn place(hash: u64, leaves: usize) -> usize {
    let middle = (hash >> 24) & u64::from(u32::MAX);
    // Less than `leaves`.
    usize::try_from((middle * leaves as u64) >> 32).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As good a hash as any.
    fn hash(slot: u32) -> u64 {
        u64::from(slot + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
    }

    #[test]
    fn slots_are_found_until_they_are_taken_out() {
        let mut index = Index::default();
        assert_eq!(index.find(hash(1)).count(), 0);
        for slot in 0..10_000 {
            index.insert(hash(slot), slot, hash);
        }
        assert!((25..40).contains(&index.leaves.len()));
        for slot in (0..10_000).step_by(2) {
            index.remove(hash(slot), slot);
        }
        for slot in 0..10_000 {
            let found = index.find(hash(slot)).any(|found| found == slot);
            assert_eq!(found, slot % 2 == 1);
        }
    }

    #[test]
    fn room_is_made_once_and_a_copy_shares_what_did_not_change() {
        let mut index = Index::default();
        index.reserve(4000, hash);
        let leaves = index.leaves.len();
        assert_eq!(leaves, 10);
        for slot in 0..4000 {
            index.insert(hash(slot), slot, hash);
        }
        assert_eq!(index.leaves.len(), leaves);
        let published = index.clone();
        index.remove(hash(7), 7);
        let pairs = index.leaves.iter().zip(published.leaves.iter());
        let changed = pairs.filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!(changed, 1);
        assert!(published.find(hash(7)).any(|slot| slot == 7));
    }
}
