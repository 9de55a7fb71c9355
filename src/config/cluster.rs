//! A cluster, checked and with its defaults filled in.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::Report;
use super::text::Document;
use super::{
    BindConfig, ConfigError, DnsResolverConfig, Errors, HealthCheck, Warnings, endpoint, wire,
};
use crate::host::Host;
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use crate::validate::FieldPath;

mod discovery;
mod proxying;
mod thresholds;

pub use discovery::{Discovery, EdsConfig};
pub use thresholds::Thresholds;

/// Checks that one cluster may have, whoever tells it. Envoy sets no bound to those of health discovery; more would
/// be a mistake.
pub(super) const MOST_CHECKS: usize = 64;

/// A cluster whose hosts are to be checked.
///
/// Source: `envoy.config.cluster.v3.Cluster`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClusterConfig {
    /// `name`.
    pub name: Arc<str>,
    /// What an engine knows the cluster by, if not by its name: clusters of other sources may bear that too.
    pub key: Option<Arc<str>>,
    /// `alt_stat_name`, which stands for the name in stat names.
    pub alt_stat_name: Option<Arc<str>>,
    /// `health_checks`; with two or more, each with a name of its own. A message has at most 8, but
    /// [`Registry::build`](crate::registry::Registry::build) takes 64.
    pub health_checks: Vec<Arc<HealthCheck>>,
    /// `type` and what belongs to it.
    pub discovery: Discovery,
    /// `common_lb_config.ignore_new_hosts_until_first_hc`.
    pub ignore_new_hosts_until_first_hc: bool,
    /// `common_lb_config.healthy_panic_threshold` in whole percent, 0 to 100; default 50. For whoever balances.
    pub healthy_panic_threshold: u32,
    /// `load_assignment.policy.overprovisioning_factor` in percent; default 140. For whoever balances.
    pub overprovisioning_factor: u32,
    /// `ignore_health_on_host_removal`: a removed host goes at once, even while it passes. If not, which is the
    /// default, it stays and is eligible until its checks fail.
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
            key: None,
            alt_stat_name: None,
            health_checks: Vec::new(),
            discovery,
            ignore_new_hosts_until_first_hc: false,
            healthy_panic_threshold: 50,
            overprovisioning_factor: 140,
            ignore_health_on_host_removal: false,
            bind: None,
            thresholds: [Thresholds::default(); 2],
        }
    }

    /// The same cluster, known to an engine by `key`.
    pub fn with_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The same cluster with one more health check.
    pub fn with_health_check(mut self, check: HealthCheck) -> Self {
        self.health_checks.push(Arc::new(check));
        self
    }

    /// The same cluster, from which a removed host goes at once, even while it passes. Without this it stays, and is
    /// eligible, until its checks fail, as with Envoy: who removes hosts that are to get no load any more wants it.
    pub fn with_ignore_health_on_host_removal(mut self, ignore: bool) -> Self {
        self.ignore_health_on_host_removal = ignore;
        self
    }

    /// The same cluster, bound as `bind` says if it does not say so itself: the cluster manager's
    /// `upstream_bind_config`.
    pub fn with_default_bind(mut self, bind: Option<&Arc<BindConfig>>) -> Self {
        self.bind = self.bind.or_else(|| bind.cloned());
        self
    }

    /// The same cluster, whose names are resolved as `resolver` says if it does not say so itself: the
    /// bootstrap's `typed_dns_resolver_config`.
    pub fn with_default_dns_resolver(mut self, resolver: Option<&Arc<DnsResolverConfig>>) -> Self {
        if let Discovery::StrictDns(dns) | Discovery::LogicalDns(dns) = &mut self.discovery
            && dns.resolver.is_none()
            && resolver.is_some()
        {
            Arc::make_mut(dns).resolver = resolver.cloned();
        }
        self
    }

    /// Checks a message.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, with paths such as `health_checks[0].timeout`. What a checker or an
    /// event sink is told is not looked at: see [`typed::resolve`].
    ///
    /// [`typed::resolve`]: super::resolve
    pub fn from_message(message: &Cluster, warnings: &mut Warnings) -> Result<Self, ConfigError> {
        wire::convert(message, warnings, Self::read)
    }

    /// Checks a serialized message, as in an answer of the cluster discovery service.
    ///
    /// # Errors
    ///
    /// As of [`ClusterConfig::from_message`]; also for bytes that are no such message.
    pub fn from_bytes(bytes: &[u8], warnings: &mut Warnings) -> Result<Self, ConfigError> {
        Self::from_message(&wire::decode(bytes)?, warnings)
    }

    /// Checks what a text tells, in which all faults then have their places.
    ///
    /// # Errors
    ///
    /// As of [`ClusterConfig::from_message`]; also what cannot be read.
    pub fn from_document(
        document: &Document,
        warnings: &mut Warnings,
    ) -> Result<Self, ConfigError> {
        wire::convert_document(document, warnings, Self::read)
    }

    /// Checks a YAML text that tells a cluster.
    ///
    /// ```
    /// use xds_health::config::{ClusterConfig, Warnings};
    ///
    /// let text = "{name: games, health_checks: [{timeout: 1s}]}";
    /// let error = ClusterConfig::from_yaml(text, &mut Warnings::default()).unwrap_err();
    /// assert!(error.to_string().contains("health_checks[0].interval: value is required"));
    /// ```
    ///
    /// # Errors
    ///
    /// As of [`ClusterConfig::from_message`]; also what cannot be read.
    pub fn from_yaml(text: &str, warnings: &mut Warnings) -> Result<Self, ConfigError> {
        Self::from_document(&Document::from_yaml(text)?, warnings)
    }

    /// Checks a JSON text that tells a cluster.
    ///
    /// # Errors
    ///
    /// As of [`ClusterConfig::from_message`]; also what cannot be read.
    pub fn from_json(text: &str, warnings: &mut Warnings) -> Result<Self, ConfigError> {
        Self::from_document(&Document::from_json(text)?, warnings)
    }

    /// The hosts of this cluster by `assignment`, which the endpoint discovery service gave.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, with paths such as
    /// `endpoints[0].lb_endpoints[1].endpoint.address.socket_address.address`.
    pub fn hosts(
        &self,
        assignment: &ClusterLoadAssignment,
        warnings: &mut Warnings,
    ) -> Result<Vec<Arc<Host>>, ConfigError> {
        wire::convert(assignment, warnings, |message, at, report| {
            let checked = !self.health_checks.is_empty();
            Some(endpoint::read_hosts(message, checked, at, report))
        })
    }

    /// As [`ClusterConfig::hosts`], by a serialized `envoy.config.endpoint.v3.ClusterLoadAssignment`.
    ///
    /// # Errors
    ///
    /// As there; also for bytes that are no such message.
    pub fn hosts_from_bytes(
        &self,
        bytes: &[u8],
        warnings: &mut Warnings,
    ) -> Result<Vec<Arc<Host>>, ConfigError> {
        self.hosts(&wire::decode(bytes)?, warnings)
    }

    /// What an engine knows the cluster by: its name, unless it has a key.
    pub fn key(&self) -> &Arc<str> {
        self.key.as_ref().unwrap_or(&self.name)
    }

    /// What stands for the cluster in stat names.
    pub fn stat_name(&self) -> &Arc<str> {
        self.alt_stat_name.as_ref().unwrap_or(&self.name)
    }

    /// Whether `host` is checked in this cluster.
    pub fn checks(&self, host: &Host) -> bool {
        !self.health_checks.is_empty() && !host.check_disabled
    }

    /// Whether a new host that is checked counts as healthy until its checks fail it: as with Envoy, the one host of
    /// `LOGICAL_DNS`.
    pub fn takes_new_as_healthy(&self) -> bool {
        matches!(self.discovery, Discovery::LogicalDns(_))
    }

    /// Whether the hosts of this cluster can be found by what is built in. To be asked before a cluster is
    /// run; one without health checks needs no hosts.
    ///
    /// # Errors
    ///
    /// The cluster has health checks, and a type that is read but cannot be run yet.
    pub fn require_built_in(&self) -> Result<(), ConfigError> {
        if self.health_checks.is_empty() {
            return Ok(());
        }
        let Some((field, kind)) = self.discovery.missing() else {
            return Ok(());
        };
        let reason =
            format!("hosts of clusters of type {kind} cannot be found: it is not built in");
        Err(ConfigError::new(field, reason))
    }

    pub(super) fn read(message: &Cluster, at: &FieldPath<'_>, report: &mut Report) -> Option<Self> {
        proxying::check(message, at, report);
        let health_checks = read_checks(message, at, report);
        let discovery = Discovery::read(message, at, report);
        let bind = message.upstream_bind_config.as_ref();
        let bind =
            bind.map(|bind| BindConfig::read(bind, &at.field("upstream_bind_config"), report));
        report.deprecated(
            message.http_protocol_options.is_some(),
            "http_protocol_options",
            at,
        );
        report.deprecated(
            message.http2_protocol_options.is_some(),
            "http2_protocol_options",
            at,
        );

        let mut cluster = Self::new(message.name.as_str(), discovery?);
        if !message.alt_stat_name.is_empty() {
            cluster.alt_stat_name = Some(message.alt_stat_name.as_str().into());
        }
        cluster.health_checks = health_checks;
        cluster.ignore_health_on_host_removal = message.ignore_health_on_host_removal;
        let lb = message.common_lb_config.as_ref();
        cluster.ignore_new_hosts_until_first_hc =
            lb.is_some_and(|lb| lb.ignore_new_hosts_until_first_hc);
        if let Some(percent) = lb.and_then(|lb| lb.healthy_panic_threshold.as_ref()) {
            // The rules keep it between 0 and 100.
            #[expect(clippy::cast_possible_truncation, reason = "it is at most 100")]
            #[expect(clippy::cast_sign_loss, reason = "it is at least 0")]
            let whole = percent.value.round() as u32;
            cluster.healthy_panic_threshold = whole;
        }
        let policy = message.load_assignment.as_ref();
        let policy = policy.and_then(|assignment| assignment.policy.as_ref());
        if let Some(factor) = policy.and_then(|policy| policy.overprovisioning_factor) {
            cluster.overprovisioning_factor = factor;
        }
        if let Some(bind) = bind {
            cluster.bind = Some(Arc::new(bind?));
        }
        if let Some(breakers) = &message.circuit_breakers {
            cluster.thresholds = Thresholds::read(breakers);
        }
        Some(cluster)
    }
}

