//! Counters, gauges and histograms, under Envoy's names.
//!
//! The values are atomics that whoever counts holds by `Arc`; a [`Stats`] value knows them all and lists
//! them as [`Sample`]s for whoever reads. Nothing here is global: each engine has its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

mod cluster;
mod export;
mod hds;
mod listing;
mod sample;
mod updates;

pub use cluster::{CheckStats, ClusterStats, Membership};
pub use export::Metrics;
pub use hds::HdsStats;
pub(crate) use listing::Listing;
pub(crate) use sample::Section;
pub use sample::{HistogramView, Labels, Sample, Value};
pub use updates::{ControlPlaneStats, Text, UpdateStats};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The sum so far.
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge {
    value: AtomicU64,
    used: AtomicBool,
}

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.value.store(value, Relaxed);
        self.used.store(true, Relaxed);
    }

    /// Adds one.
    pub fn inc(&self) {
        self.value.fetch_add(1, Relaxed);
        self.used.store(true, Relaxed);
    }

    /// Takes one away.
    pub fn dec(&self) {
        self.value.fetch_sub(1, Relaxed);
    }

    /// Adds the difference of two values.
    pub fn change(&self, was: u64, now: u64) {
        if was != now {
            // Modulo 2^64, so that it can be less.
            self.value.fetch_add(now.wrapping_sub(was), Relaxed);
            self.used.store(true, Relaxed);
        }
    }

    /// Adds one for `true` as `now`, takes one away for `true` as `was`; nothing where both are the same.
    pub fn shift(&self, was: bool, now: bool) {
        match (was, now) {
            (false, true) => self.inc(),
            (true, false) => self.dec(),
            (true, true) | (false, false) => (),
        }
    }

    /// The value now.
    pub fn value(&self) -> u64 {
        self.value.load(Relaxed)
    }

    /// Whether it was ever set.
    pub fn used(&self) -> bool {
        self.used.load(Relaxed)
    }
}

/// Durations in milliseconds, counted by upper bounds.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; Self::BOUNDS_MS.len() + 1],
    sum_micros: AtomicU64,
}

impl Histogram {
    /// Upper bounds of the buckets in milliseconds; a last bucket holds the rest.
    pub const BOUNDS_MS: [f64; 18] = [
        0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0,
        5000.0, 10_000.0, 30_000.0, 60_000.0,
    ];

    const BOUNDS_NANOS: [u64; Self::BOUNDS_MS.len()] = nanos(Self::BOUNDS_MS);

    /// Counts one duration.
    pub fn record(&self, value: Duration) {
        let mut one = LocalHistogram::default();
        one.record(value);
        self.take(&mut one);
    }

    /// Adds what was counted by one thread, which begins anew.
    pub fn take(&self, counted: &mut LocalHistogram) {
        if !std::mem::take(&mut counted.used) {
            return;
        }
        for (bucket, more) in self.buckets.iter().zip(&mut counted.buckets) {
            if *more > 0 {
                bucket.fetch_add(std::mem::take(more), Relaxed);
            }
        }
        let sum = std::mem::take(&mut counted.sum_nanos);
        self.sum_micros.fetch_add(sum / 1000, Relaxed);
        counted.sum_nanos = sum % 1000;
    }

