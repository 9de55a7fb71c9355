//! Bounds of intervals, which operators set for all checks at once.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use prost_types::Struct;
use prost_types::value::Kind;

use super::error::Report;
use crate::proto::envoy::config::bootstrap::v3::LayeredRuntime;
use crate::proto::envoy::config::bootstrap::v3::runtime_layer::LayerSpecifier;
use crate::validate::FieldPath;

/// Bounds of every scheduled wait.
///
/// Source: the runtime keys `health_check.min_interval` and `health_check.max_interval`. The upper bound is
/// applied first, then the lower, then a floor of 1 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IntervalLimits {
    /// No wait is shorter; default zero.
    pub min: Duration,
    /// No wait is longer; default without bound.
    pub max: Duration,
}

impl Default for IntervalLimits {
    fn default() -> Self {
        Self {
            min: Duration::ZERO,
            max: Duration::MAX,
        }
    }
}

impl IntervalLimits {
    /// The shortest wait between two attempts whatever is configured.
    pub const FLOOR: Duration = Duration::from_millis(1);

    /// Waits between `min` and `max`; `min` wins where they cross.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max }
    }

    pub(crate) fn bound(self, wait: Duration) -> Duration {
        wait.min(self.max).max(self.min).max(Self::FLOOR)
    }
}

/// The keys that bound intervals, in milliseconds.
const MIN_KEY: &str = "health_check.min_interval";
const MAX_KEY: &str = "health_check.max_interval";

