//! Endpoints: from load assignments to hosts.
//!
//! A hundred thousand endpoints are common, so what they have in common is shared, and nothing is written
//! out for an endpoint that is sound.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::Report;
use super::{address, json};
use crate::host::{Address, EdsHealth, Host, Locality};
use crate::proto::envoy::config::core::v3::{
    Address as AddressMessage, HealthStatus, Locality as LocalityMessage, Metadata, address as any,
};
use crate::proto::envoy::config::endpoint::v3::cluster_load_assignment::Policy;
use crate::proto::envoy::config::endpoint::v3::endpoint::HealthCheckConfig;
use crate::proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use crate::proto::envoy::config::endpoint::v3::locality_lb_endpoints::LbConfig;
use crate::proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use crate::proto::envoy::r#type::v3::fractional_percent::DenominatorType;
use crate::validate::FieldPath;

/// The hosts of an assignment with numeric addresses, in its order. `checked` says whether the cluster has
/// health checks.
pub(super) fn read_hosts(
    message: &ClusterLoadAssignment,
    checked: bool,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Vec<Arc<Host>> {
    let groups = message.endpoints.iter();
    let mut hosts = Vec::with_capacity(groups.map(|group| group.lb_endpoints.len()).sum());
    walk(message, at, report, |entry, at, report| {
        if let Some(host) = read_host(entry, checked, at, report) {
            hosts.push(Arc::new(host));
        }
    });
    hosts
}

/// A host by what stands alone, outside of any assignment.
#[cfg(feature = "hds")]
pub(super) fn read_endpoint(
    endpoint: &Endpoint,
    locality: &Arc<Locality>,
    checked: bool,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Host> {
    let entry = Entry {
        endpoint,
        entry: &LbEndpoint::default(),
        priority: 0,
        locality,
        metadata: None,
    };
    read_host(entry, checked, at, report)
}

fn read_host(
    entry: Entry<'_>,
    checked: bool,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Host> {
    let message = entry.endpoint;
    for (index, additional) in message.additional_addresses.iter().enumerate() {
        let at = at.item("additional_addresses", index);
        let _looked_at_only = read_required(additional.address.as_ref(), &at, report);
    }
    let own = read_required(message.address.as_ref(), at, report)?;
    if let Some(AddressMessage {
        address: Some(any::Address::SocketAddress(socket)),
    }) = &message.address
        && !socket.network_namespace_filepath.is_empty()
    {
        let at = at.field("address");
        let at = at.field("socket_address");
        let at = at.field("network_namespace_filepath");
        return report.fault(&at, "the address of a host cannot have a network namespace");
    }
    let check = match &message.health_check_config {
        Some(config) => read_check(&own, config, &at.field("health_check_config"), report)?,
        None => None,
    };
    let mut host = entry.host(own);
    if let Some(address) = check {
        host = host.with_check_address(address);
    }
    if checked && !host.check_disabled && matches!(host.checked_at(), Address::Internal(_)) {
        return report.fault(at, "an internal listener cannot be health checked");
    }
    Some(host)
}

fn read_required(
    message: Option<&AddressMessage>,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Address> {
    let at = at.field("address");
    match message {
        Some(message) => address::read(message, &at, report),
        None => report.fault(&at, "value is required"),
    }
}

/// Where checks go if not to the host's `own` address. As with Envoy, a port needs IP addresses, that of
/// the host included, and takes the place of the one in `address`.
fn read_check(
    own: &Address,
    message: &HealthCheckConfig,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Option<Address>> {
    let other = match &message.address {
        Some(message) => Some(address::read(message, &at.field("address"), report)?),
        None => None,
    };
    if message.port_value == 0 {
        return Some(other.filter(|other| other != own));
    }
    let port = u16::try_from(message.port_value).ok()?;
    match (own, other.as_ref().unwrap_or(own)) {
        (Address::Ip(_), Address::Ip(address)) => {
            let mut address = *address;
            address.set_port(port);
            Some(Some(Address::Ip(address)).filter(|address| address != own))
        }
        _ => report.fault(
            &at.field("port_value"),
            "a port cannot be set where an address is not of IP",
        ),
    }
}

/// An endpoint with what is said of it around it.
pub(super) struct Entry<'a> {
    /// The endpoint, found in its place or by its name.
    pub(super) endpoint: &'a Endpoint,
    entry: &'a LbEndpoint,
    priority: u8,
    locality: &'a Arc<Locality>,
    metadata: Option<(Arc<str>, bool)>,
}

impl Entry<'_> {
    /// A host at `address`.
    pub(super) fn host(self, address: Address) -> Host {
        let config = self.endpoint.health_check_config.as_ref();
        let mut host = Host::new(address)
            .with_locality(Arc::clone(self.locality))
            .with_weight(self.entry.load_balancing_weight.unwrap_or(1))
            .with_priority(self.priority)
            .with_eds_health(health(self.entry.health_status));
        if !self.endpoint.hostname.is_empty() {
            host = host.with_hostname(self.endpoint.hostname.as_str());
        }
        host.check_disabled = config.is_some_and(|config| config.disable_active_health_check);
        if let Some((metadata, canary)) = self.metadata {
            host = host.with_metadata(metadata);
            host.canary = canary;
        }
        host
    }
}

/// A status that is not known says nothing, as with Envoy.
fn health(status: i32) -> EdsHealth {
    match HealthStatus::try_from(status) {
        Ok(HealthStatus::Healthy) => EdsHealth::Healthy,
        Ok(HealthStatus::Unhealthy) => EdsHealth::Unhealthy,
        Ok(HealthStatus::Draining) => EdsHealth::Draining,
        Ok(HealthStatus::Timeout) => EdsHealth::Timeout,
        Ok(HealthStatus::Degraded) => EdsHealth::Degraded,
        Ok(HealthStatus::Unknown) | Err(_) => EdsHealth::Unknown,
    }
}

/// Hands each endpoint of an assignment to `take`, with its path.
pub(super) fn walk(
    message: &ClusterLoadAssignment,
    at: &FieldPath<'_>,
    report: &mut Report,
    mut take: impl FnMut(Entry<'_>, &FieldPath<'_>, &mut Report),
) {
    let mut localities = HashMap::new();
    let mut metadata = Rendered::default();
    if let Some(policy) = &message.policy {
        check_drops(policy, &at.field("policy"), report);
    }
    for (index, group) in message.endpoints.iter().enumerate() {
        let at_group = at.item("endpoints", index);
        let locality = localities
            .entry(group.locality.as_ref())
            .or_insert_with_key(|message| Arc::new(message.map(read_locality).unwrap_or_default()));
        check_source(group, &at_group, report);
        for (index, entry) in group.lb_endpoints.iter().enumerate() {
            let at_entry = at_group.item("lb_endpoints", index);
            let (endpoint, at_endpoint) = match &entry.host_identifier {
                Some(HostIdentifier::Endpoint(endpoint)) => (endpoint, at_entry.field("endpoint")),
                Some(HostIdentifier::EndpointName(name)) => {
                    let Some((name, endpoint)) = message.named_endpoints.get_key_value(name) else {
                        let reason = format!("there is no {name:?} in named_endpoints");
                        report.fault::<()>(&at_entry.field("endpoint_name"), reason);
                        continue;
                    };
                    (endpoint, at.entry("named_endpoints", name))
                }
                None => {
                    report.fault::<()>(&at_entry.field("endpoint"), "value is required");
                    continue;
                }
            };
            let entry = Entry {
                endpoint,
                entry,
                priority: u8::try_from(group.priority).unwrap_or(u8::MAX),
                locality: &*locality,
                metadata: entry.metadata.as_ref().map(|m| metadata.of(m)),
            };
            take(entry, &at_endpoint, report);
        }
    }
}

/// Of no effect on checks, but refused as by Envoy: more than one share of requests that a proxy drops, or more than all.
fn check_drops(policy: &Policy, at: &FieldPath<'_>, report: &mut Report) {
    let drops = &policy.drop_overloads;
    if drops.len() > 1 {
        let reason = format!("there can be one category only, but are {}", drops.len());
        report.fault::<()>(&at.field("drop_overloads"), reason);
        return;
    }
    let share = drops.first().and_then(|drop| drop.drop_percentage.as_ref());
    if let Some(share) = share {
        let whole = match share.denominator() {
            DenominatorType::Hundred => 100,
            DenominatorType::TenThousand => 10_000,
            DenominatorType::Million => 1_000_000,
        };
        if share.numerator > whole {
            let at = at.item("drop_overloads", 0);
            let reason = format!("must be at most {whole}, which is all of it");
            report.fault::<()>(&at.field("drop_percentage").field("numerator"), reason);
        }
    }
}

/// Warns of, or refuses, endpoints that come from elsewhere.
fn check_source(group: &LocalityLbEndpoints, at: &FieldPath<'_>, report: &mut Report) {
    match &group.lb_config {
        None => (),
        Some(LbConfig::LoadBalancerEndpoints(_)) => report.warn(
            &at.field("load_balancer_endpoints"),
            "is deprecated and not read, as in Envoy; give lb_endpoints",
        ),
        Some(LbConfig::LedsClusterLocalityConfig(_)) => {
            let at = at.field("leds_cluster_locality_config");
            report.fault::<()>(&at, "locality endpoint discovery is not supported");
        }
    }
}

pub(super) fn read_locality(message: &LocalityMessage) -> Locality {
    Locality {
        region: message.region.as_str().into(),
        zone: message.zone.as_str().into(),
        sub_zone: message.sub_zone.as_str().into(),
    }
}

/// Metadata as text. Neighbours often have the same, so the last is remembered.
#[derive(Default)]
struct Rendered<'a>(Option<(&'a Metadata, Arc<str>, bool)>);

impl<'a> Rendered<'a> {
    /// The text, and whether it says that the host is a canary.
    fn of(&mut self, message: &'a Metadata) -> (Arc<str>, bool) {
        if let Some((known, text, canary)) = &self.0
            && *known == message
        {
            return (Arc::clone(text), *canary);
        }
        let text: Arc<str> = json::metadata(message).into();
        let canary = is_canary(message);
        self.0 = Some((message, Arc::clone(&text), canary));
        (text, canary)
    }
}

fn is_canary(message: &Metadata) -> bool {
    let lb = message.filter_metadata.get("envoy.lb");
    let value = lb.and_then(|fields| fields.fields.get("canary"));
    value.is_some_and(|value| value.kind == Some(prost_types::value::Kind::BoolValue(true)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing;

    /// The hosts of endpoints, given as YAML, of a checked cluster; and the warnings.
    fn hosts(fields: &str) -> (Vec<Arc<Host>>, Vec<String>) {
        let text = format!("cluster_name: c\n{fields}");
        testing::parse(&text, |m, at, report| Some(read_hosts(m, true, at, report))).unwrap()
    }

    fn host(endpoint: &str) -> Host {
        let (hosts, warnings) = hosts(&format!("endpoints: {{lb_endpoints: [{endpoint}]}}"));
        assert_eq!((hosts.len(), warnings), (1, vec![]));
        Host::clone(&hosts[0])
    }

    /// A host at 127.0.0.1:80 with more fields of its endpoint.
    fn at_80(fields: &str) -> Host {
        host(&format!("{{endpoint: {{address: {AT_80}, {fields}}}}}"))
    }

    const AT_80: &str = "{socket_address: {address: 127.0.0.1, port_value: 80}}";

    #[track_caller]
    fn refused(fields: &str, faults: &str) {
        let text = format!("cluster_name: c\n{fields}");
        let found = testing::faults(&text, |m, at, report| Some(read_hosts(m, true, at, report)));
        assert_eq!(found, faults);
    }

    #[track_caller]
    fn refused_endpoint(endpoint: &str, fault: &str) {
        refused(
            &format!("endpoints: [{{lb_endpoints: [{{}}, {{endpoint: {endpoint}}}]}}]"),
            &format!(
                "endpoints[0].lb_endpoints[0].endpoint: value is required\n\
                 endpoints[0].lb_endpoints[1].endpoint{fault}"
            ),
        );
    }

    #[test]
    fn defaults_are_filled_in() {
        let host = at_80("");
        let address: std::net::SocketAddr = "127.0.0.1:80".parse().unwrap();
        assert_eq!(host, Host::new(address));
    }

    #[test]
    fn a_proxy_drops_one_share_of_requests_and_no_more_than_all() {
        let drops = |drops: &str| format!("policy: {{drop_overloads: [{drops}]}}");
        let drop = |numerator: u32, denominator: &str| {
            format!(
                "{{category: x, drop_percentage: {{numerator: {numerator}, denominator: {denominator}}}}}"
            )
        };
        for (all, denominator) in [
            (100, "HUNDRED"),
            (10_000, "TEN_THOUSAND"),
            (1_000_000, "MILLION"),
        ] {
            assert_eq!(hosts(&drops(&drop(all, denominator))).0, []);
            refused(
                &drops(&drop(all + 1, denominator)),
                &format!(
                    "policy.drop_overloads[0].drop_percentage.numerator: must be at most {all}, which is all of it"
                ),
            );
        }
        refused(
            &drops("{category: a}, {category: b}"),
            "policy.drop_overloads: there can be one category only, but are 2",
        );
    }

    #[test]
    fn everything_around_an_endpoint_is_carried() {
        let (hosts, _) = hosts(&format!(
            "endpoints:
             - locality: {{region: r, zone: z, sub_zone: s}}
               priority: 3
               lb_endpoints:
               - endpoint: {{address: {AT_80}, hostname: a}}
                 load_balancing_weight: 7
                 health_status: DRAINING
                 metadata: {{filter_metadata: {{envoy.lb: {{canary: true}}}}}}
               - endpoint: {{address: {AT_80}, health_check_config: {{disable_active_health_check: true}}}}
                 health_status: 9
                 metadata: {{filter_metadata: {{envoy.lb: {{canary: true}}}}}}
               - endpoint: {{address: {AT_80}}}
                 metadata: {{filter_metadata: {{envoy.lb: {{canary: \"true\"}}}}}}
             - locality: {{region: r, zone: z, sub_zone: s}}
               lb_endpoints: {{endpoint: {{address: {AT_80}}}}}"
        ));
        let [first, second, third, fourth] = &*hosts else {
            panic!("{hosts:?}");
        };
        assert_eq!(first.hostname().map(|name| &**name), Some("a"));
        assert_eq!((first.priority, first.weight), (3, 7));
        assert_eq!(first.eds_health, EdsHealth::Draining);
        assert_eq!(
            first.metadata().map(|json| &**json),
            Some(r#"{"filter_metadata":{"envoy.lb":{"canary":true}},"typed_filter_metadata":{}}"#)
        );
        assert!(first.canary && !first.check_disabled);
        assert_eq!(second.eds_health, EdsHealth::Unknown);
        assert!(second.canary && second.check_disabled);
        assert!(!third.canary);
        assert_eq!((fourth.priority, fourth.weight), (0, 1));
        assert_eq!(&*first.locality().sub_zone, "s");
        for host in [second, third, fourth] {
            assert!(std::ptr::eq(first.locality(), host.locality()));
        }
        let metadata = |host: &Host| host.metadata().cloned().unwrap();
        assert!(Arc::ptr_eq(&metadata(first), &metadata(second)));
    }

    #[test]
    fn checks_go_where_the_endpoint_says() {
        let checked_at = |config: &str| {
            let host = at_80(&format!("health_check_config: {config}"));
            assert_eq!(host.address.to_string(), "127.0.0.1:80");
            host.checked_at().to_string()
        };
        let other = "address: {socket_address: {address: 127.0.0.2, port_value: 81}}";
        assert_eq!(checked_at("{}"), "127.0.0.1:80");
        assert_eq!(checked_at("{hostname: x}"), "127.0.0.1:80");
        assert_eq!(checked_at("{port_value: 90}"), "127.0.0.1:90");
        assert_eq!(checked_at(&format!("{{{other}}}")), "127.0.0.2:81");
        assert_eq!(
            checked_at(&format!("{{port_value: 90, {other}}}")),
            "127.0.0.2:90"
        );
        let no_port = "{address: {socket_address: {address: 127.0.0.2, port_value: 0}}}";
        assert_eq!(checked_at(no_port), "127.0.0.2:0");
        assert_eq!(checked_at("{address: {pipe: {path: \"@a\"}}}"), "@a");
        assert!(
            at_80("health_check_config: {port_value: 80}")
                .check_address()
                .is_none()
        );
        let pipe = "{endpoint: {address: {pipe: {path: /a}}, health_check_config: {address: {socket_address: {address: 127.0.0.2, port_value: 81}}}}}";
        assert_eq!(host(pipe).checked_at().to_string(), "127.0.0.2:81");
    }

    #[test]
    fn an_endpoint_may_be_named() {
        let named = format!("named_endpoints: {{\"a b\": {{address: {AT_80}}}}}");
        let (hosts, _) = hosts(&format!(
            "{named}\nendpoints: {{lb_endpoints: {{endpoint_name: a b, load_balancing_weight: 2}}}}"
        ));
        assert_eq!((hosts.len(), hosts[0].weight), (1, 2));
        refused(
            &format!("{named}\nendpoints: {{lb_endpoints: [{{endpoint_name: b}}]}}"),
            "endpoints[0].lb_endpoints[0].endpoint_name: there is no \"b\" in named_endpoints",
        );
        refused(
            "named_endpoints: {\"a b\": {}}\nendpoints: {lb_endpoints: [{endpoint_name: a b}]}",
            "named_endpoints[\"a b\"].address: value is required",
        );
    }

    #[test]
    fn an_endpoint_has_a_numeric_address() {
        refused_endpoint("{}", ".address: value is required");
        refused_endpoint(
            "{address: {socket_address: {address: localhost, port_value: 80}}}",
            ".address.socket_address.address: malformed IP address \"localhost\"; \
             names are resolved in clusters of type STRICT_DNS and LOGICAL_DNS only",
        );
        refused_endpoint(
            "{address: {socket_address: {address: \"::1\", port_value: 1, network_namespace_filepath: /x}}}",
            ".address.socket_address.network_namespace_filepath: \
             the address of a host cannot have a network namespace",
        );
        refused_endpoint(
            &format!("{{address: {AT_80}, additional_addresses: [{{address: {AT_80}}}, {{}}]}}"),
            ".additional_addresses[1].address: value is required",
        );
        refused_endpoint(
            &format!(
                "{{address: {AT_80}, health_check_config: {{address: {{pipe: {{path: \"@a\", mode: 1}}}}}}}}"
            ),
            ".health_check_config.address.pipe.mode: an abstract socket has no mode",
        );
    }

    #[test]
    fn a_port_needs_ip_addresses() {
        let fault =
            ".health_check_config.port_value: a port cannot be set where an address is not of IP";
        for endpoint in [
            "{address: {pipe: {path: /a}}, health_check_config: {port_value: 1}}".to_owned(),
            format!(
                "{{address: {{pipe: {{path: /a}}}}, health_check_config: {{port_value: 1, address: {AT_80}}}}}"
            ),
            format!(
                "{{address: {AT_80}, health_check_config: {{port_value: 1, address: {{pipe: {{path: /a}}}}}}}}"
            ),
        ] {
            refused_endpoint(&endpoint, fault);
        }
    }

    #[test]
    fn internal_listeners_cannot_be_checked() {
        let internal = "address: {envoy_internal_address: {server_listener_name: x}}";
        let fault = ": an internal listener cannot be health checked";
        refused_endpoint(&format!("{{{internal}}}"), fault);
        refused_endpoint(
            &format!("{{address: {AT_80}, health_check_config: {{{internal}}}}}"),
            fault,
        );
        for config in [
            "disable_active_health_check: true".to_owned(),
            format!("address: {AT_80}"),
        ] {
            let endpoint =
                format!("{{endpoint: {{{internal}, health_check_config: {{{config}}}}}}}");
            assert_eq!(host(&endpoint).address.to_string(), "envoy://x/");
        }
        let text =
            format!("cluster_name: c\nendpoints: {{lb_endpoints: {{endpoint: {{{internal}}}}}}}");
        let unchecked = testing::parse(&text, |m, at, report| {
            Some(read_hosts(m, false, at, report))
        });
        assert_eq!(unchecked.unwrap().0.len(), 1);
    }

    #[test]
    fn endpoints_from_elsewhere_are_refused_or_warned_of() {
        refused(
            "endpoints: [{leds_cluster_locality_config: {}}]",
            "endpoints[0].leds_cluster_locality_config: locality endpoint discovery is not supported",
        );
        let (hosts, warnings) = hosts("endpoints: [{load_balancer_endpoints: {}}, {}]");
        assert_eq!(hosts.len(), 0);
        assert_eq!(
            warnings,
            [
                "endpoints[0].load_balancer_endpoints: is deprecated and not read, as in Envoy; give lb_endpoints"
            ]
        );
    }

    #[test]
    fn all_faults_of_an_assignment_are_told() {
        refused(
            "endpoints:
             - priority: 129
               lb_endpoints:
               - load_balancing_weight: 0
               - endpoint: {address: {}, health_check_config: {port_value: 65536}}",
            "endpoints[0].lb_endpoints[0].load_balancing_weight: value must be greater than or equal to 1, but is 0\n\
             endpoints[0].lb_endpoints[1].endpoint.address.address: is required: set one of socket_address, pipe, envoy_internal_address\n\
             endpoints[0].lb_endpoints[1].endpoint.health_check_config.port_value: value must be less than or equal to 65535, but is 65536\n\
             endpoints[0].priority: value must be less than or equal to 128, but is 129\n\
             endpoints[0].lb_endpoints[0].endpoint: value is required",
        );
    }
}
