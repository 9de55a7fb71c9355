//! Writes a `Validate` for every message, from the rules that stand as options on its fields.
//!
//! A rule becomes a literal of the struct of the same name in `src/validate/rules.rs`, field by field as
//! its option has it, so nothing can be dropped on the way: what the struct lacks does not compile.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, OneofDescriptor,
};

use crate::names;
use crate::options::{
    defined, duration_rules, family, field_rules, is_required, literal, wants_value,
};
use crate::reach::{self, element, is_duration};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

pub(crate) fn generate(pool: &DescriptorPool) -> Result<String> {
    let messages: Vec<_> = pool.all_messages().filter(is_ours).collect();
    let checked = reach::checked(pool, &messages)?;
    let generator = Generator { pool, checked };
    let mut code = String::new();
    for message in &messages {
        generator.message(message, &mut code)?;
    }
    by_name(&messages, &mut code)?;
    Ok(code)
}

/// For tests that go over all rules: validates encoded bytes of the message named.
fn by_name(messages: &[MessageDescriptor], code: &mut String) -> Result<()> {
    code.push_str("#[cfg(test)]\n");
    code.push_str("pub(super) fn by_name(name: &str, bytes: &[u8]) -> Result<(), Vec<Fault>> {\n");
    code.push_str("fn decode<M: prost::Message + Default>(bytes: &[u8]) -> M {\n");
    code.push_str("M::decode(bytes).expect(\"what a test encoded\")\n}\n");
    code.push_str("match name {\n");
    for message in messages {
        let (name, path) = (message.full_name(), names::message(message));
        writeln!(code, "{name:?} => decode::<{path}>(bytes).validate(),")?;
    }
    code.push_str("_ => panic!(\"no message {name}\"),\n}\n}\n");
    Ok(())
}

fn is_ours(message: &MessageDescriptor) -> bool {
    !message.is_map_entry() && !["google.protobuf", "validate"].contains(&message.package_name())
}

struct Generator<'a> {
    pool: &'a DescriptorPool,
    /// The messages with a rule in them or below them.
    checked: BTreeSet<String>,
}

