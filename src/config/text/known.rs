//! The messages that text writes in a way of their own: durations, wrappers, `Struct`, `Any` and
//! their like. As in Envoy, most of them may also be given as a mapping of their fields.

use std::mem;
use std::sync::Arc;

use prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use prost_types::value::Kind as StructKind;
use prost_types::{Any, ListValue, Struct, Value as StructValue};

use super::message::Reader;
use super::node::{Entry, Node, Value, quoted};
use super::{path, scalar};
use crate::proto::xds::r#type::v3::TypedStruct;
use crate::proto::{descriptor_pool, type_url};

/// How deep messages may nest in bytes: prost reads no more than 100, and some room is left for what
/// the message is put into.
const MAX_WIRE_DEPTH: usize = 95;

impl Reader {
    /// Reads a message of the kinds above. `None` if it is none of them; `Some(None)` after a fault.
    pub(super) fn well_known(
        &mut self,
        node: &Node,
        descriptor: &MessageDescriptor,
    ) -> Option<Option<DynamicMessage>> {
        let name = descriptor.full_name().strip_prefix("google.protobuf.")?;
        let message = match name {
            "Any" => self.any(node, descriptor),
            "Struct" | "Value" | "ListValue" => self.structure(node, descriptor),
            "Duration" | "Timestamp" | "FieldMask" => self.from_text(node, descriptor),
            _ if is_wrapper(name) => self.wrapper(node, descriptor),
            _ => return None,
        };
        Some(message)
    }

    fn from_text(&mut self, node: &Node, descriptor: &MessageDescriptor) -> Option<DynamicMessage> {
        if let Value::Map(_) = &node.value {
            return self.plain_message(node, descriptor);
        }
        let text = match &node.value {
            Value::String(text) => Some(&**text),
            _ => None,
        };
        let (message, wanted) = match descriptor.name() {
            "Duration" => (
                text.and_then(scalar::duration)
                    .and_then(|duration| transcode(&duration, descriptor)),
                "a duration: want digits, at most nine decimals, then s, as in 0.25s",
            ),
            "Timestamp" => (
                text.and_then(scalar::timestamp)
                    .and_then(|timestamp| transcode(&timestamp, descriptor)),
                "a time as in 2030-01-31T23:59:59Z",
            ),
            _ => (
                text.map(field_mask)
                    .and_then(|mask| transcode(&mask, descriptor)),
                "the names of fields, joined by commas",
            ),
        };
        if message.is_none() {
            self.fault(format_args!("{} is not {wanted}", node.value));
        }
        message
    }

    fn wrapper(&mut self, node: &Node, descriptor: &MessageDescriptor) -> Option<DynamicMessage> {
        if let Value::Map(_) = &node.value {
            return self.plain_message(node, descriptor);
        }
        let field = descriptor.get_field_by_name("value")?;
        let value = self.single(node, &field.kind())?;
        let mut message = DynamicMessage::new(descriptor.clone());
        message.set_field(&field, value);
        Some(message)
    }

    fn structure(&mut self, node: &Node, descriptor: &MessageDescriptor) -> Option<DynamicMessage> {
        let wanted = match (descriptor.name(), &node.value) {
            ("Value", _) | ("Struct", Value::Map(_)) | ("ListValue", Value::List(_)) => None,
            ("Struct", _) => Some("a mapping"),
            (_, _) => Some("a list"),
        };
        if let Some(wanted) = wanted {
            self.fault(format_args!("{} is not {wanted}", node.value));
            return None;
        }
        if self.depth + wire_depth(node) > MAX_WIRE_DEPTH {
            self.fault("it is nested too deep: want at most about 30 levels");
            return None;
        }
        let value = self.structure_value(node);
        match (descriptor.name(), value.kind) {
            ("Struct", Some(StructKind::StructValue(value))) => transcode(&value, descriptor),
            ("ListValue", Some(StructKind::ListValue(value))) => transcode(&value, descriptor),
            (_, kind) => transcode(&StructValue { kind }, descriptor),
        }
    }

