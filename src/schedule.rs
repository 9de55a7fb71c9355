//! A timing wheel: which of many keys are due, at 1 ms.
//!
//! Each key has at most one deadline. Setting, moving and clearing one costs the same however many there
//! are; a key costs twelve bytes, since its deadline stays with its owner and is asked for when a slot is
//! opened. Five levels of 256 slots reach 34 years; what is later waits in the last level and is looked at
//! again. A key that is set a minute ahead at most moves once, with those of the same quarter of a second, whenever
//! it is set, so that no turn has to move very many. Nothing fires early: deadlines are rounded up to the next tick.

use std::time::{Duration, Instant};

const NONE: u32 = u32::MAX;
const BITS: u32 = 8;
const SLOTS: usize = 1 << BITS;
const LEVELS: u32 = 5;
/// One slot of the last level less than a whole turn of it: a whole turn ends in the slot that is open now.
const REACH: u64 = (1 << (BITS * LEVELS)) - (1 << (BITS * (LEVELS - 1)));

#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    prev: u32,
    /// Level and slot; [`Link::UNSET`] when the key has no deadline.
    slot: u16,
}

impl Link {
    const UNSET: u16 = u16::MAX;
    const EMPTY: Self = Self {
        next: NONE,
        prev: NONE,
        slot: Self::UNSET,
    };
}

/// A timing wheel over small dense keys.
#[derive(Debug)]
pub struct Wheel {
    origin: Instant,
    now: u64,
    occupied: [Occupied; LEVELS as usize],
    heads: Box<[u32; SLOTS * LEVELS as usize]>,
    links: Vec<Link>,
}

impl Wheel {
    /// An empty wheel whose time begins at `origin`.
    pub fn new(origin: Instant) -> Self {
        Self {
            origin,
            now: 0,
            occupied: [Occupied::default(); LEVELS as usize],
            heads: Box::new([NONE; SLOTS * LEVELS as usize]),
            links: Vec::new(),
        }
    }

    /// Makes room for keys below `keys`, at once and exactly.
    pub fn reserve(&mut self, keys: usize) {
        self.links
            .reserve_exact(keys.saturating_sub(self.links.len()));
    }

    /// Sets the deadline of `key`, or moves it.
    pub fn set(&mut self, key: u32, deadline: Instant) {
        self.clear(key);
        if self.links.len() <= key as usize {
            self.links.resize(key as usize + 1, Link::EMPTY);
        }
        let tick = self.tick(deadline).max(self.now);
        self.insert(key, tick);
    }

    /// Takes the deadline of `key` away, if it has one.
    pub fn clear(&mut self, key: u32) {
        let Some(link) = self.links.get_mut(key as usize) else {
            return;
        };
        let Link { next, prev, slot } = std::mem::replace(link, Link::EMPTY);
        if slot == Link::UNSET {
            return;
        }
        if prev == NONE {
            self.heads[slot as usize] = next;
            if next == NONE {
                self.occupied[slot as usize / SLOTS].clear(slot as usize % SLOTS);
            }
        } else {
            self.links[prev as usize].next = next;
        }
        if next != NONE {
            self.links[next as usize].prev = prev;
        }
    }

    /// Advances to `now` and calls `fire` with each key whose deadline has come; its deadline is gone then.
    /// `deadline_of` tells the deadline that was set for a key.
    pub fn advance(
        &mut self,
        now: Instant,
        deadline_of: impl Fn(u32) -> Instant,
        mut fire: impl FnMut(u32),
    ) {
        let target = millis(now.saturating_duration_since(self.origin));
        while let Some((level, slot, tick)) = self.next_slot() {
            if tick > target {
                break;
            }
            self.now = tick;
            let index = level * SLOTS + slot;
            let mut key = std::mem::replace(&mut self.heads[index], NONE);
            self.occupied[level].clear(slot);
            while key != NONE {
                let next = self.links[key as usize].next;
                self.links[key as usize] = Link::EMPTY;
                let due = self.tick(deadline_of(key));
                if due <= self.now {
                    fire(key);
                } else {
                    self.insert(key, due);
                }
                key = next;
            }
        }
        self.now = self.now.max(target);
    }

