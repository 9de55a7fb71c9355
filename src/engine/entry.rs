//! A cluster as its drivers and its readers share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::config::ClusterConfig;
use crate::snapshot::Part;
use crate::stats::Stats;

/// What drivers publish of a cluster.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Arc<str>,
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
}

impl Entry {
    pub(super) fn new(
        config: Arc<ClusterConfig>,
        origin: Origin,
        shards: usize,
        stats: Arc<Stats>,
    ) -> Self {
        stats.cluster_manager.warming_clusters.inc();
        Self {
            name: Arc::clone(&config.name),
            config: ArcSwap::from(config),
            parts: (0..shards).map(|_| ArcSwap::default()).collect(),
            changed: watch::Sender::new(0),
            warming: AtomicUsize::new(shards),
            origin,
            stats,
        }
    }

    /// Makes `part` what readers see of shard `shard`.
    pub(super) fn publish(&self, shard: usize, part: Part) {
        let Some(place) = self.parts.get(shard) else {
            return;
        };
        let initialized = part.initialized;
        let was = place.swap(Arc::new(part));
        if initialized && !was.initialized && self.warming.fetch_sub(1, AcqRel) == 1 {
            self.stats.cluster_manager.warming_clusters.dec();
        }
        self.changed.send_modify(|version| *version += 1);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if *self.warming.get_mut() > 0 {
            self.stats.cluster_manager.warming_clusters.dec();
        }
    }
}
