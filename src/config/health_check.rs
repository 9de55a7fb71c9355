//! One health check of a cluster, checked and with its defaults filled in.

use std::sync::Arc;
use std::time::Duration;

/// An extension's configuration as it came: which one, and its serialized message.
///
/// Source: `google.protobuf.Any`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TypedConfig {
    /// The type URL; the text after its last `/` names the message.
    pub type_url: Box<str>,
    /// The serialized message.
    pub value: Box<[u8]>,
}

/// Which checker a health check asks for.
///
/// Source: the oneof `health_checker` of `envoy.config.core.v3.HealthCheck`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckerConfig {
    /// `custom_health_check`: found by the type URL of its `typed_config`; its name is not used.
    Custom(TypedConfig),
    /// `http_health_check`, `tcp_health_check` or `grpc_health_check`, by field name and message.
    BuiltIn {
        /// The field's name, as `tcp_health_check`.
        field: &'static str,
        /// The type URL and serialized message.
        config: TypedConfig,
    },
}

/// How one health check of a cluster is run.
///
/// Source: `envoy.config.core.v3.HealthCheck`. All durations are at least 1 ms unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthCheck {
    /// `name`: empty, or the part of stat names that tells this check from others of its cluster.
    pub name: Arc<str>,
    /// `timeout`: how long an attempt may take from the moment it is sent.
    pub timeout: Duration,
    /// `interval`: from a completion to the next attempt.
    pub interval: Duration,
    /// `initial_jitter`: the first attempt starts after a random part of it; zero: at once.
    pub initial_jitter: Duration,
    /// `interval_jitter`: a random part of it is added to each interval; may be zero.
    pub interval_jitter: Duration,
    /// `interval_jitter_percent`: a random part of so many percent of the interval is added too.
    pub interval_jitter_percent: u32,
    /// `unhealthy_threshold`: failures in a row that fail a healthy host; 0: never.
    pub unhealthy_threshold: u32,
    /// `healthy_threshold`: successes in a row that pass a failed host, save for its first check; 0: never.
    pub healthy_threshold: u32,
    /// `no_traffic_interval`: the interval while the cluster has had no traffic; default 60 s.
    pub no_traffic_interval: Duration,
    /// `no_traffic_healthy_interval`: the same for healthy hosts; default `no_traffic_interval`.
    pub no_traffic_healthy_interval: Duration,
    /// `unhealthy_interval`: after failures of a failed host; default `interval`.
    pub unhealthy_interval: Duration,
    /// `unhealthy_edge_interval`: after failures below the threshold; default `unhealthy_interval`.
    pub unhealthy_edge_interval: Duration,
    /// `healthy_edge_interval`: after successes below the threshold; default `interval`.
    pub healthy_edge_interval: Duration,
    /// `always_log_health_check_failures`: an event for each failure.
    pub always_log_failures: bool,
    /// `always_log_health_check_success`: an event for each success.
    pub always_log_success: bool,
    /// `reuse_connection`; has no meaning for UDP. Default true.
    pub reuse_connection: bool,
    /// `event_log_path` (deprecated), if set: events go to this file.
    pub event_log_path: Option<Box<str>>,
    /// `event_logger`: where events go.
    pub event_sinks: Vec<TypedConfig>,
    /// The checker and its configuration.
    pub checker: CheckerConfig,
}

impl HealthCheck {
    /// `no_traffic_interval` when it is not set.
    pub const DEFAULT_NO_TRAFFIC_INTERVAL: Duration = Duration::from_secs(60);

    /// A check by `checker` with the four required values and defaults for all else.
    ///
    /// Durations below 1 ms are taken as 1 ms.
    pub fn new(
        checker: CheckerConfig,
        timeout: Duration,
        interval: Duration,
        unhealthy_threshold: u32,
        healthy_threshold: u32,
    ) -> Self {
        let timeout = timeout.max(Duration::from_millis(1));
        let interval = interval.max(Duration::from_millis(1));
        Self {
            name: Arc::from(""),
            timeout,
            interval,
            initial_jitter: Duration::ZERO,
            interval_jitter: Duration::ZERO,
            interval_jitter_percent: 0,
            unhealthy_threshold,
            healthy_threshold,
            no_traffic_interval: Self::DEFAULT_NO_TRAFFIC_INTERVAL,
            no_traffic_healthy_interval: Self::DEFAULT_NO_TRAFFIC_INTERVAL,
            unhealthy_interval: interval,
            unhealthy_edge_interval: interval,
            healthy_edge_interval: interval,
            always_log_failures: false,
            always_log_success: false,
            reuse_connection: true,
            event_log_path: None,
            event_sinks: Vec::new(),
            checker,
        }
    }
}
