//! What readers see: the hosts of a cluster and their health, unchanging once taken.
//!
//! Hosts are kept in a tree of fixed-size leaves. A writer changes its own copy; publishing shares every
//! leaf that did not change, so it costs what changed, not what there is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::event::Reason;
use crate::host::{self, Address, Health, HealthFlags, Host};

mod balance;
mod index;

pub use balance::{Balance, BalanceRules, PriorityLoad};
use index::Index;

/// What is known of a host's health by active checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// No check of the host has been completed.
    Unknown,
    /// To be used.
    Healthy,
    /// To be used when healthy hosts do not suffice.
    Degraded,
    /// Not to be used.
    Unhealthy,
}

impl Verdict {
    /// A word for tables and filters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// A host and its health.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HostView {
    /// The host.
    pub host: Arc<Host>,
    /// Its health flags.
    pub flags: HealthFlags,
    /// Whether a first check is still to be completed.
    pub unchecked: bool,
    /// When the flags last changed, or the host came.
    pub since: Instant,
    /// Why the host is failed, if a check failed it.
    pub reason: Option<Arc<Reason>>,
}

impl HostView {
    /// The host's health in three values, and unknown until the first check.
    pub fn verdict(&self) -> Verdict {
        match self.flags.health() {
            Health::Unhealthy if self.unchecked => Verdict::Unknown,
            Health::Unhealthy => Verdict::Unhealthy,
            Health::Degraded => Verdict::Degraded,
            Health::Healthy => Verdict::Healthy,
        }
    }

    /// Whether an active check fails the host, or has not passed it yet.
    pub fn failed(&self) -> bool {
        self.flags.intersects(HealthFlags::FAILED_ACTIVE_HC)
    }

    /// Whether an active check finds the host degraded.
    pub fn degraded(&self) -> bool {
        self.flags.intersects(HealthFlags::DEGRADED_ACTIVE_HC)
    }

    /// Whether load may be sent to the host: it is healthy or degraded.
    pub fn eligible(&self) -> bool {
        self.flags.health() != Health::Unhealthy
    }
}

/// Few enough that a change of one host anywhere copies little, enough that the tree weighs little.
const WIDTH: usize = 32;

type Leaf = Vec<Option<HostView>>;
type Branch = Vec<Arc<Leaf>>;

/// Hosts by slot. Slots of hosts that went are empty until they are used again.
#[derive(Clone, Debug, Default)]
pub struct HostList {
    branches: Arc<Vec<Arc<Branch>>>,
    /// Slots by the hash of the host's address.
    by_address: Index,
    /// Slots of the hosts that have a name, by the hash of it and the port.
    by_name: Index,
    slots: usize,
    len: usize,
}

impl HostList {
    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no host.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One more than the highest slot in use.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The host in `slot`, if one is there.
    pub fn get(&self, slot: usize) -> Option<&HostView> {
        view(&self.branches, slot)
    }

    /// All hosts, by slot.
    pub fn iter(&self) -> impl Iterator<Item = &HostView> {
        self.branches
            .iter()
            .flat_map(|branch| branch.iter())
            .flat_map(|leaf| leaf.iter())
            .flatten()
    }

    /// The hosts at an address; more than one only in static clusters that list it more than once. A look-up
    /// takes no lock and allocates nothing.
    pub fn at<'a>(&'a self, address: &'a Address) -> impl Iterator<Item = &'a HostView> {
        self.slots_at(address).map(|(_, view)| view)
    }

    /// The host at an IP address and port; one of them if there are several.
    pub fn at_socket(&self, address: SocketAddr) -> Option<&HostView> {
        let address = Address::Ip(address);
        let mut found = None;
        self.by_address.first(address.hash64(), |slot| {
            found = self.get(slot as usize);
            found.is_some_and(|view| view.host.address == address)
        })?;
        found
    }

    /// The hosts of this name, [`Host::hostname`], whose address has this port. A look-up takes no lock and
    /// allocates nothing.
    pub fn named<'a>(&'a self, name: &'a str, port: u16) -> impl Iterator<Item = &'a HostView> {
        let slots = self.by_name.find(host::name_hash64(name, port));
        let views = slots.filter_map(|slot| self.get(slot as usize));
        views.filter(move |view| {
            let named = view.host.hostname().is_some_and(|it| **it == *name);
            named && view.host.address.port() == Some(port)
        })
    }

