//! `/stats` and `/stats/prometheus`: counters, gauges and histograms, built off the runtime.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::{self, Refused};
use super::query::{Filter, Query};
use super::{Shared, prometheus};
use crate::config::json::write_string;
use crate::stats::{HistogramView, Sample, Value};

/// Quantiles of a histogram in percent, as Envoy lists them.
const QUANTILES: [f64; 10] = [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 100.0];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    Json,
    Prometheus,
}

/// Which stats are asked for.
#[derive(Debug)]
struct Selection {
    filter: Filter,
    inverted: bool,
    used_only: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    All,
    Counters,
    Gauges,
    Histograms,
    /// There are none.
    TextReadouts,
}

impl Selection {
    fn new(query: &Query) -> Result<Self, Refused> {
        let filter = query.filter()?;
        let kind = match query.get("type") {
            None | Some("All") => Kind::All,
            Some("Counters") => Kind::Counters,
            Some("Gauges") => Kind::Gauges,
            Some("Histograms") => Kind::Histograms,
            Some("TextReadouts") => Kind::TextReadouts,
            Some(_) => return Err(Refused::bad_request("invalid &type= param")),
        };
        Ok(Self {
            inverted: query.has("invert_filter") && query.has("filter"),
            filter,
            used_only: query.has("usedonly"),
            kind,
        })
    }

    fn admits(&self, sample: &Sample) -> bool {
        let kind = match sample.value {
            Value::Counter(_) => Kind::Counters,
            Value::Gauge(_) => Kind::Gauges,
            Value::Histogram(_) => Kind::Histograms,
            Value::Text(_) => Kind::TextReadouts,
        };
        (self.kind == Kind::All || self.kind == kind)
            && (sample.used || !self.used_only)
            && self.filter.finds(&sample.name) != self.inverted
    }
}

pub(super) async fn page(
    State(shared): State<Arc<Shared>>,
    query: Query,
) -> Result<Response, Refused> {
    show(shared, &query, Format::Text).await
}

pub(super) async fn prometheus_page(
    State(shared): State<Arc<Shared>>,
    query: Query,
) -> Result<Response, Refused> {
    show(shared, &query, Format::Prometheus).await
}

async fn show(shared: Arc<Shared>, query: &Query, default: Format) -> Result<Response, Refused> {
    let format = match query.get("format") {
        None => default,
        // Its own path knows the other formats but always gives this one, as with Envoy.
        Some("text" | "json") if default == Format::Prometheus => default,
        Some("text") => Format::Text,
        Some("json") => Format::Json,
        Some("prometheus") => Format::Prometheus,
        Some(_) => {
            let usage = "usage: /stats?format=(json|prometheus|text)\n\n";
            return Err(Refused::bad_request(usage));
        }
    };
    let selection = Selection::new(query)?;
    let of = Arc::clone(&shared);
    let build = move || {
        let mut samples = of.samples();
        samples.retain(|sample| selection.admits(sample));
        match format {
            Format::Text => text(&samples),
            Format::Json => json(&samples),
            Format::Prometheus => prometheus::text(&samples),
        }
    };
    let built = answer::off_runtime(&shared, build).await?;
    Ok(match format {
        Format::Json => answer::json(built),
        Format::Text | Format::Prometheus => answer::text(StatusCode::OK, built),
    })
}

/// Words first, then numbers, then histograms, each by name.
fn text(samples: &[Sample]) -> String {
    let mut to = String::new();
    for (name, word) in words(samples) {
        let _ = writeln!(to, "{name}: \"{word}\"");
    }
    for (name, number) in numbers(samples) {
        let _ = writeln!(to, "{name}: {number}");
    }
    for (name, view) in histograms(samples) {
        let _ = write!(to, "{name}:");
        if view.count() == 0 {
            to.push_str(" No recorded values\n");
            continue;
        }
        for percent in QUANTILES {
            // Envoy gives the last interval and all time; here is no interval.
            let value = view.quantile_ms(percent / 100.0).unwrap_or(f64::NAN);
            let _ = write!(to, " P{percent}(nan,{value})");
        }
        to.push('\n');
    }
    to
}

