//! The driver: clock, timers and running attempts around the clusters.
//!
//! An [`Engine`] is a handle. The work is done by shards, each of which owns the sessions of its share of the
//! hosts: tasks of the caller's runtime, or threads of their own. All are told of changes through bounded
//! channels: who tells waits while one is full. Readers get [`Part`](crate::snapshot::Part)s that a shard has published, without
//! locks. Dropping the last handle ends the shards, and with them every attempt.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

use crate::cluster;
use crate::config::ClusterConfig;
use crate::feed::{Broadcast, Events};
use crate::host::Host;
use crate::registry::{Change, Update};
use crate::session::IntervalLimits;
use crate::stats::Stats;

mod alarm;
mod capacity;
mod clock;
mod door;
mod due;
mod early;
mod eligible;
mod entry;
mod handle;
mod journal;
mod options;
mod pace;
mod queue;
mod reactor;
mod reader;
mod running;
mod shard;
mod start;
mod told;
mod view;

#[cfg(feature = "cli")]
pub(crate) use capacity::descriptors;
pub use capacity::raise_descriptor_limit;
pub use eligible::{EligibleChange, EligibleChanges};
pub use entry::Origin;
pub use journal::{PastAttempt, PastOutcome};
pub use options::{Options, Traffic};
pub use reader::Reader;
pub use told::Explanation;
pub use view::Snapshot;

use door::Door;
use entry::{Entry, Live};
use handle::{change, past_attempts, room, room_to_ask};
use shard::{Input, MembershipChange, Runtime};

/// Runs health checks. Cheap to clone; ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shards: Arc<[Door]>,
    /// Held while all shards are told of a change, so that each gets all changes in one order.
    order: Mutex<()>,
    clusters: RwLock<BTreeMap<Arc<str>, Arc<Entry>>>,
    traffic: Traffic,
    /// How many events are kept for slow followers of a cluster.
    events_kept: usize,
    /// Events of all clusters; the shards own it.
    events: Weak<Broadcast>,
    stats: Arc<Stats>,
    started: Instant,
    /// Closes when the last shard has ended.
    running: watch::Receiver<bool>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let clusters = self.clusters.get_mut();
        let clusters = clusters.unwrap_or_else(PoisonError::into_inner);
        for entry in clusters.values() {
            entry.end();
        }
        for shard in &*self.shards {
            shard.stop();
        }
    }
}

/// The engine has ended (its shards, or their runtime, are gone), or the cluster was removed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine has ended, or the cluster was removed")]
pub struct Ended;

