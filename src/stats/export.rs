//! Stats for whoever counts elsewhere.

use std::sync::Arc;

use super::{HistogramView, Section, Stats, Value};

/// Takes the values of stats: the one thing to implement to bring them into another system of metrics.
///
/// Nothing is called while attempts run, so it costs them nothing: who wants to export calls
/// [`Stats::export`] as often as it likes, every ten seconds say.
pub trait Metrics {
    /// A number that only grows: its sum so far.
    fn counter(&mut self, name: &str, labels: &[(&'static str, Arc<str>)], value: u64);

    /// A number that goes up and down.
    fn gauge(&mut self, name: &str, labels: &[(&'static str, Arc<str>)], value: u64);

    /// Durations in milliseconds, as counted so far.
    fn histogram(&mut self, name: &str, labels: &[(&'static str, Arc<str>)], view: &HistogramView);
}

impl Stats {
    /// Gives every stat that was ever counted or set to `metrics`, under the names that Prometheus knows them by,
    /// without a prefix: `cluster_health_check_attempt` with the label `envoy_cluster_name`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use xds_health::stats::{HistogramView, Metrics, Stats};
    ///
    /// struct Lines(Vec<String>);
    ///
    /// impl Metrics for Lines {
    ///     fn counter(&mut self, name: &str, _: &[(&'static str, Arc<str>)], value: u64) {
    ///         self.0.push(format!("{name} {value}"));
    ///     }
    ///     fn gauge(&mut self, name: &str, _: &[(&'static str, Arc<str>)], value: u64) {
    ///         self.0.push(format!("{name} {value}"));
    ///     }
    ///     fn histogram(&mut self, name: &str, _: &[(&'static str, Arc<str>)], view: &HistogramView) {
    ///         self.0.push(format!("{name} {}", view.count()));
    ///     }
    /// }
    ///
    /// let stats = Stats::default();
    /// stats.cluster_manager.cluster_added.inc();
    /// let mut lines = Lines(Vec::new());
    /// stats.export(&mut lines);
    /// assert_eq!(lines.0, ["cluster_manager_cluster_added 1"]);
    /// ```
    pub fn export(&self, metrics: &mut dyn Metrics) {
        let listings = Section::METRICS.map(|section| self.listing(section, Vec::new()));
        for sample in listings.into_iter().flatten().flatten() {
            if !sample.used {
                continue;
            }
            let (name, labels) = (&sample.family, &sample.labels);
            match &sample.value {
                Value::Counter(value) => metrics.counter(name, labels, *value),
                Value::Gauge(value) => metrics.gauge(name, labels, *value),
                Value::Histogram(view) => metrics.histogram(name, labels, view),
                Value::Text(_) => (),
            }
        }
    }
}
