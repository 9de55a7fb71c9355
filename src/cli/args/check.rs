//! Arguments of `check`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::time;

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
pub(in crate::cli) struct CheckArgs {
    /// Where to send to; for a name, all of its addresses
    #[arg(value_name = "HOST:PORT")]
    pub(in crate::cli) hosts: Vec<String>,
    /// Payload as hexadecimal digits
    #[arg(long, value_name = "HEX")]
    pub(in crate::cli) send_hex: Option<String>,
    /// Payload as text
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) send_text: Option<String>,
    /// Payload from a file
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) send_file: Option<PathBuf>,
    /// Awaited answer as hexadecimal digits
    #[arg(long, value_name = "HEX")]
    pub(in crate::cli) receive_hex: Option<String>,
    /// Awaited answer as text
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) receive_text: Option<String>,
    /// Awaited answer from a file
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) receive_file: Option<PathBuf>,
    /// Payload and answer of a common service: see xds-health presets
    #[arg(long, value_name = "NAME", conflicts_with = "receive")]
    pub(in crate::cli) preset: Option<String>,
    /// Bootstrap file with the cluster whose endpoints are to be checked
    #[arg(short, long, value_name = "FILE", requires = "cluster", conflicts_with_all = ["send", "receive"])]
    pub(in crate::cli) config: Option<PathBuf>,
    /// The cluster in that file, or told by its management server
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(in crate::cli) cluster: Option<String>,
    /// How long to wait for the endpoints of the cluster to be told
    #[arg(long, value_name = "TIME", default_value = "15s", requires = "config", value_parser = time::parse_interval)]
    pub(in crate::cli) wait: Duration,
    /// Attempts at each host
    #[arg(short = 'n', long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) count: u32,
    /// From the end of an attempt to the next
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = time::parse_interval)]
    pub(in crate::cli) interval: Duration,
    /// How long an attempt may take; default 1s, or what the file says
    #[arg(short, long, value_name = "TIME", value_parser = time::parse_interval)]
    pub(in crate::cli) timeout: Option<Duration>,
    /// Send from this address
    #[arg(long, value_name = "IP")]
    pub(in crate::cli) source: Option<IpAddr>,
    /// How the answer is given
    #[arg(long, value_enum, default_value = "table")]
    pub(in crate::cli) format: CheckFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum CheckFormat {
    /// For people
    Table,
    /// One JSON object
    Json,
    /// Metrics as Prometheus reads them
    Prometheus,
    /// One line with performance data, and the exit codes of a Nagios plugin
    Nagios,
}
