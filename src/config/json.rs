//! Messages as the JSON text that Envoy's event log holds, byte for byte but for the order of maps, which
//! in Envoy is any: compact, proto names, defaults written out, numbers in C's notation.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::{DynamicMessage, Kind, MapKey, ReflectMessage, Value};
use prost_types::value::Kind as StructKind;
use prost_types::{Any, Struct};

use crate::proto::envoy::config::core::v3::Metadata;
use crate::proto::{descriptor_pool, duration, strip_type_url};

/// `metadata` as it stands in an event.
pub(crate) fn metadata(metadata: &Metadata) -> String {
    let mut out = "{\"filter_metadata\":".to_owned();
    let filters = metadata.filter_metadata.iter();
    object(&mut out, filters, write_struct);
    out.push_str(",\"typed_filter_metadata\":");
    let typed = metadata.typed_filter_metadata.iter();
    object(&mut out, typed, write_any);
    out.push('}');
    out
}

/// `text` in quotes. Escaped is what Envoy escapes: besides what JSON demands, invisible characters, and
/// those that HTML would take as markup.
pub(crate) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            _ if is_escaped(character) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _infallible = write!(out, "\\u{unit:04x}");
                }
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

fn is_escaped(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x1f' | '<' | '>' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{600}'..='\u{603}'
            | '\u{6dd}' | '\u{70f}' | '\u{17b4}' | '\u{17b5}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}'
    )
}

/// A number as C's `%.15g` writes it, or `%.17g` where that says another number.
pub(crate) fn write_number(out: &mut String, number: f64) {
    if !number.is_finite() {
        let name = if number.is_nan() {
            "\"NaN\""
        } else if number > 0.0 {
            "\"Infinity\""
        } else {
            "\"-Infinity\""
        };
        return out.push_str(name);
    }
    let short = general(number, 15);
    if short.parse() == Ok(number) {
        out.push_str(&short);
    } else {
        out.push_str(&general(number, 17));
    }
}

/// C's `%.{digits}g`.
fn general(number: f64, digits: usize) -> String {
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    match usize::try_from(exponent) {
        Ok(whole) if whole < digits => {
            without_zeros(&format!("{number:.*}", digits - 1 - whole)).to_owned()
        }
        Err(_) if exponent >= -4 => {
            let zeros = usize::try_from(-exponent).unwrap_or_default();
            without_zeros(&format!("{number:.*}", digits - 1 + zeros)).to_owned()
        }
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            let mantissa = without_zeros(mantissa);
            format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
        }
    }
}

fn without_zeros(decimal: &str) -> &str {
    if decimal.contains('.') {
        decimal.trim_end_matches('0').trim_end_matches('.')
    } else {
        decimal
    }
}

fn object<K: AsRef<str>, V>(
    out: &mut String,
    entries: impl IntoIterator<Item = (K, V)>,
    mut write: impl FnMut(&mut String, V),
) {
    out.push('{');
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(out, key.as_ref());
        out.push(':');
        write(out, value);
    }
    out.push('}');
}

fn array<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    out.push('[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(']');
}

fn write_struct(out: &mut String, value: &Struct) {
    object(out, &value.fields, write_value);
}

fn write_value(out: &mut String, value: &prost_types::Value) {
    match &value.kind {
        None | Some(StructKind::NullValue(_)) => out.push_str("null"),
        Some(StructKind::BoolValue(value)) => out.push_str(if *value { "true" } else { "false" }),
        Some(StructKind::NumberValue(value)) => write_number(out, *value),
        Some(StructKind::StringValue(value)) => write_string(out, value),
        Some(StructKind::StructValue(value)) => write_struct(out, value),
        Some(StructKind::ListValue(list)) => array(out, &list.values, write_value),
    }
}

/// An `Any` of a type that is not known here is its type and its bytes; Envoy cannot write one.
fn write_any(out: &mut String, any: &Any) {
    let message = strip_type_url(&any.type_url)
        .and_then(|name| descriptor_pool().get_message_by_name(name))
        .and_then(|descriptor| DynamicMessage::decode(descriptor, &*any.value).ok());
    out.push_str("{\"@type\":");
    write_string(out, &any.type_url);
    match message {
        Some(message) if !is_well_known(&message) => {
            write_fields(out, &message, false);
            out.push('}');
        }
        Some(message) => {
            out.push_str(",\"value\":");
            write_message(out, &message);
            out.push('}');
        }
        None => {
            out.push_str(",\"value\":");
            write_string(out, &STANDARD.encode(&any.value));
            out.push('}');
        }
    }
}

