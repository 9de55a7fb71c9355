//! A cluster as its drivers and its readers share it.

use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Acquire, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::told::key_tag;
use crate::config::ClusterConfig;
use crate::feed::Broadcast;
use crate::snapshot::Part;
use crate::stats::{ClusterManagerStats, ClusterStats, Gauge, Stats};

/// What drivers publish of a cluster.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Arc<str>,
    pub(super) key: Arc<str>,
    /// Tells its hosts from those of other clusters in journals.
    pub(super) tag: u64,
    pub(super) config: ArcSwap<ClusterConfig>,
    pub(super) parts: Box<[ArcSwap<Part>]>,
    /// What ends with the cluster.
    pub(super) live: Weak<Live>,
    /// Its drivers know that it has had traffic.
    pub(super) traffic: AtomicBool,
    /// It was removed, or nobody has its engine any longer, though its drivers may not know yet.
    gone: AtomicBool,
    /// Parts that are not yet initialized.
    warming: AtomicUsize,
    counted: Mutex<Counted>,
    pub(super) origin: Origin,
    stats: Arc<Stats>,
}

/// As what a cluster is counted. One that came while running warms until it is initialized, as with Envoy; one of the
/// start is active from the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Warming,
    Active,
    /// Not, or no longer, which it stays.
    Never,
}

/// What drivers tell of a cluster. They own it, so that whoever follows learns when the last of them has let go
/// of the cluster.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) changed: watch::Sender<u64>,
    pub(super) events: Broadcast,
}

impl Live {
    pub(super) fn new(events: usize) -> Self {
        Self {
            changed: watch::Sender::new(0),
            events: Broadcast::new(events),
        }
    }
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
        live: &Arc<Live>,
    ) -> Self {
        let entry = Self {
            name: Arc::clone(&config.name),
            key: Arc::clone(config.key()),
            tag: key_tag(config.key()),
            traffic: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            config: ArcSwap::from(config),
            parts: (0..shards).map(|_| ArcSwap::default()).collect(),
            live: Arc::downgrade(live),
            warming: AtomicUsize::new(shards),
            counted: Mutex::new(match origin {
                Origin::Static => Counted::Active,
                Origin::Dynamic => Counted::Warming,
                Origin::Hds => Counted::Never,
            }),
            origin,
            stats,
        };
        if let Some(gauge) = entry.gauge(*entry.counted()) {
            gauge.inc();
        }
        entry
    }

    /// There will be no more to read.
    pub(super) fn end(&self) {
        self.gone.store(true, Release);
        self.count(Counted::Never);
    }

    /// Whether there will be no more to read.
    pub(super) fn ended(&self) -> bool {
        self.gone.load(Acquire) || self.live.strong_count() == 0
    }

    /// Where the cluster is counted, if it is.
    pub(super) fn manager(&self) -> Option<&ClusterManagerStats> {
        (self.origin != Origin::Hds).then_some(&self.stats.cluster_manager)
    }

    pub(super) fn cluster_stats(&self) -> Arc<ClusterStats> {
        self.stats
            .cluster(&self.key, self.config.load().stat_name())
    }

    /// Makes `part` what readers see of shard `shard`.
    pub(super) fn publish(&self, shard: usize, part: Part) {
        let Some(place) = self.parts.get(shard) else {
            return;
        };
        let initialized = part.initialized;
        let was = place.swap(Arc::new(part));
        if initialized && !was.initialized && self.warming.fetch_sub(1, AcqRel) == 1 {
            self.count(Counted::Active);
        }
    }

    fn count(&self, next: Counted) {
        let mut counted = self.counted();
        if *counted == Counted::Never || *counted == next {
            return;
        }
        if let Some(gauge) = self.gauge(*counted) {
            gauge.dec();
        }
        if let Some(gauge) = self.gauge(next) {
            gauge.inc();
        }
        *counted = next;
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gauge(&self, counted: Counted) -> Option<&Gauge> {
        let manager = &self.stats.cluster_manager;
        match counted {
            Counted::Warming => Some(&manager.warming_clusters),
            Counted::Active => Some(&manager.active_clusters),
            Counted::Never => None,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.count(Counted::Never);
    }
}
