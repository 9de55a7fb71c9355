//! Look-ups for every packet: no lock, no allocation, one look at an index.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

use super::entry::Entry;
use super::{Cluster, Snapshot};
use crate::cluster::Share;
use crate::host::Address;
use crate::snapshot::{Balance, BalanceRules, HostView, Part, Verdict};

impl Cluster {
    /// The verdict on the host at this address now; none if there is no such host. Takes no lock and allocates
    /// nothing. Who looks up a lot, as with every packet, has a [`Reader`].
    pub fn verdict(&self, address: SocketAddr) -> Option<Verdict> {
        let parts = &self.entry.parts;
        let part = parts.get(Share::of(&Address::Ip(address), parts.len()))?;
        let part = part.load();
        let view = part.hosts.at_socket(address)?;
        Some(view.verdict())
    }

    /// The numbers for [`Snapshot::panic_aware`] and [`Snapshot::balance`] that the cluster's configuration has.
    /// The overprovisioning factor of an EDS cluster stands in its endpoints, and is taken as 140 % here.
    pub fn balance_rules(&self) -> BalanceRules {
        let config = self.config();
        BalanceRules::default()
            .with_healthy_panic_threshold(config.healthy_panic_threshold)
            .with_overprovisioning_factor(config.overprovisioning_factor)
    }

    /// A reader of the cluster's hosts for one thread or task.
    pub fn reader(&self) -> Reader {
        let place = |index| Cache::new(Place(Arc::clone(&self.entry), index));
        Reader {
            parts: (0..self.entry.parts.len()).map(place).collect(),
            entry: Arc::clone(&self.entry),
        }
    }
}

/// Looks hosts up as they are now, at the least cost: it keeps what it has seen until there is something new.
///
/// For a thread or task that does so with every packet. It takes no lock, allocates nothing and is not held up
/// by changes. One that is not used keeps the hosts it last saw in memory.
///
/// When the cluster is removed, or the engine is dropped or stopped, the hosts stay readable as they were last, and
/// are checked no more: [`Reader::ended`] tells.
#[derive(Clone)]
pub struct Reader {
    entry: Arc<Entry>,
    parts: Box<[Cache<Place, Arc<Part>>]>,
}

/// Where a shard publishes its part of a cluster.
#[derive(Clone)]
struct Place(Arc<Entry>, usize);

impl Deref for Place {
    type Target = ArcSwap<Part>;

    fn deref(&self) -> &Self::Target {
        &self.0.parts[self.1]
    }
}

impl Reader {
    /// Whether the cluster was removed, or its engine was dropped or stopped: what is read is what it was last. Costs
    /// a look at two flags.
    pub fn ended(&self) -> bool {
        self.entry.ended()
    }

    /// Whether load may be sent to the host at this address: there is one, and it is healthy or degraded. See
    /// [`Reader::at`] of addresses that are mapped.
    pub fn eligible(&mut self, address: SocketAddr) -> bool {
        self.at(address).is_some_and(HostView::eligible)
    }

    /// The host at this address; the first of them in a static cluster that lists it more than once.
    ///
    /// An IPv4 address that is mapped into IPv6 (`::ffff:192.0.2.1`), as sockets for both families give it, is not the
    /// IPv4 address that hosts are told by: [`IpAddr::to_canonical`](std::net::IpAddr::to_canonical) makes it that.
    pub fn at(&mut self, address: SocketAddr) -> Option<&HostView> {
        let index = Share::of(&Address::Ip(address), self.parts.len());
        self.parts.get_mut(index)?.load().hosts.at_socket(address)
    }

    /// The hosts of this name, [`Host::hostname`](crate::host::Host::hostname), with this port: one for each
    /// address of the name.
    pub fn named<'a>(&'a mut self, name: &'a str, port: u16) -> impl Iterator<Item = &'a HostView> {
        let parts = self.parts.iter_mut();
        parts.flat_map(move |part| part.load().hosts.named(name, port))
    }

    /// All hosts.
    pub fn hosts(&mut self) -> impl Iterator<Item = &HostView> {
        self.parts
            .iter_mut()
            .flat_map(|part| part.load().hosts.iter())
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Snapshot {
    /// The host at this address; the first of them in a static cluster that lists it more than once.
    pub fn at(&self, address: SocketAddr) -> Option<&HostView> {
        let parts = self.parts();
        let part = parts.get(Share::of(&Address::Ip(address), parts.len()))?;
        part.hosts.at_socket(address)
    }

    /// The hosts of this name, [`Host::hostname`](crate::host::Host::hostname), with this port: one for each
    /// address of the name.
    pub fn named<'a>(&'a self, name: &'a str, port: u16) -> impl Iterator<Item = &'a HostView> {
        let parts = self.parts().iter();
        parts.flat_map(move |part| part.hosts.named(name, port))
    }

    /// The hosts that load may be sent to, of all priorities: those that are healthy or degraded. A host that was
    /// never checked is not among them, one whose check is disabled is.
    ///
    /// This can be empty. [`Snapshot::balance`] has Envoy's rules of which hosts to use then, and of priorities.
    pub fn eligible(&self) -> impl Iterator<Item = &HostView> {
        self.hosts().filter(|view| view.eligible())
    }

    /// The hosts that Envoy would use now, by its rules of priorities, degraded hosts and panic. In panic, when
    /// less than `healthy_panic_threshold` is available, these are all hosts: it is thought better to send to
    /// hosts that fail their checks than to overload the few that do not. [`Cluster::balance_rules`] has the numbers.
    ///
    /// This goes over all hosts: it is to be called when [`Cluster::changes`](super::Cluster::changes) tells of
    /// something new, not with every packet. The guide has [an example](crate#picking-with-every-packet).
    pub fn panic_aware(&self, rules: BalanceRules) -> impl Iterator<Item = &HostView> {
        let balance = self.balance(rules);
        self.hosts().filter(move |view| balance.uses(view))
    }

    /// How load is to be spread over the priorities of its hosts.
    pub fn balance(&self, rules: BalanceRules) -> Balance {
        Balance::of(self.hosts(), rules)
    }
}