/// Whether the type has a JSON form of its own.
fn is_well_known(message: &DynamicMessage) -> bool {
    message.descriptor().package_name() == "google.protobuf"
}

fn write_message(out: &mut String, message: &DynamicMessage) {
    if is_well_known(message) && write_well_known(out, message).is_some() {
        return;
    }
    out.push('{');
    write_fields(out, message, true);
    out.push('}');
}

fn write_well_known(out: &mut String, message: &DynamicMessage) -> Option<()> {
    match message.descriptor().name() {
        "Any" => write_any(out, &message.transcode_to().ok()?),
        "Struct" => write_struct(out, &message.transcode_to().ok()?),
        "Value" => write_value(out, &message.transcode_to().ok()?),
        "ListValue" => {
            let list: prost_types::ListValue = message.transcode_to().ok()?;
            array(out, &list.values, write_value);
        }
        "Duration" => {
            let value: prost_types::Duration = message.transcode_to().ok()?;
            write_string(out, &duration::json(&value));
        }
        "Timestamp" => {
            let timestamp: prost_types::Timestamp = message.transcode_to().ok()?;
            write_string(out, &timestamp.to_string());
        }
        name if name.ends_with("Value") => {
            let field = message.descriptor().get_field_by_name("value")?;
            write_one(out, &message.get_field(&field), &field.kind());
        }
        _ => return None,
    }
    Some(())
}

/// The fields of `message` between the braces, by number. What a field without presence holds is written
/// even if it is the default.
fn write_fields(out: &mut String, message: &DynamicMessage, mut first: bool) {
    for field in message.descriptor().fields() {
        if field.supports_presence() && !message.has_field(&field) {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        write_string(out, field.name());
        out.push(':');
        match &*message.get_field(&field) {
            Value::List(items) => {
                array(out, items, |out, item| write_one(out, item, &field.kind()))
            }
            Value::Map(entries) => {
                let kind = match field.kind() {
                    Kind::Message(entry) => entry.map_entry_value_field().kind(),
                    kind => kind,
                };
                let mut entries: Vec<_> = entries.iter().map(|(k, v)| (key_text(k), v)).collect();
                entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                object(out, entries, |out, value| write_one(out, value, &kind));
            }
            value => write_one(out, value, &field.kind()),
        }
    }
}

/// The key of a map as the name of a member.
pub(crate) fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}

