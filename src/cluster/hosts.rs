//! Hosts as they come, change and go.

use std::sync::Arc;
use std::time::Instant;

use super::members::slots_at;
use super::sessions::Origin;
use super::{ClusterId, Clusters};
use crate::config::Discovery;
use crate::host::{Address, HealthFlags, Host};
use crate::snapshot::HostView;

/// A change of a cluster's hosts that is done in steps: an [`Update::Reset`](super::Update::Reset), an
/// [`Update::Upsert`](super::Update::Upsert), or the hosts of a static cluster. Slots of hosts that went meanwhile may
/// be given to others that are told: these are marked as they come, so none is taken for one that is to go.
#[derive(Debug)]
pub(crate) struct Reset {
    cluster: ClusterId,
    hosts: Arc<[Arc<Host>]>,
    /// Each address counts once.
    once: bool,
    /// Hosts that were not told stay too.
    others_stay: bool,
    /// By slot, whether the host there was told.
    stays: Vec<bool>,
    /// How many of the hosts were looked at.
    placed: usize,
    /// How many slots were looked at after that.
    retired: usize,
    pub(super) changed: bool,
}

impl Reset {
    /// Whose hosts it changes.
    pub(crate) fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// How many hosts and slots were looked at.
    pub(crate) fn looked_at(&self) -> usize {
        self.placed + self.retired
    }
}

impl Clusters {
    /// Makes room for a cluster's hosts to be these.
    pub(super) fn reset(&mut self, id: ClusterId, hosts: Arc<[Arc<Host>]>) -> Reset {
        let (share, cluster) = (self.share, &mut self.clusters[id.index()]);
        let mine = hosts.iter().filter(|host| share.takes(&host.address));
        // Room for some to come, so that the next change does not find all tables full and move them at once.
        let count = mine.count();
        let count = count + count / 32;
        cluster.members.reserve(count, &mut cluster.part.hosts);
        if !cluster.checks.is_empty() {
            let more = count.saturating_sub(cluster.part.hosts.len()) * cluster.checks.len();
            self.sessions.reserve_exact(more);
            self.wheel.reserve(self.sessions.len() + more);
        }
        Reset {
            cluster: id,
            once: !matches!(cluster.config.discovery, Discovery::Static(_)),
            others_stay: false,
            stays: vec![false; cluster.part.hosts.slots()],
            hosts,
            placed: 0,
            retired: 0,
            changed: false,
        }
    }

    /// Has these hosts come to a cluster.
    pub(super) fn upsert(&self, id: ClusterId, hosts: Arc<[Arc<Host>]>) -> Reset {
        Reset {
            cluster: id,
            once: true,
            others_stay: true,
            stays: vec![false; self.clusters[id.index()].part.hosts.slots()],
            hosts,
            placed: 0,
            retired: 0,
            changed: false,
        }
    }

    /// Goes over so many hosts that were told, or slots that hosts may have to leave; whether none are left.
    pub(super) fn step(&mut self, now: Instant, reset: &mut Reset, limit: usize) -> bool {
        let id = reset.cluster;
        let told = Arc::clone(&reset.hosts);
        let rest = told.get(reset.placed..).unwrap_or_default();
        if !rest.is_empty() {
            for host in rest.iter().take(limit) {
                if self.share.takes(&host.address) {
                    reset.changed |= self.place(now, id, host, &mut reset.stays, reset.once);
                }
            }
            reset.placed += rest.len().min(limit);
            return false;
        }
        if reset.others_stay {
            self.hosts_known(id);
            return true;
        }
        let end = reset.stays.len().min(reset.retired.saturating_add(limit));
        for slot in reset.retired..end {
            if let Ok(at) = u32::try_from(slot)
                && !reset.stays[slot]
            {
                reset.changed |= self.retire(now, id, at);
            }
        }
        reset.retired = end;
        if end < reset.stays.len() {
            return false;
        }
        self.hosts_known(id);
        true
    }

    pub(super) fn remove_addresses(
        &mut self,
        now: Instant,
        id: ClusterId,
        addresses: &[Address],
    ) -> bool {
        let mut changed = false;
        for address in addresses {
            let cluster = &self.clusters[id.index()];
            for slot in slots_at(&cluster.part.hosts, address) {
                changed |= self.retire(now, id, slot);
            }
        }
        self.settle(id);
        changed
    }

    pub(super) fn hosts_known(&mut self, id: ClusterId) {
        self.clusters[id.index()].hosts_known = true;
        self.settle(id);
    }

