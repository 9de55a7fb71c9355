//! Clusters whose hosts are found by name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use super::endpoint::{self, Entry};
use super::error::Report;
use super::{DnsResolverConfig, address, json, wire};
use crate::host::{Address, Host};
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::cluster::v3::cluster::DnsLookupFamily;
use crate::proto::envoy::config::core::v3::Metadata;
use crate::proto::envoy::config::core::v3::address::Address as AnyAddress;
use crate::proto::envoy::extensions::clusters::common::dns::v3::DnsLookupFamily as NewLookupFamily;
use crate::proto::envoy::extensions::clusters::dns::v3::DnsCluster;
use crate::validate::FieldPath;

/// How names become hosts, and which.
///
/// Source: the `dns_*` fields of `envoy.config.cluster.v3.Cluster`, or
/// `envoy.extensions.clusters.dns.v3.DnsCluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DnsConfig {
    /// The names. With `LOGICAL_DNS` there is one.
    pub endpoints: Vec<DnsEndpoint>,
    /// `dns_refresh_rate`: from an answer to the next question; default 5 s.
    pub refresh_rate: Duration,
    /// `dns_min_refresh_rate`: the shortest time that `respect_ttl` leads to, if set.
    pub min_refresh_rate: Option<Duration>,
    /// `dns_failure_refresh_rate`: the base and the longest time of the back-off after failures; without
    /// it, failures are followed by `refresh_rate`.
    pub failure_refresh_rate: Option<(Duration, Duration)>,
    /// `respect_dns_ttl`: the answer's time to live stands for `refresh_rate`.
    pub respect_ttl: bool,
    /// `dns_jitter`: a random part of it is added to each time; may be zero.
    pub jitter: Duration,
    /// `dns_lookup_family`.
    pub lookup_family: LookupFamily,
    /// Which name servers are asked, if the cluster says: `typed_dns_resolver_config` and its forerunners.
    pub resolver: Option<Arc<DnsResolverConfig>>,
}

/// Which addresses of a name are asked for.
///
/// Source: `envoy.config.cluster.v3.Cluster.DnsLookupFamily`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LookupFamily {
    /// IPv6, and IPv4 if there is no IPv6.
    #[default]
    Auto,
    /// IPv4.
    V4Only,
    /// IPv6.
    V6Only,
    /// IPv4, and IPv6 if there is no IPv4.
    V4Preferred,
    /// Both.
    All,
}

/// An endpoint with a name for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DnsEndpoint {
    /// `endpoint.address.socket_address.address`, to be resolved; it may be a numeric address.
    pub name: Arc<str>,
    /// `endpoint.address.socket_address.port_value`.
    pub port: u16,
    template: Host,
    check_port: Option<u16>,
}

impl DnsEndpoint {
    /// The host that this endpoint has at `ip`.
    pub fn host(&self, ip: IpAddr) -> Host {
        let mut host = self.template.clone();
        host.address = Address::Ip(SocketAddr::new(ip, self.port));
        if let Some(port) = self.check_port
            && host.check_address().is_none()
            && port != self.port
        {
            return host.with_check_address(SocketAddr::new(ip, port));
        }
        host
    }
}

impl DnsConfig {
    const DEFAULT_REFRESH_RATE: Duration = Duration::from_secs(5);

    /// By the fields of the cluster itself, which Envoy would have given otherwise.
    pub(super) fn read(message: &Cluster, at: &FieldPath<'_>, report: &mut Report) -> Option<Self> {
        let family = DnsLookupFamily::try_from(message.dns_lookup_family).ok()?;
        let failure = message.dns_failure_refresh_rate.as_ref();
        let failure = failure.map(|rate| (rate.base_interval, rate.max_interval));
        for (name, set) in [
            ("dns_refresh_rate", message.dns_refresh_rate.is_some()),
            ("dns_failure_refresh_rate", failure.is_some()),
            ("dns_jitter", message.dns_jitter.is_some()),
            ("respect_dns_ttl", message.respect_dns_ttl),
            ("dns_resolvers", !message.dns_resolvers.is_empty()),
            ("use_tcp_for_dns_lookups", message.use_tcp_for_dns_lookups),
        ] {
            report.deprecated(set, name, at);
        }
        Some(Self {
            endpoints: read_endpoints(message, at, report),
            refresh_rate: rate(message.dns_refresh_rate.as_ref()),
            min_refresh_rate: None,
            failure_refresh_rate: read_failure(failure, at, report),
            respect_ttl: message.respect_dns_ttl,
            jitter: wire::jitter(message.dns_jitter.as_ref(), &at.field("dns_jitter"), report),
            lookup_family: match family {
                DnsLookupFamily::Auto => LookupFamily::Auto,
                DnsLookupFamily::V4Only => LookupFamily::V4Only,
                DnsLookupFamily::V6Only => LookupFamily::V6Only,
                DnsLookupFamily::V4Preferred => LookupFamily::V4Preferred,
                DnsLookupFamily::All => LookupFamily::All,
            },
            resolver: DnsResolverConfig::read_cluster(message, at, report),
        })
    }