    /// When [`Wheel::advance`] is next worth calling.
    pub fn next(&self) -> Option<Instant> {
        let (_, _, tick) = self.next_slot()?;
        self.origin.checked_add(Duration::from_millis(tick))
    }

    fn tick(&self, deadline: Instant) -> u64 {
        let after = deadline.saturating_duration_since(self.origin);
        millis(after).saturating_add(u64::from(!after.subsec_nanos().is_multiple_of(1_000_000)))
    }

    fn insert(&mut self, key: u32, tick: u64) {
        let tick = tick.min(self.now.saturating_add(REACH));
        // The first level that reaches so far, whichever turn of it that is: were it the level by whose turn the two
        // differ, all keys that wait at the end of a turn would move at once.
        let reaches = |level: &u32| {
            let shift = BITS * level;
            (tick >> shift) - (self.now >> shift) < SLOTS as u64
        };
        let level = (0..LEVELS).find(reaches).unwrap_or(LEVELS - 1);
        let slot = slot_at(tick, BITS * level);
        let level = level as usize;
        let index = level * SLOTS + slot;
        let head = std::mem::replace(&mut self.heads[index], key);
        if head != NONE {
            self.links[head as usize].prev = key;
        }
        #[expect(clippy::cast_possible_truncation, reason = "there are 1280 slots")]
        let slot_of_key = index as u16;
        self.links[key as usize] = Link {
            next: head,
            prev: NONE,
            slot: slot_of_key,
        };
        self.occupied[level].set(slot);
    }

    /// The next slot that holds keys, and the tick at which it is to be opened.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let levels = self
            .occupied
            .iter()
            .enumerate()
            .zip((0..).step_by(BITS as usize));
        let slots = levels.filter_map(|((level, slots), shift)| {
            let current = slot_at(self.now, shift);
            let slot = slots.next_from(current)?;
            let range = 1_u64 << (shift + BITS);
            let mut tick = (self.now & !(range - 1)) + ((slot as u64) << shift);
            if slot < current {
                tick += range;
            }
            Some((level, slot, tick.max(self.now)))
        });
        slots.min_by_key(|(_, _, tick)| *tick)
    }
}

/// Which slots of a level hold keys.
#[derive(Clone, Copy, Debug, Default)]
struct Occupied([u64; SLOTS / WORD]);

const WORD: usize = 64;

impl Occupied {
    fn set(&mut self, slot: usize) {
        self.0[slot / WORD] |= 1 << (slot % WORD);
    }

    fn clear(&mut self, slot: usize) {
        self.0[slot / WORD] &= !(1 << (slot % WORD));
    }

    /// The first of them from `slot` on, or else from the beginning.
    fn next_from(&self, slot: usize) -> Option<usize> {
        let first = slot / WORD;
        let from_here = self.0[first] & (u64::MAX << (slot % WORD));
        let others = (1..=self.0.len()).map(|i| (first + i) % self.0.len());
        let mut words = std::iter::once((first, from_here)).chain(others.map(|i| (i, self.0[i])));
        words.find_map(|(i, word)| (word != 0).then(|| i * WORD + word.trailing_zeros() as usize))
    }
}

/// Whole milliseconds: `as_millis` without its 128 bits.
fn millis(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1000)
        .saturating_add(duration.subsec_millis().into())
}

