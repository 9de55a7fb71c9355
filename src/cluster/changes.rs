//! What changes of configuration do to clusters, hosts and sessions.

use std::sync::Arc;
use std::time::Instant;

use slab::Slab;

use super::{Action, Check, Cluster, ClusterId, Clusters, Context, Members, SessionId, Slot};
use crate::config::{ClusterConfig, Discovery};
use crate::host::{Address, HealthFlags, Host};
use crate::session::Session;
use crate::snapshot::{HostView, Part};
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

/// An [`Update::Reset`] that is done in steps. Slots of hosts that went meanwhile may be given to others that
/// are told: these are marked as they come, so none is taken for one that is to go.
#[derive(Debug)]
pub(crate) struct Reset {
    cluster: ClusterId,
    hosts: Arc<[Arc<Host>]>,
    /// Each address counts once.
    once: bool,
    /// By slot, whether the host there was told.
    stays: Vec<bool>,
    /// How many of the hosts were looked at.
    placed: usize,
    /// How many slots were looked at after that.
    retired: usize,
    changed: bool,
}

impl Clusters {
    /// Applies a change at `now`. Tells whether hosts came or went: `membership_change` is counted by the
    /// caller, who knows whether several drivers share the change.
    pub fn handle_update(&mut self, now: Instant, update: Update) -> bool {
        let changed = match update {
            Update::Cluster {
                config,
                stats,
                traffic,
            } => self.set_cluster(now, config, stats, traffic),
            Update::RemoveCluster(name) => {
                self.remove_cluster(now, &name);
                false
            }
            Update::Reset { cluster, hosts } => self
                .id(&cluster)
                .is_some_and(|id| self.reset_hosts(now, id, hosts)),
            Update::Upsert { cluster, hosts } => self
                .id(&cluster)
                .is_some_and(|id| self.upsert_hosts(now, id, &hosts)),
            Update::Remove { cluster, addresses } => self
                .id(&cluster)
                .is_some_and(|id| self.remove_addresses(now, id, &addresses)),
            Update::HostsUnavailable(name) => {
                if let Some(id) = self.id(&name) {
                    self.hosts_known(id);
                }
                false
            }
        };
        self.tell_begun();
        changed
    }

    /// Begins what [`Update::Reset`] asks for, to be done in steps; none if there is no such cluster.
    pub(crate) fn begin_reset(&mut self, cluster: &str, hosts: Arc<[Arc<Host>]>) -> Option<Reset> {
        let id = self.id(cluster)?;
        Some(self.reset(id, hosts))
    }

