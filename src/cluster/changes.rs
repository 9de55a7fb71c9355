//! What changes of configuration do to clusters, hosts and sessions.

use std::sync::Arc;
use std::time::Instant;

use super::hosts::Reset;
use super::sessions::Origin;
use super::{Action, Check, Cluster, ClusterId, Clusters, Members};
use crate::config::{ClusterConfig, Discovery};
use crate::host::{Address, HealthFlags, Host};
use crate::snapshot::Part;
use crate::stats::ClusterStats;

/// A change of what is to be checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Update {
    /// A cluster came, or changed. Static clusters bring their hosts; others keep those they have.
    Cluster {
        /// The cluster.
        config: Arc<ClusterConfig>,
        /// Its counters, shared by all drivers. If they are others than before, all checks begin anew.
        stats: Arc<ClusterStats>,
        /// Whether a new cluster counts as having had traffic.
        traffic: bool,
    },
    /// A cluster went.
    RemoveCluster(Arc<str>),
    /// The hosts of a cluster are these, and no others.
    Reset {
        /// The cluster's name.
        cluster: Arc<str>,
        /// All of its hosts, of every driver.
        hosts: Arc<[Arc<Host>]>,
    },
    /// These hosts of a cluster came or changed.
    Upsert {
        /// The cluster's name.
        cluster: Arc<str>,
        /// The hosts.
        hosts: Arc<[Arc<Host>]>,
    },
    /// The hosts at these addresses of a cluster went.
    Remove {
        /// The cluster's name.
        cluster: Arc<str>,
        /// Their own addresses.
        addresses: Arc<[Address]>,
    },
    /// The hosts of a cluster are not to be waited for any longer.
    HostsUnavailable(Arc<str>),
}

/// How far a change is.
pub(crate) enum Begun {
    /// Made. Whether hosts came or went.
    Done(bool),
    /// To go on by [`Clusters::continue_reset`].
    Goes(Reset),
}

impl Clusters {
    /// Applies a change at `now`. Tells whether hosts came or went: `membership_change` is counted by the
    /// caller, who knows whether several drivers share the change.
    pub fn handle_update(&mut self, now: Instant, update: Update) -> bool {
        let changed = match self.begin(now, update) {
            Begun::Done(changed) => changed,
            Begun::Goes(mut reset) => {
                while !self.step(now, &mut reset, usize::MAX) {}
                reset.changed
            }
        };
        self.tell_begun();
        changed
    }

    /// The same, but that changes of hosts are left to be done in steps.
    pub(crate) fn begin_update(&mut self, now: Instant, update: Update) -> Begun {
        let begun = self.begin(now, update);
        self.tell_begun();
        begun
    }

    fn begin(&mut self, now: Instant, update: Update) -> Begun {
        Begun::Done(match update {
            Update::Cluster {
                config,
                stats,
                traffic,
            } => return self.set_cluster(now, config, stats, traffic),
            Update::RemoveCluster(name) => {
                self.remove_cluster(now, &name);
                false
            }
            Update::Reset { cluster, hosts } => match self.id(&cluster) {
                Some(id) => return Begun::Goes(self.reset(id, hosts)),
                None => false,
            },
            Update::Upsert { cluster, hosts } => match self.id(&cluster) {
                Some(id) => return Begun::Goes(self.upsert(id, hosts)),
                None => false,
            },
            Update::Remove { cluster, addresses } => self
                .id(&cluster)
                .is_some_and(|id| self.remove_addresses(now, id, &addresses)),
            Update::HostsUnavailable(name) => {
                if let Some(id) = self.id(&name) {
                    self.hosts_known(id);
                }
                false
            }
        })
    }

    /// Does more of what was begun, about so many hosts, and tells whether hosts came or went once it is done.
    /// Until then time may advance, outcomes be reported and other clusters change, but not this one.
    pub(crate) fn continue_reset(
        &mut self,
        now: Instant,
        reset: &mut Reset,
        hosts: usize,
    ) -> Option<bool> {
        let done = self.step(now, reset, hosts);
        self.tell_begun();
        done.then_some(reset.changed)
    }

    /// What ends is told before what begins: the name of a session that ended may be another's by now.
    fn tell_begun(&mut self) {
        let sessions = &self.sessions;
        let begun = std::mem::take(&mut self.begun).into_iter();
        let due = begun.filter(|id| {
            let slot = sessions.get(id.index());
            slot.is_some_and(|slot| slot.session.poll_timeout().is_none())
        });
        self.actions.extend(due.map(Action::Start));
    }

