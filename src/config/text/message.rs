//! A tree to a message, along the message's descriptor.
//!
//! The rules are protobuf's JSON mapping with the leniencies that Envoy has on top. The reader keeps
//! the path to where it is and goes on after a fault; what has one is left out of the message.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;

use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage as _, Value as Field,
};

use super::node::{Entry, Node, Value};
use super::value::map_key;
use super::{Read, path, suggest, unused};
use crate::validate::Fault;

/// How many faults of one document are listed. Hostile text could have more of them than memory.
const MAX_FAULTS: usize = 1000;

/// What a key that a mapping has twice means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RepeatedKeys {
    /// YAML: the last value counts.
    LastCounts,
    /// JSON: each value is read. Lists are joined, the fields of a message that a later value gives take the place of
    /// earlier ones, and of all else the last value counts.
    AllCount,
}

pub(super) struct Reader {
    pub(super) repeated_keys: RepeatedKeys,
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
        self.message_onto(node, DynamicMessage::new(descriptor.clone()))
    }

    /// Reads what stands for a message, whose fields replace those of an `earlier` one.
    fn message_onto(&mut self, node: &Node, earlier: DynamicMessage) -> Option<DynamicMessage> {
        self.depth += 1;
        let message = match self.well_known(node, &earlier.descriptor()) {
            Some(message) => message,
            None => self.plain_onto(node, earlier),
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
        self.plain_onto(node, DynamicMessage::new(descriptor.clone()))
    }

    fn plain_onto(&mut self, node: &Node, mut earlier: DynamicMessage) -> Option<DynamicMessage> {
        let Value::Map(entries) = &node.value else {
            let name = earlier.descriptor();
            let name = name.full_name();
            let value = &node.value;
            self.fault(format_args!(
                "{value} is not a mapping: want the fields of {name}"
            ));
            return None;
        };
        self.fields(entries, &mut earlier, &[]);
        Some(earlier)
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
                    if given.insert(field.number()) {
                        message.clear_field(&field);
                    } else {
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
        } else if let Some(earlier) = earlier_message(field, message) {
            if let Some(value) = self.message_onto(node, earlier) {
                message.set_field(field, Field::Message(value));
            }
        } else if let Some(value) = self.single(node, &field.kind()) {
            message.set_field(field, value);
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
        let mut given = HashSet::new();
        for entry in self.entries(entries) {
            self.within(
                |path| path::push_key(path, &entry.key),
                |reader| {
                    let Some(key) = map_key(&entry.key, &key_kind) else {
                        reader.fault("the key is not of the map's type");
                        return;
                    };
                    let value = reader.single_or_default(&entry.node, &value_kind);
                    if !given.insert(key.clone()) {
                        reader.fault("the key is given more than once");
                    } else if let Some(map) = message.get_field_mut(field).as_map_mut() {
                        map.insert(key, value);
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
}

/// What the same mapping gave for `field` before, under this name or its other spelling.
fn earlier_message(field: &FieldDescriptor, message: &DynamicMessage) -> Option<DynamicMessage> {
    let given = matches!(field.kind(), Kind::Message(_)) && message.has_field(field);
    given.then(|| message.get_field(field).as_message().cloned())?
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