impl ClusterConfig {
    /// Whether its checks can be told apart, and their durations be kept, as those of a message always can.
    pub(crate) fn check_by_hand(&self) -> Result<(), ConfigError> {
        let mut errors = Errors::default();
        let count = self.health_checks.len();
        if count > MOST_CHECKS {
            let reason = format!("{count} checks, but at most {MOST_CHECKS} are taken");
            errors.note::<()>(Err(ConfigError::new("health_checks", reason)));
        }
        let mut names = HashMap::new();
        for (index, check) in self.health_checks.iter().enumerate().take(MOST_CHECKS) {
            if let Some(reason) = name_fault(&check.name, index, count, &mut names) {
                let fault = ConfigError::new("name", reason);
                errors.note::<()>(Err(fault.at_index("health_checks", index)));
            }
            for field in check.too_short() {
                let fault = ConfigError::new(field, "must be at least 1ms");
                errors.note::<()>(Err(fault.at_index("health_checks", index)));
            }
        }
        errors.finish(())
    }
}

/// What is wrong with the name of one of so many checks.
fn name_fault<'a>(
    name: &'a str,
    index: usize,
    count: usize,
    names: &mut HashMap<&'a str, usize>,
) -> Option<String> {
    if count > 1 && name.is_empty() {
        return Some("value is required where a cluster has several health checks".to_owned());
    }
    let first = names.insert(name, index)?;
    Some(format!(
        "{name:?} is the name of health_checks[{first}] too"
    ))
}

