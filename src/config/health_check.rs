//! One health check of a cluster, checked and with its defaults filled in.

use std::sync::Arc;
use std::time::Duration;

use prost::{Message, Name};
use prost_types::Any;

use super::error::Report;
use super::text::Document;
use super::{ConfigError, IntervalLimits, Payload, PayloadError, Warnings, wire};
use crate::proto::envoy::config::core::v3::HealthCheck as HealthCheckMessage;
use crate::proto::envoy::config::core::v3::health_check::custom_health_check::ConfigType;
use crate::proto::envoy::config::core::v3::health_check::{CustomHealthCheck, HealthChecker};
use crate::proto::envoy::config::core::v3::health_check::{Payload as PayloadMessage, payload};
use crate::proto::envoy::extensions::health_checkers::udp::v3::UdpHealthCheck;
use crate::proto::type_url;
use crate::validate::FieldPath;

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

impl TypedConfig {
    /// `message` under its own type URL.
    pub fn of<M: Message + Name>(message: &M) -> Self {
        Self {
            type_url: type_url::<M>().into(),
            value: message.encode_to_vec().into(),
        }
    }
}

impl From<&Any> for TypedConfig {
    fn from(any: &Any) -> Self {
        Self {
            type_url: any.type_url.as_str().into(),
            value: any.value.as_slice().into(),
        }
    }
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

impl CheckerConfig {
    /// The UDP checker: an attempt sends the datagram `send`, and passes when one that equals `receive` comes back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use xds_health::config::{CheckerConfig, HealthCheck};
    ///
    /// # fn main() -> Result<(), xds_health::config::PayloadError> {
    /// let checker = CheckerConfig::udp(b"ping", b"pong")?;
    /// let second = Duration::from_secs(1);
    /// let check = HealthCheck::new(checker, second, 5 * second, 3, 2)
    ///     .with_no_traffic_interval(10 * second)
    ///     .with_unhealthy_interval(second);
    /// assert_eq!(check.unhealthy_edge_interval, second);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When one of them is longer than 65,507 bytes, which no datagram holds.
    pub fn udp(send: &[u8], receive: &[u8]) -> Result<Self, PayloadError> {
        let payload = |bytes: &[u8]| {
            Payload::new(bytes)?;
            let payload = payload::Payload::Binary(bytes.to_vec());
            let payload = Some(payload);
            Ok::<_, PayloadError>(PayloadMessage { payload })
        };
        Ok(Self::Custom(TypedConfig::of(&UdpHealthCheck {
            send: Some(payload(send)?),
            receive: Some(payload(receive)?),
        })))
    }
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
    /// Durations below 1 ms are taken as 1 ms. Until the cluster has had traffic, hosts are checked once a minute:
    /// see [`HealthCheck::with_no_traffic_interval`].
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

    /// Fields that are shorter than the least duration, as no builder and no message leaves them.
    pub(super) fn too_short(&self) -> impl Iterator<Item = &'static str> {
        let least = IntervalLimits::FLOOR;
        let fields = [
            ("timeout", self.timeout),
            ("interval", self.interval),
            ("no_traffic_interval", self.no_traffic_interval),
            (
                "no_traffic_healthy_interval",
                self.no_traffic_healthy_interval,
            ),
            ("unhealthy_interval", self.unhealthy_interval),
            ("unhealthy_edge_interval", self.unhealthy_edge_interval),
            ("healthy_edge_interval", self.healthy_edge_interval),
        ];
        let short = fields.into_iter().filter(move |(_, value)| *value < least);
        short.map(|(name, _)| name)
    }

    /// The same under a name, which tells it from others of its cluster.
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// The same with another `no_traffic_interval`, and a `no_traffic_healthy_interval` that follows it.
    pub fn with_no_traffic_interval(mut self, interval: Duration) -> Self {
        self.no_traffic_interval = interval.max(IntervalLimits::FLOOR);
        self.no_traffic_healthy_interval = self.no_traffic_interval;
        self
    }

    /// The same with another `unhealthy_interval`, and an `unhealthy_edge_interval` that follows it.
    pub fn with_unhealthy_interval(mut self, interval: Duration) -> Self {
        self.unhealthy_interval = interval.max(IntervalLimits::FLOOR);
        self.unhealthy_edge_interval = self.unhealthy_interval;
        self
    }

