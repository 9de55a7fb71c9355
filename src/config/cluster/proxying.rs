//! What a cluster tells to those who open connections to its hosts. No check depends on it, but what an Envoy refuses
//! in it is refused, so that a file that passes here starts there.

use prost::{Message, Name};
use prost_types::Any;

use crate::config::error::Report;
use crate::config::{At, ConfigError, TypedConfig, typed, wire};
use crate::proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, LbPolicy,
};
use crate::proto::envoy::config::cluster::v3::{CircuitBreakers, Cluster};
use crate::proto::envoy::config::core::v3::TransportSocket;
use crate::proto::envoy::config::core::v3::transport_socket::ConfigType;
use crate::proto::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use crate::proto::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use crate::validate::{FieldPath, Validate};

/// The messages that Envoy 1.40 makes transport sockets of.
const SOCKETS: &[&str] = &[
    "envoy.extensions.transport_sockets.alts.v3.Alts",
    "envoy.extensions.transport_sockets.dynamic_modules.v3.DynamicModuleUpstreamTransportSocket",
    "envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport",
    "envoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransport",
    "envoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
    "envoy.extensions.transport_sockets.quic.v3.QuicUpstreamTransport",
    "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
    "envoy.extensions.transport_sockets.starttls.v3.UpstreamStartTlsConfig",
    "envoy.extensions.transport_sockets.tap.v3.Tap",
    "envoy.extensions.transport_sockets.tcp_stats.v3.Config",
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
];

/// Both names of the options of HTTP connections.
const HTTP_OPTIONS: [&str; 2] = [
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
    "envoy.upstreams.http.http_protocol_options",
];

/// Where the messages of Envoy's load balancers are.
const BALANCERS: &str = "envoy.extensions.load_balancing_policies.";

pub(super) fn check(message: &Cluster, at: &FieldPath<'_>, report: &mut Report) {
    check_balancing(message, at, report);
    if let Some(breakers) = &message.circuit_breakers {
        check_breakers(breakers, &at.field("circuit_breakers"), report);
    }
    if let Some(socket) = &message.transport_socket {
        check_socket(Some(socket), &at.field("transport_socket"), report);
    }
    for (index, matching) in message.transport_socket_matches.iter().enumerate() {
        let at = at.item("transport_socket_matches", index);
        let socket = matching.transport_socket.as_ref();
        check_socket(socket, &at.field("transport_socket"), report);
    }
    for (name, options) in &message.typed_extension_protocol_options {
        let at = at.entry("typed_extension_protocol_options", name);
        check_options(name, options, &at, report);
    }
}

fn check_balancing(message: &Cluster, at: &FieldPath<'_>, report: &mut Report) {
    let original = ClusterDiscoveryType::Type(DiscoveryType::OriginalDst.into());
    let is_original = message.cluster_discovery_type == Some(original);
    let policy = message.lb_policy();
    let at_policy = at.field("lb_policy");
    if is_original {
        if policy != LbPolicy::ClusterProvided {
            let reason = "must be CLUSTER_PROVIDED for clusters of type ORIGINAL_DST";
            report.fault::<()>(&at_policy, reason);
        }
        if message.load_assignment.is_some() {
            let reason = "cannot be set for clusters of type ORIGINAL_DST";
            report.fault::<()>(&at.field("load_assignment"), reason);
        }
        return;
    }
    let at_config = at.field("load_balancing_policy");
    let Some(config) = &message.load_balancing_policy else {
        let has_type = !matches!(
            message.cluster_discovery_type,
            Some(ClusterDiscoveryType::ClusterType(_))
        );
        match policy {
            LbPolicy::LoadBalancingPolicyConfig => {
                let reason = "value is required by lb_policy LOAD_BALANCING_POLICY_CONFIG";
                report.fault::<()>(&at_config, reason);
            }
            LbPolicy::ClusterProvided if has_type => {
                let reason =
                    "CLUSTER_PROVIDED is for clusters of type ORIGINAL_DST and of some extensions";
                report.fault::<()>(&at_policy, reason);
            }
            _ => (),
        }
        return;
    };
    let known = config.policies.iter().any(|policy| {
        let extension = policy.typed_extension_config.as_ref();
        let config = extension.and_then(|extension| extension.typed_config.as_ref());
        let held = config.map(|config| typed::held(&config.into()));
        held.is_some_and(|held| held.is_ok_and(|name| name.starts_with(BALANCERS)))
    });
    if !known {
        let reason = "there is none that Envoy knows";
        report.fault::<()>(&at_config.field("policies"), reason);
    }
}