    /// Takes a told host: as one that is there already, changed perhaps, or as a new one. A host is the
    /// same when its address is, and best when its health check address is too. If each address counts
    /// `once`, the first host told at it is kept. Marks its slot in `stays` and tells whether it is new.
    pub(super) fn place(
        &mut self,
        now: Instant,
        id: ClusterId,
        host: &Arc<Host>,
        stays: &mut Vec<bool>,
        once: bool,
    ) -> bool {
        let cluster = &self.clusters[id.index()];
        let list = &cluster.part.hosts;
        let (mut same_check, mut other) = (None::<u32>, None::<u32>);
        for (slot, view) in list.slots_at(&host.address) {
            if stays.get(slot as usize).copied().unwrap_or(true) {
                if once {
                    return false;
                }
                continue;
            }
            let best = if view.host.check_address() == host.check_address() {
                &mut same_check
            } else {
                &mut other
            };
            *best = Some(best.map_or(slot, |lower| lower.min(slot)));
        }
        let found = same_check.or(other);
        if let Some(slot) = found {
            stays[slot as usize] = true;
            self.change_host(now, id, slot, host);
            return false;
        }
        if let Some(slot) = self.add_host(now, id, host) {
            if stays.len() <= slot as usize {
                stays.resize(slot as usize + 1, true);
            }
            stays[slot as usize] = true;
        }
        true
    }

    pub(super) fn add_host(
        &mut self,
        now: Instant,
        id: ClusterId,
        host: &Arc<Host>,
    ) -> Option<u32> {
        let cluster = &mut self.clusters[id.index()];
        let checked = cluster.config.checks(host);
        let failed = checked && !cluster.config.takes_new_as_healthy();
        let ignored = failed && cluster.config.ignore_new_hosts_until_first_hc;
        let flags = host
            .eds_health
            .flag()
            .with(HealthFlags::FAILED_ACTIVE_HC, failed)
            .with(
                HealthFlags::PENDING_ACTIVE_HC,
                ignored && cluster.part.initialized,
            );
        let view = HostView {
            host: Arc::clone(host),
            flags,
            unchecked: checked,
            since: now,
            reason: None,
        };
        cluster.stats.membership.add(flags);
        let slot = cluster.members.insert(&mut cluster.part.hosts, view)?;
        self.touch(id);
        if checked {
            let origins = vec![Origin::New; self.clusters[id.index()].checks.len()];
            self.rebuild(now, id, slot, &[], &origins);
        }
        Some(slot)
    }

    pub(super) fn change_host(&mut self, now: Instant, id: ClusterId, slot: u32, host: &Arc<Host>) {
        let cluster = &mut self.clusters[id.index()];
        let Some(view) = cluster.part.hosts.get(slot as usize) else {
            return;
        };
        let flags = view
            .flags
            .with(HealthFlags::PENDING_DYNAMIC_REMOVAL, false)
            .with(view.host.eds_health.flag(), false)
            | host.eds_health.flag();
        let (same, old) = (view.host == *host, Arc::clone(&view.host));
        if same && view.flags == flags {
            return;
        }
        cluster.part.hosts.set_host(slot as usize, host);
        self.touch(id);
        let moved = old.checked_at() != host.checked_at();
        if moved || old.check_disabled != host.check_disabled {
            let checks = self.clusters[id.index()].checks.clone();
            let origins: Vec<Origin> = if host.check_disabled {
                Vec::new()
            } else {
                (0..checks.len()).map(Origin::After).collect()
            };
            self.rebuild(now, id, slot, &checks, &origins);
        }
        self.refresh(now, id, slot, flags, None);
        self.settle(id);
    }

    /// A host that is no longer told goes at once, unless its checks pass: then it stays until they fail.
    /// The one host of a `LOGICAL_DNS` cluster makes room for the next in any case, as with Envoy, and what
    /// the configuration itself names no longer is not in doubt. Tells whether it went.
    pub(super) fn retire(&mut self, now: Instant, id: ClusterId, slot: u32) -> bool {
        let cluster = &self.clusters[id.index()];
        let Some(view) = cluster.part.hosts.get(slot as usize) else {
            return false;
        };
        let failed = HealthFlags::FAILED_ACTIVE_HC | HealthFlags::FAILED_EDS_HEALTH;
        let passes = cluster.members.session(slot).is_some() && !view.flags.intersects(failed);
        let at_once = matches!(
            cluster.config.discovery,
            Discovery::LogicalDns(_) | Discovery::Static(_)
        );
        if passes && !at_once && !cluster.config.ignore_health_on_host_removal {
            let flags = view.flags.with(HealthFlags::PENDING_DYNAMIC_REMOVAL, true);
            self.refresh(now, id, slot, flags, None);
            return false;
        }
        self.remove_host(now, id, slot);
        self.settle(id);
        true
    }

    /// Takes a host away with its sessions; nothing if none is there.
    pub(super) fn remove_host(&mut self, now: Instant, id: ClusterId, slot: u32) {
        let cluster = &self.clusters[id.index()];
        if cluster.part.hosts.get(slot as usize).is_none() {
            return;
        }
        let checks = cluster.checks.clone();
        self.rebuild(now, id, slot, &checks, &[]);
        let cluster = &mut self.clusters[id.index()];
        if let Some(view) = cluster.members.remove(&mut cluster.part.hosts, slot) {
            cluster.stats.membership.remove(view.flags);
        }
        self.touch(id);
    }
}