    /// By the message of `cluster_type`, which stands at `at_type`.
    pub(super) fn read_extension(
        message: &Cluster,
        dns: &DnsCluster,
        at: &FieldPath<'_>,
        at_type: &FieldPath<'_>,
        report: &mut Report,
    ) -> Self {
        let failure = dns.dns_failure_refresh_rate.as_ref();
        let failure = failure.map(|rate| (rate.base_interval, rate.max_interval));
        let min = dns.dns_min_refresh_rate.as_ref();
        Self {
            endpoints: read_endpoints(message, at, report),
            refresh_rate: rate(dns.dns_refresh_rate.as_ref()),
            min_refresh_rate: min.and_then(wire::duration),
            failure_refresh_rate: read_failure(failure, at_type, report),
            respect_ttl: dns.respect_dns_ttl,
            jitter: wire::jitter(
                dns.dns_jitter.as_ref(),
                &at_type.field("dns_jitter"),
                report,
            ),
            lookup_family: match NewLookupFamily::try_from(dns.dns_lookup_family) {
                Ok(NewLookupFamily::V4Only) => LookupFamily::V4Only,
                Ok(NewLookupFamily::V6Only) => LookupFamily::V6Only,
                Ok(NewLookupFamily::V4Preferred) => LookupFamily::V4Preferred,
                Ok(NewLookupFamily::All) => LookupFamily::All,
                Ok(NewLookupFamily::Unspecified | NewLookupFamily::Auto) | Err(_) => {
                    LookupFamily::Auto
                }
            },
            resolver: match &dns.typed_dns_resolver_config {
                Some(extension) => {
                    let at = at_type.field("typed_dns_resolver_config");
                    DnsResolverConfig::read_extension(extension, &at, report)
                }
                None => None,
            },
        }
    }
}

/// A refresh rate, above 1 ms by the rules.
fn rate(message: Option<&prost_types::Duration>) -> Duration {
    let rate = message.and_then(wire::duration);
    rate.unwrap_or(DnsConfig::DEFAULT_REFRESH_RATE)
}

type Backoff = (Option<prost_types::Duration>, Option<prost_types::Duration>);

