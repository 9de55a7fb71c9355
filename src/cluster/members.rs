//! Which slots of a cluster's view hold a host, and how they are found by address.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use hashbrown::HashTable;

use super::SessionId;
use crate::host::Address;
use crate::snapshot::{HostList, HostView};

/// The hash of an address, the same in every driver.
pub(crate) fn hash(address: &Address) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(address)
}

/// Bookkeeping beside a [`HostList`], by its slots.
#[derive(Debug, Default)]
pub(super) struct Members {
    by_address: HashTable<u32>,
    sessions: Vec<Option<SessionId>>,
    free: Vec<u32>,
}

impl Members {
    /// Makes room for so many hosts, at once and exactly.
    pub(super) fn reserve(&mut self, hosts: usize, list: &HostList) {
        let more = hosts.saturating_sub(list.len());
        self.sessions
            .reserve_exact(more.saturating_sub(self.free.len()));
        self.by_address
            .reserve(more, |slot| hash_of(list, *slot).unwrap_or_default());
    }

    /// The first session of the host in `slot`.
    pub(super) fn session(&self, slot: u32) -> Option<SessionId> {
        *self.sessions.get(slot as usize)?
    }

    /// Sets the first session of the host in `slot`.
    pub(super) fn set_session(&mut self, slot: u32, session: Option<SessionId>) {
        if let Some(place) = self.sessions.get_mut(slot as usize) {
            *place = session;
        }
    }

    /// The slots of the hosts at `address`, lowest first.
    pub(super) fn at_address(&self, list: &HostList, address: &Address) -> Vec<u32> {
        let mut slots: Vec<u32> = self.views_at(list, address).map(|(slot, _)| slot).collect();
        slots.sort_unstable();
        slots
    }

    /// The hosts at `address` with their slots, in any order.
    pub(super) fn views_at<'a>(
        &'a self,
        list: &'a HostList,
        address: &'a Address,
    ) -> impl Iterator<Item = (u32, &'a HostView)> {
        let candidates = self.by_address.iter_hash(hash(address)).copied();
        candidates.filter_map(|slot| {
            let view = list.get(slot as usize)?;
            (view.host.address == *address).then_some((slot, view))
        })
    }

    /// Takes a host in, without sessions, and gives its slot.
    pub(super) fn insert(&mut self, list: &mut HostList, view: HostView) -> Option<u32> {
        let hash = hash(&view.host.address);
        let slot = if let Some(slot) = self.free.pop() {
            list.fill(slot as usize, view);
            slot
        } else {
            self.sessions.push(None);
            u32::try_from(list.push(view)).ok()?
        };
        self.by_address
            .insert_unique(hash, slot, |slot| hash_of(list, *slot).unwrap_or_default());
        Some(slot)
    }

    /// Takes the host in `slot` out.
    pub(super) fn remove(&mut self, list: &mut HostList, slot: u32) -> Option<HostView> {
        let hash = hash_of(list, slot)?;
        if let Ok(entry) = self.by_address.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
        self.set_session(slot, None);
        self.free.push(slot);
        list.take(slot as usize)
    }
}

fn hash_of(list: &HostList, slot: u32) -> Option<u64> {
    Some(hash(&list.get(slot as usize)?.host.address))
}
