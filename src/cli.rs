//! The command line: arguments, wiring, exit codes.
//!
//! Answers go to the one stream of a [`Console`], complaints and logs to the other. Exit codes: 0 for success, 1
//! for a configuration that cannot be used or a check that failed, 2 for arguments that cannot be understood, 3
//! for what went wrong on this machine.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

mod args;
mod ask;
mod check;
mod clock;
mod console;
mod control;
mod daemon;
mod demo;
mod explain;
mod live;
mod load;
mod log;
mod memory;
mod notify;
#[cfg(feature = "otlp")]
mod otlp;
mod run;
mod status;
mod table;
mod time;
mod validate;

use args::*;
pub use console::Console;
use console::harmless;

/// A configuration that cannot be used, or a check that failed.
const BAD_CONFIG: u8 = 1;
/// Arguments that cannot be understood.
const USAGE: u8 = 2;
/// What went wrong on this machine.
const LOCAL: u8 = 3;

/// Runs the command that `args` ask for.
pub fn main(args: impl IntoIterator<Item = OsString>, mut console: Console<'_>) -> ExitCode {
    let args: Vec<_> = args.into_iter().collect();
    let code = match Cli::try_parse_from(&args) {
        Ok(cli) => {
            console.set_color(cli.color);
            command(cli.command, &mut console)
        }
        Err(error) => usage(&error, &args, &mut console),
    };
    let Some(error) = console.out.failure() else {
        return ExitCode::from(code);
    };
    // What nobody could read was not answered.
    console
        .err
        .say(format_args!("error: cannot write the answer: {error}\n"));
    ExitCode::from(LOCAL)
}

fn command(command: Command, console: &mut Console<'_>) -> u8 {
    match command {
        Command::Demo(args) => demo::demo(&args, console),
        Command::Run(args) => run::run(&args, console),
        Command::Check(args) => check::check(&args, console),
        Command::Validate(args) => validate::validate(&args, console),
        Command::Status(args) => status::status(&args, console),
        Command::Explain(args) => explain::explain(&args, console),
        Command::Presets(args) => check::presets(&args, console),
        Command::Completions { shell } => {
            let (mut command, mut script) = (Cli::command(), Vec::new());
            let name = command.get_name().to_owned();
            clap_complete::generate(shell, &mut command, name, &mut script);
            let script = String::from_utf8_lossy(&script);
            console.out.say(format_args!("{script}"));
            0
        }
        Command::Man { command } => man(command.as_deref(), console),
    }
}

/// The manual page of a command.
fn man(name: Option<&str>, console: &mut Console<'_>) -> u8 {
    let mut command = Cli::command();
    command.build();
    if let Some(name) = name {
        let Some(found) = command.find_subcommand(name) else {
            console
                .err
                .say(format_args!("error: there is no command {name:?}\n"));
            return USAGE;
        };
        command = found.clone();
    }
    let mut page = Vec::new();
    // A vector takes all that is written to it.
    let _ = clap_mangen::Man::new(command).render(&mut page);
    let page = String::from_utf8_lossy(&page);
    console.out.say(format_args!("{page}"));
    0
}

/// Help is an answer and a success; anything else is a complaint.
fn usage(error: &clap::Error, args: &[OsString], console: &mut Console<'_>) -> u8 {
    let text = error.render();
    if !error.use_stderr() {
        console.out.say(format_args!("{text}"));
        return 0;
    }
    // For a monitoring system, arguments that cannot be understood are no state of a host.
    if args
        .windows(2)
        .any(|pair| pair[0] == "--format" && pair[1] == "nagios")
        || args.iter().any(|arg| arg == "--format=nagios")
    {
        let text = text.to_string();
        // All that it complains of, which can be several lines; how to use the command is not said.
        let said = text.lines().take_while(|line| {
            let hint = ["Usage:", "For more information"];
            !hint.iter().any(|hint| line.starts_with(hint))
        });
        let said: Vec<_> = said
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let line = said.join(" ");
        let line = line.trim_start_matches("error: ").replace('|', "/");
        let line = harmless(&line);
        console.out.say(format_args!("UDP UNKNOWN: {line}\n"));
        return LOCAL;
    }
    console.err.say(format_args!("{text}"));
    USAGE
}

/// Tells all that is wrong with a configuration, a line each.
fn complain(console: &mut Console<'_>, what: &str, error: &crate::config::ConfigError) -> u8 {
    for line in error.to_string().lines() {
        let (what, line) = (harmless(what), harmless(line));
        console.err.say(format_args!("{what}: {line}\n"));
    }
    BAD_CONFIG
}