    /// The hosts at an address with their slots, in any order.
    pub(crate) fn slots_at<'a>(
        &'a self,
        address: &'a Address,
    ) -> impl Iterator<Item = (u32, &'a HostView)> {
        let slots = self.by_address.find(address.hash64());
        let views = slots.filter_map(|slot| Some((slot, self.get(slot as usize)?)));
        views.filter(|(_, view)| view.host.address == *address)
    }

    /// Makes room for so many more hosts in the index.
    pub(crate) fn reserve(&mut self, more: usize) {
        let branches = &self.branches;
        self.by_address
            .reserve(more, |slot| address_hash(branches, slot));
    }

    /// Puts what is told now of the same host, at the same address, into its slot.
    pub(crate) fn set_host(&mut self, slot: usize, host: &Arc<Host>) {
        let Some(before) = self.get(slot).map(|view| Arc::clone(&view.host)) else {
            return;
        };
        let renamed = before.hostname() != host.hostname();
        if renamed {
            self.forget_name(slot, &before);
        }
        if let Some(view) = self.get_mut(slot) {
            view.host = Arc::clone(host);
        }
        if renamed {
            self.note_name(slot, host);
        }
    }

    /// Slots whose hosts are others than in `before`, an earlier list of the same part, or not as they were. Leaves
    /// that both share are not looked into.
    pub fn changed_slots<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = usize> + 'a {
        let slots = self.slots.max(before.slots);
        let leaves = (0..slots.div_ceil(WIDTH)).filter(|leaf| {
            match (self.leaf(*leaf), before.leaf(*leaf)) {
                (Some(now), Some(before)) => !Arc::ptr_eq(now, before),
                _ => true,
            }
        });
        let slots = leaves.flat_map(|leaf| leaf * WIDTH..(leaf + 1) * WIDTH);
        slots.filter(|slot| self.get(*slot) != before.get(*slot))
    }

    fn leaf(&self, leaf: usize) -> Option<&Arc<Leaf>> {
        self.branches.get(leaf / WIDTH)?.get(leaf % WIDTH)
    }

    /// The host in `slot`, to be changed in all but its identity.
    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut HostView> {
        self.leaf_mut(slot)?.get_mut(slot % WIDTH)?.as_mut()
    }

    /// Puts a host into the next new slot, which is returned.
    pub(crate) fn push(&mut self, view: HostView) -> usize {
        let slot = self.slots;
        let host = Arc::clone(&view.host);
        let branches = Arc::make_mut(&mut self.branches);
        if slot.is_multiple_of(WIDTH * WIDTH) {
            branches.push(Arc::default());
        }
        if let Some(branch) = branches.last_mut() {
            let branch = Arc::make_mut(branch);
            if slot.is_multiple_of(WIDTH) {
                branch.push(Arc::new(Vec::with_capacity(WIDTH)));
            }
            if let Some(leaf) = branch.last_mut() {
                Arc::make_mut(leaf).push(Some(view));
            }
        }
        self.slots += 1;
        self.len += 1;
        self.note(slot, &host);
        slot
    }

    /// Puts a host into an empty slot.
    pub(crate) fn fill(&mut self, slot: usize, view: HostView) {
        let host = Arc::clone(&view.host);
        let Some(place) = self.leaf_mut(slot).and_then(|l| l.get_mut(slot % WIDTH)) else {
            return;
        };
        *place = Some(view);
        self.len += 1;
        self.note(slot, &host);
    }

    /// Empties a slot.
    pub(crate) fn take(&mut self, slot: usize) -> Option<HostView> {
        let view = self.leaf_mut(slot)?.get_mut(slot % WIDTH)?.take();
        if let Some(view) = &view {
            self.len -= 1;
            if let Ok(number) = u32::try_from(slot) {
                self.by_address.remove(view.host.address.hash64(), number);
            }
            self.forget_name(slot, &view.host);
        }
        view
    }

    fn note(&mut self, slot: usize, host: &Arc<Host>) {
        let Ok(number) = u32::try_from(slot) else {
            return;
        };
        let (branches, hash) = (&self.branches, host.address.hash64());
        self.by_address
            .insert(hash, number, |slot| address_hash(branches, slot));
        self.note_name(slot, host);
    }

    fn note_name(&mut self, slot: usize, host: &Host) {
        if let (Some(hash), Ok(slot)) = (host.name_hash64(), u32::try_from(slot)) {
            let branches = &self.branches;
            self.by_name
                .insert(hash, slot, |slot| name_hash(branches, slot));
        }
    }

    fn forget_name(&mut self, slot: usize, host: &Host) {
        if let (Some(hash), Ok(slot)) = (host.name_hash64(), u32::try_from(slot)) {
            self.by_name.remove(hash, slot);
        }
    }

    fn leaf_mut(&mut self, slot: usize) -> Option<&mut Leaf> {
        let branch = Arc::make_mut(&mut self.branches).get_mut(slot / (WIDTH * WIDTH))?;
        let leaf = Arc::make_mut(branch).get_mut(slot / WIDTH % WIDTH)?;
        Some(Arc::make_mut(leaf))
    }
}

fn view(branches: &[Arc<Branch>], slot: usize) -> Option<&HostView> {
    branches
        .get(slot / (WIDTH * WIDTH))?
        .get(slot / WIDTH % WIDTH)?
        .get(slot % WIDTH)?
        .as_ref()
}

