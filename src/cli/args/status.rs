//! Arguments of what asks a daemon that runs.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::time;

#[derive(Debug, Args)]
pub(in crate::cli) struct AdminArgs {
    /// The admin port: HOST:PORT, the address of its page, the path of a socket, or @ and its abstract name
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901")]
    pub(in crate::cli) admin: String,
    /// How the answer is given
    #[arg(long, value_enum, default_value = "table")]
    pub(in crate::cli) format: StatusFormat,
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
pub(in crate::cli) struct StatusArgs {
    #[command(flatten)]
    pub(in crate::cli) admin: AdminArgs,
    /// Only this cluster
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) cluster: Option<String>,
    /// List hosts in these states
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STATES")]
    pub(in crate::cli) state: Vec<StateArg>,
    /// List all hosts
    #[arg(long, conflicts_with = "state")]
    pub(in crate::cli) all: bool,
    /// List at most so many hosts in a table
    #[arg(long, value_name = "N", default_value = "50")]
    pub(in crate::cli) limit: usize,
    /// Show it again and again
    #[arg(short, long)]
    pub(in crate::cli) watch: bool,
    /// How often, with --watch
    #[arg(long, value_name = "TIME", default_value = "2s", requires = "watch", value_parser = time::parse_interval)]
    pub(in crate::cli) interval: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum StateArg {
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
    pub(in crate::cli) fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum StatusFormat {
    /// For people
    Table,
    /// JSON
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    xds-health explain games 10.0.0.7:9001\n  \
    xds-health explain games game-7.example --admin /run/xds-health/admin.sock")]
pub(in crate::cli) struct ExplainArgs {
    /// The cluster
    pub(in crate::cli) cluster: String,
    /// The host: its address, with or without the port, or its host name
    pub(in crate::cli) host: String,
    #[command(flatten)]
    pub(in crate::cli) admin: AdminArgs,
}
