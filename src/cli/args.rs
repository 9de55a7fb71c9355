//! Arguments: what can be asked for.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::console::Color;
use super::time;

/// What this build has beside the core.
const FEATURES: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nfeatures: admin cli dns hds xds"
);

/// Active health checking with Envoy's configuration.
#[derive(Debug, Parser)]
#[command(
    name = "xds-health",
    version,
    long_version = FEATURES,
    about,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        xds-health demo                              see it at work, with nothing else\n  \
        xds-health check 10.0.0.7:5683 --preset coap try one check by hand\n  \
        xds-health validate -c bootstrap.yaml        what is wrong with a file\n  \
        xds-health run -c bootstrap.yaml             check until told to stop\n\n\
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
    #[command(flatten)]
    pub(super) log: LogArgs,
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
#[command(
    group = clap::ArgGroup::new("target").required(true).args(["hosts", "config"]),
    group = clap::ArgGroup::new("send").args(["send_hex", "send_text", "send_file", "preset"]),
    group = clap::ArgGroup::new("receive").args(["receive_hex", "receive_text", "receive_file"]),
    after_help = "Text may hold \\n, \\r, \\t, \\0, \\\\ and \\xNN.\n\n\
        Examples:\n  \
        xds-health check 127.0.0.1:9001 --send-text ping --receive-text pong\n  \
        xds-health check 10.0.0.7:5683 10.0.0.8:5683 --preset coap --count 10 --interval 100ms\n  \
        xds-health check --config bootstrap.yaml --cluster games\n  \
        xds-health check game.example:9001 --send-hex 00ff --receive-file answer.bin --format nagios\n\n\
        Exit codes: 0 all attempts passed, 1 some failed, 2 arguments that cannot be understood, 3 trouble of this \
        machine. With --format nagios: 0 all passed, 1 every host passed at times, 2 a host never passed, 3 the rest."
)]
pub(super) struct CheckArgs {
    /// Where to send to; for a name, all of its addresses
    #[arg(value_name = "HOST:PORT")]
    pub(super) hosts: Vec<String>,
    /// Payload as hexadecimal digits
    #[arg(long, value_name = "HEX")]
    pub(super) send_hex: Option<String>,
    /// Payload as text
    #[arg(long, value_name = "TEXT")]
    pub(super) send_text: Option<String>,
    /// Payload from a file
    #[arg(long, value_name = "FILE")]
    pub(super) send_file: Option<PathBuf>,
    /// Awaited answer as hexadecimal digits
    #[arg(long, value_name = "HEX")]
    pub(super) receive_hex: Option<String>,
    /// Awaited answer as text
    #[arg(long, value_name = "TEXT")]
    pub(super) receive_text: Option<String>,
    /// Awaited answer from a file
    #[arg(long, value_name = "FILE")]
    pub(super) receive_file: Option<PathBuf>,
    /// Payload and answer of a common service: see xds-health presets
    #[arg(long, value_name = "NAME", conflicts_with = "receive")]
    pub(super) preset: Option<String>,
    /// Bootstrap file with the cluster whose endpoints are to be checked
    #[arg(short, long, value_name = "FILE", requires = "cluster", conflicts_with_all = ["send", "receive"])]
    pub(super) config: Option<PathBuf>,
    /// The cluster in that file, or told by its management server
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(super) cluster: Option<String>,
    /// How long to wait for the endpoints of the cluster to be told
    #[arg(long, value_name = "TIME", default_value = "15s", requires = "config", value_parser = time::parse_interval)]
    pub(super) wait: Duration,
    /// Attempts at each host
    #[arg(short = 'n', long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) count: u32,
    /// From the end of an attempt to the next
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = time::parse_interval)]
    pub(super) interval: Duration,
    /// How long an attempt may take; default 1s, or what the file says
    #[arg(short, long, value_name = "TIME", value_parser = time::parse_interval)]
    pub(super) timeout: Option<Duration>,
    /// Send from this address
    #[arg(long, value_name = "IP")]
    pub(super) source: Option<IpAddr>,
    /// How the answer is given
    #[arg(long, value_enum, default_value = "table")]
    pub(super) format: CheckFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CheckFormat {
    /// For people
    Table,
    /// One JSON object
    Json,
    /// Metrics as Prometheus reads them
    Prometheus,
    /// One line with performance data, and the exit codes of a Nagios plugin
    Nagios,
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

#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    /// The admin port: HOST:PORT, or the path of a socket, or @ and its abstract name
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    pub(super) admin: String,
    /// How the answer is given
    #[arg(long, value_enum, default_value = "table")]
    pub(super) format: StatusFormat,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without --all or --state, hosts that are healthy are counted and not listed.\n\n\
    Examples:\n  \
    xds-health status\n  \
    xds-health status --cluster games --state unhealthy,unknown\n  \
    xds-health status --admin 10.0.0.7:9901 --watch\n  \
    xds-health status --all --format json | jq '.hosts[].address'"
)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// Only this cluster
    #[arg(long, value_name = "NAME")]
    pub(super) cluster: Option<String>,
    /// List hosts in these states
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STATES")]
    pub(super) state: Vec<StateArg>,
    /// List all hosts
    #[arg(long, conflicts_with = "state")]
    pub(super) all: bool,
    /// List at most so many hosts in a table
    #[arg(long, value_name = "N", default_value = "50")]
    pub(super) limit: usize,
    /// Show it again and again
    #[arg(short, long)]
    pub(super) watch: bool,
    /// How often, with --watch
    #[arg(long, value_name = "TIME", default_value = "2s", requires = "watch", value_parser = time::parse_interval)]
    pub(super) interval: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StateArg {
    /// Checks pass it
    Healthy,
    /// It says that it is degraded
    Degraded,
    /// Checks fail it, or a control plane does
    Unhealthy,
    /// No check has been completed
    Unknown,
}

impl StateArg {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StatusFormat {
    /// For people
    Table,
    /// JSON
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xds-health explain games 10.0.0.7:9001\n  \
    xds-health explain games game-7.example --admin /run/xds-health/admin.sock")]
pub(super) struct ExplainArgs {
    /// The cluster
    pub(super) cluster: String,
    /// The host: its address, with or without the port, or its host name
    pub(super) host: String,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
}
