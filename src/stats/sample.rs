//! A stat as a reader sees it.

use std::sync::Arc;

use super::{Counter, Gauge, Histogram, Text};

/// The value of a stat.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Only grows.
    Counter(u64),
    /// Goes up and down.
    Gauge(u64),
    /// Durations in milliseconds.
    Histogram(HistogramView),
    /// A word.
    Text(Arc<str>),
}

/// What a [`Histogram`] has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistogramView {
    /// How many fell into each bucket of [`Histogram::BOUNDS_MS`], and above the last bound.
    pub buckets: Vec<u64>,
    /// Sum of all durations in microseconds.
    pub sum_micros: u64,
}

impl HistogramView {
    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// An upper bound of the `q` quantile (0.0 to 1.0) in milliseconds; none while nothing was counted.
    pub fn quantile_ms(&self, q: f64) -> Option<f64> {
        let count = self.count();
        #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
        let rank = (count as f64 * q).max(1.0);
        let mut below = 0_u64;
        for (bucket, n) in self.buckets.iter().enumerate() {
            below += n;
            #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
            if *n > 0 && below as f64 >= rank {
                return Some(
                    Histogram::BOUNDS_MS
                        .get(bucket)
                        .copied()
                        .unwrap_or(f64::INFINITY),
                );
            }
        }
        None
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            buckets: self
                .buckets
                .iter()
                .enumerate()
                .map(|(i, n)| n - earlier.buckets.get(i).copied().unwrap_or(0))
                .collect(),
            sum_micros: self.sum_micros - earlier.sum_micros,
        }
    }
}

/// One stat: Envoy's dotted name, the name and labels for Prometheus, and the value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// As in `/stats`: `cluster.c1.health_check.attempt`.
    pub name: String,
    /// As in `/stats/prometheus`, without the `envoy_` prefix and the label parts: `cluster_health_check_attempt`.
    pub family: String,
    /// Label names and values, in Envoy's order.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: Value,
    /// Whether it was ever counted or set.
    pub used: bool,
}

impl Sample {
    /// A counter without labels.
    pub fn counter(name: String, counter: &Counter) -> Self {
        let value = counter.value();
        Self::plain(name, Value::Counter(value), value > 0)
    }

    /// A gauge without labels.
    pub fn gauge(name: String, gauge: &Gauge) -> Self {
        Self::plain(name, Value::Gauge(gauge.value()), gauge.used())
    }

    /// A histogram without labels.
    pub fn histogram(name: String, histogram: &Histogram) -> Self {
        let view = histogram.view();
        let used = view.count() > 0;
        Self::plain(name, Value::Histogram(view), used)
    }

    /// A word without labels.
    pub fn text(name: String, text: &Text) -> Self {
        let text = text.value();
        let used = !text.is_empty();
        Self::plain(name, Value::Text(text), used)
    }

    /// The same stat under another name, and a family that follows from it.
    pub(super) fn named(mut self, name: String) -> Self {
        self.family = name.replace(['.', '-'], "_");
        self.name = name;
        self
    }

    /// The same stat under `family` with `labels` for Prometheus.
    pub fn with_labels(mut self, family: String, labels: Vec<(&'static str, String)>) -> Self {
        self.family = family;
        self.labels = labels;
        self
    }

    fn plain(name: String, value: Value, used: bool) -> Self {
        Self {
            family: name.replace(['.', '-'], "_"),
            name,
            labels: Vec::new(),
            value,
            used,
        }
    }

    /// Adds `other` to this if both are one stat; tells whether they are.
    pub(super) fn absorb(&mut self, other: &Self) -> bool {
        if self.name != other.name {
            return false;
        }
        self.used |= other.used;
        match (&mut self.value, &other.value) {
            (Value::Counter(sum), Value::Counter(n)) | (Value::Gauge(sum), Value::Gauge(n)) => {
                *sum += n;
            }
            (Value::Histogram(sum), Value::Histogram(view)) => {
                for (bucket, n) in sum.buckets.iter_mut().zip(&view.buckets) {
                    *bucket += n;
                }
                sum.sum_micros += view.sum_micros;
            }
            _ => (),
        }
        true
    }
}