impl Generator<'_> {
    fn message(&self, message: &MessageDescriptor, code: &mut String) -> Result<()> {
        writeln!(code, "impl Validate for {} {{", names::message(message))?;
        writeln!(
            code,
            "fn validate_at(&self, at: &FieldPath<'_>, faults: &mut dyn FnMut(Fault)) {{"
        )?;
        if self.checked.contains(message.full_name()) {
            for field in message
                .fields()
                .filter(|field| field.containing_oneof().is_none())
            {
                let rules = field_rules(self.pool, &field)?;
                let access = format!("self.{}", names::snake(field.name()));
                if field.is_list() {
                    self.list(&field, &access, rules.as_ref(), code)?;
                } else if field.is_map() {
                    self.map(&field, &access, rules.as_ref(), code)?;
                } else {
                    self.singular(&field, &access, rules.as_ref(), code)?;
                }
            }
            for oneof in message.oneofs() {
                self.oneof(&oneof, code)?;
            }
        }
        code.push_str("}\n}\n\n");
        Ok(())
    }

    fn singular(
        &self,
        field: &FieldDescriptor,
        access: &str,
        rules: Option<&DynamicMessage>,
        code: &mut String,
    ) -> Result<()> {
        let at = format!("&at.field({:?})", field.name());
        let Kind::Message(_) = field.kind() else {
            if let Some(rules) = rules {
                code.push_str(&self.value(&field.kind(), rules, access, &at)?);
            }
            return Ok(());
        };
        if is_duration(&field.kind()) {
            let rules = duration_rules(rules)?;
            writeln!(
                code,
                "rules::duration({access}.as_ref(), {rules}, {at}, faults);"
            )?;
            return Ok(());
        }
        if rules.is_some_and(wants_value) {
            writeln!(code, "rules::required({access}.is_some(), {at}, faults);")?;
        }
        let inner = self.below(&field.kind(), rules, "value", &at)?;
        if !inner.is_empty() {
            writeln!(code, "if let Some(value) = &{access} {{\n{inner}}}")?;
        }
        Ok(())
    }

    fn list(
        &self,
        field: &FieldDescriptor,
        access: &str,
        rules: Option<&DynamicMessage>,
        code: &mut String,
    ) -> Result<()> {
        let name = field.name();
        let (mut items, mut own) = (None, Vec::new());
        if let Some((_, rules)) = rules.map(family).transpose()? {
            for (option, value) in rules.fields() {
                match option.name() {
                    "items" => items = value.as_message().cloned(),
                    _ => own.push(format!("{}: {}", option.name(), literal(value)?)),
                }
            }
            if !own.is_empty() {
                let own = own.join(", ");
                let rules =
                    format!("&rules::RepeatedRules {{ {own}, ..rules::RepeatedRules::NONE }}");
                let at = format!("&at.field({name:?})");
                writeln!(
                    code,
                    "rules::repeated({access}.len(), {rules}, {at}, faults);"
                )?;
            }
        }
        let inner = self.below(
            &field.kind(),
            items.as_ref(),
            "value",
            &format!("&at.item({name:?}, index)"),
        )?;
        if !inner.is_empty() {
            writeln!(
                code,
                "for (index, value) in {access}.iter().enumerate() {{\n{inner}}}"
            )?;
        }
        Ok(())
    }

    fn map(
        &self,
        field: &FieldDescriptor,
        access: &str,
        rules: Option<&DynamicMessage>,
        code: &mut String,
    ) -> Result<()> {
        let at = format!("&at.entry({:?}, key)", field.name());
        let mut inner = String::new();
        if let Some((_, rules)) = rules.map(family).transpose()? {
            for (option, value) in rules.fields() {
                match (option.name(), value.as_message()) {
                    ("keys", Some(rules)) => {
                        inner.push_str(&self.value(&Kind::String, rules, "key", &at)?);
                    }
                    (other, _) => return Err(unsupported(field, other)),
                }
            }
        }
        inner.push_str(&self.below(&element(field), None, "value", &at)?);
        if !inner.is_empty() {
            writeln!(code, "for (key, value) in &{access} {{\n{inner}}}")?;
        }
        Ok(())
    }

    fn oneof(&self, oneof: &OneofDescriptor, code: &mut String) -> Result<()> {
        let access = format!("self.{}", names::snake(oneof.name()));
        let path = names::oneof(oneof);
        let mut arms = String::new();
        if is_required(self.pool, oneof)? {
            let members: Vec<_> = oneof
                .fields()
                .map(|field| field.name().to_owned())
                .collect();
            let members = match members.as_slice() {
                [only] => only.clone(),
                several => format!("one of {}", several.join(", ")),
            };
            let at = format!("&at.field({:?})", oneof.name());
            writeln!(
                arms,
                "None => rules::one_of_required({members:?}, {at}, faults),"
            )?;
        }
        for field in oneof.fields() {
            let at = format!("&at.field({:?})", field.name());
            let rules = field_rules(self.pool, &field)?;
            // A member that is set is there: `required` on it has nothing left to ask.
            let inner = self.below(&field.kind(), rules.as_ref(), "value", &at)?;
            if !inner.is_empty() {
                let variant = names::camel(field.name());
                writeln!(arms, "Some({path}::{variant}(value)) => {{\n{inner}}}")?;
            }
        }
        if !arms.is_empty() {
            writeln!(code, "match &{access} {{\n{arms}_ => {{}}\n}}")?;
        }
        Ok(())
    }

    /// Checks what is known to be there, behind a reference named `value`: a set message or oneof
    /// member, an item, a map value.
    fn below(
        &self,
        kind: &Kind,
        rules: Option<&DynamicMessage>,
        value: &str,
        at: &str,
    ) -> Result<String> {
        let mut code = String::new();
        match kind {
            Kind::Message(_) if is_duration(kind) => {
                let rules = duration_rules(rules)?;
                writeln!(
                    code,
                    "rules::duration(Some({value}), {rules}, {at}, faults);"
                )?;
            }
            Kind::Message(message) if self.checked.contains(message.full_name()) => {
                writeln!(code, "{value}.validate_at({at}, faults);")?;
            }
            _ => {
                if let Some(rules) = rules {
                    let value = match kind {
                        Kind::String | Kind::Bytes => value.to_owned(),
                        _ => format!("*{value}"),
                    };
                    code = self.value(kind, rules, &value, at)?;
                }
            }
        }
        Ok(code)
    }

    /// Checks a scalar, or what a wrapper holds.
    fn value(&self, kind: &Kind, rules: &DynamicMessage, value: &str, at: &str) -> Result<String> {
        let (family, rules) = family(rules)?;
        let (function, structure, reference) = match family.as_str() {
            "string" => ("string", "StringRules", "&"),
            "bytes" => ("bytes", "BytesRules", "&"),
            "enum" => ("enumeration", "EnumRules", ""),
            "double" => ("number", "DoubleRules", ""),
            "uint32" => ("number", "UInt32Rules", ""),
            "uint64" => ("number", "UInt64Rules", ""),
            // What these ask for is asked where the field is read: see `wants_value`.
            "message" | "any" => return Ok(String::new()),
            other => return Err(format!("rules of the kind {other} are not supported").into()),
        };
        let mut fields = Vec::new();
        for (option, value) in rules.fields() {
            fields.push(format!("{}: {}", option.name(), literal(value)?));
        }
        if let Kind::Enum(kind) = kind {
            fields.push(format!("defined: &[{}]", defined(kind)));
        }
        let fields = fields.join(", ");
        let rules = format!("&rules::{structure} {{ {fields}, ..rules::{structure}::NONE }}");
        Ok(format!(
            "rules::{function}({reference}{value}, {rules}, {at}, faults);\n"
        ))
    }
}

fn unsupported(field: &FieldDescriptor, rule: &str) -> Box<dyn std::error::Error> {
    format!("{}: the rule {rule} is not supported", field.full_name()).into()
}
