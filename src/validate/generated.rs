//! One `Validate` for each message of `proto/`, written by the build from the rules there.
#![allow(
    unreachable_patterns,
    unused_variables,
    unused_qualifications,
    clippy::all,
    clippy::use_self,
    reason = "generated: every impl has the same shape, whether a message has rules or not"
)]

use super::rules;
use super::{Fault, FieldPath, Validate};
use crate::proto;

include!(concat!(env!("OUT_DIR"), "/validate.rs"));
