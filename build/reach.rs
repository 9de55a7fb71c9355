//! Which messages have a rule in them or below them: the rest need no walk.

use std::collections::BTreeSet;

use protox::prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};

use crate::options::{field_rules, is_required};
use crate::validation::Result;

pub(crate) const DURATION: &str = "google.protobuf.Duration";

/// The full names of those of `messages` that are to be walked.
pub(crate) fn checked(
    pool: &DescriptorPool,
    messages: &[MessageDescriptor],
) -> Result<BTreeSet<String>> {
    let mut checked = BTreeSet::new();
    for message in messages {
        if has_rules(pool, message)? {
            checked.insert(message.full_name().to_owned());
        }
    }
    // What holds a checked message is checked too, however deep; messages may hold themselves.
    loop {
        let before = checked.len();
        for message in messages {
            if message.fields().any(|field| holds_any_of(&field, &checked)) {
                checked.insert(message.full_name().to_owned());
            }
        }
        if checked.len() == before {
            break;
        }
    }
    Ok(checked)
}

fn has_rules(pool: &DescriptorPool, message: &MessageDescriptor) -> Result<bool> {
    for field in message.fields() {
        if field_rules(pool, &field)?.is_some() || is_duration(&element(&field)) {
            return Ok(true);
        }
    }
    for oneof in message.oneofs() {
        if is_required(pool, &oneof)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn holds_any_of(field: &FieldDescriptor, names: &BTreeSet<String>) -> bool {
    matches!(element(field), Kind::Message(message) if names.contains(message.full_name()))
}

pub(crate) fn is_duration(kind: &Kind) -> bool {
    matches!(kind, Kind::Message(message) if message.full_name() == DURATION)
}

/// The kind of a field's value, of its items, or of its map values.
pub(crate) fn element(field: &FieldDescriptor) -> Kind {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
        kind => kind,
    }
}
