//! Arguments: what can be asked for.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::console::Color;
use super::time;

mod check;
mod status;

pub(super) use check::{CheckArgs, CheckFormat};
pub(super) use status::{ExplainArgs, StatusArgs, StatusFormat};

/// What this build has beside the core.
const FEATURES: &str = if cfg!(feature = "otlp") {
    concat!(
        env!("CARGO_PKG_VERSION"),
        "\nfeatures: admin cli dns hds otlp xds"
    )
} else {
    concat!(
        env!("CARGO_PKG_VERSION"),
        "\nfeatures: admin cli dns hds xds"
    )
};

/// Active health checking with Envoy's configuration.
#[derive(Debug, Parser)]
#[command(
    name = "xds-health",
    version,
    long_version = FEATURES,
    about = "Active health checking with Envoy's configuration",
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        xds-health demo                              see it at work, with nothing else\n  \
        xds-health check 10.0.0.7:5683 --preset coap try one check by hand\n  \
        xds-health validate -c bootstrap.yaml        what is wrong with a file\n  \
        xds-health run -c bootstrap.yaml             check until told to stop\n  \
        xds-health status --watch                    its hosts at a glance\n  \
        xds-health explain games 10.0.0.7:9001       why one of them is as it is\n\n\
        Exit codes: 0 success, 1 a configuration that cannot be used or a check that failed, 2 arguments that \
        cannot be understood, 3 trouble of this machine."
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
    /// When to write in colour
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        hide_possible_values = true,
        help = "When to write in colour: auto (on a terminal, unless NO_COLOR is set), always or never"
    )]
    pub(super) color: Color,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show it at work: upstreams, a management server, checks and the admin port, all in this process
    Demo(DemoArgs),
    /// Check the endpoints of a bootstrap file until told to stop
    Run(RunArgs),
    /// Try a check by hand: what a checker would see, and why
    Check(Box<CheckArgs>),
    /// Tell whether a bootstrap file can be run, all that is wrong with it, and what may not be meant
    Validate(ValidateArgs),
    /// Show the hosts of a daemon that runs, from its admin port
    Status(StatusArgs),
    /// Tell why a host of a daemon that runs is as it is, and what comes next
    Explain(ExplainArgs),
    /// List the payloads known for common UDP services, or show those of one
    Presets(PresetsArgs),
    /// Write a completion script for a shell to standard output
    #[command(after_help = "Example:\n  \
        xds-health completions bash > /etc/bash_completion.d/xds-health")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page to standard output
    #[command(after_help = "Example:\n  \
        xds-health man > /usr/local/share/man/man1/xds-health.1\n  \
        xds-health man check | man -l -")]
    Man {
        /// The command whose page it is to be; default that of xds-health itself
        command: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// Bootstrap file of an Envoy: JSON if it ends in .json, a serialized message if in .pb, else YAML; - for
    /// YAML from standard input
    #[arg(short, long, value_name = "FILE")]
    pub(super) config: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Signals:\n  \
    SIGTERM, SIGINT  stop\n  \
    SIGHUP           read the file again and apply what can change while running\n  \
    SIGUSR1          open event logs anew\n\n\
    Examples:\n  \
    xds-health run -c bootstrap.yaml\n  \
    xds-health run -c envoy.json --traffic never --log-format json")]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Whether clusters count as having had traffic: if never, no_traffic_interval rules
    #[arg(long, value_enum, default_value = "always")]
    pub(super) traffic: TrafficArg,
    /// Threads that run checks; default one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) concurrency: Option<u16>,
    /// Attempts that may run at once; default as many as descriptors and local ports allow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_in_flight: Option<u32>,
    /// Sockets kept for later attempts after a success, in place of a new one for each; Linux only
    #[arg(long, value_name = "N", default_value = "0")]
    pub(super) spare_sockets: u16,
    #[cfg(feature = "otlp")]
    #[command(flatten)]
    pub(super) otlp: OtlpArgs,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

#[cfg(feature = "otlp")]
#[derive(Debug, Args)]
pub(super) struct OtlpArgs {
    /// Push stats to this OpenTelemetry collector by gRPC, as http://127.0.0.1:4317
    #[arg(long, value_name = "URL", value_parser = super::otlp::endpoint)]
    pub(super) otlp: Option<Box<tonic::transport::Endpoint>>,
    /// How often they are pushed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time::parse_interval)]
    pub(super) otlp_every: Duration,
}

#[derive(Debug, Args)]
pub(super) struct LogArgs {
    /// How log lines are written to standard error
    #[arg(long, value_enum, default_value = "text")]
    pub(super) log_format: LogFormat,
    /// Least important level that is logged, or a filter such as info,xds_health::engine=trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(super) log_level: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TrafficArg {
    /// They do, from the start
    Always,
    /// They do not
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xds-health validate -c bootstrap.yaml\n  \
    xds-health validate -c bootstrap.yaml --strict --format github")]
pub(super) struct ValidateArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Take warnings as faults
    #[arg(long)]
    pub(super) strict: bool,
    /// How the answer is given
    #[arg(long, value_enum, default_value = "text")]
    pub(super) format: FindingFormat,
    /// What run will be told by --traffic
    #[arg(long, value_enum, default_value = "always")]
    pub(super) traffic: TrafficArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FindingFormat {
    /// For people, with the lines in question
    Text,
    /// One JSON object
    Json,
    /// Commands for a GitHub workflow, which shows them beside the lines
    Github,
}

#[derive(Debug, Args)]
pub(super) struct PresetsArgs {
    /// Show this one, and the health check for a bootstrap file
    pub(super) name: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xds-health demo\n  \
    xds-health demo --for 10s\n  \
    xds-health demo --save demo.yaml")]
pub(super) struct DemoArgs {
    /// End by itself after this time
    #[arg(long = "for", value_name = "TIME", value_parser = time::parse)]
    pub(super) length: Option<Duration>,
    /// Write the configuration to a file, too
    #[arg(long, value_name = "FILE")]
    pub(super) save: Option<PathBuf>,
}