impl Engine {
    /// The engine's stats.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.0.stats
    }

    /// Does what a feed of configuration tells. Changes of a cluster are done in the order in which calls end, those of
    /// several clusters side by side; hosts that are told anew before a change of them was begun stand for it.
    ///
    /// # Errors
    ///
    /// When the engine has ended.
    pub async fn apply(&self, change: Change) -> Result<(), Ended> {
        match change {
            Change::Cluster(update) => self.set_cluster(update, Origin::Dynamic).await.map(drop),
            Change::RemoveCluster(name) => self.remove_cluster(&name).await,
            Change::Hosts { cluster, hosts } => self.reset_hosts(&cluster, hosts).await,
            Change::HostsUnavailable(cluster) => self.hosts_unavailable(&cluster).await,
            Change::ClustersTold => Ok(()),
        }
    }

    /// Ends the engine at once, whoever else has a handle of it: what it was told and has not done yet is left undone.
    /// Comes back when all attempts are gone and every event has been given to its sinks, which were let go. Then it
    /// has no clusters, and those that were handed out have [ended](Cluster::ended).
    pub async fn stop(&self) {
        for shard in &*self.0.shards {
            shard.stop();
        }
        let mut running = self.0.running.clone();
        while running.changed().await.is_ok() {}
    }

    /// Completes if a shard ends though nobody told it to: by a panic, which is a fault of this crate, or with the
    /// runtime that it was a task of. The other shards end then too, and what was handed out of the engine has
    /// [ended](Cluster::ended): nothing is checked, and verdicts stand still. A program that is there to check had better
    /// end then, as the daemon does.
    pub async fn broken(&self) {
        let mut running = self.0.running.clone();
        if running.wait_for(|broken| *broken).await.is_err() {
            // It has ended in good order.
            std::future::pending().await
        }
    }

    /// How long the engine has been there.
    pub fn uptime(&self) -> Duration {
        clock::now().saturating_duration_since(self.0.started)
    }

    /// The time by which all is scheduled: tokio's clock, which tests may pause for an engine by [`Engine::start`].
    pub fn now(&self) -> Instant {
        clock::now()
    }

    /// What the wall clock said, or will say, at an instant, as far as it can be told now.
    pub fn wall_clock(&self, at: Instant) -> SystemTime {
        told::wall_of(at, clock::now(), clock::wall())
    }

    /// Events of all clusters from now on.
    pub fn events(&self) -> Events {
        match self.0.events.upgrade() {
            Some(events) => events.follow(),
            None => Events::ended(),
        }
    }

    /// So many of the last attempts of all clusters, the newest first; none unless they are noted: see
    /// [`Options::with_journal`].
    ///
    /// # Errors
    ///
    /// When the engine has ended.
    pub async fn attempts(&self, most: usize) -> Result<Vec<PastAttempt>, Ended> {
        past_attempts(&self.0.shards, None, most).await
    }

    /// Adds a cluster, or changes the one of its name (of its key, if it has one).
    ///
    /// If this is dropped before it has ended, nothing has happened.
    ///
    /// # Errors
    ///
    /// When the engine has ended.
    pub async fn set_cluster(&self, update: Update, origin: Origin) -> Result<Cluster, Ended> {
        let Update {
            config,
            checkers,
            sinks,
        } = update;
        let room = room(&self.0.shards).await?;
        let _order = self.order();
        let stats = self.0.stats.cluster(config.key(), config.stat_name());
        let (entry, live) = self.entry(&config, origin);
        let membership = MembershipChange::new(Some(Arc::clone(&stats)));
        for shard in room {
            let update = cluster::Update::Cluster {
                config: Arc::clone(&config),
                stats: Arc::clone(&stats),
                traffic: self.0.traffic == Traffic::Always,
            };
            let runtime = Runtime {
                entry: Arc::clone(&entry),
                live: Arc::clone(&live),
                since: None,
                config: Arc::clone(&config),
                checkers: checkers.clone(),
                sinks: sinks.clone(),
            };
            shard.tell(Input::Update(update, Some(runtime), membership.clone()));
        }
        Ok(self.handle(entry))
    }

    /// Removes the cluster of this name or key, and all of its hosts and attempts. Who has a handle or a reader of it
    /// finds that it has [ended](Cluster::ended).
    ///
    /// # Errors
    ///
    /// When the engine has ended.
    pub async fn remove_cluster(&self, name: &str) -> Result<(), Ended> {
        let room = room(&self.0.shards).await?;
        let _order = self.order();
        let removed = self.write().remove(name);
        let Some(entry) = removed else {
            return Ok(());
        };
        entry.end();
        if let Some(manager) = entry.manager() {
            manager.cluster_removed.inc();
        }
        let update = || cluster::Update::RemoveCluster(Arc::clone(&entry.key));
        change(room, &entry, update);
        self.0.stats.remove_cluster(&entry.key);
        Ok(())
    }

    /// Tells the hosts of a cluster: these and no others.
    ///
    /// # Errors
    ///
    /// When the engine has ended.
    pub async fn reset_hosts(
        &self,
        cluster: &Arc<str>,
        hosts: Arc<[Arc<Host>]>,
    ) -> Result<(), Ended> {
        self.change(cluster, || cluster::Update::Reset {
            cluster: Arc::clone(cluster),
            hosts: Arc::clone(&hosts),
        })
        .await
    }

    /// The hosts of a cluster are not to be waited for any longer: nobody tells them.
    ///
    /// # Errors
    ///
    /// When the engine has ended.
    pub async fn hosts_unavailable(&self, cluster: &Arc<str>) -> Result<(), Ended> {
        self.change(cluster, || {
            cluster::Update::HostsUnavailable(Arc::clone(cluster))
        })
        .await
    }

    /// Bounds all waits that are set from now on: Envoy's `health_check.min_interval` and `.max_interval`, to be
    /// changed at any time. Waits that have begun end as they were set.
    ///
    /// # Errors
    ///
    /// When the engine has ended.
    pub async fn set_limits(&self, limits: IntervalLimits) -> Result<(), Ended> {
        for room in room_to_ask(&self.0.shards).await? {
            room.tell(Input::Limits(limits));
        }
        Ok(())
    }

    /// The cluster of this name, or of this key if it has one. None has the engine once it was stopped.
    pub fn cluster(&self, name: &str) -> Option<Cluster> {
        let entry = self.read().get(name).cloned()?;
        (!entry.ended()).then(|| self.handle(entry))
    }

    /// All clusters, by name; none once the engine was stopped.
    pub fn clusters(&self) -> Vec<Cluster> {
        let entries: Vec<_> = self.read().values().cloned().collect();
        let entries = entries.into_iter().filter(|entry| !entry.ended());
        entries.map(|entry| self.handle(entry)).collect()
    }

    fn entry(&self, config: &Arc<ClusterConfig>, origin: Origin) -> (Arc<Entry>, Arc<Live>) {
        let mut clusters = self.write();
        if let Some(entry) = clusters.get(config.key())
            && let Some(live) = entry.live.upgrade()
        {
            if let Some(manager) = entry.manager() {
                manager.cluster_modified.inc();
            }
            entry.config.store(Arc::clone(config));
            return (Arc::clone(entry), live);
        }
        let live = Arc::new(Live::new(self.0.events_kept));
        let entry = Arc::new(Entry::new(
            Arc::clone(config),
            origin,
            self.0.shards.len(),
            Arc::clone(&self.0.stats),
            &live,
        ));
        if let Some(manager) = entry.manager() {
            manager.cluster_added.inc();
        }
        clusters.insert(Arc::clone(&entry.key), Arc::clone(&entry));
        (entry, live)
    }

    /// Nothing if there is no such cluster.
    async fn change(
        &self,
        cluster: &str,
        update: impl Fn() -> cluster::Update,
    ) -> Result<(), Ended> {
        let room = room(&self.0.shards).await?;
        let _order = self.order();
        if let Some(entry) = self.read().get(cluster) {
            change(room, entry, update);
        }
        Ok(())
    }

    fn order(&self) -> std::sync::MutexGuard<'_, ()> {
        self.0.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, entry: Arc<Entry>) -> Cluster {
        Cluster {
            entry,
            engine: Arc::downgrade(&self.0),
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<Arc<str>, Arc<Entry>>> {
        self.0
            .clusters
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<Arc<str>, Arc<Entry>>> {
        self.0
            .clusters
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A cluster of an engine. Cheap to clone; does not keep the engine going.
#[derive(Clone, Debug)]
pub struct Cluster {
    entry: Arc<Entry>,
    engine: Weak<Inner>,
}

impl Cluster {
    /// The cluster's name, which clusters of other origins may bear too.
    pub fn name(&self) -> &Arc<str> {
        &self.entry.name
    }

    /// What the engine knows it by: its name, unless its configuration has a key.
    pub fn key(&self) -> &Arc<str> {
        &self.entry.key
    }

    /// Its configuration now.
    pub fn config(&self) -> Arc<ClusterConfig> {
        self.entry.config.load_full()
    }

    /// Where its configuration came from.
    pub fn origin(&self) -> Origin {
        self.entry.origin
    }

    /// Whether it was removed, or its engine was dropped or stopped, or ended with its runtime: what is read of it is what it was last. Costs
    /// a look at two flags.
    pub fn ended(&self) -> bool {
        self.entry.ended()
    }

    /// Its hosts and their health now; as they were last, once it has [ended](Cluster::ended).
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            parts: self.entry.parts.iter().map(|p| p.load_full()).collect(),
        }
    }

    /// Tells when a new snapshot is there. Changes within a few milliseconds are told once.
    /// Ends with an error when the cluster is removed or the engine ends.
    pub fn changes(&self) -> watch::Receiver<u64> {
        match self.entry.live.upgrade() {
            Some(live) => live.changed.subscribe(),
            None => watch::channel(0).1,
        }
    }
}
