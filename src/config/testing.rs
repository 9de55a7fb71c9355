//! Help for tests of conversions.

use proptest::prelude::*;

use super::text::Document;
use super::{ConfigError, Warnings, wire};
use crate::config::error::Report;
use crate::validate::{FieldPath, Validate};

/// Bytes that decode as most messages: fields of any number, which hold numbers, texts or messages.
pub(super) fn wire_bytes() -> impl Strategy<Value = Vec<u8>> {
    fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let low = u8::try_from(value & 0x7f).unwrap();
            value >>= 7;
            bytes.push(if value == 0 { low } else { low | 0x80 });
            if value == 0 {
                return bytes;
            }
        }
    }
    let number = prop_oneof![0..200_u64, any::<u64>(), Just(65_536), Just(u64::MAX)];
    let text = prop_oneof!["[a-z0-9.%:@/]{0,12}", Just("127.0.0.1".to_owned())];
    let scalar = (
        1..45_u64,
        prop_oneof![
            number.prop_map(|n| (0, varint(n))),
            text.prop_map(|text| (2, [varint(text.len() as u64), text.into_bytes()].concat())),
        ],
    );
    let field = scalar.prop_recursive(6, 64, 6, |inner| {
        (
            1..45_u64,
            prop::collection::vec(inner, 0..6).prop_map(message),
        )
            .prop_map(|(number, bytes)| {
                let length = varint(bytes.len() as u64);
                (number, (2, [length, bytes].concat()))
            })
    });
    fn message(fields: Vec<(u64, (u64, Vec<u8>))>) -> Vec<u8> {
        let fields = fields.into_iter();
        fields
            .flat_map(|(number, (kind, bytes))| [varint(number << 3 | kind), bytes].concat())
            .collect()
    }
    prop::collection::vec(field, 0..8).prop_map(message)
}

/// What a text is refused for, one fault a line, without places.
pub(super) fn faults<M, T: std::fmt::Debug>(
    yaml: &str,
    read: impl FnOnce(&M, &FieldPath<'_>, &mut Report) -> Option<T>,
) -> String
where
    M: prost::Message + prost::Name + Validate + Default,
{
    let error = parse(yaml, read).unwrap_err();
    let faults: Vec<_> = error.faults().map(ToString::to_string).collect();
    faults.join("\n")
}

/// What a text holds, and what is warned of.
pub(super) fn parse<M, T>(
    yaml: &str,
    read: impl FnOnce(&M, &FieldPath<'_>, &mut Report) -> Option<T>,
) -> Result<(T, Vec<String>), ConfigError>
where
    M: prost::Message + prost::Name + Validate + Default,
{
    let document = Document::from_yaml(yaml)?;
    let mut warnings = Warnings::default();
    let value = wire::convert_document(&document, &mut warnings, read)?;
    Ok((value, warnings.iter().map(ToString::to_string).collect()))
}
