//! `envoy_grpc`: a control plane that a static cluster tells of.

use std::time::Duration;

use super::tls::Tls;
use super::{Keepalive, PING_TIMEOUT, Planes, Probes, Service, Target, unpack};
use crate::config::{ClusterConfig, ConfigError, Discovery, Warnings};
use crate::host::Address;
use crate::proto::duration;
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::core::v3::address;
use crate::proto::envoy::config::core::v3::grpc_service::EnvoyGrpc;
use crate::proto::envoy::config::core::v3::socket_address::PortSpecifier;
use crate::proto::envoy::config::core::v3::transport_socket::ConfigType;
use crate::proto::envoy::config::core::v3::{
    Http2ProtocolOptions, KeepaliveSettings, TcpKeepalive,
};
use crate::proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use crate::proto::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use crate::proto::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;
use crate::proto::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use crate::proto::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    UpstreamProtocolOptions, explicit_http_config::ProtocolConfig,
};

/// Reads the cluster that `message` names.
pub(super) fn read(message: &EnvoyGrpc, planes: &Planes) -> Result<Service, ConfigError> {
    let name = message.cluster_name.as_str();
    let wrong = |reason: String| ConfigError::new("cluster_name", reason);
    let Some(cluster) = planes.get(name) else {
        let reason = format!(
            "there is no static cluster {name:?} that HTTP/2 is spoken to: see http2_protocol_options"
        );
        return Err(wrong(reason));
    };
    let options = protocol_options(cluster)?;
    let Some(http2) = http2(cluster, options.as_ref()) else {
        let reason =
            format!("HTTP/2 is not spoken to the cluster {name:?}: see http2_protocol_options");
        return Err(wrong(reason));
    };
    let authority = match message.authority.as_str() {
        "" => name,
        authority => authority,
    };
    let mut service = Service::new(name, authority);
    service.targets = targets(cluster).map_err(|error| within(name, &error))?;
    if service.targets.is_empty() {
        return Err(wrong(format!("the cluster {name:?} has no endpoints")));
    }
    let upstream = options.and_then(|options| options.upstream_http_protocol_options);
    service.tls = tls(cluster, authority, upstream.as_ref())
        .map_err(|error| within(name, &error.at("transport_socket")))?;
    service.keepalive = http2.connection_keepalive.as_ref().and_then(read_keepalive);
    let connection = cluster.upstream_connection_options.as_ref();
    if let Some(probes) = connection.and_then(|connection| connection.tcp_keepalive.as_ref()) {
        service.probes = read_probes(probes, service.probes);
    }
    service.http2 = http2;
    let timeout = cluster.connect_timeout;
    if let Some(timeout) = timeout.and_then(|timeout| duration::read(&timeout).ok()) {
        service.connect_timeout = timeout;
    }
    let bytes = message.max_receive_message_length;
    service.message_bytes = bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    Ok(service)
}

/// What is wrong with the cluster, told of the field that names it.
fn within(name: &str, error: &ConfigError) -> ConfigError {
    let faults = error.faults().map(|fault| {
        let reason = format!("in the cluster {name:?}: {fault}");
        crate::validate::Fault::new("cluster_name", reason)
    });
    ConfigError::from_faults(faults)
        .unwrap_or_else(|| ConfigError::new("cluster_name", "cannot be used"))
}

fn protocol_options(cluster: &Cluster) -> Result<Option<HttpProtocolOptions>, ConfigError> {
    let mut options = cluster.typed_extension_protocol_options.values();
    options.find_map(unpack::<HttpProtocolOptions>).transpose()
}

/// The options of HTTP/2, if that is what is spoken.
fn http2(cluster: &Cluster, options: Option<&HttpProtocolOptions>) -> Option<Http2ProtocolOptions> {
    let Some(options) = options else {
        return cluster.http2_protocol_options;
    };
    match options.upstream_protocol_options.as_ref()? {
        UpstreamProtocolOptions::ExplicitHttpConfig(explicit) => match &explicit.protocol_config {
            Some(ProtocolConfig::Http2ProtocolOptions(http2)) => Some(*http2),
            _ => None,
        },
        // What is negotiated, or spoken by who is proxied for, can be HTTP/2; gRPC leaves no choice.
        UpstreamProtocolOptions::AutoConfig(auto) => {
            Some(auto.http2_protocol_options.unwrap_or_default())
        }
        UpstreamProtocolOptions::UseDownstreamProtocolConfig(any) => any.http2_protocol_options,
    }
}

