//! The `xds-health` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    xds_health::cli::main(std::env::args_os(), &mut out, &mut err)
}