fn json(samples: &[Sample]) -> String {
    let mut to = String::from("{\"stats\":[");
    let mut comma = "";
    for (name, word) in words(samples) {
        let _ = write!(to, "{comma}{{\"name\":");
        write_string(&mut to, name);
        to.push_str(",\"value\":");
        write_string(&mut to, word);
        to.push('}');
        comma = ",";
    }
    for (name, number) in numbers(samples) {
        let _ = write!(to, "{comma}{{\"name\":");
        write_string(&mut to, name);
        let _ = write!(to, ",\"value\":{number}}}");
        comma = ",";
    }
    let mut histograms = histograms(samples).peekable();
    if histograms.peek().is_some() {
        let quantiles = QUANTILES.map(|percent| percent.to_string()).join(",");
        let _ = write!(
            to,
            "{comma}{{\"histograms\":{{\"supported_quantiles\":[{quantiles}],\"computed_quantiles\":["
        );
        let mut comma = "";
        for (name, view) in histograms {
            let _ = write!(to, "{comma}{{\"name\":");
            write_string(&mut to, name);
            to.push_str(",\"values\":[");
            let values = QUANTILES.map(|percent| {
                // Above the last bound there is no number to give.
                let value = view
                    .quantile_ms(percent / 100.0)
                    .filter(|ms| ms.is_finite());
                let value = value.map_or_else(|| "null".to_owned(), |ms| ms.to_string());
                format!("{{\"cumulative\":{value},\"interval\":null}}")
            });
            to.push_str(&values.join(","));
            to.push_str("]}");
            comma = ",";
        }
        to.push_str("]}}");
    }
    to.push_str("]}");
    to
}

fn numbers(samples: &[Sample]) -> impl Iterator<Item = (&str, u64)> {
    samples.iter().filter_map(|sample| match sample.value {
        Value::Counter(number) | Value::Gauge(number) => Some((&*sample.name, number)),
        Value::Histogram(_) | Value::Text(_) => None,
    })
}

fn histograms(samples: &[Sample]) -> impl Iterator<Item = (&str, &HistogramView)> {
    samples.iter().filter_map(|sample| match &sample.value {
        Value::Histogram(view) => Some((&*sample.name, view)),
        Value::Counter(_) | Value::Gauge(_) | Value::Text(_) => None,
    })
}

fn words(samples: &[Sample]) -> impl Iterator<Item = (&str, &str)> {
    samples.iter().filter_map(|sample| match &sample.value {
        Value::Text(word) => Some((&*sample.name, &**word)),
        Value::Counter(_) | Value::Gauge(_) | Value::Histogram(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Histogram;
    use std::time::Duration;

    fn recorded(millis: &[u64]) -> Sample {
        let histogram = Histogram::default();
        for millis in millis {
            histogram.record(Duration::from_millis(*millis));
        }
        Sample::histogram("lag".to_owned(), &histogram)
    }

    #[test]
    fn a_histogram_is_written_by_its_quantiles() {
        assert_eq!(text(&[recorded(&[])]), "lag: No recorded values\n");
        assert_eq!(
            text(&[recorded(&[1, 1, 7, 70_000])]),
            "lag: P0(nan,1) P25(nan,1) P50(nan,1) P75(nan,10) P90(nan,inf) P95(nan,inf) \
             P99(nan,inf) P99.5(nan,inf) P99.9(nan,inf) P100(nan,inf)\n"
        );
    }

    #[test]
    fn json_has_no_number_where_a_histogram_has_none() {
        for millis in [&[][..], &[70_000]] {
            let json: serde_json::Value = serde_json::from_str(&json(&[recorded(millis)])).unwrap();
            let values = &json["stats"][0]["histograms"]["computed_quantiles"][0]["values"];
            assert_eq!(values.as_array().unwrap().len(), QUANTILES.len());
            assert!(values[9]["cumulative"].is_null());
        }
    }
}
