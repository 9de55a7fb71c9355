//! The text that Prometheus scrapes, under Envoy's metric and label names.
//!
//! A family is one group under one `# TYPE` line. Names have no `_total`; labels are always in braces,
//! even if there are none. What Envoy has not is under `xds_health_` and has a line of help, all else under `envoy_`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;
use std::sync::Arc;

use super::answer::More;
use crate::stats::{Histogram, HistogramView, Sample, Value};

/// What metrics of this program begin with that are not Envoy's.
const OWN: &str = "xds_health_";

/// What the metrics of this program tell.
const HELP: [(&str, &str); 17] = [
    ("attempts_in_flight", "Attempts that run"),
    ("attempts_in_flight_limit", "Attempts that may run at once"),
    ("attempts_late", "Attempts that began over a second late"),
    ("attempts_queued", "Attempts that are due and wait for room"),
    (
        "cluster_health_check_cancelled",
        "Attempts ended because their host or check went away",
    ),
    (
        "cluster_health_check_failure_reason",
        "Failed attempts by what was really seen",
    ),
    (
        "cluster_health_check_waited_for",
        "Attempts that waited for what this process was short of",
    ),
    (
        "config_age_seconds",
        "Time since an answer of a management server was last taken",
    ),
    (
        "control_plane_disconnected_seconds",
        "Time without an aggregated stream",
    ),
    (
        "event_log_dropped",
        "Events that a full queue had no room for",
    ),
    ("event_log_write_errors", "Events that could not be written"),
    (
        "hds_connected_state",
        "1 while a health discovery service has told what to check",
    ),
    ("hds_report_bytes", "Length of the last report in bytes"),
    (
        "hds_reports_skipped",
        "Reports left out because earlier ones were not yet taken",
    ),
    (
        "round_trip_ms",
        "Time from sending to the answer in milliseconds",
    ),
    (
        "schedule_lag_ms",
        "By how much attempts begin late in milliseconds",
    ),
    (
        "stalls",
        "How often the process did not run for half a second",
    ),
];

/// The text of each family.
///
/// Counters before gauges before histograms, as Envoy has them, then by name.
#[derive(Debug, Default)]
pub(super) struct Families(BTreeMap<(Group, Cow<'static, str>), String>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Counter,
    Gauge,
    Histogram,
}

impl Families {
    pub(super) fn new(samples: impl Iterator<Item = Sample>) -> Self {
        let mut families = Self::default();
        for sample in samples {
            families.add(sample);
        }
        families
    }

    fn add(&mut self, sample: Sample) {
        let group = match sample.value {
            Value::Counter(_) => Group::Counter,
            Value::Gauge(_) => Group::Gauge,
            Value::Histogram(_) => Group::Histogram,
            // As with Envoy, words are not scraped.
            Value::Text(_) => return,
        };
        let name = sample.metric_name();
        let to = match self.0.entry((group, sample.family)) {
            Entry::Occupied(family) => family.into_mut(),
            Entry::Vacant(place) => place.insert(heading(&name, group)),
        };
        let labels = labels(&sample.labels);
        match &sample.value {
            Value::Counter(number) | Value::Gauge(number) => {
                let _ = writeln!(to, "{name}{{{labels}}} {number}");
            }
            Value::Histogram(view) => write_histogram(to, &name, &labels, view),
            Value::Text(_) => (),
        }
    }

    /// Adds the next family to `to`.
    pub(super) fn write(&mut self, to: &mut String) -> More {
        match self.0.pop_first() {
            Some((_, family)) if to.is_empty() => *to = family,
            Some((_, family)) => to.push_str(&family),
            None => return More::No,
        }
        More::Yes
    }
}

fn heading(name: &str, group: Group) -> String {
    let mut to = String::new();
    if let Some(own) = name.strip_prefix(OWN)
        && let Some((_, help)) = HELP.iter().find(|(of, _)| *of == own)
    {
        let _ = writeln!(to, "# HELP {name} {help}.");
    }
    let kind = match group {
        Group::Counter => "counter",
        Group::Gauge => "gauge",
        Group::Histogram => "histogram",
    };
    let _ = writeln!(to, "# TYPE {name} {kind}");
    to
}

fn write_histogram(to: &mut String, name: &str, labels: &str, view: &HistogramView) {
    let comma = if labels.is_empty() { "" } else { "," };
    let bounds = Histogram::BOUNDS_MS.iter().map(f64::to_string);
    let bounds = bounds.chain(["+Inf".to_owned()]);
    let mut below = 0;
    for (bound, n) in bounds.zip(&view.buckets) {
        below += n;
        let _ = writeln!(to, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
    }
    let (millis, micros) = (view.sum_micros / 1000, view.sum_micros % 1000);
    let _ = writeln!(to, "{name}_sum{{{labels}}} {millis}.{micros:03}");
    let _ = writeln!(to, "{name}_count{{{labels}}} {below}");
}

fn labels(labels: &[(&'static str, Arc<str>)]) -> String {
    let mut to = String::new();
    for (name, value) in labels {
        if !to.is_empty() {
            to.push(',');
        }
        to.push_str(name);
        to.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => to.push_str("\\\\"),
                '"' => to.push_str("\\\""),
                '\n' => to.push_str("\\n"),
                c => to.push(c),
            }
        }
        to.push('"');
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Counter;
    use std::time::Duration;

    fn text(sample: Sample) -> String {
        let mut families = Families::new([sample].into_iter());
        let mut to = String::new();
        while families.write(&mut to) == More::Yes {}
        to
    }

    #[test]
    fn names_and_label_values_hold_only_what_is_allowed() {
        let sample = Sample::counter("x".to_owned(), &Counter::default());
        let sample = sample.with_labels(
            "a.b-\u{e9}".to_owned(),
            Arc::new([("l", "a\\\"\n\t\u{e9}".into()), ("m", "".into())]),
        );
        assert_eq!(
            text(sample),
            "# TYPE envoy_a_b__ counter\nenvoy_a_b__{l=\"a\\\\\\\"\\n\t\u{e9}\",m=\"\"} 0\n"
        );
    }

    #[test]
    fn a_histogram_has_buckets_sum_and_count() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_micros(1500));
        histogram.record(Duration::from_secs(100));
        let text = text(Sample::histogram(
            "xds_health.lag_ms".to_owned(),
            &histogram,
        ));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "# TYPE xds_health_lag_ms histogram");
        assert_eq!(lines[1], "xds_health_lag_ms_bucket{le=\"0.1\"} 0");
        assert_eq!(lines[5], "xds_health_lag_ms_bucket{le=\"2\"} 1");
        assert_eq!(lines[18], "xds_health_lag_ms_bucket{le=\"60000\"} 1");
        assert_eq!(lines[19], "xds_health_lag_ms_bucket{le=\"+Inf\"} 2");
        assert_eq!(lines[20], "xds_health_lag_ms_sum{} 100001.500");
        assert_eq!(lines[21], "xds_health_lag_ms_count{} 2");
    }
}
