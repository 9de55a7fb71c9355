//! From stats to messages of `opentelemetry.proto.metrics.v1`.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use crate::proto::envoy::config::core::v3::Node;
use crate::stats::{self, HistogramView, Sample, Section, Stats, Value};

/// About so many data points go in one request: some 500 KB, where collectors take 4 MiB.
const POINTS: usize = 4096;

/// All stats as requests of bounded size.
pub(super) struct Requests<S> {
    samples: S,
    resource: Resource,
    began: u64,
    now: u64,
}

impl Requests<()> {
    /// The stats of a process that `began` then, as they are `now`.
    pub(super) fn new(
        stats: &Stats,
        node: &Node,
        began: SystemTime,
        now: SystemTime,
    ) -> Requests<impl Iterator<Item = Vec<Sample>> + use<>> {
        let listings = Section::METRICS.map(|section| stats.listing(section, Vec::new()));
        Requests {
            samples: listings.into_iter().flatten(),
            resource: resource(node),
            began: nanos(began),
            now: nanos(now),
        }
    }
}

impl<S: Iterator<Item = Vec<Sample>>> Iterator for Requests<S> {
    type Item = ExportMetricsServiceRequest;

    fn next(&mut self) -> Option<ExportMetricsServiceRequest> {
        let mut metrics: BTreeMap<String, metric::Data> = BTreeMap::new();
        let mut points = 0;
        while points < POINTS {
            let Some(samples) = self.samples.next() else {
                break;
            };
            for sample in samples.iter().filter(|sample| sample.used) {
                points += 1;
                self.add(sample, &mut metrics);
            }
        }
        if metrics.is_empty() {
            return None;
        }
        Some(ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(InstrumentationScope {
                        name: env!("CARGO_PKG_NAME").to_owned(),
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                        ..InstrumentationScope::default()
                    }),
                    metrics: metrics.into_iter().map(named).collect(),
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        })
    }
}

impl<S> Requests<S> {
    /// Counters are sums since the start of the process, and so are histograms.
    fn add(&self, sample: &Sample, metrics: &mut BTreeMap<String, metric::Data>) {
        let cumulative = AggregationTemporality::Cumulative.into();
        let to = metrics.entry(sample.metric_name());
        let data = to.or_insert_with(|| match sample.value {
            Value::Counter(_) => metric::Data::Sum(Sum {
                aggregation_temporality: cumulative,
                is_monotonic: true,
                ..Sum::default()
            }),
            Value::Histogram(_) => metric::Data::Histogram(Histogram {
                aggregation_temporality: cumulative,
                ..Histogram::default()
            }),
            Value::Gauge(_) | Value::Text(_) => metric::Data::Gauge(Gauge::default()),
        });
        match (data, &sample.value) {
            (metric::Data::Sum(sum), Value::Counter(value)) => {
                sum.data_points.push(self.number(sample, *value));
            }
            (metric::Data::Gauge(gauge), Value::Gauge(value)) => {
                gauge.data_points.push(self.number(sample, *value));
            }
            (metric::Data::Histogram(histogram), Value::Histogram(view)) => {
                histogram.data_points.push(self.histogram(sample, view));
            }
            // Words are no metrics.
            _ => (),
        }
    }

    fn number(&self, sample: &Sample, value: u64) -> NumberDataPoint {
        // Some gauges are hashes of 64 bits.
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        NumberDataPoint {
            attributes: attributes(sample),
            start_time_unix_nano: self.began,
            time_unix_nano: self.now,
            value: Some(number_data_point::Value::AsInt(value)),
            ..NumberDataPoint::default()
        }
    }

    fn histogram(&self, sample: &Sample, view: &HistogramView) -> HistogramDataPoint {
        #[expect(clippy::cast_precision_loss, reason = "sums stay far below 2^52")]
        let sum = view.sum_micros as f64 / 1e3;
        HistogramDataPoint {
            attributes: attributes(sample),
            start_time_unix_nano: self.began,
            time_unix_nano: self.now,
            count: view.count(),
            sum: Some(sum),
            bucket_counts: view.buckets.clone(),
            explicit_bounds: stats::Histogram::BOUNDS_MS.to_vec(),
            ..HistogramDataPoint::default()
        }
    }
}

fn named((name, data): (String, metric::Data)) -> Metric {
    let unit = if name.ends_with("_ms") { "ms" } else { "" };
    Metric {
        name,
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn attributes(sample: &Sample) -> Vec<KeyValue> {
    let labels = sample.labels.iter();
    labels.map(|(name, value)| text(name, value)).collect()
}

fn resource(node: &Node) -> Resource {
    let mut attributes = vec![
        text("service.name", env!("CARGO_PKG_NAME")),
        text("service.version", env!("CARGO_PKG_VERSION")),
    ];
    if !node.id.is_empty() {
        attributes.push(text("service.instance.id", &node.id));
    }
    Resource {
        attributes,
        ..Resource::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value.to_owned())),
        }),
        ..KeyValue::default()
    }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn requests_are_bounded_and_hold_all_that_was_counted() {
        let stats = Stats::default();
        let clusters = 3 * POINTS;
        for at in 0..clusters {
            let name = Arc::from(format!("c{at}"));
            stats.cluster(&name, &name).membership.total.set(1);
        }
        stats.engine.schedule_lag.record(Duration::from_millis(3));
        let now = UNIX_EPOCH + Duration::from_secs(2);
        let mut seen = BTreeMap::<String, usize>::new();
        for request in Requests::new(&stats, &Node::default(), UNIX_EPOCH, now) {
            let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
            let mut points = 0;
            for metric in metrics {
                let count = match metric.data.as_ref().unwrap() {
                    metric::Data::Gauge(gauge) => gauge.data_points.len(),
                    metric::Data::Sum(sum) => sum.data_points.len(),
                    metric::Data::Histogram(histogram) => {
                        let point = &histogram.data_points[0];
                        assert_eq!(point.count, 1);
                        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                        assert_eq!(metric.unit, "ms");
                        1
                    }
                    _ => 0,
                };
                points += count;
                *seen.entry(metric.name.clone()).or_default() += count;
            }
            assert!((1..=POINTS + 1).contains(&points), "{points}");
        }
        let seen: Vec<_> = seen.iter().map(|(name, n)| (&**name, *n)).collect();
        assert_eq!(
            seen,
            [
                ("envoy_cluster_membership_total", clusters),
                ("xds_health_schedule_lag_ms", 1)
            ]
        );
    }
}