impl TryFrom<&Cluster> for ClusterConfig {
    type Error = ConfigError;

    fn try_from(message: &Cluster) -> Result<Self, ConfigError> {
        Self::from_message(message, &mut Warnings::default())
    }
}

fn read_checks(
    message: &Cluster,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Vec<Arc<HealthCheck>> {
    let count = message.health_checks.len();
    let mut names = HashMap::new();
    let mut checks = Vec::with_capacity(count);
    for (index, check) in message.health_checks.iter().enumerate() {
        let at = at.item("health_checks", index);
        if let Some(reason) = name_fault(&check.name, index, count, &mut names) {
            report.fault::<()>(&at.field("name"), reason);
        }
        checks.extend(HealthCheck::read(check, &at, report).map(Arc::new));
    }
    checks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::error::UNEXPLAINED;
    use crate::config::testing;
    use crate::host::Locality;
    use crate::proto::envoy::config::core::v3::Locality as LocalityMessage;
    use crate::proto::envoy::config::core::v3::socket_address::PortSpecifier;
    use crate::proto::envoy::config::core::v3::{
        Address, SocketAddress, address::Address as AnyAddress,
    };
    use crate::proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
    use crate::proto::envoy::config::endpoint::v3::{Endpoint, LbEndpoint, LocalityLbEndpoints};

    fn cluster(fields: &str) -> (ClusterConfig, Vec<String>) {
        testing::parse(&format!("name: c\n{fields}"), ClusterConfig::read).unwrap()
    }

    #[track_caller]
    fn refused(fields: &str, faults: &str) {
        let text = format!("name: c\n{fields}");
        assert_eq!(testing::faults(&text, ClusterConfig::read), faults);
    }

    fn check(fields: &str) -> String {
        format!(
            "{{timeout: 1s, interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1, tcp_health_check: {{}}, {fields}}}"
        )
    }

    #[test]
    fn a_cluster_of_a_name_alone_is_static_and_empty() {
        let (config, warnings) = cluster("");
        assert_eq!(config, ClusterConfig::new("c", Discovery::Static(vec![])));
        assert_eq!(warnings, [""; 0]);
        assert_eq!(
            cluster("cluster_type: {name: envoy.cluster.static}").0,
            config
        );
    }

    #[test]
    fn what_concerns_checks_is_carried() {
        let (config, warnings) = cluster(&format!(
            "alt_stat_name: other
common_lb_config: {{ignore_new_hosts_until_first_hc: true, healthy_panic_threshold: {{value: 29.6}}}}
ignore_health_on_host_removal: true
upstream_bind_config: {{source_address: {{address: 127.0.0.1, port_value: 9}}}}
http2_protocol_options: {{}}
circuit_breakers:
  thresholds:
  - {{priority: HIGH, max_connections: 5, max_retries: 0}}
  - {{priority: HIGH, max_connections: 6}}
  - {{max_pending_requests: 7, max_requests: 8}}
health_checks: [{}]",
            check("event_log_path: x")
        ));
        assert_eq!(
            (&**config.stat_name(), config.health_checks.len()),
            ("other", 1)
        );
        assert!(config.ignore_new_hosts_until_first_hc && config.ignore_health_on_host_removal);
        assert_eq!(
            (
                config.healthy_panic_threshold,
                config.overprovisioning_factor
            ),
            (30, 140)
        );
        assert!(config.bind.unwrap().source.is_some());
        let [default, high] = config.thresholds;
        assert_eq!(
            (default.max_connections, default.max_pending_requests),
            (1024, 7)
        );
        assert_eq!((default.max_requests, default.max_retries), (8, 3));
        assert_eq!((high.max_connections, high.max_retries), (5, 0));
        assert_eq!(
            warnings,
            [
                "health_checks[0].event_log_path: is deprecated",
                "upstream_bind_config.source_address.port_value: with a fixed port, an answer that comes late counts for the attempt after",
                "http2_protocol_options: is deprecated",
            ]
        );
    }

    #[test]
    fn several_checks_have_names_of_their_own() {
        let checks = |checks: &[&str]| {
            let checks: Vec<_> = checks
                .iter()
                .map(|name| check(&format!("name: {name}")))
                .collect();
            format!("health_checks: [{}]", checks.join(", "))
        };
        assert_eq!(cluster(&checks(&["\"\""])).0.health_checks.len(), 1);
        assert_eq!(
            cluster(&checks(&["a", "\"b c.d\""])).0.health_checks.len(),
            2
        );
        refused(
            &checks(&["a", "\"\"", "b", "a"]),
            "health_checks[1].name: value is required where a cluster has several health checks\n\
             health_checks[3].name: \"a\" is the name of health_checks[0] too",
        );
        refused(
            &checks(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]),
            "health_checks: value must contain no more than 8 item(s), but has 9",
        );
    }

    #[test]
    fn faults_of_parts_have_their_paths() {
        refused(
            "health_checks: [{tcp_health_check: {}, custom: 1}]
load_assignment: {cluster_name: c, endpoints: [{lb_endpoints: [{}]}]}
upstream_bind_config: {extra_source_addresses: [{}]}",
            "health_checks[0].custom: unknown field \"custom\" in envoy.config.core.v3.HealthCheck\n\
             health_checks[0].timeout: value is required\n\
             health_checks[0].interval: value is required\n\
             health_checks[0].unhealthy_threshold: value is required\n\
             health_checks[0].healthy_threshold: value is required\n\
             upstream_bind_config.extra_source_addresses[0].address: value is required\n\
             load_assignment.endpoints[0].lb_endpoints[0].endpoint: value is required\n\
             upstream_bind_config.extra_source_addresses: cannot be set without source_address",
        );
        refused(
            "type: 9\ncluster_type: null",
            "type: value must be one of the defined enum values, but is 9",
        );
    }

    #[test]
    fn endpoints_may_come_from_the_discovery_service() {
        let eds = |fields: &str| match cluster(&format!("type: EDS\n{fields}")).0.discovery {
            Discovery::Eds(eds) => eds.service_name.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(eds("eds_cluster_config: {eds_config: {ads: {}}}"), "c");
        assert_eq!(
            eds(
                "eds_cluster_config: {eds_config: {ads: {}}, service_name: s}\nload_assignment: {cluster_name: c}"
            ),
            "s"
        );
        refused(
            "type: EDS",
            "eds_cluster_config: value is required for clusters of type EDS",
        );
        refused(
            "type: EDS\neds_cluster_config: {}",
            "eds_cluster_config.eds_config: value is required",
        );
        refused(
            "eds_cluster_config: {eds_config: {ads: {}}}",
            "eds_cluster_config: is for clusters of type EDS only",
        );
        let (_, warnings) = cluster("type: EDS\neds_cluster_config: {eds_config: {path: /x}}");
        assert_eq!(
            warnings,
            ["eds_cluster_config.eds_config.path: is deprecated"]
        );
    }

    #[test]
    fn a_type_that_is_not_built_in_is_refused_where_there_are_checks() {
        let checks = format!("health_checks: {}", check(""));
        for (fields, field, kind) in [
            (
                "type: EDS\neds_cluster_config: {eds_config: {ads: {}}}",
                "type",
                "EDS",
            ),
            (
                "type: ORIGINAL_DST\nlb_policy: CLUSTER_PROVIDED",
                "type",
                "ORIGINAL_DST",
            ),
            (
                "cluster_type: {name: envoy.clusters.aggregate}",
                "cluster_type",
                "envoy.clusters.aggregate",
            ),
            (
                "cluster_type: {name: x, typed_config: {\"@type\": a/google.protobuf.Struct}}",
                "cluster_type",
                "google.protobuf.Struct",
            ),
            (
                "cluster_type: {name: x, typed_config: {\"@type\": a/no.Such, any: thing}}",
                "cluster_type",
                "no.Such",
            ),
        ] {
            assert_eq!(cluster(fields).0.require_built_in(), Ok(()));
            let checked = cluster(&format!("{fields}\n{checks}")).0;
            if kind == "EDS" && cfg!(feature = "xds") {
                assert_eq!(checked.require_built_in(), Ok(()));
                continue;
            }
            assert_eq!(
                checked.require_built_in().unwrap_err().to_string(),
                format!(
                    "{field}: hosts of clusters of type {kind} cannot be found: it is not built in"
                )
            );
        }
        let dns = cfg!(feature = "dns");
        for fields in ["", "type: STRICT_DNS"] {
            let cluster = cluster(&format!("{fields}\n{checks}")).0;
            assert_eq!(cluster.require_built_in().is_ok(), dns || fields.is_empty());
        }
    }

    #[test]
    fn the_binding_of_the_manager_holds_where_there_is_none() {
        let default = Arc::new(BindConfig::default());
        let with = |fields| {
            cluster(fields)
                .0
                .with_default_bind(Some(&default))
                .bind
                .unwrap()
        };
        assert!(Arc::ptr_eq(&with(""), &default));
        assert!(!Arc::ptr_eq(&with("upstream_bind_config: {}"), &default));
    }

    #[test]
    fn a_hundred_thousand_endpoints_share_what_they_have_in_common() {
        let endpoint = |port: u32| LbEndpoint {
            host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
                address: Some(Address {
                    address: Some(AnyAddress::SocketAddress(SocketAddress {
                        address: "127.0.0.1".to_owned(),
                        port_specifier: Some(PortSpecifier::PortValue(port % 65_536)),
                        ..SocketAddress::default()
                    })),
                }),
                ..Endpoint::default()
            })),
            ..LbEndpoint::default()
        };
        let group = |n: u32| LocalityLbEndpoints {
            locality: Some(LocalityMessage {
                zone: "z".to_owned(),
                ..LocalityMessage::default()
            }),
            lb_endpoints: (n * 10..n * 10 + 10).map(endpoint).collect(),
            ..LocalityLbEndpoints::default()
        };
        let assignment = ClusterLoadAssignment {
            cluster_name: "c".to_owned(),
            endpoints: (0..10_000).map(group).collect(),
            ..ClusterLoadAssignment::default()
        };
        let config = ClusterConfig::new("c", Discovery::Dynamic);
        let hosts = config.hosts(&assignment, &mut Warnings::default()).unwrap();
        assert_eq!(hosts.len(), 100_000);
        let locality: &Locality = hosts[0].locality();
        assert!(
            hosts
                .iter()
                .all(|host| std::ptr::eq(locality, host.locality()))
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_panic_or_a_fault_without_a_reason(bytes in testing::wire_bytes()) {
            let mut warnings = Warnings::default();
            let cluster = ClusterConfig::from_bytes(&bytes, &mut warnings).map(|_| ());
            let config = ClusterConfig::new("c", Discovery::Dynamic);
            let hosts = config.hosts_from_bytes(&bytes, &mut warnings).map(|_| ());
            for error in [cluster, hosts].into_iter().filter_map(Result::err) {
                prop_assert!(error.faults().all(|fault| fault.reason != UNEXPLAINED), "{error}");
            }
        }
    }
}
