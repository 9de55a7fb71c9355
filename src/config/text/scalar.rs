//! What one scalar means, as Envoy has it: first what a YAML scalar is at all, then what a text is
//! when the field wants a number, a boolean, bytes or a time.
//!
//! Envoy gives every plain scalar, and every tagged one, the first of these meanings that fits:
//! null, boolean, integer, text. Only a quoted or block scalar without a tag is always text, and so
//! is one tagged `!`. A fraction or an exponent makes no number of it: that is for the field to read.

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::node::Value;

/// The tag of a YAML scalar, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    None,
    /// The lone `!`: text, whatever it looks like.
    NonSpecific,
    /// Any other. Envoy does not look which: `!!str 7069` is a number.
    Other,
}

/// What a YAML scalar means.
pub(super) fn yaml(text: &str, plain: bool, tag: Tag) -> Value {
    if plain && tag == Tag::None && is_yaml_null(text) {
        return Value::Null;
    }
    if tag == Tag::NonSpecific || (tag == Tag::None && !plain) {
        return Value::String(text.into());
    }
    let written: Arc<str> = text.into();
    if let Some(value) = yaml_bool(text) {
        return Value::Bool { value, written };
    }
    match yaml_integer(text) {
        // Beyond 32 bits Envoy keeps integers as text, and so they do for a text field.
        Some(value) if i32::try_from(value).is_err() => Value::String(value.to_string().into()),
        Some(value) => Value::Number {
            value: value.to_string().into(),
            written,
        },
        None => Value::String(written),
    }
}

fn is_yaml_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// YAML 1.1's words, in lower case, upper case or with a capital: `yes`, `YES`, `Yes`, not `yEs`.
fn yaml_bool(text: &str) -> Option<bool> {
    let value = match text.to_ascii_lowercase().as_str() {
        "y" | "yes" | "true" | "on" => true,
        "n" | "no" | "false" | "off" => false,
        _ => return None,
    };
    let rest = &text[1..];
    let lower = |s: &str| s.bytes().all(|b| b.is_ascii_lowercase());
    let upper = |s: &str| s.bytes().all(|b| b.is_ascii_uppercase());
    (lower(text) || (upper(&text[..1]) && (lower(rest) || upper(rest)))).then_some(value)
}

/// Decimal, `0x` hexadecimal or `0` octal, with a sign if any, in 64 bits.
fn yaml_integer(text: &str) -> Option<i64> {
    // Only a scalar that is quoted and tagged can end in blanks.
    let text = text.trim_end_matches(is_c_space);
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let hex = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match (hex, digits.strip_prefix('0')) {
        (Some(hex), _) => (hex, 16),
        (None, Some(octal)) if !octal.is_empty() => (octal, 8),
        _ => (digits, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        0i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

pub(super) fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

/// Why a text is no integer of a field's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotInteger {
    NotANumber,
    Fraction,
    OutOfRange,
}

/// A signed integer, for `int32` and `int64` fields: digits, or any notation of a whole number
/// that a double holds exactly.
pub(super) fn signed(text: &str) -> Result<i64, NotInteger> {
    if let Some(value) = decimal(text) {
        return Ok(value);
    }
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let value = whole(text, -EXACT, EXACT)?;
    #[expect(clippy::cast_possible_truncation, reason = "whole, and at most 2^53")]
    Ok(value as i64)
}

/// An unsigned integer, for `uint32` and `uint64` fields.
pub(super) fn unsigned(text: &str) -> Result<u64, NotInteger> {
    if let Some(value) = decimal(text) {
        return Ok(value);
    }
    let value = whole(text, 0.0, 18_014_398_509_481_984.0)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, not negative, and at most 2^54"
    )]
    Ok(value as u64)
}

fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    // `parse` takes a sign; it takes no second one after it, and no blanks.
    text.parse().ok()
}

