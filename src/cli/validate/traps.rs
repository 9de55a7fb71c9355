//! What may be written but is seldom meant.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use crate::cli::TrafficArg;
use crate::cli::load::{CLUSTERS, Loaded};
use crate::config::text::Document;
use crate::config::{CheckerConfig, ClusterConfig, Discovery, HealthCheck};
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::core::v3::health_check::HealthChecker;
use crate::proto::envoy::config::core::v3::socket_address::Protocol;
use crate::proto::envoy::config::core::v3::{Address, HealthCheck as HealthCheckMessage, address};
use crate::proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use crate::validate::Fault;

/// As many hosts are worth being spread.
const MANY: usize = 1000;
/// So many times an interval is a long time to add by chance.
const LONG: u32 = 10;
/// The message of the UDP checker.
const UDP: &str = "envoy.extensions.health_checkers.udp.v3.UdpHealthCheck";

/// All traps of a bootstrap.
pub(super) fn traps(loaded: &Loaded, traffic: TrafficArg) -> Vec<Fault> {
    let mut traps = Vec::new();
    let messages = loaded.message.static_resources.iter();
    let messages = messages.flat_map(|resources| &resources.clusters);
    let clusters = loaded.bootstrap.clusters.iter().zip(messages);
    for (index, (config, message)) in clusters.enumerate() {
        let at = format!("{CLUSTERS}[{index}]");
        let checks = config.health_checks.iter().zip(&message.health_checks);
        for (index, (check, message)) in checks.enumerate() {
            let at = format!("{at}.health_checks[{index}]");
            of_check(check, &at, &mut traps);
            of_traffic(check, message, traffic, &at, &mut traps);
            of_jitter(check, config, &at, &mut traps);
            of_no_use(message, &at, &mut traps);
        }
        of_twins(message, &at, &mut traps);
        if config.health_checks.iter().any(|check| is_udp(check))
            && let Some(document) = &loaded.document
        {
            of_protocol(message, document, &at, &mut traps);
        }
    }
    traps
}

fn of_check(check: &HealthCheck, at: &str, traps: &mut Vec<Fault>) {
    let mut warn = |field: &str, reason: String| {
        traps.push(Fault::new(format!("{at}.{field}"), reason));
    };
    let (timeout, interval) = (check.timeout, check.interval);
    if timeout > interval {
        let both = timeout.saturating_add(interval);
        let reason = format!(
            "{timeout:?} is longer than the interval of {interval:?}: a silent host is checked every {both:?} only"
        );
        warn("timeout", reason);
    }
    if check.unhealthy_threshold == 0 {
        let reason = "0 is never reached: a host that passed once is never failed again";
        warn("unhealthy_threshold", reason.to_owned());
    }
    if check.healthy_threshold == 0 {
        let reason =
            "0 is never reached: a failed host is never brought back, but by its first check";
        warn("healthy_threshold", reason.to_owned());
    }
}

fn of_traffic(
    check: &HealthCheck,
    message: &HealthCheckMessage,
    traffic: TrafficArg,
    at: &str,
    traps: &mut Vec<Fault>,
) {
    let (without, with) = (check.no_traffic_interval, check.interval);
    let set = message.no_traffic_interval.is_some();
    let reason = match traffic {
        TrafficArg::Never if !set && without != with => format!(
            "is not set: with --traffic never, {without:?} rules and not the interval of {with:?}"
        ),
        TrafficArg::Never if without != with => {
            format!("rules with --traffic never, and not the interval of {with:?}")
        }
        TrafficArg::Always if set && without < with => format!(
            "is shorter than the interval of {with:?}: it rules until every host was checked once"
        ),
        TrafficArg::Never | TrafficArg::Always => return,
    };
    traps.push(Fault::new(format!("{at}.no_traffic_interval"), reason));
}

fn of_jitter(check: &HealthCheck, config: &ClusterConfig, at: &str, traps: &mut Vec<Fault>) {
    let percent = check.interval.saturating_mul(check.interval_jitter_percent) / 100;
    for (field, most) in [
        ("initial_jitter", check.initial_jitter),
        ("interval_jitter", check.interval_jitter),
        ("interval_jitter_percent", percent),
    ] {
        if most > check.interval.saturating_mul(LONG) {
            let reason = format!(
                "adds up to {most:?} by chance, more than {LONG} times the interval of {:?}",
                check.interval
            );
            traps.push(Fault::new(format!("{at}.{field}"), reason));
        }
    }
    let Discovery::Static(hosts) = &config.discovery else {
        return;
    };
    let spread = [check.initial_jitter, check.interval_jitter];
    let spread = spread.iter().any(|jitter| *jitter > Duration::ZERO);
    if hosts.len() >= MANY && !spread && check.interval_jitter_percent == 0 {
        let reason = format!(
            "is not set, nor is any other jitter: the attempts of all {} hosts stand at one time",
            hosts.len()
        );
        traps.push(Fault::new(format!("{at}.initial_jitter"), reason));
    }
}

