//! The generated code against the descriptors it was generated from, rule by rule.

use prost::Message as _;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage as _, Value,
};
use prost_types::Duration;

use crate::proto::descriptor_pool;
use crate::validate::generated::by_name;

/// Breaks every rule of every message, one at a time, and looks for the fault.
#[test]
fn every_rule_in_the_descriptors_is_enforced() {
    let pool = descriptor_pool();
    let rules = pool.get_extension_by_name("validate.rules").unwrap();
    let required = pool.get_extension_by_name("validate.required").unwrap();
    let (mut broken, mut stated) = (0, 0);
    for message in pool
        .all_messages()
        .filter(|message| !message.is_map_entry())
    {
        for field in message.fields() {
            let options = field.options();
            if !options.has_extension(&rules) {
                continue;
            }
            let rules = options.get_extension(&rules).into_owned();
            for (value, at) in violations(&field, rules.as_message().unwrap()) {
                let mut sample = DynamicMessage::new(message.clone());
                if let Some(value) = value {
                    sample.set_field(&field, value);
                }
                expect_fault(&message, &sample, &format!("{}{at}", field.name()));
                broken += 1;
            }
            stated += 1;
        }
        for oneof in message.oneofs() {
            if oneof.options().get_extension(&required).as_bool() == Some(true) {
                expect_fault(
                    &message,
                    &DynamicMessage::new(message.clone()),
                    oneof.name(),
                );
                broken += 1;
            }
        }
    }
    assert_eq!((stated, broken), (STATED, BROKEN));
}

/// How many fields state rules, and how many ways there are to break those and the required oneofs.
const STATED: usize = 124;
const BROKEN: usize = 158;

fn expect_fault(message: &MessageDescriptor, sample: &DynamicMessage, path: &str) {
    let name = message.full_name();
    let faults = by_name(name, &sample.encode_to_vec()).unwrap_err();
    assert!(
        faults.iter().any(|fault| fault.path == path),
        "{name}.{path} in {sample}: {faults:?}"
    );
}

/// Values of `field` that each break one of its rules, with the rest of the path of the fault.
fn violations(field: &FieldDescriptor, rules: &DynamicMessage) -> Vec<(Option<Value>, String)> {
    let mut found = Vec::new();
    for (family, rules) in rules.fields() {
        let rules = rules.as_message().unwrap();
        for (option, bound) in rules.fields() {
            match (family.name(), option.name()) {
                // Of a oneof, `required` asks nothing: an unset member is not looked at.
                (_, "required") if field.containing_oneof().is_some() => {}
                (_, "required") => found.push((None, String::new())),
                ("repeated", "items") => {
                    for value in scalar_violations(&field.kind(), bound.as_message().unwrap()) {
                        found.push((Some(Value::List(vec![value])), "[0]".into()));
                    }
                }
                ("repeated", "min_items") => found.push((None, String::new())),
                ("repeated", "max_items") => {
                    let count = usize::try_from(bound.as_u64().unwrap()).unwrap() + 1;
                    let item = Value::default_value(&field.kind());
                    found.push((Some(Value::List(vec![item; count])), String::new()));
                }
                ("map", "keys") => {
                    let Kind::Message(entry) = field.kind() else {
                        unreachable!()
                    };
                    let value = Value::default_value(&entry.map_entry_value_field().kind());
                    let map = [(MapKey::String(String::new()), value)].into();
                    found.push((Some(Value::Map(map)), "[\"\"]".into()));
                }
                _ => {}
            }
        }
    }
    if !field.is_list() && !field.is_map() {
        let values = scalar_violations(&field.kind(), rules);
        found.extend(values.into_iter().map(|value| (Some(value), String::new())));
    }
    found
}

fn scalar_violations(kind: &Kind, rules: &DynamicMessage) -> Vec<Value> {
    let mut found = Vec::new();
    for (family, rules) in rules.fields() {
        let rules = rules.as_message().unwrap();
        for (option, bound) in rules.fields() {
            let value = match (family.name(), option.name(), bound) {
                ("string", "min_len", Value::U64(n)) if *n > 0 => {
                    Value::String("a".repeat(usize::try_from(*n).unwrap() - 1))
                }
                ("string", "max_bytes", Value::U64(n)) => {
                    Value::String("a".repeat(usize::try_from(*n).unwrap() + 1))
                }
                ("string", "well_known_regex", _) => Value::String("a\n".into()),
                ("bytes", "max_len", Value::U64(n)) => {
                    Value::Bytes(vec![0; usize::try_from(*n).unwrap() + 1].into())
                }
                ("enum", "defined_only", _) => Value::EnumNumber(9999),
                ("enum", "not_in", Value::List(numbers)) => {
                    Value::EnumNumber(numbers[0].as_i32().unwrap())
                }
                // No value is below a bound of 0 on what has no sign.
                (_, "gte", Value::U32(0) | Value::U64(0)) => continue,
                (_, "gt" | "lt", Value::U32(n)) => wrapped(kind, Value::U32(*n)),
                (_, "gte", Value::U32(n)) => wrapped(kind, Value::U32(n - 1)),
                (_, "gte", Value::U64(n)) => wrapped(kind, Value::U64(n - 1)),
                (_, "lte", Value::U32(n)) => wrapped(kind, Value::U32(n + 1)),
                (_, "gt" | "lt", Value::F64(n)) => wrapped(kind, Value::F64(*n)),
                (_, "gte", Value::F64(n)) => wrapped(kind, Value::F64(n - 1.0)),
                (_, "lte", Value::F64(n)) => wrapped(kind, Value::F64(n + 1.0)),
                (_, "gt" | "lt", Value::Message(bound)) => Value::Message(bound.clone()),
                (_, "gte", Value::Message(bound)) => {
                    let mut below = bound.transcode_to::<Duration>().unwrap();
                    // Bounds are 0, less than a second, or whole seconds.
                    if below.nanos > 0 {
                        below.nanos -= 1;
                    } else {
                        below.seconds -= 1;
                    }
                    let mut value = DynamicMessage::new(bound.descriptor());
                    value.transcode_from(&below).unwrap();
                    Value::Message(value)
                }
                (_, "required" | "strict" | "ignore_empty" | "min_len" | "keys", _) => continue,
                ("repeated", _, _) => continue,
                (family, option, bound) => panic!("untested: {family}.{option} = {bound}"),
            };
            found.push(value);
        }
    }
    found
}

/// `value`, or the wrapper message around it if the field is one.
fn wrapped(kind: &Kind, value: Value) -> Value {
    let Kind::Message(wrapper) = kind else {
        return value;
    };
    let mut message = DynamicMessage::new(wrapper.clone());
    message.set_field_by_name("value", value);
    Value::Message(message)
}
