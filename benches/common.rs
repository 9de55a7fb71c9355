//! What the benches share: a responder in a process of its own, hosts to check, and readings of this process.

#![allow(dead_code, reason = "no bench uses all of it")]

pub(crate) mod args;
pub(crate) mod bare;
pub(crate) mod envoy;
pub(crate) mod fleet;
pub(crate) mod process;
pub(crate) mod responder;

/// The middle of `values`; of an even number the upper one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
