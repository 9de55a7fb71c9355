//! Reads the rules of a field and writes them as Rust literals.

use std::fmt::Write as _;

use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, OneofDescriptor,
    ReflectMessage as _, Value,
};

use crate::reach::DURATION;
use crate::validation::Result;

pub(crate) fn field_rules(
    pool: &DescriptorPool,
    field: &FieldDescriptor,
) -> Result<Option<DynamicMessage>> {
    let extension = pool
        .get_extension_by_name("validate.rules")
        .ok_or("no validate.rules")?;
    let options = field.options();
    if !options.has_extension(&extension) {
        return Ok(None);
    }
    let rules = options.get_extension(&extension);
    Ok(rules.as_message().cloned())
}

pub(crate) fn is_required(pool: &DescriptorPool, oneof: &OneofDescriptor) -> Result<bool> {
    let extension = pool
        .get_extension_by_name("validate.required")
        .ok_or("no validate.required")?;
    Ok(oneof.options().get_extension(&extension).as_bool() == Some(true))
}

/// The member of a `FieldRules` that is set, and its name.
pub(crate) fn family(rules: &DynamicMessage) -> Result<(String, DynamicMessage)> {
    let mut set = rules.fields();
    let (Some((field, Value::Message(rules))), None) = (set.next(), set.next()) else {
        return Err(format!("one kind of rules is expected in {rules}").into());
    };
    Ok((field.name().to_owned(), rules.clone()))
}

pub(crate) fn wants_value(rules: &DynamicMessage) -> bool {
    let required = |name: &str| {
        let rules = rules.get_field_by_name(name);
        let required = rules
            .as_ref()
            .and_then(|rules| rules.as_message()?.get_field_by_name("required"));
        required.is_some_and(|required| required.as_bool() == Some(true))
    };
    required("message") || required("any")
}

pub(crate) fn duration_rules(rules: Option<&DynamicMessage>) -> Result<String> {
    let Some((family, rules)) = rules.map(family).transpose()? else {
        return Ok("&rules::DurationRules::NONE".into());
    };
    if family != "duration" {
        return Err(format!("a Duration has rules of the kind {family}").into());
    }
    let mut fields = String::new();
    for (option, value) in rules.fields() {
        write!(fields, "{}: {}, ", option.name(), literal(value)?)?;
    }
    Ok(format!(
        "&rules::DurationRules {{ {fields}..rules::DurationRules::NONE }}"
    ))
}

/// What an option's value is in Rust: flags as they are, lists as slices, the rest in `Some`.
pub(crate) fn literal(value: &Value) -> Result<String> {
    Ok(match value {
        Value::Bool(flag) => flag.to_string(),
        Value::U32(number) => format!("Some({number})"),
        Value::U64(number) => format!("Some({number})"),
        Value::F64(number) => format!("Some({number:?})"),
        Value::EnumNumber(1) => "Some(rules::KnownRegex::HttpHeaderName)".into(),
        Value::EnumNumber(2) => "Some(rules::KnownRegex::HttpHeaderValue)".into(),
        Value::List(numbers) => {
            let numbers: Vec<_> = numbers.iter().filter_map(Value::as_i32).collect();
            format!("&{numbers:?}")
        }
        Value::Message(message) if message.descriptor().full_name() == DURATION => {
            let seconds = message
                .get_field_by_name("seconds")
                .and_then(|value| value.as_i64());
            let nanos = message
                .get_field_by_name("nanos")
                .and_then(|value| value.as_i32());
            let (seconds, nanos) = (seconds.unwrap_or_default(), nanos.unwrap_or_default());
            format!("Some(rules::Length({seconds}, {nanos}))")
        }
        other => return Err(format!("a rule cannot be {other}").into()),
    })
}

pub(crate) fn defined(kind: &EnumDescriptor) -> String {
    let values = kind
        .values()
        .map(|value| format!("({}, {:?})", value.number(), value.name()));
    values.collect::<Vec<_>>().join(", ")
}