fn whole(text: &str, low: f64, high: f64) -> Result<f64, NotInteger> {
    if text.contains(is_c_space) {
        return Err(NotInteger::NotANumber);
    }
    match number(text) {
        Some(value) if !value.is_finite() => Err(NotInteger::NotANumber),
        Some(value) if value < low || value > high => Err(NotInteger::OutOfRange),
        Some(value) if value.fract() != 0.0 => Err(NotInteger::Fraction),
        Some(value) => Ok(value),
        None => Err(NotInteger::NotANumber),
    }
}

/// A floating point number as Envoy reads it from text: blanks around it, `inf`, `infinity`, `nan` in
/// any letter case and C's hexadecimal notation are allowed; what is too large is infinite.
pub(super) fn number(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_c_space);
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let hex = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"));
    let magnitude = match hex {
        Some(hex) => hexadecimal(hex)?,
        None => digits.parse().ok()?,
    };
    Some(sign * magnitude)
}

/// Hexadecimal digits with an optional point, then an optional binary exponent: `1.8p1` is 3.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = match text.split_once(['p', 'P']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if integer.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0;
    for c in integer.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(c.to_digit(16)?);
    }
    let places = i32::try_from(fraction.len()).ok()?;
    Some(value * 2f64.powi(exponent.saturating_sub(places.saturating_mul(4))))
}

/// A boolean given as text.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "1" => Some(true),
        "false" | "f" | "no" | "n" | "0" => Some(false),
        _ => None,
    }
}

/// Base64 in either alphabet or both. Padding may be left out; if there is any it must be all there.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    const ENGINE: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireNone),
    );
    let data = text.trim_end_matches('=');
    let padding = text.len() - data.len();
    if padding > 2 || (padding > 0 && !text.len().is_multiple_of(4)) {
        return None;
    }
    ENGINE.decode(data.replace('-', "+").replace('_', "/")).ok()
}

/// The largest number of seconds in a `google.protobuf.Duration`, about 10,000 years.
const MAX_DURATION_SECONDS: i64 = 315_576_000_000;

/// A `google.protobuf.Duration`: digits, at most nine decimals, then `s`.
pub(super) fn duration(text: &str) -> Option<prost_types::Duration> {
    let number = text.strip_suffix('s')?;
    let (negative, number) = match number.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, number),
    };
    let (seconds, decimals) = match number.split_once('.') {
        Some((seconds, decimals)) => (seconds, Some(decimals)),
        None => (number, None),
    };
    let seconds = digits(seconds).filter(|&s| s <= MAX_DURATION_SECONDS)?;
    let nanos = match decimals {
        Some(decimals) => nanos(decimals)?,
        None => 0,
    };
    let sign = if negative { -1 } else { 1 };
    Some(prost_types::Duration {
        seconds: seconds * sign,
        nanos: nanos * i32::try_from(sign).ok()?,
    })
}

fn digits(text: &str) -> Option<i64> {
    let all = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    all.then(|| text.parse().ok())?
}

fn nanos(decimals: &str) -> Option<i32> {
    let width = u32::try_from(decimals.len()).ok().filter(|&w| w <= 9)?;
    let value = i32::try_from(digits(decimals)?).ok()?;
    Some(value * 10i32.pow(9 - width))
}

/// A `google.protobuf.Timestamp` in the notation of RFC 3339.
pub(super) fn timestamp(text: &str) -> Option<prost_types::Timestamp> {
    let shape =
        text.len() > 10 && text.is_ascii() && text.as_bytes()[10].eq_ignore_ascii_case(&b'T');
    let time: jiff::Timestamp = shape.then(|| text.parse().ok())??;
    // Counted from the second before, so that nanoseconds are never negative.
    let nanos = time.subsec_nanosecond();
    Some(prost_types::Timestamp {
        seconds: time.as_second() - i64::from(nanos < 0),
        nanos: if nanos < 0 {
            nanos + 1_000_000_000
        } else {
            nanos
        },
    })
}