/// The slot that holds `tick` on the level whose slots are 2^`shift` ticks wide.
#[expect(clippy::cast_possible_truncation, reason = "below 256")]
fn slot_at(tick: u64, shift: u32) -> usize {
    ((tick >> shift) % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::BTreeMap;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_key_fires_at_the_first_tick_that_is_not_before_its_deadline() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let deadline = start + Duration::from_micros(1500);
        wheel.set(3, deadline);
        let mut fired = Vec::new();
        wheel.advance(start + MS, |_| deadline, |key| fired.push(key));
        assert!(fired.is_empty());
        wheel.advance(start + MS * 2, |_| deadline, |key| fired.push(key));
        assert_eq!(fired, [3]);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn a_deadline_beyond_the_reach_is_waited_for_without_a_stir() {
        let start = Instant::now();
        for passed in [0, 1, REACH - 1, REACH, REACH + 12_345] {
            let now = start + Duration::from_millis(passed);
            let mut wheel = Wheel::new(start);
            wheel.advance(now, |_| now, |_| ());
            for wait in [
                REACH - 1,
                REACH,
                REACH + 1,
                1 << (BITS * LEVELS),
                9_999_999_999_999,
            ] {
                let deadline = now + Duration::from_millis(wait);
                wheel.set(0, deadline);
                wheel.advance(now, |_| deadline, |_| panic!("early"));
                let next = wheel.next().unwrap();
                assert!(now < next && next <= deadline, "{passed} {wait}");
                let mut fired = 0;
                wheel.advance(deadline, |_| deadline, |_| fired += 1);
                assert_eq!(fired, 1, "{passed} {wait}");
                wheel = Wheel::new(start);
                wheel.advance(now, |_| now, |_| ());
            }
        }
    }

    #[test]
    fn a_deadline_in_the_past_fires_at_once() {
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        wheel.advance(start + MS * 5000, |_| start, |_| ());
        wheel.set(0, start);
        let mut fired = 0;
        wheel.advance(start + MS * 5000, |_| start, |_| fired += 1);
        assert_eq!(fired, 1);
    }

    #[test]
    fn keys_move_once_and_few_together_whenever_they_are_set() {
        const WAIT: u64 = 30_000;
        let start = Instant::now();
        let mut wheel = Wheel::new(start);
        let mut due: Vec<Instant> = (0..WAIT)
            .map(|ms| start + Duration::from_millis(WAIT + ms))
            .collect();
        for (key, at) in (0..).zip(&due) {
            wheel.set(key, *at);
        }
        // Over two turns of the level that they wait in, at one key each millisecond.
        for passed in 1..200_000 {
            let now = start + MS * passed;
            let (looks, mut fired) = (Cell::new(0), Vec::new());
            let deadline_of = |key| {
                looks.set(looks.get() + 1);
                due[key as usize]
            };
            wheel.advance(now, deadline_of, |key| fired.push(key));
            assert!(
                looks.get() <= SLOTS + 2,
                "{} after {passed} ms",
                looks.get()
            );
            for key in fired {
                due[key as usize] = now + Duration::from_millis(WAIT);
                wheel.set(key, due[key as usize]);
            }
        }
    }

    proptest! {
        #[test]
        fn keys_fire_in_time_and_never_early(
            steps in prop::collection::vec((0_u32..40, 0_u64..200_000_000, 0_u64..300_000), 1..200)
        ) {
            let start = Instant::now();
            let mut wheel = Wheel::new(start);
            let mut now = start;
            let mut wanted: BTreeMap<u32, Instant> = BTreeMap::new();
            for (key, wait, step) in steps {
                if wait % 7 == 0 {
                    wanted.remove(&key);
                    wheel.clear(key);
                } else {
                    // Mostly near, sometimes far away.
                    let wait = if wait % 3 == 0 { wait * 1000 } else { wait % 100_000 };
                    wanted.insert(key, now + Duration::from_micros(wait * 100));
                    wheel.set(key, now + Duration::from_micros(wait * 100));
                }
                now += Duration::from_micros(step * 1000 + step % 1000);
                let mut fired = Vec::new();
                wheel.advance(now, |key| wanted[&key], |key| fired.push(key));
                fired.sort_unstable();
                // The wheel sees whole milliseconds of its own time.
                let seen = start + Duration::from_millis(millis(now - start));
                let due: Vec<u32> = wanted.iter().filter(|(_, at)| **at <= seen).map(|(key, _)| *key).collect();
                prop_assert_eq!(&fired, &due);
                wanted.retain(|key, _| !fired.contains(key));
                if let Some(first) = wanted.values().min() {
                    prop_assert!(wheel.next().unwrap() <= *first + MS);
                    prop_assert!(wheel.next().unwrap() + MS > now);
                }
            }
        }
    }
}