    /// The same with one interval, whatever came before: `interval` and all that stand in for it.
    pub fn with_only_interval(mut self, interval: Duration) -> Self {
        let interval = interval.max(IntervalLimits::FLOOR);
        for each in [
            &mut self.interval,
            &mut self.unhealthy_interval,
            &mut self.unhealthy_edge_interval,
            &mut self.healthy_edge_interval,
            &mut self.no_traffic_interval,
            &mut self.no_traffic_healthy_interval,
        ] {
            *each = interval;
        }
        self
    }

    /// The same with an `interval_jitter`: each interval is longer by a random part of it.
    pub fn with_interval_jitter(mut self, jitter: Duration) -> Self {
        self.interval_jitter = jitter;
        self
    }

    /// Checks a message.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, with paths such as `custom_health_check.name`. What a checker or an event
    /// sink is told is not looked at: only who knows the type can.
    pub fn from_message(
        message: &HealthCheckMessage,
        warnings: &mut Warnings,
    ) -> Result<Self, ConfigError> {
        wire::convert(message, warnings, Self::read)
    }

    /// Checks a serialized message.
    ///
    /// # Errors
    ///
    /// As of [`HealthCheck::from_message`]; also for bytes that are no such message.
    pub fn from_bytes(bytes: &[u8], warnings: &mut Warnings) -> Result<Self, ConfigError> {
        Self::from_message(&wire::decode(bytes)?, warnings)
    }

    /// Checks what a text tells, in which all faults then have their places.
    ///
    /// # Errors
    ///
    /// As of [`HealthCheck::from_message`]; also what cannot be read.
    pub fn from_document(
        document: &Document,
        warnings: &mut Warnings,
    ) -> Result<Self, ConfigError> {
        wire::convert_document(document, warnings, Self::read)
    }

    pub(super) fn read(
        message: &HealthCheckMessage,
        at: &FieldPath<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let m = message;
        let interval = |value: &Option<_>, name, report: &mut Report| {
            wire::interval(value.as_ref(), &at.field(name), report)
        };
        let timeout = interval(&m.timeout, "timeout", report);
        let base = interval(&m.interval, "interval", report);
        let no_traffic = interval(&m.no_traffic_interval, "no_traffic_interval", report);
        let no_traffic_healthy = interval(
            &m.no_traffic_healthy_interval,
            "no_traffic_healthy_interval",
            report,
        );
        let unhealthy = interval(&m.unhealthy_interval, "unhealthy_interval", report);
        let unhealthy_edge = interval(
            &m.unhealthy_edge_interval,
            "unhealthy_edge_interval",
            report,
        );
        let healthy_edge = interval(&m.healthy_edge_interval, "healthy_edge_interval", report);

        let mut jitter =
            |value: &Option<_>, name| wire::jitter(value.as_ref(), &at.field(name), report);
        let initial_jitter = jitter(&m.initial_jitter, "initial_jitter");
        let interval_jitter = jitter(&m.interval_jitter, "interval_jitter");
        report.deprecated(!m.event_log_path.is_empty(), "event_log_path", at);
        let checker = read_checker(m.health_checker.as_ref()?, at, report);

        let mut check = Self::new(
            checker?,
            timeout?,
            base?,
            m.unhealthy_threshold?,
            m.healthy_threshold?,
        );
        check.name = m.name.as_str().into();
        check.initial_jitter = initial_jitter;
        check.interval_jitter = interval_jitter;
        check.interval_jitter_percent = m.interval_jitter_percent;
        check.no_traffic_interval = no_traffic.unwrap_or(check.no_traffic_interval);
        check.no_traffic_healthy_interval = no_traffic_healthy.unwrap_or(check.no_traffic_interval);
        check.unhealthy_interval = unhealthy.unwrap_or(check.interval);
        check.unhealthy_edge_interval = unhealthy_edge.unwrap_or(check.unhealthy_interval);
        check.healthy_edge_interval = healthy_edge.unwrap_or(check.interval);
        check.always_log_failures = m.always_log_health_check_failures;
        check.always_log_success = m.always_log_health_check_success;
        check.reuse_connection = m.reuse_connection.unwrap_or(true);
        if !m.event_log_path.is_empty() {
            check.event_log_path = Some(m.event_log_path.as_str().into());
        }
        let sinks = m.event_logger.iter();
        check.event_sinks = sinks
            .filter_map(|sink| sink.typed_config.as_ref())
            .map(TypedConfig::from)
            .collect();
        Some(check)
    }
}

impl TryFrom<&HealthCheckMessage> for HealthCheck {
    type Error = ConfigError;

