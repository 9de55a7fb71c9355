//! The command line: arguments, wiring, exit codes.
//!
//! Answers go to the writer that is given, logs to standard error. Exit codes: 0 for success, 1 for a
//! configuration that cannot be used, 2 for arguments that cannot be understood, 3 for what went wrong on
//! this machine.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

mod control;
mod load;
mod log;
mod run;
mod validate;

/// A configuration that cannot be used.
const BAD_CONFIG: u8 = 1;
/// Arguments that cannot be understood.
const USAGE: u8 = 2;
/// What went wrong on this machine.
const LOCAL: u8 = 3;

/// Active health checking with Envoy's configuration.
#[derive(Debug, Parser)]
#[command(name = "xds-health", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the endpoints of a bootstrap file until told to stop
    Run(RunArgs),
    /// Tell whether a bootstrap file can be run, and all that is wrong with it
    Validate(ConfigArgs),
}

#[derive(Debug, Args)]
struct ConfigArgs {
    /// Bootstrap file of an Envoy: JSON if it ends in .json, a serialized message if in .pb, else YAML; - for
    /// YAML from standard input
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Whether clusters count as having had traffic: if never, no_traffic_interval rules
    #[arg(long, value_enum, default_value = "always")]
    traffic: TrafficArg,
    /// Threads that run checks; default one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: Option<u16>,
    /// Attempts that may run at once; default as many as descriptors and local ports allow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_in_flight: Option<u32>,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Args)]
struct LogArgs {
    /// How log lines are written to standard error
    #[arg(long, value_enum, default_value = "text")]
    log_format: LogFormat,
    /// Least important level that is logged, or a filter such as info,xds_health::engine=trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TrafficArg {
    /// They do, from the start
    Always,
    /// They do not
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Runs the command that `args` ask for. Answers go to `out`, complaints to `err`.
pub fn main(
    args: impl IntoIterator<Item = OsString>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> ExitCode {
    let code = match Cli::try_parse_from(args) {
        Ok(cli) => match cli.command {
            Command::Run(args) => run::run(&args, err),
            Command::Validate(args) => validate::validate(&args, out, err),
        },
        Err(error) => usage(&error, out, err),
    };
    ExitCode::from(code)
}

/// Help goes to `out` and is a success; anything else is a complaint.
fn usage(error: &clap::Error, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let text = error.render();
    if error.use_stderr() {
        say(err, format_args!("{text}"));
        USAGE
    } else {
        say(out, format_args!("{text}"));
        0
    }
}

/// Writes `text`. Whoever has closed the other end does not want it.
fn say(to: &mut dyn Write, text: std::fmt::Arguments<'_>) {
    let _ = to.write_fmt(text).and_then(|()| to.flush());
}

/// Tells all that is wrong with a configuration, a line each.
fn complain(err: &mut dyn Write, what: &str, error: &crate::config::ConfigError) -> u8 {
    for line in error.to_string().lines() {
        say(err, format_args!("{what}: {line}\n"));
    }
    BAD_CONFIG
}