    fn structure_value(&mut self, node: &Node) -> StructValue {
        let kind = match &node.value {
            Value::Null => StructKind::NullValue(0),
            Value::Bool { value, .. } => StructKind::BoolValue(*value),
            Value::String(text) => StructKind::StringValue(text.to_string()),
            Value::Number { value, .. } => match scalar::number(value) {
                Some(number) if number.is_finite() => StructKind::NumberValue(number),
                _ => {
                    self.fault(format_args!("{} is out of range", node.value));
                    StructKind::NumberValue(0.0)
                }
            },
            Value::List(items) => StructKind::ListValue(ListValue {
                values: items.iter().map(|n| self.structure_value(n)).collect(),
            }),
            Value::Map(entries) => StructKind::StructValue(self.structure_fields(entries, &[])),
        };
        StructValue { kind: Some(kind) }
    }

    fn structure_fields(&mut self, entries: &[Entry], except: &[&str]) -> Struct {
        let mut fields = Struct::default();
        for entry in self.entries(entries) {
            if except.contains(&&*entry.key) {
                continue;
            }
            self.within(
                |path| path::push_key(path, &entry.key),
                |reader| {
                    let value = reader.structure_value(&entry.node);
                    let before = fields.fields.insert(entry.key.to_string(), value);
                    if before.is_some() {
                        reader.fault("the key is given more than once");
                    }
                },
            );
        }
        fields
    }

    fn any(&mut self, node: &Node, descriptor: &MessageDescriptor) -> Option<DynamicMessage> {
        let Value::Map(entries) = &node.value else {
            let value = &node.value;
            self.fault(format_args!("{value} is not a mapping with an \"@type\""));
            return None;
        };
        let url = match node.member("@type").map(|node| &node.value) {
            None if entries.is_empty() => return Some(DynamicMessage::new(descriptor.clone())),
            None => {
                self.fault("\"@type\" is missing: want a type URL");
                return None;
            }
            Some(Value::String(url)) => url,
            Some(other) => {
                self.fault(format_args!("\"@type\" is {other}: want a type URL"));
                return None;
            }
        };
        let name = match url.rsplit_once('/') {
            Some((host, name)) if !host.is_empty() && !name.is_empty() => name,
            _ => {
                let url = quoted(url);
                self.fault(format_args!(
                    "\"@type\" is {url}: want a type URL, as in type.googleapis.com/package.Message"
                ));
                return None;
            }
        };
        // What an Any holds is bytes of its own.
        let depth = mem::take(&mut self.depth);
        let any = match descriptor_pool().get_message_by_name(name) {
            Some(inner) => self.known_type(url, node, entries, &inner),
            None => self.unknown_type(url, node, entries),
        };
        self.depth = depth;
        transcode(&any?, descriptor)
    }

    fn known_type(
        &mut self,
        url: &str,
        node: &Node,
        entries: &[Entry],
        inner: &MessageDescriptor,
    ) -> Option<Any> {
        let message = if has_own_form(inner.full_name()) {
            for entry in entries
                .iter()
                .filter(|e| !matches!(&*e.key, "@type" | "value"))
            {
                let key = quoted(&entry.key);
                self.within(
                    |path| path::push_name(path, &entry.key),
                    |reader| {
                        reader.fault(format_args!(
                            "{key} stands beside {}: want \"@type\" and \"value\" only",
                            inner.full_name()
                        ));
                    },
                );
            }
            let value = node.member("value");
            let null_is_unset = inner.name() != "Value";
            match value {
                Some(value) if !(null_is_unset && value.value == Value::Null) => self.within(
                    |path| path::push_name(path, "value"),
                    |reader| reader.message(value, inner),
                )?,
                _ => DynamicMessage::new(inner.clone()),
            }
        } else {
            let mut message = DynamicMessage::new(inner.clone());
            self.depth = 1;
            self.fields(entries, &mut message, &["@type"]);
            message
        };
        Some(Any {
            type_url: url.to_owned(),
            value: message.encode_to_vec(),
        })
    }