    /// What was counted so far.
    pub fn view(&self) -> HistogramView {
        HistogramView {
            buckets: self.buckets.iter().map(|b| b.load(Relaxed)).collect(),
            sum_micros: self.sum_micros.load(Relaxed),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the bounds are positive and far below 2^52"
)]
const fn nanos<const N: usize>(millis: [f64; N]) -> [u64; N] {
    let mut nanos = [0; N];
    let mut i = 0;
    while i < N {
        nanos[i] = (millis[i] * 1e6) as u64;
        i += 1;
    }
    nanos
}

/// What one thread counts for a [`Histogram`], to be added to it now and then.
#[derive(Clone, Debug, Default)]
pub struct LocalHistogram {
    buckets: [u64; Histogram::BOUNDS_MS.len() + 1],
    sum_nanos: u64,
    used: bool,
}

impl LocalHistogram {
    /// Counts one duration.
    pub fn record(&mut self, value: Duration) {
        let nanos = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
        let bucket = Histogram::BOUNDS_NANOS.partition_point(|bound| *bound < nanos);
        self.buckets[bucket] += 1;
        self.sum_nanos = self.sum_nanos.saturating_add(nanos);
        self.used = true;
    }
}

/// The `cluster_manager.` stats.
#[derive(Debug, Default)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are Envoy's stat names")]
pub struct ClusterManagerStats {
    pub cluster_added: Counter,
    pub cluster_modified: Counter,
    pub cluster_removed: Counter,
    pub cluster_updated: Counter,
    pub active_clusters: Gauge,
    pub warming_clusters: Gauge,
}

/// The engine's own stats, under `xds_health.`.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct EngineStats {
    /// `attempts_in_flight`: attempts that run.
    pub attempts_in_flight: Gauge,
    /// `attempts_queued`: attempts that are due and wait for their turn.
    pub attempts_queued: Gauge,
    /// `attempts_in_flight_limit`: how many may run at once.
    pub attempts_in_flight_limit: Gauge,
    /// `attempts_late`: attempts, but for first checks, that began over a second late: overload.
    pub attempts_late: Counter,
    /// `stalls`: how often the process did not run for half a second or more, so that checks were put off.
    pub stalls: Counter,
    /// `schedule_lag_ms`: by how much attempts began late.
    pub schedule_lag: Histogram,
    /// `round_trip_ms`: from sending to a satisfying answer.
    pub round_trip: Histogram,
    /// `event_log.dropped`: events lost because a sink could not keep up.
    pub events_dropped: Counter,
    /// `event_log.write_errors`: events lost because a sink's file could not be written.
    pub event_write_errors: Counter,
}

/// All stats of one engine.
#[derive(Debug, Default)]
pub struct Stats {
    /// `cluster_manager.`.
    pub cluster_manager: ClusterManagerStats,
    /// `xds_health.`.
    pub engine: EngineStats,
    /// `cluster_manager.cds.`: how the subscription to clusters fares.
    pub cds: UpdateStats,
    /// `control_plane.`.
    pub control_plane: ControlPlaneStats,
    /// `hds_delegate.`: how the exchange with a health discovery service fares.
    pub hds: HdsStats,
    clusters: RwLock<BTreeMap<Arc<str>, Arc<ClusterStats>>>,
}

impl Stats {
    /// The stats of the cluster known by `key`; made if there are none. `stat_name` is what names show:
    /// the cluster's `alt_stat_name`, or its name.
    pub fn cluster(&self, key: &Arc<str>, stat_name: &Arc<str>) -> Arc<ClusterStats> {
        let mut clusters = self
            .clusters
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        match clusters.get(key) {
            Some(stats) if stats.name() == stat_name => Arc::clone(stats),
            _ => {
                let stats = Arc::new(ClusterStats::new(Arc::clone(stat_name)));
                clusters.insert(Arc::clone(key), Arc::clone(&stats));
                stats
            }
        }
    }

    /// Forgets the stats of a cluster.
    pub fn remove_cluster(&self, key: &str) {
        self.clusters
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }

    /// All stats, ordered by name. Clusters that show one stat name are added up.
    pub fn samples(&self) -> Vec<Sample> {
        let mut samples = Vec::new();
        for section in Section::ALL {
            samples.extend(self.listing(section, Vec::new()).flatten());
        }
        samples.sort_by(|a, b| a.name.cmp(&b.name));
        samples
    }

    /// The stats of one section and those of `more`, ordered by name, a few at a time.
    pub(crate) fn listing(&self, section: Section, more: Vec<Sample>) -> Listing {
        let mut rest = more;
        self.manager_samples(&mut rest);
        self.engine_samples(&mut rest);
        self.control_plane_samples(&mut rest);
        self.hds.samples(&mut rest);
        rest.retain(|sample| sample.value.section() == section);
        // Held only to copy the list: who adds a cluster must not wait for all the names to be written.
        let clusters = self
            .clusters
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect();
        Listing::new(section, clusters, rest)
    }

