//! A tree to a message, along the message's descriptor.
//!
//! The rules are protobuf's JSON mapping with the leniencies that Envoy has on top. The reader keeps
//! the path to where it is and goes on after a fault; what has one is left out of the message.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;

use prost::Message as _;
use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor,
    ReflectMessage as _, Value as Field,
};

use super::node::{Entry, Node, Value};
use super::scalar::{self, NotInteger};
use super::{Read, path, suggest, unused};
use crate::validate::Fault;

/// How many faults of one document are listed. Hostile text could have more of them than memory.
const MAX_FAULTS: usize = 1000;

/// What a key that a mapping has twice means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RepeatedKeys {
    /// YAML: the last value counts.
    LastCounts,
    /// JSON: each value is read; a field that holds one value keeps the last.
    AllCount,
}

pub(super) struct Reader {
    repeated_keys: RepeatedKeys,
    path: String,
    /// How deep the message read now is within the bytes that it will be part of.
    pub(super) depth: usize,
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
}

impl Reader {
    pub(super) fn new(repeated_keys: RepeatedKeys) -> Self {
        Self {
            repeated_keys,
            path: String::new(),
            depth: 0,
            faults: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub(super) fn read(
        mut self,
        node: &Node,
        descriptor: &MessageDescriptor,
    ) -> Read<DynamicMessage> {
        let message = self
            .message(node, descriptor)
            .unwrap_or_else(|| DynamicMessage::new(descriptor.clone()));
        Read {
            message,
            faults: self.faults,
            warnings: self.warnings,
        }
    }

    pub(super) fn fault(&mut self, reason: impl Display) {
        match self.faults.len() {
            MAX_FAULTS => self.faults.push(Fault::new(
                "",
                format!("there are more faults than the {MAX_FAULTS} above"),
            )),
            n if n > MAX_FAULTS => {}
            _ => self.faults.push(Fault::new(&self.path, reason.to_string())),
        }
    }

    fn warn(&mut self, reason: impl Display) {
        if self.warnings.len() < MAX_FAULTS {
            self.warnings
                .push(Fault::new(&self.path, reason.to_string()));
        }
    }

    /// Does `read` with a longer path.
    pub(super) fn within<T>(
        &mut self,
        extend: impl FnOnce(&mut String),
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let length = self.path.len();
        extend(&mut self.path);
        let value = read(self);
        self.path.truncate(length);
        value
    }

    /// Reads what stands for a message, of whatever kind.
    pub(super) fn message(
        &mut self,
        node: &Node,
        descriptor: &MessageDescriptor,
    ) -> Option<DynamicMessage> {
        self.depth += 1;
        let message = match self.well_known(node, descriptor) {
            Some(message) => message,
            None => self.plain_message(node, descriptor),
        };
        self.depth -= 1;
        message
    }

    /// Reads a mapping of field names.
    pub(super) fn plain_message(
        &mut self,
        node: &Node,
        descriptor: &MessageDescriptor,
    ) -> Option<DynamicMessage> {
        let Value::Map(entries) = &node.value else {
            let name = descriptor.full_name();
            let value = &node.value;
            self.fault(format_args!(
                "{value} is not a mapping: want the fields of {name}"
            ));
            return None;
        };
        let mut message = DynamicMessage::new(descriptor.clone());
        self.fields(entries, &mut message, &[]);
        Some(message)
    }

    /// Reads fields into `message`, but not the keys in `except`.
    pub(super) fn fields(
        &mut self,
        entries: &[Entry],
        message: &mut DynamicMessage,
        except: &[&str],
    ) {
        let descriptor = message.descriptor();
        let mut given = HashSet::new();
        let mut oneofs: HashMap<String, FieldDescriptor> = HashMap::new();
        for entry in self.entries(entries) {
            let key = &*entry.key;
            if except.contains(&key) {
                continue;
            }
            let field = descriptor
                .get_field_by_name(key)
                .or_else(|| descriptor.get_field_by_json_name(key));
            let Some(field) = field else {
                self.unknown(key, &descriptor);
                continue;
            };
            self.within(
                |path| path::push_name(path, field.name()),
                |reader| {
                    if matches!(entry.node.value, Value::Null) && !is_value(&field) {
                        return;
                    }
                    if !given.insert(field.number()) {
                        let what = match field.is_list() || matches!(field.kind(), Kind::Message(_))
                        {
                            true => "both are read",
                            false => "the last one counts",
                        };
                        reader.warn(format_args!("it is given more than once: {what}"));
                    }
                    let other = field
                        .containing_oneof()
                        .filter(|oneof| !oneof.is_synthetic())
                        .and_then(|oneof| oneofs.insert(oneof.name().to_owned(), field.clone()));
                    if let Some(other) = other {
                        reader.two_of_one(&other, &field);
                        // Only for the faults in it.
                        let mut aside = DynamicMessage::new(descriptor.clone());
                        reader.field(&entry.node, &field, &mut aside);
                        return;
                    }
                    reader.field(&entry.node, &field, message);
                },
            );
        }
    }

    fn two_of_one(&mut self, first: &FieldDescriptor, second: &FieldDescriptor) {
        let message = second.parent_message().full_name();
        let oneof = second.containing_oneof();
        let oneof = oneof
            .as_ref()
            .map_or_else(String::new, |o| o.name().to_owned());
        let first = match first == second {
            true => "this one is given twice".to_owned(),
            false => format!("{} is given too", first.name()),
        };
        self.fault(format_args!(
            "{message} takes one {oneof} only, and {first}"
        ));
    }

    /// The entries that count, in order.
    pub(super) fn entries<'n>(&mut self, entries: &'n [Entry]) -> Vec<&'n Entry> {
        let mut last = HashMap::new();
        for (index, entry) in entries.iter().enumerate() {
            last.insert(&*entry.key, index);
        }
        let all = last.len() == entries.len() || self.repeated_keys == RepeatedKeys::AllCount;
        let mut counted = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            if all || last[&*entry.key] == index {
                counted.push(entry);
            } else {
                self.within(
                    |path| path::push_name(path, &entry.key),
                    |reader| reader.warn("the key is given more than once: the last one counts"),
                );
            }
        }
        counted
    }

    fn unknown(&mut self, key: &str, descriptor: &MessageDescriptor) {
        let message = descriptor.full_name();
        if unused::is_unused(message, key) || self.faults.len() > MAX_FAULTS {
            return;
        }
        let fields: Vec<_> = descriptor.fields().collect();
        let names = fields.iter().map(FieldDescriptor::name);
        let nearest = suggest::nearest(key, names.chain(unused::unused(message).iter().copied()));
        let hint = nearest.map_or_else(String::new, |name| format!(", did you mean {name}?"));
        let shown = super::node::quoted(key);
        self.within(
            |path| path::push_name(path, key),
            |reader| reader.fault(format_args!("unknown field {shown} in {message}{hint}")),
        );
    }

    fn field(&mut self, node: &Node, field: &FieldDescriptor, message: &mut DynamicMessage) {
        if field.is_map() {
            self.map(node, field, message);
        } else if field.is_list() {
            let mut items = match message.get_field(field).as_list() {
                Some(items) => items.to_vec(),
                None => Vec::new(),
            };
            self.list(node, &field.kind(), &mut items);
            message.set_field(field, Field::List(items));
        } else if let Some(value) = self.single(node, &field.kind()) {
            match (value, message.get_field_mut(field)) {
                (Field::Message(value), Field::Message(message)) => {
                    // Merges with what the other spelling of the field gave.
                    if let Err(e) = message.merge(value.encode_to_vec().as_slice()) {
                        self.fault(e);
                    }
                }
                (value, _) => message.set_field(field, value),
            }
        }
    }

    /// Reads the items of a list. As in Envoy, lists within it are part of it, and one value alone is
    /// a list of one.
    pub(super) fn list(&mut self, node: &Node, kind: &Kind, items: &mut Vec<Field>) {
        if let Value::List(nodes) = &node.value {
            for node in nodes.iter() {
                self.list(node, kind, items);
            }
            return;
        }
        let item = self.within(
            |path| path::push_index(path, items.len()),
            |reader| reader.single_or_default(node, kind),
        );
        items.push(item);
    }

    fn map(&mut self, node: &Node, field: &FieldDescriptor, message: &mut DynamicMessage) {
        let (Value::Map(entries), Kind::Message(entry_type)) = (&node.value, field.kind()) else {
            let value = &node.value;
            self.fault(format_args!("{value} is not a mapping of keys to values"));
            return;
        };
        let key_kind = entry_type.map_entry_key_field().kind();
        let value_kind = entry_type.map_entry_value_field().kind();
        self.depth += 1;
        for entry in self.entries(entries) {
            self.within(
                |path| path::push_key(path, &entry.key),
                |reader| {
                    let Some(key) = map_key(&entry.key, &key_kind) else {
                        reader.fault("the key is not of the map's type");
                        return;
                    };
                    let value = reader.single_or_default(&entry.node, &value_kind);
                    let map = message.get_field_mut(field).as_map_mut();
                    if map.is_some_and(|map| map.insert(key, value).is_some()) {
                        reader.fault("the key is given more than once");
                    }
                },
            );
        }
        self.depth -= 1;
    }

    /// One value, or its default if it is null or has a fault.
    fn single_or_default(&mut self, node: &Node, kind: &Kind) -> Field {
        let value = match (&node.value, kind) {
            (Value::Null, Kind::Message(message)) if !is_value_type(message) => None,
            _ => self.single(node, kind),
        };
        value.unwrap_or_else(|| kind.default_value())
    }

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
                .or_else(|| name.parse().ok()),
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

/// Whether null is a value of the field instead of leaving it unset.
fn is_value(field: &FieldDescriptor) -> bool {
    match field.kind() {
        Kind::Message(message) => !field.is_list() && is_value_type(&message),
        _ => false,
    }
}

fn is_value_type(message: &MessageDescriptor) -> bool {
    message.full_name() == "google.protobuf.Value"
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

fn map_key(key: &str, kind: &Kind) -> Option<MapKey> {
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
