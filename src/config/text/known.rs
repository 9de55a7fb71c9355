//! The messages that text writes in a way of their own: durations, wrappers, `Any` and their like. As in Envoy, most of them may also be given as a mapping of their fields.

use std::mem;

use prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use prost_types::Any;

use super::message::{Reader, RepeatedKeys};
use super::node::{Entry, Node, Value, quoted};
use super::{path, scalar};
use crate::proto::xds::r#type::v3::TypedStruct;
use crate::proto::{message_named, type_url};

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
            "Duration" | "Timestamp" | "FieldMask" => self.textual(node, descriptor),
            _ if is_wrapper(name) => self.wrapper(node, descriptor),
            _ => return None,
        };
        Some(message)
    }

    fn textual(&mut self, node: &Node, descriptor: &MessageDescriptor) -> Option<DynamicMessage> {
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
        let types = entries.iter().filter(|entry| &*entry.key == "@type");
        if self.repeated_keys == RepeatedKeys::AllCount && types.count() > 1 {
            self.fault("\"@type\" is given more than once");
        }
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
        let any = match message_named(name) {
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
        if self.is_too_deep(node) {
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

pub(super) fn transcode(
    message: &impl prost::Message,
    descriptor: &MessageDescriptor,
) -> Option<DynamicMessage> {
    let mut dynamic = DynamicMessage::new(descriptor.clone());
    dynamic.transcode_from(message).ok()?;
    Some(dynamic)
}
