//! What each kind of rule asks of a value. The structs have the names and fields of `validate.proto`, so
//! that the build writes a rule out as it stands there; a rule that it cannot state here does not compile.
//!
//! Reasons name the value where that helps, but never a string: header values may be secrets.

use super::{Fault, FieldPath};

mod bounds;
mod text;

pub(super) use bounds::{
    DoubleRules, DurationRules, Length, UInt32Rules, UInt64Rules, duration, number,
};
pub(super) use text::{BytesRules, KnownRegex, StringRules, bytes, string};

type Faults<'a> = dyn FnMut(Fault) + 'a;

pub(crate) struct EnumRules {
    pub(crate) defined_only: bool,
    pub(crate) not_in: &'static [i32],
    /// The numbers that the enum defines, with their names.
    pub(crate) defined: &'static [(i32, &'static str)],
}

impl EnumRules {
    pub(crate) const NONE: Self = Self {
        defined_only: false,
        not_in: &[],
        defined: &[],
    };
}

pub(crate) struct RepeatedRules {
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
}

impl RepeatedRules {
    pub(crate) const NONE: Self = Self {
        min_items: None,
        max_items: None,
    };
}

pub(crate) fn required(set: bool, at: &FieldPath<'_>, faults: &mut Faults<'_>) {
    if !set {
        faults(at.fault("value is required"));
    }
}

/// Reports a required oneof of which no member is set.
pub(crate) fn one_of_required(members: &str, at: &FieldPath<'_>, faults: &mut Faults<'_>) {
    faults(at.fault(format!("is required: set {members}")));
}

pub(crate) fn enumeration(
    value: i32,
    rules: &EnumRules,
    at: &FieldPath<'_>,
    faults: &mut Faults<'_>,
) {
    let name = |number| {
        let known = rules.defined.iter().find(|(defined, _)| *defined == number);
        known.map(|(_, name)| *name)
    };
    if rules.not_in.contains(&value) {
        let names: Vec<_> = rules
            .not_in
            .iter()
            .map(|number| name(*number).unwrap_or("?"))
            .collect();
        faults(at.fault(format!("value must not be in list [{}]", names.join(", "))));
    }
    if rules.defined_only && name(value).is_none() {
        faults(at.fault(format!(
            "value must be one of the defined enum values, but is {value}"
        )));
    }
}

pub(crate) fn repeated(
    count: usize,
    rules: &RepeatedRules,
    at: &FieldPath<'_>,
    faults: &mut Faults<'_>,
) {
    if let Some(min) = rules.min_items.filter(|min| (count as u64) < *min) {
        faults(at.fault(format!(
            "value must contain at least {min} item(s), but has {count}"
        )));
    }
    if let Some(max) = rules.max_items.filter(|max| count as u64 > *max) {
        faults(at.fault(format!(
            "value must contain no more than {max} item(s), but has {count}"
        )));
    }
}
