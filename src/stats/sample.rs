//! A stat as a reader sees it.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Counter, Gauge, Histogram, Text};

/// Label names and values, in Envoy's order.
pub type Labels = Arc<[(&'static str, Arc<str>)]>;

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

/// A value, and whether it was ever counted or set.
#[derive(Debug)]
pub(super) struct Reading(Value, bool);

impl Reading {
    /// Where it stands.
    pub(super) fn section(&self) -> Section {
        self.0.section()
    }
}

impl From<&Counter> for Reading {
    fn from(counter: &Counter) -> Self {
        let value = counter.value();
        Self(Value::Counter(value), value > 0)
    }
}

impl From<&Gauge> for Reading {
    fn from(gauge: &Gauge) -> Self {
        Self(Value::Gauge(gauge.value()), gauge.used())
    }
}

impl From<&Histogram> for Reading {
    fn from(histogram: &Histogram) -> Self {
        let view = histogram.view();
        let used = view.count() > 0;
        Self(Value::Histogram(view), used)
    }
}

impl From<&Text> for Reading {
    fn from(text: &Text) -> Self {
        let text = text.value();
        let used = !text.is_empty();
        Self(Value::Text(text), used)
    }
}

/// What stands together in `/stats`, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Words,
    Numbers,
    Histograms,
}

impl Section {
    pub(crate) const ALL: [Self; 3] = [Self::Words, Self::Numbers, Self::Histograms];
    /// Those that are metrics elsewhere, too.
    pub(crate) const METRICS: [Self; 2] = [Self::Numbers, Self::Histograms];
}

impl Value {
    pub(super) fn section(&self) -> Section {
        match self {
            Self::Counter(_) | Self::Gauge(_) => Section::Numbers,
            Self::Histogram(_) => Section::Histograms,
            Self::Text(_) => Section::Words,
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
    pub family: Cow<'static, str>,
    /// Label names and values.
    pub labels: Labels,
    /// The value.
    pub value: Value,
    /// Whether it was ever counted or set.
    pub used: bool,
}

impl Sample {
    /// A counter without labels.
    pub fn counter(name: String, counter: &Counter) -> Self {
        Self::plain(name, counter)
    }

    /// A gauge without labels.
    pub fn gauge(name: String, gauge: &Gauge) -> Self {
        Self::plain(name, gauge)
    }

    /// A histogram without labels.
    pub fn histogram(name: String, histogram: &Histogram) -> Self {
        Self::plain(name, histogram)
    }

    /// A word without labels.
    pub fn text(name: String, text: &Text) -> Self {
        Self::plain(name, text)
    }

    /// As in `/stats/prometheus`: the family, after `envoy_` unless it begins with `xds_health_`, and with `_` for what
    /// may not be in such a name.
    pub fn metric_name(&self) -> String {
        let prefix = if self.family.starts_with("xds_health_") {
            ""
        } else {
            "envoy_"
        };
        let mut name = String::with_capacity(prefix.len() + self.family.len());
        name.push_str(prefix);
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
        name.extend(
            self.family
                .chars()
                .map(|c| if allowed(c) { c } else { '_' }),
        );
        name
    }

    /// The same stat under `family` with `labels` for Prometheus.
    pub fn with_labels(mut self, family: impl Into<Cow<'static, str>>, labels: Labels) -> Self {
        self.family = family.into();
        self.labels = labels;
        self
    }

    /// A stat without labels, of a family that follows from its name.
    pub(super) fn plain(name: String, reading: impl Into<Reading>) -> Self {
        let family = name.replace(['.', '-'], "_");
        Self::new(name, family, Labels::default(), reading)
    }

    pub(super) fn new(
        name: String,
        family: impl Into<Cow<'static, str>>,
        labels: Labels,
        reading: impl Into<Reading>,
    ) -> Self {
        let Reading(value, used) = reading.into();
        Self {
            name,
            family: family.into(),
            labels,
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
