//! One value of a field: the step from a node to a number, a boolean, text, bytes or an enum, and what a
//! fault says when there is none.

use prost_reflect::{EnumDescriptor, Kind, MapKey, Value as Field};

use super::message::Reader;
use super::node::Value;
use super::scalar::{self, NotInteger};
use super::{node::Node, suggest};

impl Reader {
    /// One value that is not null, unless the field is a `google.protobuf.Value`.
    pub(super) fn single(&mut self, node: &Node, kind: &Kind) -> Option<Field> {
        let value = match (kind, &node.value) {
            (Kind::Message(message), _) => return self.message(node, message).map(Field::Message),
            (_, Value::Null) => return None,
            (Kind::Enum(kind), value) => return self.enumeration(value, kind),
            (Kind::String, Value::String(text)) => Ok(Field::String(text.to_string())),
            (Kind::Bytes, Value::String(text)) => scalar::bytes(text)
                .map(|bytes| Field::Bytes(bytes.into()))
                .ok_or_else(|| "is not base64".to_owned()),
            (Kind::String | Kind::Bytes, Value::Number { .. } | Value::Bool { .. }) => {
                Err("is no text here: put it in quotes".to_owned())
            }
            (Kind::Bool, Value::Bool { value, .. }) => Ok(Field::Bool(*value)),
            (Kind::Bool, Value::String(text)) => scalar::boolean(text)
                .map(Field::Bool)
                .ok_or_else(|| "is not true or false".to_owned()),
            (Kind::Bool, _) => Err("is not true or false".to_owned()),
            (Kind::String | Kind::Bytes, _) => Err("is not text".to_owned()),
            (kind, Value::Number { value, .. }) => numeric(kind, value, true),
            (kind, Value::String(text)) => numeric(kind, text, false),
            (_, _) => Err("is not a number".to_owned()),
        };
        value
            .map_err(|problem| self.fault(format_args!("{} {problem}", node.value)))
            .ok()
    }

    fn enumeration(&mut self, value: &Value, kind: &EnumDescriptor) -> Option<Field> {
        let number = match value {
            Value::Number { value, .. } => scalar::signed(value)
                .ok()
                .and_then(|number| i32::try_from(number).ok()),
            Value::String(name) => kind
                .get_value_by_name(name)
                .or_else(|| {
                    kind.values()
                        .find(|value| value.name().eq_ignore_ascii_case(name))
                })
                .map(|value| value.number())
                // A number as text, which may have blanks around it.
                .or_else(|| name.trim_matches(scalar::is_c_space).parse().ok()),
            _ => None,
        };
        if number.is_none() {
            let values: Vec<_> = kind.values().collect();
            let names: Vec<_> = values.iter().map(|value| value.name()).collect();
            let hint = match value {
                Value::String(text) => suggest::nearest(text, names.iter().copied()),
                _ => None,
            };
            let hint = hint.map_or_else(String::new, |name| format!(", did you mean {name}?"));
            self.fault(format_args!(
                "{value} is not one of {}{hint}",
                names.join(", ")
            ));
        }
        number.map(Field::EnumNumber)
    }
}

/// A number of the field's type, or what is wrong with the text. Only a text that is `literal`, a
/// number in its format, must be finite.
fn numeric(kind: &Kind, text: &str, literal: bool) -> Result<Field, String> {
    let field = match kind {
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            let value = scalar::signed(text)
                .and_then(|n| i32::try_from(n).map_err(|_| NotInteger::OutOfRange));
            value
                .map(Field::I32)
                .map_err(|e| (e, "-2147483648 to 2147483647"))
        }
        Kind::Uint32 | Kind::Fixed32 => {
            let value = scalar::unsigned(text)
                .and_then(|n| u32::try_from(n).map_err(|_| NotInteger::OutOfRange));
            value.map(Field::U32).map_err(|e| (e, "0 to 4294967295"))
        }
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            scalar::signed(text).map(Field::I64).map_err(|e| {
                (
                    e,
                    "a whole number of 64 bits; with an exponent, of at most 53",
                )
            })
        }
        Kind::Uint64 | Kind::Fixed64 => scalar::unsigned(text).map(Field::U64).map_err(|e| {
            (
                e,
                "0 or a whole number of 64 bits; with an exponent, of at most 54",
            )
        }),
        _ => return floating(kind, text, literal),
    };
    field.map_err(|(error, range)| match error {
        NotInteger::NotANumber => "is not a number".to_owned(),
        NotInteger::Fraction => "is not a whole number".to_owned(),
        NotInteger::OutOfRange => format!("is out of range: want {range}"),
    })
}

fn floating(kind: &Kind, text: &str, literal: bool) -> Result<Field, String> {
    let value = scalar::number(text).ok_or_else(|| "is not a number".to_owned())?;
    if literal && value.is_infinite() {
        return Err("is out of range".to_owned());
    }
    if !matches!(kind, Kind::Float) {
        return Ok(Field::F64(value));
    }
    if value.is_finite() && value.abs() > f64::from(f32::MAX) {
        return Err("is out of range".to_owned());
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "in range; it only loses digits"
    )]
    Ok(Field::F32(value as f32))
}

pub(super) fn map_key(key: &str, kind: &Kind) -> Option<MapKey> {
    if let Kind::Bool = kind {
        return match key {
            "true" => Some(MapKey::Bool(true)),
            "false" => Some(MapKey::Bool(false)),
            _ => None,
        };
    }
    if let Kind::String = kind {
        return Some(MapKey::String(key.to_owned()));
    }
    match numeric(kind, key, false).ok()? {
        Field::I32(key) => Some(MapKey::I32(key)),
        Field::I64(key) => Some(MapKey::I64(key)),
        Field::U32(key) => Some(MapKey::U32(key)),
        Field::U64(key) => Some(MapKey::U64(key)),
        _ => None,
    }
}
