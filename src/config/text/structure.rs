//! `google.protobuf.Struct` and its parts: from a tree, and back to one.

use std::sync::Arc;

use prost_reflect::{DynamicMessage, MessageDescriptor};
use prost_types::value::Kind as StructKind;
use prost_types::{ListValue, Struct, Value as StructValue};

use super::known::transcode;
use super::message::Reader;
use super::node::{Entry, Node, Value};
use super::{path, scalar};

/// How deep messages may nest in bytes: prost reads no more than 100, and some room is left for what
/// the message is put into.
const MAX_WIRE_DEPTH: usize = 95;

impl Reader {
    pub(super) fn structure(
        &mut self,
        node: &Node,
        descriptor: &MessageDescriptor,
    ) -> Option<DynamicMessage> {
        let wanted = match (descriptor.name(), &node.value) {
            ("Value", _) | ("Struct", Value::Map(_)) | ("ListValue", Value::List(_)) => None,
            ("Struct", _) => Some("a mapping"),
            (_, _) => Some("a list"),
        };
        if let Some(wanted) = wanted {
            self.fault(format_args!("{} is not {wanted}", node.value));
            return None;
        }
        if self.is_too_deep(node) {
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

    pub(super) fn structure_fields(&mut self, entries: &[Entry], except: &[&str]) -> Struct {
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

    /// Whether the bytes would nest deeper than they are read, and a fault if so.
    pub(super) fn is_too_deep(&mut self, node: &Node) -> bool {
        let deep = self.depth + wire_depth(node) > MAX_WIRE_DEPTH;
        if deep {
            self.fault("it is nested too deep: want at most about 30 levels");
        }
        deep
    }
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
