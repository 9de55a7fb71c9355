//! A cluster as its drivers and its readers share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::config::ClusterConfig;
use crate::snapshot::Part;
use crate::stats::{ClusterManagerStats, Stats};

/// What drivers publish of a cluster.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Arc<str>,
    pub(super) key: Arc<str>,
    pub(super) config: ArcSwap<ClusterConfig>,
    pub(super) parts: Box<[ArcSwap<Part>]>,
    pub(super) changed: watch::Sender<u64>,
    /// Parts that are not yet initialized.
    warming: AtomicUsize,
    pub(super) origin: Origin,
    stats: Arc<Stats>,
}

/// Where a cluster's configuration came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// It was there at the start.
    Static,
    /// It came while running.
    Dynamic,
    /// A health discovery service asks for its checks. As in Envoy, it is not counted by `cluster_manager`.
    Hds,
}

impl Entry {
    pub(super) fn new(
        config: Arc<ClusterConfig>,
        origin: Origin,
        shards: usize,
        stats: Arc<Stats>,
    ) -> Self {
        let entry = Self {
            name: Arc::clone(&config.name),
            key: Arc::clone(config.key()),
            config: ArcSwap::from(config),
            parts: (0..shards).map(|_| ArcSwap::default()).collect(),
            changed: watch::Sender::new(0),
            warming: AtomicUsize::new(shards),
            origin,
            stats,
        };
        if let Some(manager) = entry.manager() {
            manager.warming_clusters.inc();
        }
        entry
    }

    /// Where the cluster is counted, if it is.
    pub(super) fn manager(&self) -> Option<&ClusterManagerStats> {
        (self.origin != Origin::Hds).then_some(&self.stats.cluster_manager)
    }

    /// Makes `part` what readers see of shard `shard`.
    pub(super) fn publish(&self, shard: usize, part: Part) {
        let Some(place) = self.parts.get(shard) else {
            return;
        };
        let initialized = part.initialized;
        let was = place.swap(Arc::new(part));
        if initialized
            && !was.initialized
            && self.warming.fetch_sub(1, AcqRel) == 1
            && let Some(manager) = self.manager()
        {
            manager.warming_clusters.dec();
        }
        self.changed.send_modify(|version| *version += 1);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if *self.warming.get_mut() > 0
            && let Some(manager) = self.manager()
        {
            manager.warming_clusters.dec();
        }
    }
}
