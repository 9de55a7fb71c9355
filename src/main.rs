//! The `xds-health` command.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use xds_health::cli::{self, Console};

fn main() -> ExitCode {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let (out_shows, err_shows) = (out.is_terminal(), err.is_terminal());
    let console = Console::new(&mut out, &mut err).with_terminals(out_shows, err_shows);
    cli::main(std::env::args_os(), console)
}