    fn try_from(message: &HealthCheckMessage) -> Result<Self, ConfigError> {
        Self::from_message(message, &mut Warnings::default())
    }
}

fn read_checker(
    message: &HealthChecker,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<CheckerConfig> {
    let (field, config) = match message {
        HealthChecker::HttpHealthCheck(m) => ("http_health_check", TypedConfig::of(m)),
        HealthChecker::TcpHealthCheck(m) => ("tcp_health_check", TypedConfig::of(m)),
        HealthChecker::GrpcHealthCheck(m) => ("grpc_health_check", TypedConfig::of(m)),
        HealthChecker::CustomHealthCheck(custom) => {
            return read_custom(custom, &at.field("custom_health_check"), report);
        }
    };
    Some(CheckerConfig::BuiltIn { field, config })
}

fn read_custom(
    message: &CustomHealthCheck,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<CheckerConfig> {
    match &message.config_type {
        Some(ConfigType::TypedConfig(any)) => Some(CheckerConfig::Custom(any.into())),
        None => report.fault(
            &at.field("typed_config"),
            "value is required: its type names the checker",
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::error::UNEXPLAINED;
    use crate::config::testing;
    use crate::proto::envoy::config::core::v3::TypedExtensionConfig;
    use crate::proto::envoy::config::core::v3::health_check::TcpHealthCheck;

    fn seconds(seconds: i64, nanos: i32) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos })
    }

    fn custom(config: Option<Any>) -> Option<HealthChecker> {
        Some(HealthChecker::CustomHealthCheck(CustomHealthCheck {
            name: "x".to_owned(),
            config_type: config.map(ConfigType::TypedConfig),
        }))
    }

    fn sound() -> HealthCheckMessage {
        HealthCheckMessage {
            timeout: seconds(1, 0),
            interval: seconds(5, 0),
            unhealthy_threshold: Some(3),
            healthy_threshold: Some(2),
            health_checker: custom(Some(Any::default())),
            ..HealthCheckMessage::default()
        }
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut HealthCheckMessage), fault: &str) {
        let mut message = sound();
        change(&mut message);
        let error = HealthCheck::try_from(&message).unwrap_err();
        assert_eq!(error.to_string(), fault);
    }

    fn accepted(change: impl FnOnce(&mut HealthCheckMessage)) -> (HealthCheck, Vec<String>) {
        let mut message = sound();
        change(&mut message);
        let mut warnings = Warnings::default();
        let check = HealthCheck::from_message(&message, &mut warnings).unwrap();
        (check, warnings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_is_unset_takes_its_default() {
        let (check, warnings) = accepted(|_| ());
        let config = CheckerConfig::Custom(TypedConfig::default());
        let second = Duration::from_secs(1);
        assert_eq!(check, HealthCheck::new(config, second, 5 * second, 3, 2));
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn intervals_default_to_one_another() {
        let (check, _) = accepted(|m| {
            m.no_traffic_interval = seconds(7, 0);
            m.unhealthy_interval = seconds(9, 0);
        });
        assert_eq!(check.no_traffic_healthy_interval.as_secs(), 7);
        assert_eq!(check.unhealthy_edge_interval.as_secs(), 9);
        assert_eq!(check.healthy_edge_interval.as_secs(), 5);
        let (check, _) = accepted(|m| {
            m.no_traffic_healthy_interval = seconds(7, 0);
            m.unhealthy_edge_interval = seconds(8, 0);
            m.healthy_edge_interval = seconds(9, 0);
        });
        assert_eq!(check.no_traffic_interval.as_secs(), 60);
        assert_eq!(check.no_traffic_healthy_interval.as_secs(), 7);
        assert_eq!(check.unhealthy_edge_interval.as_secs(), 8);
        assert_eq!(check.healthy_edge_interval.as_secs(), 9);
    }

    #[test]
    fn every_other_field_is_carried() {
        let (check, warnings) = accepted(|m| {
            m.name = "a.b c".to_owned();
            m.initial_jitter = seconds(1, 0);
            m.interval_jitter = seconds(2, 0);
            m.interval_jitter_percent = 150;
            m.always_log_health_check_failures = true;
            m.always_log_health_check_success = true;
            m.reuse_connection = Some(false);
            m.event_log_path = "/dev/null".to_owned();
            m.alt_port = Some(1);
            m.event_logger = vec![TypedExtensionConfig {
                name: "x".to_owned(),
                typed_config: Some(Any {
                    type_url: "a/b".to_owned(),
                    value: vec![1],
                }),
            }];
        });
        assert_eq!(&*check.name, "a.b c");
        assert_eq!(check.initial_jitter.as_secs(), 1);
        assert_eq!(check.interval_jitter.as_secs(), 2);
        assert_eq!(check.interval_jitter_percent, 150);
        assert!(check.always_log_failures && check.always_log_success);
        assert!(!check.reuse_connection);
        assert_eq!(check.event_log_path.as_deref(), Some("/dev/null"));
        assert_eq!(&*check.event_sinks[0].type_url, "a/b");
        assert_eq!(*check.event_sinks[0].value, [1]);
        assert_eq!(warnings, ["event_log_path: is deprecated"]);
    }

    #[test]
    fn a_duration_below_a_millisecond_is_one() {
        let (check, warnings) = accepted(|m| {
            m.timeout = seconds(0, 500_000);
            m.healthy_edge_interval = seconds(0, 1);
            m.interval_jitter = seconds(0, 999_999);
            m.initial_jitter = seconds(0, 0);
        });
        assert_eq!(check.timeout, Duration::from_millis(1));
        assert_eq!(check.healthy_edge_interval, Duration::from_millis(1));
        assert_eq!(check.interval_jitter, Duration::ZERO);
        assert_eq!(
            warnings,
            [
                "timeout: 500µs is taken as 1ms, the shortest time",
                "healthy_edge_interval: 1ns is taken as 1ms, the shortest time",
                "interval_jitter: 999.999µs has no effect: a jitter is at least 1ms",
            ]
        );
    }

    #[test]
    fn required_fields_are_missed_all_at_once() {
        let error = HealthCheck::try_from(&HealthCheckMessage::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "timeout: value is required\n\
             interval: value is required\n\
             unhealthy_threshold: value is required\n\
             healthy_threshold: value is required\n\
             health_checker: is required: set one of http_health_check, tcp_health_check, \
             grpc_health_check, custom_health_check"
        );
    }

    #[test]
    fn durations_are_as_long_as_envoys() {
        let (check, _) = accepted(|m| m.timeout = seconds(9_223_372_035, 999_999_999));
        assert_eq!(check.timeout, Duration::new(9_223_372_035, 999_999_999));
        refused(
            |m| m.timeout = seconds(9_223_372_036, 0),
            "timeout: Invalid duration: Duration out-of-range: 9223372036s",
        );
        refused(
            |m| m.timeout = seconds(0, 0),
            "timeout: value must be greater than 0s, but is 0s",
        );
        refused(
            |m| m.initial_jitter = seconds(-1, -500_000_000),
            "initial_jitter: Invalid duration: Expected positive duration, but is -1.5s",
        );
        refused(
            |m| m.interval_jitter = seconds(0, -1),
            "interval_jitter: Invalid duration: Expected positive duration, but is -0.000000001s",
        );
        refused(
            |m| m.interval = seconds(1, 1_000_000_000),
            "interval: Invalid duration: Duration out-of-range: 1000000000 nanoseconds",
        );
    }

    #[test]
    fn a_custom_check_needs_a_name_and_a_type() {
        refused(
            |m| m.health_checker = custom(None),
            "custom_health_check.typed_config: value is required: its type names the checker",
        );
        refused(
            |m| {
                m.health_checker = Some(HealthChecker::CustomHealthCheck(Default::default()));
            },
            "custom_health_check.name: value length must be at least 1 characters\n\
             custom_health_check.typed_config: value is required: its type names the checker",
        );
        refused(
            |m| m.event_logger = vec![TypedExtensionConfig::default()],
            "event_logger[0].name: value length must be at least 1 characters\n\
             event_logger[0].typed_config: value is required",
        );
    }

    #[test]
    fn a_built_in_check_is_kept_as_a_message() {
        let (check, _) = accepted(|m| {
            m.health_checker = Some(HealthChecker::TcpHealthCheck(TcpHealthCheck::default()));
        });
        let CheckerConfig::BuiltIn { field, config } = check.checker else {
            panic!("not built in");
        };
        assert_eq!(field, "tcp_health_check");
        assert!(config.type_url.ends_with("HealthCheck.TcpHealthCheck"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_panic_or_a_fault_without_a_reason(bytes in testing::wire_bytes()) {
            if let Err(error) = HealthCheck::from_bytes(&bytes, &mut Warnings::default()) {
                prop_assert!(error.faults().all(|fault| fault.reason != UNEXPLAINED));
            }
        }
    }
}
