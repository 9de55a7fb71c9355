//! Which names are due to be looked up, and what answers change.
//!
//! [`Names`] holds the names of all clusters, their addresses and their deadlines. A name that two endpoints
//! of a cluster share is looked up once. It does no I/O: the driver hands in instants, clusters and answers,
//! and takes lookups and changes out.
//!
//! Invariants: a name that is no numeric address either waits, and has a deadline in the wheel, or is being
//! asked for; a cluster that has something to tell is in the queue once.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use super::answer::Answer;
use super::hosts::hosts;
use super::wait::{Backoff, after_answer};
use crate::config::{ClusterConfig, Discovery, DnsConfig, DnsResolverConfig, LookupFamily};
use crate::registry::Change;
use crate::schedule::Wheel;
use crate::stats::ClusterStats;

/// A wait that no clock can count ends after so long.
const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Names a lookup; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LookupId {
    key: u32,
    number: u64,
}

/// A lookup that is to be made. It ends with [`Names::handle_answer`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Lookup {
    /// What its answer goes by.
    pub id: LookupId,
    /// The cluster.
    pub cluster: Arc<str>,
    /// The name, which is no numeric address.
    pub name: Arc<str>,
    /// Which addresses are wanted.
    pub family: LookupFamily,
    /// Who is to be asked, if the cluster says.
    pub resolver: Option<Arc<DnsResolverConfig>>,
}

/// What became of a lookup, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Noted {
    /// Nobody wants its answer any more.
    Stale,
    /// It succeeded: there are so many addresses.
    Resolved {
        /// How many.
        count: usize,
        /// Whether they are others than before.
        changed: bool,
    },
    /// It failed, the addresses stay.
    Failed {
        /// Whether the one before had succeeded, or there was none.
        first: bool,
    },
}

#[derive(Debug)]
enum Turn {
    /// A numeric address, which is never looked up.
    Never,
    Waiting {
        until: Instant,
    },
    Asking(LookupId),
}

#[derive(Debug)]
struct Target {
    cluster: usize,
    name: Arc<str>,
    addresses: Vec<IpAddr>,
    turn: Turn,
    backoff: Backoff,
    /// A lookup has ended since the cluster was set.
    known: bool,
    failing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Unavailable,
    Hosts,
}

#[derive(Debug)]
struct Cluster {
    name: Arc<str>,
    dns: Arc<DnsConfig>,
    /// The first address of the one name is the one host.
    logical: bool,
    stats: Arc<ClusterStats>,
    targets: HashMap<Arc<str>, usize>,
    /// Names of which no lookup has ended.
    unknown: usize,
    /// Names that have addresses.
    resolved: usize,
    told: Told,
    /// There may be other hosts than those that were told.
    changed: bool,
    queued: bool,
}

impl Cluster {
    /// Whether there is something to tell. At first, hosts are told as they become known; later, those of
    /// new names wait for each other, so that no host goes only to come back.
    fn has_change(&self) -> bool {
        let (known, resolved) = (self.unknown == 0, self.resolved > 0);
        match self.told {
            Told::Nothing => known || resolved,
            Told::Unavailable => self.changed && (known || resolved),
            Told::Hosts => self.changed && known,
        }
    }
}

/// The names of all clusters.
#[derive(Debug)]
pub struct Names {
    by_name: HashMap<Arc<str>, usize>,
    clusters: Slab<Cluster>,
    targets: Slab<Target>,
    wheel: Wheel,
    due: VecDeque<LookupId>,
    tell: VecDeque<usize>,
    numbers: u64,
    random: fastrand::Rng,
}

