//! Rules of strings and byte strings: length and shape.

use super::Faults;
use crate::validate::FieldPath;

#[derive(Clone, Copy)]
pub(crate) enum KnownRegex {
    HttpHeaderName,
    HttpHeaderValue,
}

pub(crate) struct StringRules {
    pub(crate) min_len: Option<u64>,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) well_known_regex: Option<KnownRegex>,
    pub(crate) strict: bool,
    pub(crate) ignore_empty: bool,
}

impl StringRules {
    pub(crate) const NONE: Self = Self {
        min_len: None,
        max_bytes: None,
        well_known_regex: None,
        strict: true,
        ignore_empty: false,
    };
}

pub(crate) struct BytesRules {
    pub(crate) min_len: Option<u64>,
    pub(crate) max_len: Option<u64>,
}

impl BytesRules {
    pub(crate) const NONE: Self = Self {
        min_len: None,
        max_len: None,
    };
}

pub(crate) fn string(
    value: &str,
    rules: &StringRules,
    at: &FieldPath<'_>,
    faults: &mut Faults<'_>,
) {
    if rules.ignore_empty && value.is_empty() {
        return;
    }
    let chars = value.chars().count();
    length(chars, rules.min_len, None, "characters", at, faults);
    length(value.len(), None, rules.max_bytes, "bytes", at, faults);
    if let Some(regex) = rules.well_known_regex {
        let (fits, pattern) = known_regex(value, regex, rules.strict);
        if !fits {
            faults(at.fault(format!("value does not match regex pattern \"{pattern}\"")));
        }
    }
}

/// Whether `value` has the shape, and the shape as Envoy writes it.
fn known_regex(value: &str, regex: KnownRegex, strict: bool) -> (bool, &'static str) {
    if !strict {
        let fits = !value.contains(['\0', '\r', '\n']);
        return (fits, r"^[^\x00\n\r]*$");
    }
    match regex {
        KnownRegex::HttpHeaderName => {
            let token = value.strip_prefix(':').unwrap_or(value);
            let fits = !token.is_empty() && token.bytes().all(is_header_name_byte);
            (fits, r"^:?[0-9a-zA-Z!#$%&'*+-.^_|~`]+$")
        }
        KnownRegex::HttpHeaderValue => {
            let fits = value
                .bytes()
                .all(|byte| byte == b'\t' || !byte.is_ascii_control());
            (fits, r"^[^\x00-\b\n-\x1f\x7f]*$")
        }
    }
}

/// RFC 7230's token characters, and the comma: in Envoy's pattern `+-.` is a range, which holds it.
fn is_header_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+,-.^_|~`".contains(&byte)
}

pub(crate) fn bytes(value: &[u8], rules: &BytesRules, at: &FieldPath<'_>, faults: &mut Faults<'_>) {
    length(
        value.len(),
        rules.min_len,
        rules.max_len,
        "bytes",
        at,
        faults,
    );
}

fn length(
    count: usize,
    min: Option<u64>,
    max: Option<u64>,
    unit: &str,
    at: &FieldPath<'_>,
    faults: &mut Faults<'_>,
) {
    if let Some(min) = min.filter(|min| (count as u64) < *min) {
        faults(at.fault(format!("value length must be at least {min} {unit}")));
    }
    if let Some(max) = max.filter(|max| count as u64 > *max) {
        faults(at.fault(format!(
            "value length must be at most {max} {unit}, but is {count}"
        )));
    }
}