    /// Keeps what is of a type that the crate does not have, for whoever has it.
    fn unknown_type(&mut self, url: &str, node: &Node, entries: &[Entry]) -> Option<Any> {
        if wire_depth(node) > MAX_WIRE_DEPTH {
            self.fault("it is nested too deep: want at most about 30 levels");
            return None;
        }
        let kept = TypedStruct {
            type_url: url.to_owned(),
            value: Some(self.structure_fields(entries, &["@type"])),
        };
        Some(Any {
            type_url: type_url::<TypedStruct>(),
            value: kept.encode_to_vec(),
        })
    }
}

fn is_wrapper(name: &str) -> bool {
    matches!(
        name,
        "BoolValue"
            | "BytesValue"
            | "DoubleValue"
            | "FloatValue"
            | "Int32Value"
            | "Int64Value"
            | "StringValue"
            | "UInt32Value"
            | "UInt64Value"
    )
}

/// Whether a message is not written as its fields, so that an `Any` gives it under `value`.
fn has_own_form(name: &str) -> bool {
    name.strip_prefix("google.protobuf.").is_some_and(|name| {
        is_wrapper(name)
            || matches!(
                name,
                "Any" | "Duration" | "FieldMask" | "ListValue" | "Struct" | "Timestamp" | "Value"
            )
    })
}

/// How many messages stand inside one another in the bytes of a `Value`.
fn wire_depth(node: &Node) -> usize {
    match &node.value {
        Value::List(items) => 2 + items.iter().map(wire_depth).max().unwrap_or(0),
        Value::Map(entries) => {
            let deepest = entries.iter().map(|entry| wire_depth(&entry.node)).max();
            3 + deepest.unwrap_or(0)
        }
        _ => 1,
    }
}

fn field_mask(text: &str) -> prost_types::FieldMask {
    let snake_case = |path: &str| {
        let mut snake = String::new();
        for c in path.chars() {
            if c.is_ascii_uppercase() {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
        }
        snake
    };
    let paths = text.split(',').filter(|path| !path.is_empty());
    prost_types::FieldMask {
        paths: paths.map(snake_case).collect(),
    }
}

fn transcode(
    message: &impl prost::Message,
    descriptor: &MessageDescriptor,
) -> Option<DynamicMessage> {
    let mut dynamic = DynamicMessage::new(descriptor.clone());
    dynamic.transcode_from(message).ok()?;
    Some(dynamic)
}

/// A `Struct` as the tree that text for it would give.
pub(super) fn struct_to_node(value: &Struct) -> Node {
    let entries = value.fields.iter().map(|(key, value)| Entry {
        key: key.as_str().into(),
        position: None,
        node: value_to_node(value),
    });
    Node {
        position: None,
        value: Value::Map(entries.collect()),
    }
}

fn value_to_node(value: &StructValue) -> Node {
    let value = match &value.kind {
        None | Some(StructKind::NullValue(_)) => Value::Null,
        Some(StructKind::BoolValue(value)) => Value::Bool {
            value: *value,
            written: if *value { "true" } else { "false" }.into(),
        },
        Some(StructKind::NumberValue(number)) => {
            let written: Arc<str> = number.to_string().into();
            Value::Number {
                value: Arc::clone(&written),
                written,
            }
        }
        Some(StructKind::StringValue(text)) => Value::String(text.as_str().into()),
        Some(StructKind::ListValue(list)) => {
            Value::List(list.values.iter().map(value_to_node).collect())
        }
        Some(StructKind::StructValue(value)) => return struct_to_node(value),
    };
    Node {
        position: None,
        value,
    }
}
