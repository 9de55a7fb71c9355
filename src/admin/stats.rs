//! `/stats` and `/stats/prometheus`: counters, gauges and histograms.
//!
//! Text and JSON are written a cluster at a time while they are sent. Prometheus wants all of a family together,
//! so its text is built whole, off the runtime.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::{self, More, Refused};
use super::query::{Filter, Query};
use super::{Shared, prometheus};
use crate::config::json::write_string;
use crate::stats::{Sample, Section, Value};

/// Quantiles of a histogram in percent, as Envoy lists them.
const QUANTILES: [f64; 10] = [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 100.0];

/// The stats of so many clusters are looked through at a time, if what is asked for is not among them.
const CLUSTERS: usize = 64;

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
    if format == Format::Prometheus {
        let build = move || {
            let samples = Section::METRICS
                .into_iter()
                .flat_map(|section| of.stats(section))
                .flatten();
            prometheus::Families::new(samples.filter(|sample| selection.admits(sample)))
        };
        let mut families = answer::off_runtime(&shared, build).await?;
        let body = answer::streamed(move |to| families.write(to));
        return Ok(answer::text(StatusCode::OK, body));
    }
    // Clusters are sorted here.
    let list = move || Section::ALL.map(|section| of.stats(section));
    let listings = answer::off_runtime(&shared, list).await?;
    let mut samples = listings.into_iter().flatten();
    let mut form = Form::new(format == Format::Json);
    let body = answer::streamed_in(CLUSTERS, move |to| {
        let Some(some) = samples.next() else {
            form.end(to);
            return More::No;
        };
        for sample in some.iter().filter(|sample| selection.admits(sample)) {
            form.write(to, sample);
        }
        More::Yes
    });
    Ok(match format {
        Format::Json => answer::json(body),
        Format::Text | Format::Prometheus => answer::text(StatusCode::OK, body),
    })
}

/// Words first, then numbers, then histograms, each by name.
#[derive(Debug)]
enum Form {
    Text,
    Json(Json),
}

/// Where the writer is.
#[derive(Clone, Copy, Debug)]
enum Json {
    Start,
    Between,
    /// In the object that holds all histograms.
    Histograms,
}

impl Form {
    fn new(json: bool) -> Self {
        if json {
            Self::Json(Json::Start)
        } else {
            Self::Text
        }
    }

    fn write(&mut self, to: &mut String, sample: &Sample) {
        match self {
            Self::Text => write_text(to, sample),
            Self::Json(at) => write_json(to, at, sample),
        }
    }

    fn end(&self, to: &mut String) {
        to.push_str(match self {
            Self::Text => "",
            Self::Json(Json::Start) => "{\"stats\":[]}",
            Self::Json(Json::Between) => "]}",
            Self::Json(Json::Histograms) => "]}}]}",
        });
    }
}

fn write_text(to: &mut String, sample: &Sample) {
    to.push_str(&sample.name);
    match &sample.value {
        Value::Text(word) => {
            let _ = writeln!(to, ": \"{word}\"");
        }
        Value::Counter(number) | Value::Gauge(number) => {
            let _ = writeln!(to, ": {number}");
        }
        Value::Histogram(view) if view.count() == 0 => to.push_str(": No recorded values\n"),
        Value::Histogram(view) => {
            to.push(':');
            for percent in QUANTILES {
                // Envoy gives the last interval and all time; here is no interval.
                let value = view.quantile_ms(percent / 100.0).unwrap_or(f64::NAN);
                let _ = write!(to, " P{percent}(nan,{value})");
            }
            to.push('\n');
        }
    }
}

fn write_json(to: &mut String, at: &mut Json, sample: &Sample) {
    to.push_str(match at {
        Json::Start => "{\"stats\":[",
        Json::Between | Json::Histograms => ",",
    });
    if matches!(at, Json::Start) {
        *at = Json::Between;
    }
    if matches!(sample.value, Value::Histogram(_)) && matches!(at, Json::Between) {
        let quantiles = QUANTILES.map(|percent| percent.to_string()).join(",");
        let _ = write!(
            to,
            "{{\"histograms\":{{\"supported_quantiles\":[{quantiles}],\"computed_quantiles\":["
        );
        *at = Json::Histograms;
    }
    to.push_str("{\"name\":");
    write_string(to, &sample.name);
    match &sample.value {
        Value::Text(word) => {
            to.push_str(",\"value\":");
            write_string(to, word);
            to.push('}');
        }
        Value::Counter(number) | Value::Gauge(number) => {
            let _ = write!(to, ",\"value\":{number}}}");
        }
        Value::Histogram(view) => {
            let values = QUANTILES.map(|percent| {
                // Above the last bound there is no number to give.
                let value = view
                    .quantile_ms(percent / 100.0)
                    .filter(|ms| ms.is_finite());
                let value = value.map_or_else(|| "null".to_owned(), |ms| ms.to_string());
                format!("{{\"cumulative\":{value},\"interval\":null}}")
            });
            let _ = write!(to, ",\"values\":[{}]}}", values.join(","));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Gauge, Histogram};
    use std::time::Duration;

    fn recorded(millis: &[u64]) -> Sample {
        let histogram = Histogram::default();
        for millis in millis {
            histogram.record(Duration::from_millis(*millis));
        }
        Sample::histogram("lag".to_owned(), &histogram)
    }

    fn written(mut form: Form, samples: &[Sample]) -> String {
        let mut to = String::new();
        for sample in samples {
            form.write(&mut to, sample);
        }
        form.end(&mut to);
        to
    }

    #[test]
    fn a_histogram_is_written_by_its_quantiles() {
        assert_eq!(
            written(Form::Text, &[recorded(&[])]),
            "lag: No recorded values\n"
        );
        assert_eq!(
            written(Form::Text, &[recorded(&[1, 1, 7, 70_000])]),
            "lag: P0(nan,1) P25(nan,1) P50(nan,1) P75(nan,10) P90(nan,inf) P95(nan,inf) \
             P99(nan,inf) P99.5(nan,inf) P99.9(nan,inf) P100(nan,inf)\n"
        );
    }

    #[test]
    fn json_has_no_number_where_a_histogram_has_none() {
        for millis in [&[][..], &[70_000]] {
            let json: serde_json::Value =
                serde_json::from_str(&written(Form::new(true), &[recorded(millis)])).unwrap();
            let values = &json["stats"][0]["histograms"]["computed_quantiles"][0]["values"];
            assert_eq!(values.as_array().unwrap().len(), QUANTILES.len());
            assert!(values[9]["cumulative"].is_null());
        }
    }

    #[test]
    fn json_is_whole_with_any_of_its_parts() {
        let number = Sample::gauge("n".to_owned(), &Gauge::default());
        let all = [number, recorded(&[1]), recorded(&[])];
        // All histograms are in one item.
        for (samples, items) in [
            (&all[..0], 0),
            (&all[..1], 1),
            (&all[1..], 1),
            (&all[..], 2),
        ] {
            let text = written(Form::new(true), samples);
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(json["stats"].as_array().unwrap().len(), items);
        }
    }
}