    /// Does more of what was begun, about so many hosts, and tells whether hosts came or went once it is done.
    /// Until then time may advance and outcomes be reported, but no other change be made.
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
    ) -> bool {
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
                return false;
            };
            self.names.insert(Arc::clone(config.key()), ClusterId(key));
            ClusterId(key)
        };
        // Whoever applies a change last leaves just its checks, though others were late with the one before.
        let names: Vec<_> = config.health_checks.iter().map(|c| &c.name).collect();
        self.clusters[id.index()].stats.retain_checks(&names);
        self.touch(id);
        if let Discovery::Static(hosts) = &config.discovery {
            changed |= self.reset_hosts(now, id, hosts.as_slice().into());
        }
        changed
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

    fn reset_hosts(&mut self, now: Instant, id: ClusterId, hosts: Arc<[Arc<Host>]>) -> bool {
        let mut reset = self.reset(id, hosts);
        while !self.step(now, &mut reset, usize::MAX) {}
        reset.changed
    }

    /// Makes room for a cluster's hosts to be these.
    fn reset(&mut self, id: ClusterId, hosts: Arc<[Arc<Host>]>) -> Reset {
        let (share, cluster) = (self.share, &mut self.clusters[id.index()]);
        let mine = hosts.iter().filter(|host| share.takes(&host.address));
        // Room for some to come, so that the next change does not find all tables full and move them at once.
        let count = mine.count();
        let count = count + count / 32;
        cluster.members.reserve(count, &cluster.part.hosts);
        if !cluster.checks.is_empty() {
            let more = count.saturating_sub(cluster.part.hosts.len()) * cluster.checks.len();
            self.sessions.reserve_exact(more);
            self.wheel.reserve(self.sessions.len() + more);
        }
        Reset {
            cluster: id,
            once: !matches!(cluster.config.discovery, Discovery::Static(_)),
            stays: vec![false; cluster.part.hosts.slots()],
            hosts,
            placed: 0,
            retired: 0,
            changed: false,
        }
    }

    /// Goes over so many hosts that were told, or slots that hosts may have to leave; whether none are left.
    fn step(&mut self, now: Instant, reset: &mut Reset, limit: usize) -> bool {
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

    fn upsert_hosts(&mut self, now: Instant, id: ClusterId, hosts: &[Arc<Host>]) -> bool {
        let share = self.share;
        let mut stays = vec![false; self.clusters[id.index()].part.hosts.slots()];
        let mut changed = false;
        for host in hosts.iter().filter(|host| share.takes(&host.address)) {
            changed |= self.place(now, id, host, &mut stays, true);
        }
        self.hosts_known(id);
        changed
    }

    fn remove_addresses(&mut self, now: Instant, id: ClusterId, addresses: &[Address]) -> bool {
        let mut changed = false;
        for address in addresses {
            let cluster = &self.clusters[id.index()];
            for slot in cluster.members.at_address(&cluster.part.hosts, address) {
                changed |= self.retire(now, id, slot);
            }
        }
        self.settle(id);
        changed
    }

    fn hosts_known(&mut self, id: ClusterId) {
        self.clusters[id.index()].hosts_known = true;
        self.settle(id);
    }

    /// Takes a told host: as one that is there already, changed perhaps, or as a new one. A host is the
    /// same when its address is, and best when its health check address is too. If each address counts
    /// `once`, the first host told at it is kept. Marks its slot in `stays` and tells whether it is new.
    fn place(
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
        for (slot, view) in cluster.members.views_at(list, &host.address) {
            if stays.get(slot as usize).copied().unwrap_or(true) {
                if once {
                    return false;
                }
                continue;
            }
            let best = if view.host.check_address == host.check_address {
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

    fn add_host(&mut self, now: Instant, id: ClusterId, host: &Arc<Host>) -> Option<u32> {
        let cluster = &mut self.clusters[id.index()];
        let checked = cluster.config.checks(host);
        let ignored = checked && cluster.config.ignore_new_hosts_until_first_hc;
        let flags = host
            .eds_health
            .flag()
            .with(HealthFlags::FAILED_ACTIVE_HC, checked)
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

    fn change_host(&mut self, now: Instant, id: ClusterId, slot: u32, host: &Arc<Host>) {
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
        if let Some(view) = cluster.part.hosts.get_mut(slot as usize) {
            view.host = Arc::clone(host);
        }
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
    /// The one host of a `LOGICAL_DNS` cluster makes room for the next in any case, as with Envoy. Tells
    /// whether it went.
    fn retire(&mut self, now: Instant, id: ClusterId, slot: u32) -> bool {
        let cluster = &self.clusters[id.index()];
        let Some(view) = cluster.part.hosts.get(slot as usize) else {
            return false;
        };
        let failed = HealthFlags::FAILED_ACTIVE_HC | HealthFlags::FAILED_EDS_HEALTH;
        let passes = cluster.members.session(slot).is_some() && !view.flags.intersects(failed);
        let alone = matches!(cluster.config.discovery, Discovery::LogicalDns(_));
        if passes && !alone && !cluster.config.ignore_health_on_host_removal {
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

    /// Gives a host the sessions that `origins` tell, one for each check of its cluster, or none. Sessions
    /// under the checks `before` that none of them keeps are ended. The caller refreshes the host.
    fn rebuild(
        &mut self,
        now: Instant,
        id: ClusterId,
        host: u32,
        before: &[Check],
        origins: &[Origin],
    ) {
        let cluster = &mut self.clusters[id.index()];
        let old = chain(&self.sessions, cluster.members.session(host));
        let all = old
            .iter()
            .map(|(_, _, session)| session)
            .reduce(|a, b| if a.failed() { a } else { b });
        cluster
            .stats
            .healthy
            .shift(all.is_some_and(|all| !all.failed()), false);
        let degraded = old.iter().any(|(_, _, session)| session.degraded());
        cluster.stats.degraded.shift(degraded, false);

        let mut first: Option<SessionId> = None;
        for (position, origin) in origins.iter().enumerate().rev() {
            let Some(check) = cluster.checks.get(position) else {
                continue;
            };
            let follows = origin.follows().and_then(|position| {
                let mut old = old.iter();
                old.find(|(check, _, _)| *check == position)
            });
            if let (Origin::Same(_), Some((_, session, _))) = (origin, follows) {
                let slot = &mut self.sessions[session.index()];
                slot.check = u8::try_from(position).unwrap_or(u8::MAX);
                slot.next = first;
                first = Some(*session);
                continue;
            }
            let mut random = || self.random.u64(..);
            let mut cx = Context {
                check: &check.config,
                traffic: cluster.traffic(),
                limits: self.limits,
                random: &mut random,
            };
            let verdict = follows.map(|(_, _, session)| session).or(all);
            let mut session = Session::new(now, verdict, &mut cx);
            check.stats.healthy.shift(false, !session.failed());
            check.stats.degraded.shift(false, session.degraded());
            cluster.unchecked += 1;
            let at_once = session.handle_timeout(now).is_some();
            let due = session.poll_timeout();
            let key = self.sessions.insert(Slot {
                session,
                cluster: id,
                host,
                next: first,
                round_trip_micros: 0,
                check: u8::try_from(position).unwrap_or(u8::MAX),
            });
            let Some(session) = SessionId::new(key) else {
                self.sessions.remove(key);
                continue;
            };
            first = Some(session);
            if at_once {
                self.begun.push(session);
            } else if let Some(due) = due {
                self.wheel.set(session.key(), due);
            }
        }
        cluster.members.set_session(host, first);

        let now_there = chain(&self.sessions, first);
        for (check, session, _) in &old {
            if now_there.iter().any(|(_, kept, _)| kept == session) {
                continue;
            }
            let slot = self.sessions.remove(session.index());
            self.wheel.clear(session.key());
            cluster.unchecked -= usize::from(slot.session.first_check());
            let Some(check) = before.get(*check) else {
                continue;
            };
            check.stats.healthy.shift(!slot.session.failed(), false);
            check.stats.degraded.shift(slot.session.degraded(), false);
            if let Some(attempt) = slot.session.attempting() {
                check.stats.cancelled.inc();
                self.actions.push_back(Action::Cancel(*session, attempt));
            }
            self.actions.push_back(Action::Forget(*session));
        }
        if !now_there.is_empty() {
            let failed = now_there.iter().any(|(_, _, session)| session.failed());
            let degraded = now_there.iter().any(|(_, _, session)| session.degraded());
            cluster.stats.healthy.shift(false, !failed);
            cluster.stats.degraded.shift(false, degraded);
        }
    }

    /// One more than the highest slot of a cluster's hosts.
    fn slots(&self, id: ClusterId) -> u32 {
        let slots = self.clusters[id.index()].part.hosts.slots();
        u32::try_from(slots).unwrap_or(u32::MAX)
    }
}

/// What a host's session under a check comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The session under the earlier check at this position goes on.
    Same(usize),
    /// A new session with the verdict of the one under the earlier check at this position.
    After(usize),
    /// A new session with the verdict that the host's sessions had together, if it had any.
    New,
}

impl Origin {
    /// What sessions under `checks` come from, where there were sessions under the checks `before`. Checks
    /// are told apart by their names; of checks without names several may be alike, so each of `before` is
    /// followed by one at most.
    fn all(checks: &[Check], before: &[Check]) -> Vec<Self> {
        let mut origins = vec![Self::New; checks.len()];
        let mut followed = vec![false; before.len()];
        for same in [true, false] {
            for (position, check) in checks.iter().enumerate() {
                let fits = |old: &usize| {
                    let config = &before[*old].config;
                    !followed[*old]
                        && config.name == check.config.name
                        && (!same || *config == check.config)
                };
                if origins[position] != Self::New {
                    continue;
                }
                let in_place = Some(position).filter(|old| *old < before.len() && fits(old));
                let Some(old) = in_place.or_else(|| (0..before.len()).find(fits)) else {
                    continue;
                };
                followed[old] = true;
                origins[position] = if same {
                    Self::Same(old)
                } else {
                    Self::After(old)
                };
            }
        }
        origins
    }

    fn follows(self) -> Option<usize> {
        match self {
            Self::Same(position) | Self::After(position) => Some(position),
            Self::New => None,
        }
    }
}

/// A host's sessions by the position of their checks.
fn chain(sessions: &Slab<Slot>, first: Option<SessionId>) -> Vec<(usize, SessionId, Session)> {
    let mut all = Vec::new();
    let mut next = first;
    while let Some((id, slot)) = next.and_then(|id| Some((id, sessions.get(id.index())?))) {
        all.push((usize::from(slot.check), id, slot.session.clone()));
        next = slot.next;
    }
    all
}
