//! The text that Prometheus scrapes, under Envoy's metric and label names.
//!
//! A family is one group under one `# TYPE` line. Names have no `_total`; labels are always in braces,
//! even if there are none. What Envoy has not is under `xds_health_` and has a line of help, all else under `envoy_`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

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

pub(super) fn text(samples: &[Sample]) -> String {
    // Counters before gauges before histograms, as Envoy has them.
    let mut families: BTreeMap<(u8, &str), Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        let group = match sample.value {
            Value::Counter(_) => 0,
            Value::Gauge(_) => 1,
            Value::Histogram(_) => 2,
            // As with Envoy, words are not scraped.
            Value::Text(_) => continue,
        };
        families
            .entry((group, &sample.family))
            .or_default()
            .push(sample);
    }
    let mut to = String::new();
    for ((group, family), samples) in families {
        let name = metric_name(family);
        let kind = ["counter", "gauge", "histogram"][usize::from(group)];
        if let Some(own) = name.strip_prefix(OWN)
            && let Some((_, help)) = HELP.iter().find(|(of, _)| *of == own)
        {
            let _ = writeln!(to, "# HELP {name} {help}.");
        }
        let _ = writeln!(to, "# TYPE {name} {kind}");
        for sample in samples {
            let labels = labels(&sample.labels);
            match &sample.value {
                Value::Counter(number) | Value::Gauge(number) => {
                    let _ = writeln!(to, "{name}{{{labels}}} {number}");
                }
                Value::Histogram(view) => write_histogram(&mut to, &name, &labels, view),
                Value::Text(_) => (),
            }
        }
    }
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

fn metric_name(family: &str) -> String {
    let prefix = if family.starts_with(OWN) {
        ""
    } else {
        "envoy_"
    };
    let mut name = String::with_capacity(prefix.len() + family.len());
    name.push_str(prefix);
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.extend(family.chars().map(|c| if allowed(c) { c } else { '_' }));
    name
}

fn labels(labels: &[(&'static str, String)]) -> String {
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

    #[test]
    fn names_and_label_values_hold_only_what_is_allowed() {
        let sample = Sample::counter("x".to_owned(), &Counter::default());
        let sample = sample.with_labels(
            "a.b-\u{e9}".to_owned(),
            vec![("l", "a\\\"\n\t\u{e9}".to_owned()), ("m", String::new())],
        );
        assert_eq!(
            text(&[sample]),
            "# TYPE envoy_a_b__ counter\nenvoy_a_b__{l=\"a\\\\\\\"\\n\t\u{e9}\",m=\"\"} 0\n"
        );
    }

    #[test]
    fn a_histogram_has_buckets_sum_and_count() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_micros(1500));
        histogram.record(Duration::from_secs(100));
        let text = text(&[Sample::histogram(
            "xds_health.lag_ms".to_owned(),
            &histogram,
        )]);
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