    fn manager_samples(&self, to: &mut Vec<Sample>) {
        let manager = &self.cluster_manager;
        for (name, counter) in [
            ("cluster_added", &manager.cluster_added),
            ("cluster_modified", &manager.cluster_modified),
            ("cluster_removed", &manager.cluster_removed),
            ("cluster_updated", &manager.cluster_updated),
        ] {
            to.push(Sample::counter(format!("cluster_manager.{name}"), counter));
        }
        for (name, gauge) in [
            ("active_clusters", &manager.active_clusters),
            ("warming_clusters", &manager.warming_clusters),
        ] {
            to.push(Sample::gauge(format!("cluster_manager.{name}"), gauge));
        }
    }

    fn control_plane_samples(&self, to: &mut Vec<Sample>) {
        if self.control_plane.in_use() {
            self.control_plane.samples(to);
        }
        self.cds.read(false, &mut |stat, _, reading| {
            to.push(Sample::plain(
                format!("cluster_manager.cds.{stat}"),
                reading,
            ));
        });
    }

    fn engine_samples(&self, to: &mut Vec<Sample>) {
        let engine = &self.engine;
        for (name, gauge) in [
            ("attempts_in_flight", &engine.attempts_in_flight),
            ("attempts_queued", &engine.attempts_queued),
            ("attempts_in_flight_limit", &engine.attempts_in_flight_limit),
        ] {
            to.push(Sample::gauge(format!("xds_health.{name}"), gauge));
        }
        for (name, counter) in [
            ("attempts_late", &engine.attempts_late),
            ("stalls", &engine.stalls),
            ("event_log.dropped", &engine.events_dropped),
            ("event_log.write_errors", &engine.event_write_errors),
        ] {
            to.push(Sample::counter(format!("xds_health.{name}"), counter));
        }
        for (name, histogram) in [
            ("schedule_lag_ms", &engine.schedule_lag),
            ("round_trip_ms", &engine.round_trip),
        ] {
            to.push(Sample::histogram(format!("xds_health.{name}"), histogram));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_of_one_stat_name_are_added_up() {
        let stats = Stats::default();
        for key in ["a", "hds/a"] {
            let cluster = stats.cluster(&Arc::from(key), &Arc::from("a"));
            cluster.check(&Arc::from("")).attempt.add(2);
        }
        let samples = stats.samples();
        let attempts: Vec<_> = samples
            .iter()
            .filter(|s| s.name == "cluster.a.health_check.attempt")
            .collect();
        assert_eq!(attempts.len(), 1);
        assert_eq!(attempts[0].value, Value::Counter(4));
    }

    #[test]
    fn a_listing_is_in_the_order_of_whole_names_and_has_each_once() {
        let stats = Stats::default();
        // A dash comes before a dot, and a dot before a letter; `a.` begins names of two clusters.
        for name in ["a", "a.b", "a-b", "ab", "a.membership_change", "b"] {
            let cluster = stats.cluster(&Arc::from(name), &Arc::from(name));
            cluster.check(&Arc::from("")).attempt.inc();
            cluster.updates.success(std::time::UNIX_EPOCH, name);
        }
        let again = stats.cluster(&Arc::from("hds/a"), &Arc::from("a"));
        again.check(&Arc::from("")).attempt.inc();
        let mut listed = 0;
        for section in Section::ALL {
            let gauge = Sample::gauge("server.live".to_owned(), &Gauge::default());
            let names: Vec<_> = stats
                .listing(section, vec![gauge])
                .flatten()
                .map(|sample| sample.name)
                .collect();
            assert!(names.is_sorted_by(|a, b| a < b), "{names:#?}");
            listed += names.len();
        }
        assert_eq!(listed, stats.samples().len() + 1);
        let samples = stats.samples();
        let of = |name: &str| samples.iter().find(|s| s.name == name).map(|s| &s.value);
        assert_eq!(
            of("cluster.a.health_check.attempt"),
            Some(&Value::Counter(2))
        );
        assert_eq!(
            of("cluster.a.b.health_check.attempt"),
            Some(&Value::Counter(1))
        );
    }

    #[test]
    fn a_histogram_counts_by_upper_bound() {
        let histogram = Histogram::default();
        for micros in [50, 1000, 1001, 70_000_000] {
            histogram.record(Duration::from_micros(micros));
        }
        let view = histogram.view();
        assert_eq!(view.buckets[0], 1);
        assert_eq!(view.buckets[3], 1);
        assert_eq!(view.buckets[4], 1);
        assert_eq!(view.buckets.last(), Some(&1));
        assert_eq!(view.sum_micros, 70_002_051);
    }
}
