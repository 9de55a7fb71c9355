//! Rules of numbers and durations: between what they lie.

use std::fmt::{self, Display};

use prost_types::Duration;

use super::{Faults, required};
pub(crate) use crate::proto::duration::Length;
use crate::proto::duration::read;
use crate::validate::FieldPath;

/// Bounds of a number, and of a duration.
pub(crate) struct Bounds<T> {
    pub(crate) lt: Option<T>,
    pub(crate) lte: Option<T>,
    pub(crate) gt: Option<T>,
    pub(crate) gte: Option<T>,
}

pub(crate) type DoubleRules = Bounds<f64>;
pub(crate) type UInt32Rules = Bounds<u32>;
pub(crate) type UInt64Rules = Bounds<u64>;

impl<T> Bounds<T> {
    pub(crate) const NONE: Self = Self {
        lt: None,
        lte: None,
        gt: None,
        gte: None,
    };
}

pub(crate) struct DurationRules {
    pub(crate) required: bool,
    pub(crate) lt: Option<Length>,
    pub(crate) lte: Option<Length>,
    pub(crate) gt: Option<Length>,
    pub(crate) gte: Option<Length>,
}

impl DurationRules {
    pub(crate) const NONE: Self = Self {
        required: false,
        lt: None,
        lte: None,
        gt: None,
        gte: None,
    };
}

/// Checks a plain number, a set wrapper or a set oneof member.
pub(crate) fn number<T: PartialOrd + Display + Copy>(
    value: T,
    rules: &Bounds<T>,
    at: &FieldPath<'_>,
    faults: &mut Faults<'_>,
) {
    if !rules.hold(value) {
        faults(at.fault(format!("value must be {rules}, but is {value}")));
    }
}

impl<T: PartialOrd + Copy> Bounds<T> {
    /// Asks for what must be true, so that a NaN, which Envoy refuses too, holds to no bound.
    fn hold(&self, value: T) -> bool {
        self.lt.is_none_or(|bound| value < bound)
            && self.lte.is_none_or(|bound| value <= bound)
            && self.gt.is_none_or(|bound| value > bound)
            && self.gte.is_none_or(|bound| value >= bound)
    }
}

impl<T: Display> Display for Bounds<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = match (&self.gt, &self.gte) {
            (Some(bound), _) => Some(('(', "greater than", bound)),
            (None, Some(bound)) => Some(('[', "greater than or equal to", bound)),
            (None, None) => None,
        };
        let high = match (&self.lt, &self.lte) {
            (Some(bound), _) => Some((')', "less than", bound)),
            (None, Some(bound)) => Some((']', "less than or equal to", bound)),
            (None, None) => None,
        };
        match (low, high) {
            (Some((open, _, low)), Some((close, _, high))) => {
                write!(f, "inside range {open}{low}, {high}{close}")
            }
            (Some((_, words, bound)), None) | (None, Some((_, words, bound))) => {
                write!(f, "{words} {bound}")
            }
            (None, None) => Ok(()),
        }
    }
}

pub(crate) fn duration(
    value: Option<&Duration>,
    rules: &DurationRules,
    at: &FieldPath<'_>,
    faults: &mut Faults<'_>,
) {
    let Some(value) = value else {
        return required(!rules.required, at, faults);
    };
    // As with Envoy, first whether it is a duration at all; the bounds of one that is not say nothing.
    match read(value) {
        Err(wrong) => faults(at.fault(wrong.to_string())),
        Ok(_) => {
            let bounds = Bounds {
                lt: rules.lt,
                lte: rules.lte,
                gt: rules.gt,
                gte: rules.gte,
            };
            number(Length::from(value), &bounds, at, faults);
        }
    }
}
