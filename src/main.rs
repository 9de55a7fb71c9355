//! The `xds-health` command.
fn main() {}
