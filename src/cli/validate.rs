//! `xds-health validate`.

use std::io::Write;
use std::sync::Arc;

use super::load::{self, Loaded};
use super::{ConfigArgs, complain, say};
use crate::registry::Registry;

pub(super) fn validate(args: &ConfigArgs, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let name = load::name(&args.config);
    match load::load(&args.config, &Registry::default(), &Arc::default()) {
        Ok(Loaded { warnings, .. }) => {
            for line in warnings.to_string().lines() {
                say(err, format_args!("{name}: warning: {line}\n"));
            }
            say(out, format_args!("configuration '{name}' OK\n"));
            0
        }
        Err(error) => complain(err, &name, &error),
    }
}
