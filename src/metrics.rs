//! Stats in the `metrics` facade, for programs that have a recorder installed already.
//!
//! Needs the feature `metrics`. No recorder is installed here, and nothing is kept global: whoever wants the
//! stats calls [`Stats::export`](crate::stats::Stats::export) with a [`Facade`] now and then.

use std::collections::HashMap;
use std::sync::Arc;

use ::metrics::{Label, counter, gauge, histogram};

use crate::stats::{Histogram, HistogramView, Metrics};

/// A stat's name and labels.
type Named = (String, Vec<(&'static str, Arc<str>)>);

/// Gives stats to the recorder of the `metrics` facade, under their names with a prefix: `xds_health_` unless
/// said otherwise.
///
/// Counters are set to their sums and gauges to their values. Of a histogram, what was counted since the last
/// time is recorded, each duration as the upper bound of its bucket in milliseconds: so one `Facade` is to be
/// kept for an engine, not made anew each time.
///
/// ```
/// # fn main() {
/// let stats = xds_health::stats::Stats::default();
/// let mut facade = xds_health::metrics::Facade::default();
/// // Now and then:
/// stats.export(&mut facade);
/// # }
/// ```
#[derive(Debug)]
pub struct Facade {
    prefix: String,
    /// What of each histogram was given already.
    given: HashMap<Named, HistogramView>,
}

impl Default for Facade {
    fn default() -> Self {
        Self::with_prefix("xds_health_")
    }
}

impl Facade {
    /// With another prefix, which may be empty.
    pub fn with_prefix(prefix: impl Into<String>) -> Self {
        Self {
            prefix: prefix.into(),
            given: HashMap::new(),
        }
    }

    fn name(&self, name: &str) -> String {
        // Some names have it already.
        let bare = name.strip_prefix(self.prefix.as_str()).unwrap_or(name);
        format!("{}{bare}", self.prefix)
    }
}

fn labels(labels: &[(&'static str, Arc<str>)]) -> Vec<Label> {
    let labels = labels.iter();
    labels
        .map(|(name, value)| Label::new(*name, Arc::clone(value)))
        .collect()
}

impl Metrics for Facade {
    fn counter(&mut self, name: &str, of: &[(&'static str, Arc<str>)], value: u64) {
        counter!(self.name(name), labels(of)).absolute(value);
    }

    #[expect(clippy::cast_precision_loss, reason = "gauges stay far below 2^52")]
    fn gauge(&mut self, name: &str, of: &[(&'static str, Arc<str>)], value: u64) {
        gauge!(self.name(name), labels(of)).set(value as f64);
    }

    fn histogram(&mut self, name: &str, of: &[(&'static str, Arc<str>)], view: &HistogramView) {
        let histogram = histogram!(self.name(name), labels(of));
        let given = self.given.entry((name.to_owned(), of.to_vec()));
        let given = given.or_default();
        for (bucket, count) in view.since(given).buckets.into_iter().enumerate() {
            if count > 0 {
                let last = Histogram::BOUNDS_MS[Histogram::BOUNDS_MS.len() - 1];
                let bound = Histogram::BOUNDS_MS.get(bucket).copied().unwrap_or(last);
                histogram.record_many(bound, usize::try_from(count).unwrap_or(usize::MAX));
            }
        }
        given.clone_from(view);
    }
}