fn address_hash(branches: &[Arc<Branch>], slot: u32) -> u64 {
    let view = view(branches, slot as usize);
    view.map_or(0, |view| view.host.address.hash64())
}

fn name_hash(branches: &[Arc<Branch>], slot: u32) -> u64 {
    let view = view(branches, slot as usize);
    view.and_then(|view| view.host.name_hash64())
        .unwrap_or_default()
}

/// One shard's part of a cluster.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Part {
    /// Grows with each change.
    pub version: u64,
    /// Whether every host has once completed its first check, or none is to be waited for; it stays so, whatever
    /// hosts come later.
    pub initialized: bool,
    /// How many first checks are still to be completed, also of hosts that came after it was initialized.
    pub unchecked: usize,
    /// The hosts.
    pub hosts: HostList,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn view(port: u16) -> HostView {
        HostView {
            host: Arc::new(Host::new(SocketAddr::from(([127, 0, 0, 1], port)))),
            flags: HealthFlags::NONE,
            unchecked: false,
            since: Instant::now(),
            reason: None,
        }
    }

    #[test]
    fn slots_keep_their_hosts_across_leaves_and_branches() {
        let mut list = HostList::default();
        for port in 0..10_000 {
            assert_eq!(list.push(view(port)), usize::from(port));
        }
        for port in [0, 63, 64, 4095, 4096, 9_999] {
            let at = list.get(usize::from(port)).unwrap();
            assert_eq!(at.host.address.socket_addr().unwrap().port(), port);
        }
        assert_eq!(list.get(10_000), None);
        assert!(list.take(64).is_some());
        assert!(list.take(64).is_none());
        assert_eq!((list.len(), list.iter().count()), (9_999, 9_999));
        list.fill(64, view(7));
        assert_eq!(list.len(), 10_000);
    }

    #[test]
    fn changed_slots_are_those_that_came_went_or_changed() {
        let mut list = HostList::default();
        for port in 0..5000 {
            list.push(view(port));
        }
        let before = list.clone();
        assert_eq!(list.changed_slots(&before).count(), 0);
        list.get_mut(70).unwrap().flags = HealthFlags::FAILED_ACTIVE_HC;
        list.take(4096);
        list.push(view(5000));
        let changed =
            |now: &HostList, before: &HostList| now.changed_slots(before).collect::<Vec<_>>();
        assert_eq!(changed(&list, &before), [70, 4096, 5000]);
        assert_eq!(changed(&before, &list), [70, 4096, 5000]);
        assert_eq!(list.changed_slots(&HostList::default()).count(), 5000);
    }

    #[test]
    fn a_published_list_does_not_change_and_shares_what_did_not() {
        let mut list = HostList::default();
        for port in 0..200 {
            list.push(view(port));
        }
        let published = list.clone();
        list.get_mut(40).unwrap().flags = HealthFlags::FAILED_ACTIVE_HC;
        assert_eq!(published.get(40).unwrap().flags, HealthFlags::NONE);
        let leaf = |list: &HostList, i: usize| Arc::as_ptr(&list.branches[0][i]);
        assert_eq!(leaf(&list, 0), leaf(&published, 0));
        assert_ne!(leaf(&list, 1), leaf(&published, 1));
        assert_eq!(leaf(&list, 2), leaf(&published, 2));
    }

    #[test]
    fn hosts_are_found_by_address_and_by_name_as_they_come_change_and_go() {
        let mut list = HostList::default();
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let named = |port: u16, name: &str| Arc::new(Host::new(address(port)).with_hostname(name));
        for port in 0..3000 {
            let mut view = view(port);
            if port % 3 == 0 {
                view.host = named(port, "a.example");
            }
            list.push(view);
        }
        let at = |list: &HostList, port: u16| list.at(&Address::Ip(address(port))).count();
        assert_eq!((at(&list, 0), at(&list, 2999), at(&list, 3000)), (1, 1, 0));
        assert!(list.at_socket(address(7)) == list.get(7) && list.get(7).is_some());
        assert_eq!(list.at_socket(address(3000)), None);
        let found = list.named("a.example", 3).next().unwrap();
        assert_eq!(found.host.address, Address::Ip(address(3)));
        assert_eq!(list.named("a.example", 4).count(), 0);
        assert_eq!(list.named("A.example", 3).count(), 0);

        list.set_host(3, &named(3, "b.example"));
        assert_eq!(list.named("a.example", 3).count(), 0);
        assert_eq!(list.named("b.example", 3).count(), 1);
        let published = list.clone();
        list.take(3);
        assert_eq!((at(&list, 3), at(&published, 3)), (0, 1));
        assert_eq!(list.named("b.example", 3).count(), 0);
        assert_eq!(published.named("b.example", 3).count(), 1);
        // The same address twice, as static clusters may have it.
        list.fill(3, view(7));
        assert_eq!(at(&list, 7), 2);
    }
}