fn read_failure(
    message: Option<Backoff>,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<(Duration, Duration)> {
    let (base, longest) = message?;
    let base = wire::duration(base.as_ref()?)?;
    let longest = match longest {
        Some(longest) => wire::duration(&longest)?,
        None => base.saturating_mul(10),
    };
    if longest < base {
        let at = at.field("dns_failure_refresh_rate");
        let reason = format!("must be at least base_interval, {base:?}, but is {longest:?}");
        return report.fault(&at.field("max_interval"), reason);
    }
    Some((base, longest))
}

fn read_endpoints(message: &Cluster, at: &FieldPath<'_>, report: &mut Report) -> Vec<DnsEndpoint> {
    let mut endpoints = Vec::new();
    if let Some(assignment) = &message.load_assignment {
        let at = at.field("load_assignment");
        let checked = !message.health_checks.is_empty();
        endpoint::walk(assignment, &at, report, |entry, at, report| {
            endpoints.extend(read_endpoint(entry, checked, at, report));
        });
    }
    endpoints
}

fn read_endpoint(
    entry: Entry<'_>,
    checked: bool,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<DnsEndpoint> {
    let message = entry.endpoint;
    let at_address = at.field("address");
    let Some(address) = &message.address else {
        return report.fault(&at_address, "value is required");
    };
    let AnyAddress::SocketAddress(socket) = address.address.as_ref()? else {
        return report.fault(
            &at_address,
            "must be a socket_address, whose name is resolved",
        );
    };
    let at_socket = at_address.field("socket_address");
    if !socket.resolver_name.is_empty() {
        let reason = "cannot be set in a cluster that resolves names by DNS";
        return report.fault(&at_socket.field("resolver_name"), reason);
    }
    let port = address::read_port(socket, &at_socket, report);
    let mut check_address = None;
    let mut check_port = None;
    if let Some(config) = &message.health_check_config {
        let at = at.field("health_check_config");
        check_port = u16::try_from(config.port_value)
            .ok()
            .filter(|&port| port != 0);
        if let Some(address) = &config.address {
            check_address = Some(address::read(address, &at.field("address"), report)?);
        }
        check_address = match (check_address, check_port) {
            (Some(Address::Ip(mut address)), Some(port)) => {
                address.set_port(port);
                Some(Address::Ip(address))
            }
            (Some(_), Some(_)) => {
                let reason = "a port cannot be set where an address is not of IP";
                return report.fault(&at.field("port_value"), reason);
            }
            (address, _) => address,
        };
    }
    let name = socket.address.as_str().into();
    let mut template = entry.host(Address::Ip(SocketAddr::new(
        Ipv4Addr::UNSPECIFIED.into(),
        0,
    )));
    if let Some(address) = check_address {
        if checked && !template.check_disabled && matches!(address, Address::Internal(_)) {
            return report.fault(at, "an internal listener cannot be health checked");
        }
        template = template.with_check_address(address);
    }
    if template.metadata().is_none() {
        // Events of hosts found by name have the field always, as with Envoy.
        template = template.with_metadata(json::metadata(&Metadata::default()));
    }
    Some(DnsEndpoint {
        name,
        port: port?,
        template,
        check_port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClusterConfig, Discovery, testing};

    fn dns(fields: &str) -> (DnsConfig, Vec<String>) {
        let text = format!("name: c\n{fields}");
        let (cluster, warnings) = testing::parse(&text, ClusterConfig::read).unwrap();
        match cluster.discovery {
            Discovery::StrictDns(dns) | Discovery::LogicalDns(dns) => {
                (DnsConfig::clone(&dns), warnings)
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refused(fields: &str, faults: &str) {
        let text = format!("name: c\n{fields}");
        assert_eq!(testing::faults(&text, ClusterConfig::read), faults);
    }

    fn endpoint(fields: &str) -> String {
        format!(
            "type: STRICT_DNS\nload_assignment: {{cluster_name: c, endpoints: [{{lb_endpoints: [{{endpoint: {{{fields}}}}}]}}]}}"
        )
    }

    const SOMEWHERE: &str = "address: {socket_address: {address: somewhere, port_value: 80}}";

    #[test]
    fn defaults_are_envoys() {
        let (dns, warnings) = dns("type: STRICT_DNS");
        assert_eq!(dns.endpoints, []);
        assert_eq!(dns.refresh_rate, Duration::from_secs(5));
        assert_eq!(dns.failure_refresh_rate, None);
        assert_eq!(dns.lookup_family, LookupFamily::Auto);
        assert!(!dns.respect_ttl && dns.jitter.is_zero() && dns.min_refresh_rate.is_none());
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn the_fields_of_the_cluster_and_of_the_extension_say_the_same() {
        let fields = "respect_dns_ttl: true, dns_refresh_rate: 7s, dns_jitter: 2s, dns_lookup_family: V4_ONLY, dns_failure_refresh_rate: {base_interval: 2s}";
        let (old, warnings) = dns(&format!(
            "type: STRICT_DNS\n{}",
            fields.replace(", dns", "\ndns")
        ));
        assert_eq!(
            warnings,
            [
                "dns_refresh_rate: is deprecated",
                "dns_failure_refresh_rate: is deprecated",
                "dns_jitter: is deprecated",
                "respect_dns_ttl: is deprecated",
            ]
        );
        let (new, warnings) = dns(&format!(
            "cluster_type: {{name: x, typed_config: {{\"@type\": a/envoy.extensions.clusters.dns.v3.DnsCluster, {fields}}}}}"
        ));
        assert_eq!(warnings, [""; 0]);
        assert_eq!(old, new);
        assert_eq!(
            old.failure_refresh_rate,
            Some((Duration::from_secs(2), Duration::from_secs(20)))
        );
        assert_eq!(old.refresh_rate.as_secs(), 7);
        assert_eq!(old.jitter.as_secs(), 2);
        assert_eq!(old.lookup_family, LookupFamily::V4Only);
    }

    #[test]
    fn an_endpoint_makes_hosts_of_addresses() {
        let host = |fields: &str| {
            let (dns, _) = dns(&endpoint(&format!("{SOMEWHERE}, hostname: h, {fields}")));
            assert_eq!(&*dns.endpoints[0].name, "somewhere");
            let host = dns.endpoints[0].host("127.0.0.9".parse().unwrap());
            assert_eq!(host.address.to_string(), "127.0.0.9:80");
            assert_eq!(host.hostname().map(|name| &**name), Some("h"));
            host.checked_at().to_string()
        };
        let ip = "address: {socket_address: {address: 127.0.0.1, port_value: 5}}";
        assert_eq!(host(""), "127.0.0.9:80");
        assert_eq!(
            host("health_check_config: {port_value: 90}"),
            "127.0.0.9:90"
        );
        assert_eq!(
            host(&format!("health_check_config: {{{ip}}}")),
            "127.0.0.1:5"
        );
        assert_eq!(
            host(&format!("health_check_config: {{port_value: 90, {ip}}}")),
            "127.0.0.1:90"
        );
    }

    #[test]
    fn an_endpoint_is_a_name_and_a_port() {
        let at = "load_assignment.endpoints[0].lb_endpoints[0].endpoint";
        refused(&endpoint(""), &format!("{at}.address: value is required"));
        refused(
            &endpoint("address: {pipe: {path: /x}}"),
            &format!("{at}.address: must be a socket_address, whose name is resolved"),
        );
        refused(
            &endpoint("address: {socket_address: {address: a, named_port: http}}"),
            &format!(
                "{at}.address.socket_address.named_port: a port by name cannot be resolved; give port_value"
            ),
        );
        refused(
            &endpoint("address: {socket_address: {address: a, port_value: 1, resolver_name: x}}"),
            &format!(
                "{at}.address.socket_address.resolver_name: cannot be set in a cluster that resolves names by DNS"
            ),
        );
        refused(
            &endpoint(&format!(
                "{SOMEWHERE}, health_check_config: {{address: {{socket_address: {{address: b, port_value: 1}}}}}}"
            )),
            &format!(
                "{at}.health_check_config.address.socket_address.address: malformed IP address \"b\"; names are resolved in clusters of type STRICT_DNS and LOGICAL_DNS only"
            ),
        );
        refused(
            &endpoint(&format!(
                "{SOMEWHERE}, health_check_config: {{port_value: 1, address: {{pipe: {{path: /x}}}}}}"
            )),
            &format!(
                "{at}.health_check_config.port_value: a port cannot be set where an address is not of IP"
            ),
        );
    }

    #[test]
    fn a_logical_name_is_one() {
        refused(
            "type: LOGICAL_DNS",
            "load_assignment: a cluster of type LOGICAL_DNS has one endpoint, but here are 0",
        );
        let one = endpoint(SOMEWHERE).replace("STRICT", "LOGICAL");
        assert_eq!(dns(&one).0.endpoints.len(), 1);
        refused(
            "cluster_type: {name: x, typed_config: {\"@type\": a/envoy.extensions.clusters.dns.v3.DnsCluster, all_addresses_in_single_endpoint: true}}",
            "load_assignment: a cluster of type LOGICAL_DNS has one endpoint, but here are 0",
        );
    }

    #[test]
    fn rates_are_refused_in_their_place() {
        refused(
            "type: STRICT_DNS\ndns_refresh_rate: 0.001s\ndns_failure_refresh_rate: {base_interval: 5s, max_interval: 4s}",
            "dns_refresh_rate: value must be greater than 0.001s, but is 0.001s\n\
             dns_failure_refresh_rate.max_interval: must be at least base_interval, 5s, but is 4s",
        );
        refused(
            "cluster_type: {name: x, typed_config: {\"@type\": a/envoy.extensions.clusters.dns.v3.DnsCluster, dns_refresh_rate: 0s}}",
            "cluster_type.typed_config.dns_refresh_rate: value must be greater than 0.001s, but is 0s",
        );
    }
}
