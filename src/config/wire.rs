//! From messages to checked types: what all conversions begin and end with.

use std::time::Duration;

use super::ConfigError;
use super::error::{Report, Warnings};
use super::text::{Document, Read};
use crate::validate::{FieldPath, Validate};

/// The shortest time that anything is made to take.
const SHORTEST: Duration = Duration::from_millis(1);

/// Checks `message` by the rules on its fields, then by `read`, which makes of it what is wanted.
///
/// `read` is silent about what the rules refuse: it gives no value, and they have told why.
pub(super) fn convert<M: Validate, T>(
    message: &M,
    warnings: &mut Warnings,
    read: impl FnOnce(&M, &FieldPath<'_>, &mut Report) -> Option<T>,
) -> Result<T, ConfigError> {
    let mut report = Report::default();
    report.rules(message);
    let value = read(message, &FieldPath::ROOT, &mut report);
    report.finish(value, None, warnings)
}

/// As [`convert`], of the message that a document tells of. Faults have their places in it.
pub(super) fn convert_document<M, T>(
    document: &Document,
    warnings: &mut Warnings,
    read: impl FnOnce(&M, &FieldPath<'_>, &mut Report) -> Option<T>,
) -> Result<T, ConfigError>
where
    M: prost::Message + prost::Name + Validate + Default,
{
    convert_read(&document.read::<M>(), document, warnings, read)
}

/// As [`convert_document`], of what was read of the document already.
pub(super) fn convert_read<M: Validate, T>(
    text: &Read<M>,
    document: &Document,
    warnings: &mut Warnings,
    read: impl FnOnce(&M, &FieldPath<'_>, &mut Report) -> Option<T>,
) -> Result<T, ConfigError> {
    let mut report = Report::default();
    report.rules(&text.message);
    let value = read(&text.message, &FieldPath::ROOT, &mut report);
    report.add_text(text);
    report.finish(value, Some(document), warnings)
}

/// Decodes a serialized message.
pub(super) fn decode<M: prost::Message + prost::Name + Default>(
    bytes: &[u8],
) -> Result<M, ConfigError> {
    M::decode(bytes).map_err(|error| {
        ConfigError::new(
            "",
            format!("no message of type {}: {error}", M::full_name()),
        )
    })
}

/// Decodes a serialized message, and checks it by the rules on its fields.
pub(super) fn decode_checked<M: prost::Message + prost::Name + Validate + Default>(
    bytes: &[u8],
) -> Result<M, ConfigError> {
    let message = decode(bytes)?;
    convert(&message, &mut Warnings::default(), |_, _, _| Some(()))?;
    Ok(message)
}

/// Whether a name can be printed: one with a line or colours of its own could pass for what it is not.
pub(crate) fn printable(name: &str) -> Result<(), String> {
    match name.chars().find(|c| c.is_control()) {
        Some(character) => Err(format!("holds the control character {character:?}")),
        None => Ok(()),
    }
}

/// A duration, unless the rules refuse it.
pub(super) fn duration(message: &prost_types::Duration) -> Option<Duration> {
    crate::proto::duration::read(message).ok()
}

/// A timeout or an interval, unless it is unset or the rules refuse it. Below 1 ms it becomes 1 ms: Envoy
/// cuts it to nothing, so that each attempt times out, or runs in a loop.
pub(super) fn interval(
    message: Option<&prost_types::Duration>,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Duration> {
    let value = duration(message?).filter(|value| !value.is_zero())?;
    if value < SHORTEST {
        report.warn(at, format!("{value:?} is taken as 1ms, the shortest time"));
    }
    Some(value.max(SHORTEST))
}

/// A jitter, zero if it is unset or the rules refuse it. As with Envoy, one below 1 ms is none.
pub(super) fn jitter(
    message: Option<&prost_types::Duration>,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Duration {
    let value = message.and_then(duration).unwrap_or_default();
    if value.is_zero() || value >= SHORTEST {
        return value;
    }
    report.warn(
        at,
        format!("{value:?} has no effect: a jitter is at least 1ms"),
    );
    Duration::ZERO
}