/// A value of a field of `kind`; an item of it if there are many.
pub(crate) fn write_one(out: &mut String, value: &Value, kind: &Kind) {
    match value {
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::I32(value) => out.push_str(&value.to_string()),
        Value::U32(value) => out.push_str(&value.to_string()),
        Value::I64(value) => write_string(out, &value.to_string()),
        Value::U64(value) => write_string(out, &value.to_string()),
        Value::F32(value) => write_number(out, (*value).into()),
        Value::F64(value) => write_number(out, *value),
        Value::String(value) => write_string(out, value),
        Value::Bytes(value) => write_string(out, &STANDARD.encode(value)),
        Value::EnumNumber(number) => match kind {
            Kind::Enum(descriptor) => match descriptor.get_value(*number) {
                Some(value) => write_string(out, value.name()),
                None => out.push_str(&number.to_string()),
            },
            _ => out.push_str(&number.to_string()),
        },
        Value::Message(message) => write_message(out, message),
        Value::List(items) => array(out, items, |out, item| write_one(out, item, kind)),
        Value::Map(_) => out.push_str("{}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost::Message as _;
    use prost_types::Value;

    use super::*;
    use crate::proto::envoy::config::core::v3::Locality;

    #[test]
    fn numbers_are_as_in_c() {
        for (number, text) in [
            (5.0, "5"),
            (-0.0, "-0"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (0.333_333_333_333_333_3, "0.33333333333333331"),
            (0.300_000_000_000_000_04, "0.30000000000000004"),
            (1e5, "100000"),
            (123_456.7, "123456.7"),
            (12_345_678.9, "12345678.9"),
            (3.5e10, "35000000000"),
            (123_456_789_012_345.6, "123456789012345.59"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (1e15, "1e+15"),
            (1.5e15, "1.5e+15"),
            (1e20, "1e+20"),
            (1e100, "1e+100"),
            (1.234_567_890_123_456_7e19, "1.2345678901234567e+19"),
            (9.999_999_999_999_999e19, "9.9999999999999984e+19"),
            (9_223_372_036_854_775_807.0, "9.2233720368547758e+18"),
            (0.0001, "0.0001"),
            (0.000_012, "1.2e-05"),
            (1e-7, "1e-07"),
            (5e-324, "4.94065645841247e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
        ] {
            let mut out = String::new();
            write_number(&mut out, number);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn strings_are_escaped_as_envoy_escapes_them() {
        let mut out = String::new();
        write_string(
            &mut out,
            "é\u{1}\n\t\u{8}\u{c}\r\"\\/<>&'\u{7f}\u{80}\u{2028}\u{feff}😀\u{1d173}",
        );
        assert_eq!(
            out,
            r#""é\u0001\n\t\b\f\r\"\\/\u003c\u003e&'\u007f\u0080\u2028\ufeff😀\ud834\udd73""#
        );
    }

    #[test]
    fn what_has_no_normal_form_is_written_all_the_same() {
        let typed = |seconds, nanos| {
            let duration = prost_types::Duration { seconds, nanos };
            let any = Any {
                type_url: "type.googleapis.com/google.protobuf.Duration".to_owned(),
                value: duration.encode_to_vec(),
            };
            metadata(&Metadata {
                typed_filter_metadata: BTreeMap::from([("t".to_owned(), any)]),
                ..Metadata::default()
            })
        };
        let least = typed(i64::MIN, i32::MIN);
        assert!(
            least.contains("\"-9223372036854775810.147483648s\""),
            "{least}"
        );
        let most = typed(i64::MAX, i32::MAX);
        assert!(
            most.contains("\"9223372036854775809.147483647s\""),
            "{most}"
        );
    }

    #[test]
    fn metadata_is_as_in_envoys_event_log() {
        assert_eq!(
            metadata(&Metadata::default()),
            r#"{"filter_metadata":{},"typed_filter_metadata":{}}"#
        );
        let list = prost_types::ListValue {
            values: vec![
                Value::from(1.0),
                "x".into(),
                StructKind::StructValue(Struct::default()).into(),
            ],
        };
        let fields = BTreeMap::from([
            ("a".to_owned(), StructKind::ListValue(list).into()),
            ("b".to_owned(), Value::from(true)),
            ("n".to_owned(), StructKind::NullValue(0).into()),
        ]);
        let any = |name: &str, value: Vec<u8>| Any {
            type_url: format!("type.googleapis.com/{name}"),
            value,
        };
        let duration = prost_types::Duration {
            seconds: 5,
            nanos: 500_000_000,
        };
        let locality = Locality {
            zone: "a".to_owned(),
            ..Locality::default()
        };
        let message = Metadata {
            filter_metadata: BTreeMap::from([("zz".to_owned(), Struct { fields })]),
            typed_filter_metadata: BTreeMap::from([
                (
                    "t".to_owned(),
                    any("google.protobuf.Duration", duration.encode_to_vec()),
                ),
                (
                    "tt".to_owned(),
                    any("envoy.config.core.v3.Locality", locality.encode_to_vec()),
                ),
                ("u".to_owned(), any("no.Such", vec![1, 2])),
            ]),
        };
        assert_eq!(
            metadata(&message),
            r#"{"filter_metadata":{"zz":{"a":[1,"x",{}],"b":true,"n":null}},"typed_filter_metadata":{"t":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"5.500s"},"tt":{"@type":"type.googleapis.com/envoy.config.core.v3.Locality","region":"","zone":"a","sub_zone":""},"u":{"@type":"type.googleapis.com/no.Such","value":"AQI="}}}"#
        );
    }
}