/// Of each host, Envoy limits connections only.
fn check_breakers(message: &CircuitBreakers, at: &FieldPath<'_>, report: &mut Report) {
    for (index, limits) in message.per_host_thresholds.iter().enumerate() {
        let at = at.item("per_host_thresholds", index);
        for (name, set) in [
            (
                "max_pending_requests",
                limits.max_pending_requests.is_some(),
            ),
            ("max_requests", limits.max_requests.is_some()),
            ("max_retries", limits.max_retries.is_some()),
            (
                "max_connection_pools",
                limits.max_connection_pools.is_some(),
            ),
        ] {
            if set {
                let reason = "cannot be set: hosts have max_connections only";
                report.fault::<()>(&at.field(name), reason);
            }
        }
    }
}

fn check_socket(socket: Option<&TransportSocket>, at: &FieldPath<'_>, report: &mut Report) {
    let Some(socket) = socket else {
        report.fault::<()>(at, "value is required");
        return;
    };
    let at = at.field("typed_config");
    let Some(ConfigType::TypedConfig(config)) = &socket.config_type else {
        let reason = "value is required: its type names the transport socket";
        report.fault::<()>(&at, reason);
        return;
    };
    let config = TypedConfig::from(config);
    let name = match typed::held(&config) {
        Ok(name) => name,
        Err(error) => {
            report.within::<()>(&at, error);
            return;
        }
    };
    if !SOCKETS.contains(&&*name) {
        let reason = format!("Envoy has no transport socket of type {name:?}");
        report.fault::<()>(&at, reason);
        return;
    }
    if name == UpstreamTlsContext::full_name()
        && let Err(error) = checked::<UpstreamTlsContext>(&config)
    {
        report.within::<()>(&at, error);
    }
}

/// Options are found by name, which all of Envoy's own extensions begin alike.
fn check_options(name: &str, options: &Any, at: &FieldPath<'_>, report: &mut Report) {
    if !name.starts_with("envoy.") {
        report.fault::<()>(at, "Envoy has no extension of this name");
        return;
    }
    if !HTTP_OPTIONS.contains(&name) {
        return;
    }
    let config = TypedConfig::from(options);
    match typed::held(&config) {
        Ok(held) if held == HttpProtocolOptions::full_name() || held.is_empty() => {
            if let Err(error) = checked::<HttpProtocolOptions>(&config) {
                report.within::<()>(at, error);
            }
        }
        Ok(held) => {
            let reason = format!(
                "must be a {}, not a {held:?}",
                HttpProtocolOptions::full_name()
            );
            report.fault::<()>(at, reason);
        }
        Err(error) => {
            report.within::<()>(at, error);
        }
    }
}

/// The message of a configuration, if it keeps the rules.
fn checked<M: Message + Name + Validate + Default>(config: &TypedConfig) -> Result<M, ConfigError> {
    let found = typed::resolve(config)?;
    wire::decode_checked::<M>(&found.value).at(found.path)
}

#[cfg(test)]
mod tests {
    use crate::config::{ClusterConfig, testing};

    #[track_caller]
    fn refused(fields: &str, faults: &str) {
        let text = format!("name: c\n{fields}");
        assert_eq!(testing::faults(&text, ClusterConfig::read), faults);
    }

    #[track_caller]
    fn accepted(fields: &str) {
        let text = format!("name: c\n{fields}");
        let read = testing::parse(&text, ClusterConfig::read);
        assert!(read.is_ok(), "{read:?}");
    }

    fn any(name: &str, fields: &str) -> String {
        format!("{{\"@type\": type.googleapis.com/{name}, {fields}}}")
    }

    #[test]
    fn balancers_are_those_of_the_type() {
        let policy = |fields: &str| {
            let balancer = any(
                "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
                "",
            );
            let of = format!("{{name: x, typed_config: {balancer}}}");
            format!(
                "{fields}load_balancing_policy: {{policies: [{{typed_extension_config: {of}}}]}}"
            )
        };
        accepted("type: ORIGINAL_DST\nlb_policy: CLUSTER_PROVIDED");
        accepted("type: STATIC\nlb_policy: RING_HASH");
        accepted(&policy("lb_policy: LOAD_BALANCING_POLICY_CONFIG\n"));
        accepted(&policy("lb_policy: CLUSTER_PROVIDED\n"));
        accepted(&policy(""));
        accepted("cluster_type: {name: envoy.clusters.aggregate}\nlb_policy: CLUSTER_PROVIDED");
        refused(
            "type: ORIGINAL_DST\nload_assignment: {cluster_name: c}",
            "lb_policy: must be CLUSTER_PROVIDED for clusters of type ORIGINAL_DST\n\
             load_assignment: cannot be set for clusters of type ORIGINAL_DST",
        );
        refused(
            "type: STATIC\nlb_policy: CLUSTER_PROVIDED",
            "lb_policy: CLUSTER_PROVIDED is for clusters of type ORIGINAL_DST and of some extensions",
        );
        refused(
            "lb_policy: LOAD_BALANCING_POLICY_CONFIG",
            "load_balancing_policy: value is required by lb_policy LOAD_BALANCING_POLICY_CONFIG",
        );
        let none = "load_balancing_policy.policies: there is none that Envoy knows";
        refused("load_balancing_policy: {}", none);
        refused(
            "load_balancing_policy: {policies: [{typed_extension_config: {name: x, typed_config: {\"@type\": a/b.C}}}]}",
            none,
        );
    }