impl Names {
    /// No names; time begins at `now`, and jitter follows from `seed`.
    pub fn new(now: Instant, seed: u64) -> Self {
        Self {
            by_name: HashMap::new(),
            clusters: Slab::new(),
            targets: Slab::new(),
            wheel: Wheel::new(now),
            due: VecDeque::new(),
            tell: VecDeque::new(),
            numbers: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// A cluster came, or changed. One whose hosts are not found by name is forgotten. Names that stay keep
    /// their addresses, and their deadlines unless they are to be asked for in another way.
    pub fn set_cluster(&mut self, config: &ClusterConfig, stats: &Arc<ClusterStats>) {
        let (dns, logical) = match &config.discovery {
            Discovery::StrictDns(dns) => (dns, false),
            Discovery::LogicalDns(dns) => (dns, true),
            _ => return self.remove_cluster(&config.name),
        };
        let key = match self.by_name.get(&config.name) {
            Some(key) => *key,
            None => self.add_cluster(config, Arc::clone(dns), logical, Arc::clone(stats)),
        };
        let cluster = &mut self.clusters[key];
        cluster.stats = Arc::clone(stats);
        if cluster.dns == *dns && cluster.logical == logical && cluster.told != Told::Nothing {
            return;
        }
        let old = std::mem::replace(&mut cluster.dns, Arc::clone(dns));
        let asked_alike = cluster.logical == logical
            && (old.lookup_family, &old.resolver) == (dns.lookup_family, &dns.resolver);
        cluster.logical = logical;
        cluster.changed = true;
        let mut before = std::mem::take(&mut cluster.targets);
        for endpoint in &dns.endpoints {
            let name = &endpoint.name;
            if self.clusters[key].targets.contains_key(name) {
                continue;
            }
            let target = match before.remove(name) {
                Some(target) => {
                    if !asked_alike && self.ask(target) {
                        self.targets[target].known = false;
                    }
                    target
                }
                None => self.add_target(key, name),
            };
            let targets = &mut self.clusters[key].targets;
            targets.insert(Arc::clone(name), target);
        }
        for target in before.into_values() {
            self.remove_target(target);
        }
        self.count(key);
        self.note_change(key);
    }

    /// A cluster went.
    pub fn remove_cluster(&mut self, name: &str) {
        let Some(key) = self.by_name.remove(name) else {
            return;
        };
        let cluster = self.clusters.remove(key);
        self.tell.retain(|queued| *queued != key);
        for target in cluster.targets.into_values() {
            self.remove_target(target);
        }
    }

    /// Advances time to `now`: names that are due become lookups.
    pub fn handle_timeout(&mut self, now: Instant) {
        let targets = &self.targets;
        let deadline = |key: u32| match targets.get(key as usize).map(|target| &target.turn) {
            Some(Turn::Waiting { until }) => *until,
            _ => now,
        };
        let mut due = Vec::new();
        self.wheel.advance(now, deadline, |key| due.push(key));
        for key in due {
            self.ask(key as usize);
        }
    }

    /// When [`Names::handle_timeout`] is next due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.next()
    }

    /// The next lookup to make, if any. To be asked for when there is room for one.
    pub fn poll_lookup(&mut self) -> Option<Lookup> {
        loop {
            let id = self.due.pop_front()?;
            let Some(target) = self.asking(id) else {
                continue;
            };
            let cluster = &self.clusters[target.cluster];
            cluster.stats.updates.attempt.inc();
            return Some(Lookup {
                id,
                cluster: Arc::clone(&cluster.name),
                name: Arc::clone(&target.name),
                family: cluster.dns.lookup_family,
                resolver: cluster.dns.resolver.clone(),
            });
        }
    }

    /// Reports how a lookup ended: with an answer, or by failing.
    pub fn handle_answer(&mut self, now: Instant, id: LookupId, answer: Option<Answer>) -> Noted {
        if self.asking(id).is_none() {
            return Noted::Stale;
        }
        let target = &mut self.targets[id.key as usize];
        let key = target.cluster;
        let cluster = &mut self.clusters[key];
        let (dns, updates) = (&cluster.dns, &cluster.stats.updates);
        // Where one host is to be had, no address is no success.
        let answer = answer.filter(|answer| !cluster.logical || !answer.addresses.is_empty());
        let (wait, noted) = match answer {
            Some(answer) => {
                updates.success.inc();
                target.failing = false;
                target.backoff.reset();
                let wait = after_answer(dns, &answer, &mut self.random);
                let addresses = answer.settle(cluster.logical, &target.addresses);
                let count = addresses.len();
                let changed = addresses != target.addresses;
                if changed {
                    cluster.resolved -= usize::from(!target.addresses.is_empty());
                    cluster.resolved += usize::from(!addresses.is_empty());
                    cluster.changed = true;
                    target.addresses = addresses;
                } else {
                    updates.no_rebuild.inc();
                }
                (wait, Noted::Resolved { count, changed })
            }
            None => {
                updates.failure.inc();
                let first = !std::mem::replace(&mut target.failing, true);
                let wait = target.backoff.next(dns, &mut self.random);
                (wait, Noted::Failed { first })
            }
        };
        cluster.unknown -= usize::from(!std::mem::replace(&mut target.known, true));
        let until = now.checked_add(wait).unwrap_or(now + FAR);
        target.turn = Turn::Waiting { until };
        self.wheel.set(id.key, until);
        self.note_change(key);
        noted
    }

    /// Whether [`Names::poll_change`] has something to tell.
    pub fn has_change(&self) -> bool {
        !self.tell.is_empty()
    }

    /// The next change, if any. What a cluster has to tell until it is asked for is told at once.
    pub fn poll_change(&mut self) -> Option<Change> {
        let cluster = &mut self.clusters[self.tell.pop_front()?];
        cluster.queued = false;
        cluster.changed = false;
        let name = Arc::clone(&cluster.name);
        let mut targets = cluster.targets.values().map(|key| &self.targets[*key]);
        if cluster.told == Told::Nothing
            && cluster.resolved == 0
            && !cluster.targets.is_empty()
            && targets.all(|target| target.failing)
        {
            cluster.told = Told::Unavailable;
            return Some(Change::HostsUnavailable(name));
        }
        cluster.told = Told::Hosts;
        Some(Change::Hosts {
            cluster: name,
            hosts: hosts(&cluster.dns, cluster.logical, |name| {
                let target = cluster.targets.get(name);
                target.map_or(&[], |key| &self.targets[*key].addresses)
            }),
        })
    }

    fn add_cluster(
        &mut self,
        config: &ClusterConfig,
        dns: Arc<DnsConfig>,
        logical: bool,
        stats: Arc<ClusterStats>,
    ) -> usize {
        let key = self.clusters.insert(Cluster {
            name: Arc::clone(&config.name),
            dns,
            logical,
            stats,
            targets: HashMap::new(),
            unknown: 0,
            resolved: 0,
            told: Told::Nothing,
            changed: false,
            queued: false,
        });
        self.by_name.insert(Arc::clone(&config.name), key);
        key
    }

    fn add_target(&mut self, cluster: usize, name: &Arc<str>) -> usize {
        let numeric = name.parse().ok();
        let key = self.targets.insert(Target {
            cluster,
            name: Arc::clone(name),
            addresses: numeric.into_iter().collect(),
            turn: Turn::Never,
            backoff: Backoff::default(),
            known: numeric.is_some(),
            failing: false,
        });
        if numeric.is_some() {
            let updates = &self.clusters[cluster].stats.updates;
            updates.attempt.inc();
            updates.success.inc();
        } else {
            self.ask(key);
        }
        key
    }

    fn remove_target(&mut self, key: usize) {
        self.targets.remove(key);
        if let Ok(key) = u32::try_from(key) {
            self.wheel.clear(key);
        }
    }

    /// Makes a lookup of a name, unless it is a numeric address. One that runs no longer counts.
    fn ask(&mut self, key: usize) -> bool {
        let (Some(target), Ok(key)) = (self.targets.get_mut(key), u32::try_from(key)) else {
            return false;
        };
        if matches!(target.turn, Turn::Never) && target.known {
            return false;
        }
        self.numbers += 1;
        let id = LookupId {
            key,
            number: self.numbers,
        };
        target.turn = Turn::Asking(id);
        self.wheel.clear(key);
        self.due.push_back(id);
        true
    }

    /// The name that a lookup is for, if its answer is still wanted.
    fn asking(&self, id: LookupId) -> Option<&Target> {
        let target = self.targets.get(id.key as usize)?;
        matches!(target.turn, Turn::Asking(wanted) if wanted == id).then_some(target)
    }

    fn count(&mut self, key: usize) {
        let cluster = &mut self.clusters[key];
        let targets = || cluster.targets.values().map(|key| &self.targets[*key]);
        cluster.unknown = targets().filter(|target| !target.known).count();
        cluster.resolved = targets().filter(|t| !t.addresses.is_empty()).count();
    }

    fn note_change(&mut self, key: usize) {
        let cluster = &mut self.clusters[key];
        if cluster.has_change() && !std::mem::replace(&mut cluster.queued, true) {
            self.tell.push_back(key);
        }
    }
}

#[cfg(test)]
mod tests;
