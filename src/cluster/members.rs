//! Which slots of a cluster's view hold a host, and which sessions are theirs.

use super::SessionId;
use crate::host::Address;
use crate::snapshot::{HostList, HostView};

/// Bookkeeping beside a [`HostList`], by its slots.
#[derive(Debug, Default)]
pub(super) struct Members {
    sessions: Vec<Option<SessionId>>,
    free: Vec<u32>,
}

impl Members {
    /// Makes room for so many hosts, at once and exactly.
    pub(super) fn reserve(&mut self, hosts: usize, list: &mut HostList) {
        let more = hosts.saturating_sub(list.len());
        self.sessions
            .reserve_exact(more.saturating_sub(self.free.len()));
        list.reserve(more);
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

    /// Takes a host in, without sessions, and gives its slot.
    pub(super) fn insert(&mut self, list: &mut HostList, view: HostView) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            list.fill(slot as usize, view);
            return Some(slot);
        }
        self.sessions.push(None);
        u32::try_from(list.push(view)).ok()
    }

    /// Takes the host in `slot` out.
    pub(super) fn remove(&mut self, list: &mut HostList, slot: u32) -> Option<HostView> {
        let view = list.take(slot as usize)?;
        self.set_session(slot, None);
        self.free.push(slot);
        Some(view)
    }
}

/// The slots of the hosts at `address`, lowest first.
pub(super) fn slots_at(list: &HostList, address: &Address) -> Vec<u32> {
    let mut slots: Vec<u32> = list.slots_at(address).map(|(slot, _)| slot).collect();
    slots.sort_unstable();
    slots
}