/// The limits that static layers set, of which later ones win. Layers from elsewhere are passed over.
pub(super) fn read(
    message: &LayeredRuntime,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> IntervalLimits {
    let mut values = HashMap::new();
    let mut names = HashSet::new();
    let mut admin_layers = 0;
    for (index, layer) in message.layers.iter().enumerate() {
        let at = at.item("layers", index);
        if !layer.name.is_empty() && !names.insert(&layer.name) {
            let reason = format!("{:?} is the name of an earlier layer too", layer.name);
            report.fault::<()>(&at.field("name"), reason);
        }
        match &layer.layer_specifier {
            Some(LayerSpecifier::StaticLayer(fields)) => {
                collect(fields, "", &at.field("static_layer"), &mut values, report);
            }
            Some(LayerSpecifier::AdminLayer(_)) => {
                admin_layers += 1;
                if admin_layers > 1 {
                    let reason = "there can be one admin layer at most";
                    report.fault::<()>(&at.field("admin_layer"), reason);
                }
            }
            Some(LayerSpecifier::DiskLayer(_)) => {
                report.warn(&at.field("disk_layer"), "is not read");
            }
            Some(LayerSpecifier::RtdsLayer(_)) => {
                report.warn(&at.field("rtds_layer"), "is not read");
            }
            None => (),
        }
    }
    let of = |key| values.get(key).copied().flatten();
    let default = IntervalLimits::default();
    IntervalLimits {
        min: of(MIN_KEY).unwrap_or(default.min),
        max: of(MAX_KEY).unwrap_or(default.max),
    }
}

/// Takes the values of our keys out of a layer, whose keys are dotted, nested or both. A value that is no
/// whole number hides those of earlier layers, and stands for the default: so with Envoy.
fn collect(
    fields: &Struct,
    above: &str,
    at: &FieldPath<'_>,
    values: &mut HashMap<String, Option<Duration>>,
    report: &mut Report,
) {
    for (name, value) in &fields.fields {
        let key = if above.is_empty() {
            name.clone()
        } else {
            format!("{above}.{name}")
        };
        let at_value = at.field(name);
        let millis = match &value.kind {
            None | Some(Kind::NullValue(_) | Kind::ListValue(_)) => {
                report.fault::<()>(
                    &at_value,
                    "a runtime value is a number, text, bool or mapping",
                );
                continue;
            }
            // What has these keys is one value, a percentage.
            Some(Kind::StructValue(inner))
                if !inner.fields.contains_key("numerator")
                    && !inner.fields.contains_key("denominator") =>
            {
                collect(inner, &key, &at_value, values, report);
                continue;
            }
            Some(Kind::StructValue(_) | Kind::BoolValue(_)) => None,
            Some(Kind::NumberValue(number)) => whole(*number),
            Some(Kind::StringValue(text)) => text.trim_ascii().parse().ok(),
        };
        if key == MIN_KEY || key == MAX_KEY {
            if millis.is_none() {
                report.warn(
                    &at_value,
                    "is no whole number of milliseconds, so without effect",
                );
            }
            values.insert(key, millis.map(Duration::from_millis));
        }
    }
}

/// A number that is whole and not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole and within the range of a u64"
)]
fn whole(number: f64) -> Option<u64> {
    const ABOVE_ALL: f64 = 18_446_744_073_709_551_616.0;
    let fits = (0.0..ABOVE_ALL).contains(&number) && number.fract() == 0.0;
    fits.then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::text::Document;
    use crate::config::{ConfigError, Warnings, wire};

    fn limits(layers: &str) -> Result<(IntervalLimits, String), ConfigError> {
        let document = Document::from_yaml(layers)?;
        let mut warnings = Warnings::default();
        let limits = wire::convert_document(&document, &mut warnings, |m, at, report| {
            Some(read(m, at, report))
        })?;
        Ok((limits, warnings.to_string()))
    }

    #[track_caller]
    fn bounded(layers: &str, min: u64, max: Option<u64>) {
        let max = max.map_or(Duration::MAX, Duration::from_millis);
        let limits = limits(layers).unwrap().0;
        assert_eq!(limits, IntervalLimits::new(Duration::from_millis(min), max));
    }

    #[track_caller]
    fn refused(layers: &str, fault: &str) {
        let error = Vec::from(limits(layers).unwrap_err());
        let faults: Vec<_> = error.iter().map(ToString::to_string).collect();
        assert_eq!(faults, [fault]);
    }

    #[test]
    fn keys_are_nested_or_dotted() {
        bounded("layers: []", 0, None);
        bounded(
            "layers: [{name: a, static_layer: {health_check: {min_interval: 5, max_interval: 7}}}]",
            5,
            Some(7),
        );
        bounded(
            "layers: [{name: a, static_layer: {health_check.min_interval: \"5\"}}]",
            5,
            None,
        );
        bounded(
            "layers: [{name: a, static_layer: {health_check.max_interval: 0, x: {min_interval: 1}}}]",
            0,
            Some(0),
        );
    }

    #[test]
    fn a_later_layer_wins() {
        bounded(
            "layers:
             - {name: a, static_layer: {health_check: {min_interval: 5, max_interval: 6}}}
             - {name: b, admin_layer: {}}
             - {name: c, static_layer: {health_check.min_interval: 7}}",
            7,
            Some(6),
        );
        bounded(
            "layers:
             - {name: a, static_layer: {health_check.min_interval: 5}}
             - {name: b, static_layer: {health_check.min_interval: -1}}",
            0,
            None,
        );
    }

    #[test]
    fn what_is_no_number_of_milliseconds_has_no_effect() {
        for value in ["-5", "5x", "true", "{numerator: 5}", "1.5"] {
            let layer = format!(
                "layers: [{{name: a, static_layer: {{health_check.min_interval: {value}}}}}]"
            );
            let (limits, warning) = limits(&layer).unwrap();
            assert_eq!(limits, IntervalLimits::default());
            assert!(warning.ends_with("so without effect"), "{warning}");
        }
    }

    #[test]
    fn layers_are_refused_as_envoy_refuses_them() {
        refused(
            "layers: [{name: a, static_layer: {x: {y: [1]}}}]",
            "layers[0].static_layer.x.y: a runtime value is a number, text, bool or mapping",
        );
        refused(
            "layers: [{name: a, static_layer: {x: null}}]",
            "layers[0].static_layer.x: a runtime value is a number, text, bool or mapping",
        );
        refused(
            "layers: [{name: a, static_layer: {}}, {name: a, static_layer: {}}]",
            "layers[1].name: \"a\" is the name of an earlier layer too",
        );
        refused(
            "layers: [{name: a, admin_layer: {}}, {name: b, admin_layer: {}}]",
            "layers[1].admin_layer: there can be one admin layer at most",
        );
        refused(
            "layers: [{name: a}]",
            "layers[0].layer_specifier: is required: set one of static_layer, disk_layer, admin_layer, rtds_layer",
        );
    }
}