    #[test]
    fn hosts_have_limits_of_connections_only() {
        accepted("circuit_breakers: {per_host_thresholds: [{max_connections: 1}]}");
        refused(
            "circuit_breakers: {per_host_thresholds: [{}, {max_retries: 0}]}",
            "circuit_breakers.per_host_thresholds[1].max_retries: cannot be set: hosts have max_connections only",
        );
    }

    #[test]
    fn transport_sockets_are_those_that_envoy_has() {
        const PLAIN: &str = "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer";
        const TLS: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
        let typed =
            |name: &str, fields: &str| format!("{{name: x, typed_config: {}}}", any(name, fields));
        let sound = [
            typed(PLAIN, ""),
            typed(TLS, "sni: a"),
            typed(
                "xds.type.v3.TypedStruct",
                &format!("type_url: a/{TLS}, value: {{sni: a}}"),
            ),
            typed(
                "envoy.extensions.transport_sockets.tcp_stats.v3.Config",
                "x: {y: z}",
            ),
        ];
        let long = "x".repeat(256);
        let faulty = [
            (
                "{name: envoy.transport_sockets.tls}".to_owned(),
                ": value is required: its type names the transport socket",
            ),
            (
                typed("google.protobuf.Empty", ""),
                ": Envoy has no transport socket of type \"google.protobuf.Empty\"",
            ),
            (
                typed("a.B", ""),
                ": Envoy has no transport socket of type \"a.B\"",
            ),
            (
                typed(TLS, &format!("sni: {long}")),
                ".sni: value length must be at most 255 bytes, but is 256",
            ),
            (
                typed(
                    "xds.type.v3.TypedStruct",
                    &format!("type_url: a/{TLS}, value: {{sni: {long}}}"),
                ),
                ".value.sni: value length must be at most 255 bytes, but is 256",
            ),
        ];
        for socket in sound {
            accepted(&format!("transport_socket: {socket}"));
            accepted(&format!(
                "transport_socket_matches: [{{name: m, transport_socket: {socket}}}]"
            ));
        }
        for (socket, fault) in faulty {
            refused(
                &format!("transport_socket: {socket}"),
                &format!("transport_socket.typed_config{fault}"),
            );
            refused(
                &format!("transport_socket_matches: [{{name: m, transport_socket: {socket}}}]"),
                &format!("transport_socket_matches[0].transport_socket.typed_config{fault}"),
            );
        }
        refused(
            "transport_socket_matches: [{name: m}]",
            "transport_socket_matches[0].transport_socket: value is required",
        );
    }
    #[test]
    fn options_of_connections_are_those_that_envoy_has() {
        let options = |entry: &str| format!("typed_extension_protocol_options: {{{entry}}}");
        let http = |name: &str, fields: &str| {
            let of = any(
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                fields,
            );
            options(&format!("{name}: {of}"))
        };
        let full = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
        for name in [full, "envoy.upstreams.http.http_protocol_options"] {
            accepted(&http(
                name,
                "explicit_http_config: {http2_protocol_options: {}}",
            ));
            let at = format!("typed_extension_protocol_options[\"{name}\"]");
            let required = "is required: set one of explicit_http_config, use_downstream_protocol_config, auto_config";
            refused(
                &http(name, ""),
                &format!("{at}.upstream_protocol_options: {required}"),
            );
            refused(
                &options(&format!("{name}: {{}}")),
                &format!("{at}.upstream_protocol_options: {required}"),
            );
            refused(
                &http(
                    name,
                    "explicit_http_config: {http2_protocol_options: {max_concurrent_streams: 0}}",
                ),
                &format!(
                    "{at}.explicit_http_config.http2_protocol_options.max_concurrent_streams: value must be inside range [1, 2147483647], but is 0"
                ),
            );
            refused(
                &options(&format!("{name}: {}", any("google.protobuf.Empty", ""))),
                &format!("{at}: must be a {full}, not a \"google.protobuf.Empty\""),
            );
        }
        accepted(&options(
            "envoy.filters.network.thrift_proxy: {\"@type\": a/b.C}",
        ));
        refused(
            &options("k: {}"),
            "typed_extension_protocol_options[\"k\"]: Envoy has no extension of this name",
        );
    }
}