/// None without an interval, as with Envoy.
fn read_keepalive(message: &KeepaliveSettings) -> Option<Keepalive> {
    let read =
        |field: Option<prost_types::Duration>| field.and_then(|field| duration::read(&field).ok());
    Some(Keepalive {
        interval: read(message.interval)?,
        timeout: read(message.timeout).unwrap_or(PING_TIMEOUT),
    })
}

/// The kernel takes no zeros, and nothing beyond 32,767 seconds and 127 probes.
fn read_probes(message: &TcpKeepalive, default: Probes) -> Probes {
    let seconds = |value: Option<u32>, default| match value {
        Some(value) => Duration::from_secs(value.clamp(1, 32_767).into()),
        None => default,
    };
    Probes {
        idle: seconds(message.keepalive_time, default.idle),
        interval: seconds(message.keepalive_interval, default.interval),
        count: message
            .keepalive_probes
            .map_or(default.count, |count| count.clamp(1, 127)),
    }
}

fn targets(cluster: &Cluster) -> Result<Vec<Target>, ConfigError> {
    let config = ClusterConfig::from_message(cluster, &mut Warnings::default())?;
    match config.discovery {
        Discovery::Static(hosts) => {
            let addresses = hosts.iter().map(|host| host.address.clone());
            let addresses = addresses.filter(|address| !matches!(address, Address::Internal(_)));
            Ok(addresses.map(Target::Address).collect())
        }
        Discovery::StrictDns(_) | Discovery::LogicalDns(_) => Ok(names(cluster)),
        _ => {
            let reason = "the endpoints of a control plane must be known from the start, or by DNS";
            Err(ConfigError::new("type", reason))
        }
    }
}

fn names(cluster: &Cluster) -> Vec<Target> {
    let groups = cluster.load_assignment.iter().flat_map(|a| &a.endpoints);
    let endpoints = groups.flat_map(|group| &group.lb_endpoints);
    let name = |endpoint: &crate::proto::envoy::config::endpoint::v3::LbEndpoint| {
        let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
            return None;
        };
        match endpoint.address.as_ref()?.address.as_ref()? {
            address::Address::SocketAddress(socket) => match socket.port_specifier {
                Some(PortSpecifier::PortValue(port)) => Some(Target::Name(
                    socket.address.clone(),
                    u16::try_from(port).ok()?,
                )),
                _ => None,
            },
            address::Address::Pipe(pipe) => {
                Some(Target::Address(Address::Pipe(pipe.path.as_str().into())))
            }
            address::Address::EnvoyInternalAddress(_) => None,
        }
    };
    endpoints.filter_map(name).collect()
}

fn tls(
    cluster: &Cluster,
    authority: &str,
    upstream: Option<&crate::proto::envoy::config::core::v3::UpstreamHttpProtocolOptions>,
) -> Result<Option<Tls>, ConfigError> {
    if !cluster.transport_socket_matches.is_empty() {
        let reason = "transport_socket_matches are not supported for a control plane";
        return Err(ConfigError::new("", reason));
    }
    let Some(socket) = &cluster.transport_socket else {
        return Ok(None);
    };
    let Some(ConfigType::TypedConfig(config)) = &socket.config_type else {
        return Err(ConfigError::new("typed_config", "value is required"));
    };
    if let Some(raw) = unpack::<RawBuffer>(config) {
        return raw.map(|_| None).map_err(|error| error.at("typed_config"));
    }
    let Some(context) = unpack::<UpstreamTlsContext>(config) else {
        let reason = format!("a socket of type {:?} is not supported", config.type_url);
        return Err(ConfigError::new("typed_config", reason));
    };
    let auto = upstream
        .filter(|options| options.auto_sni)
        .map(|_| authority);
    let verify = upstream.is_some_and(|options| options.auto_san_validation);
    let tls = context.and_then(|context| Tls::of_cluster(&context, auto, verify));
    tls.map(Some).map_err(|error| error.at("typed_config"))
}