    fn set_cluster(
        &mut self,
        now: Instant,
        config: Arc<ClusterConfig>,
        stats: Arc<ClusterStats>,
        traffic: bool,
    ) -> Begun {
        let checks = config
            .health_checks
            .iter()
            .map(|check| Check {
                config: Arc::clone(check),
                stats: stats.check(&check.name),
            })
            .collect();
        let mut changed = false;
        let id = if let Some(id) = self.id(config.key()) {
            let anew = self.move_stats(id, stats);
            self.change_checks(now, id, checks, anew);
            self.clusters[id.index()].config = Arc::clone(&config);
            changed = self.review_pending(now, id);
            id
        } else {
            let key = self.clusters.insert(Cluster {
                config: Arc::clone(&config),
                stats,
                checks,
                members: Members::default(),
                part: Part::default(),
                unchecked: 0,
                hosts_known: false,
                traffic,
                dirty: false,
            });
            let Ok(key) = u32::try_from(key) else {
                self.clusters.remove(key);
                return Begun::Done(false);
            };
            self.names.insert(Arc::clone(config.key()), ClusterId(key));
            ClusterId(key)
        };
        // Whoever applies a change last leaves just its checks, though others were late with the one before.
        let names: Vec<_> = config.health_checks.iter().map(|c| &c.name).collect();
        self.clusters[id.index()].stats.retain_checks(&names);
        self.touch(id);
        let Discovery::Static(hosts) = &config.discovery else {
            return Begun::Done(changed);
        };
        let mut reset = self.reset(id, hosts.as_slice().into());
        reset.changed = changed;
        Begun::Goes(reset)
    }

    fn remove_cluster(&mut self, now: Instant, name: &str) {
        let Some(id) = self.names.remove(name) else {
            return;
        };
        for slot in 0..self.slots(id) {
            self.remove_host(now, id, slot);
        }
        self.clusters.remove(id.index());
    }

    /// Counts the hosts of a cluster in `stats`, and no longer in those it had. Tells whether these are
    /// others, as after a change of `alt_stat_name`.
    fn move_stats(&mut self, id: ClusterId, stats: Arc<ClusterStats>) -> bool {
        let cluster = &mut self.clusters[id.index()];
        if Arc::ptr_eq(&cluster.stats, &stats) {
            return false;
        }
        let before = std::mem::replace(&mut cluster.stats, stats);
        for slot in 0..cluster.part.hosts.slots() {
            let Some(view) = cluster.part.hosts.get(slot) else {
                continue;
            };
            before.membership.remove(view.flags);
            cluster.stats.membership.add(view.flags);
            let session = u32::try_from(slot).map(|slot| cluster.members.session(slot));
            let passes = matches!(session, Ok(Some(_))) && !view.failed();
            before.healthy.shift(passes, false);
            cluster.stats.healthy.shift(false, passes);
            before.degraded.shift(view.degraded(), false);
            cluster.stats.degraded.shift(false, view.degraded());
        }
        true
    }

    /// A host that stays only while its checks pass goes once it has none, or once that counts no more.
    /// Tells whether any went.
    fn review_pending(&mut self, now: Instant, id: ClusterId) -> bool {
        let config = &self.clusters[id.index()].config;
        if !config.health_checks.is_empty() && !config.ignore_health_on_host_removal {
            return false;
        }
        let mut changed = false;
        for slot in 0..self.slots(id) {
            let hosts = &self.clusters[id.index()].part.hosts;
            let pending = HealthFlags::PENDING_DYNAMIC_REMOVAL;
            let view = hosts.get(slot as usize);
            if view.is_some_and(|view| view.flags.intersects(pending)) {
                changed |= self.retire(now, id, slot);
            }
        }
        changed
    }

    /// Sessions of checks that stay the same go on, unless all are to begin `anew`; the rest begin with the
    /// verdict there was.
    fn change_checks(&mut self, now: Instant, id: ClusterId, checks: Vec<Check>, anew: bool) {
        let cluster = &mut self.clusters[id.index()];
        let before = std::mem::replace(&mut cluster.checks, checks);
        let mut origins = Origin::all(&cluster.checks, &before);
        if anew {
            for origin in &mut origins {
                *origin = origin.follows().map_or(Origin::New, Origin::After);
            }
        }
        let unchanged = origins.len() == before.len()
            && origins
                .iter()
                .enumerate()
                .all(|(position, origin)| *origin == Origin::Same(position));
        if unchanged {
            return;
        }
        for host in 0..self.slots(id) {
            let cluster = &self.clusters[id.index()];
            let Some(view) = cluster.part.hosts.get(host as usize) else {
                continue;
            };
            let (flags, checked) = (view.flags, !view.host.check_disabled);
            let origins = if checked { &origins[..] } else { &[] };
            self.rebuild(now, id, host, &before, origins);
            self.refresh(now, id, host, flags, None);
        }
        self.settle(id);
    }

    /// One more than the highest slot of a cluster's hosts.
    pub(super) fn slots(&self, id: ClusterId) -> u32 {
        let slots = self.clusters[id.index()].part.hosts.slots();
        u32::try_from(slots).unwrap_or(u32::MAX)
    }
}