/// Fields of checks by HTTP, TCP and gRPC that say nothing to a checker of another kind.
fn of_no_use(check: &HealthCheckMessage, at: &str, traps: &mut Vec<Fault>) {
    if !matches!(
        check.health_checker,
        Some(HealthChecker::CustomHealthCheck(_))
    ) {
        return;
    }
    for (field, given) in [
        ("alt_port", check.alt_port.is_some()),
        ("tls_options", check.tls_options.is_some()),
        (
            "transport_socket_match_criteria",
            check.transport_socket_match_criteria.is_some(),
        ),
    ] {
        if given {
            let reason = "has no effect on a custom_health_check".to_owned();
            traps.push(Fault::new(format!("{at}.{field}"), reason));
        }
    }
}

/// Endpoints of one address: a host is its address, so all but the first are passed over.
fn of_twins(cluster: &Cluster, at: &str, traps: &mut Vec<Fault>) {
    let mut seen = HashMap::new();
    let groups = cluster.load_assignment.iter().flat_map(|a| &a.endpoints);
    for (group, of) in groups.enumerate() {
        for (index, endpoint) in of.lb_endpoints.iter().enumerate() {
            let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
                continue;
            };
            let Some(Address {
                address: Some(address::Address::SocketAddress(socket)),
            }) = &endpoint.address
            else {
                continue;
            };
            let place = format!("endpoints[{group}].lb_endpoints[{index}]");
            let key = (&socket.address, &socket.port_specifier);
            match seen.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(place);
                }
                Entry::Occupied(first) => {
                    let path = format!("{at}.load_assignment.{place}.endpoint.address");
                    let reason = format!(
                        "is that of {} too: one host, which is the first",
                        first.get()
                    );
                    traps.push(Fault::new(path, reason));
                }
            }
        }
    }
}

fn is_udp(check: &HealthCheck) -> bool {
    let (CheckerConfig::Custom(config) | CheckerConfig::BuiltIn { config, .. }) = &check.checker;
    crate::config::held(config).is_ok_and(|name| name == UDP)
}

/// Endpoints that are said to be of TCP: by `protocol`, which nothing looks at. Unless it is written, it is TCP
/// too, and nothing is meant by it.
fn of_protocol(cluster: &Cluster, document: &Document, at: &str, traps: &mut Vec<Fault>) {
    let groups = cluster.load_assignment.iter().flat_map(|a| &a.endpoints);
    let mut found: Option<(String, usize)> = None;
    for (group_index, group) in groups.enumerate() {
        for (index, endpoint) in group.lb_endpoints.iter().enumerate() {
            let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
                continue;
            };
            let check = endpoint.health_check_config.as_ref();
            let (address, field) = match check.and_then(|check| check.address.as_ref()) {
                Some(address) => (Some(address), "health_check_config.address"),
                None => (endpoint.address.as_ref(), "address"),
            };
            let socket = format!(
                "{at}.load_assignment.endpoints[{group_index}].lb_endpoints[{index}].endpoint.{field}.socket_address"
            );
            let protocol = format!("{socket}.protocol");
            if says_tcp(address) && document.locate(&protocol) != document.locate(&socket) {
                found = match found {
                    Some((first, more)) => Some((first, more + 1)),
                    None => Some((protocol, 0)),
                };
            }
        }
    }
    if let Some((path, more)) = found {
        let more = match more {
            0 => String::new(),
            more => format!("; so do {more} more of this cluster"),
        };
        let reason = format!("says TCP, but the checker speaks UDP{more}");
        traps.push(Fault::new(path, reason));
    }
}

fn says_tcp(address: Option<&Address>) -> bool {
    match address.and_then(|address| address.address.as_ref()) {
        Some(address::Address::SocketAddress(socket)) => socket.protocol() == Protocol::Tcp,
        _ => false,
    }
}
