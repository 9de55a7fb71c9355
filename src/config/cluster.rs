//! A cluster, checked and with its defaults filled in.

use std::net::SocketAddr;
use std::sync::Arc;

use super::HealthCheck;
use crate::host::Host;

/// From where attempts are sent.
///
/// Source: `envoy.config.core.v3.BindConfig` in `upstream_bind_config`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BindConfig {
    /// `source_address`; port 0 takes a fresh port for each attempt.
    pub source: Option<SocketAddr>,
    /// `extra_source_addresses`: the first of the host's family is taken when `source` is of the other.
    pub extra_sources: Vec<SocketAddr>,
    /// `socket_options`, set before binding or as their `state` says.
    pub socket_options: Vec<SocketOption>,
}

impl BindConfig {
    /// The source address for a host at `target`: the first whose family fits, else `source`.
    pub fn source_for(&self, target: SocketAddr) -> Option<SocketAddr> {
        self.source
            .into_iter()
            .chain(self.extra_sources.iter().copied())
            .find(|source| source.is_ipv4() == target.is_ipv4())
            .or(self.source)
    }
}

/// A socket option to set on each attempt's socket.
///
/// Source: `envoy.config.core.v3.SocketOption`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketOption {
    /// `level`, as for `setsockopt`.
    pub level: i32,
    /// `name`, as for `setsockopt`.
    pub name: i32,
    /// `int_value` in native byte order, or `buf_value`.
    pub value: Box<[u8]>,
    /// Whether it is set after the socket is bound (`STATE_BOUND`), not before.
    pub after_bind: bool,
}

impl SocketOption {
    /// The option `name` of `level` with `value`, set before the socket is bound.
    pub fn new(level: i32, name: i32, value: impl Into<Box<[u8]>>) -> Self {
        Self {
            level,
            name,
            value: value.into(),
            after_bind: false,
        }
    }
}

/// Limits of one priority, which `/clusters` shows.
///
/// Source: `envoy.config.cluster.v3.CircuitBreakers.Thresholds`. Carried only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thresholds {
    /// `max_connections`, default 1024.
    pub max_connections: u32,
    /// `max_pending_requests`, default 1024.
    pub max_pending_requests: u32,
    /// `max_requests`, default 1024.
    pub max_requests: u32,
    /// `max_retries`, default 3.
    pub max_retries: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_pending_requests: 1024,
            max_requests: 1024,
            max_retries: 3,
        }
    }
}

/// Where a cluster's hosts come from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Discovery {
    /// `STATIC`: the hosts of `load_assignment`. The same address twice is two hosts.
    Static(Vec<Arc<Host>>),
    /// Hosts are told while running, each address once.
    Dynamic,
}

/// A cluster whose hosts are to be checked.
///
/// Source: `envoy.config.cluster.v3.Cluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterConfig {
    /// `name`.
    pub name: Arc<str>,
    /// `alt_stat_name`, which stands for the name in stat names.
    pub alt_stat_name: Option<Arc<str>>,
    /// `health_checks`: at most 8; with two or more, each with a name of its own.
    pub health_checks: Vec<Arc<HealthCheck>>,
    /// `type` and what belongs to it.
    pub discovery: Discovery,
    /// `common_lb_config.ignore_new_hosts_until_first_hc`.
    pub ignore_new_hosts_until_first_hc: bool,
    /// `ignore_health_on_host_removal`: a removed host goes at once, even while it passes.
    pub ignore_health_on_host_removal: bool,
    /// `upstream_bind_config`, or that of the cluster manager.
    pub bind: Option<Arc<BindConfig>>,
    /// `circuit_breakers` of the default and the high priority.
    pub thresholds: [Thresholds; 2],
}

impl ClusterConfig {
    /// A cluster without checks and hosts.
    pub fn new(name: impl Into<Arc<str>>, discovery: Discovery) -> Self {
        Self {
            name: name.into(),
            alt_stat_name: None,
            health_checks: Vec::new(),
            discovery,
            ignore_new_hosts_until_first_hc: false,
            ignore_health_on_host_removal: false,
            bind: None,
            thresholds: [Thresholds::default(); 2],
        }
    }

    /// The same cluster with one more health check.
    pub fn with_health_check(mut self, check: HealthCheck) -> Self {
        self.health_checks.push(Arc::new(check));
        self
    }

    /// What stands for the cluster in stat names.
    pub fn stat_name(&self) -> &Arc<str> {
        self.alt_stat_name.as_ref().unwrap_or(&self.name)
    }

    /// Whether `host` is checked in this cluster.
    pub fn checks(&self, host: &Host) -> bool {
        !self.health_checks.is_empty() && !host.check_disabled
    }
}
