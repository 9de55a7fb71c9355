//! Where the hosts of a cluster come from.

use std::sync::Arc;

use prost::Name;

use crate::config::error::Report;
use crate::config::{DnsConfig, TypedConfig, endpoint, typed, wire};
use crate::host::Host;
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CustomClusterType, DiscoveryType,
};
use crate::proto::envoy::config::core::v3::ConfigSource;
use crate::proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use crate::proto::envoy::extensions::clusters::dns::v3::DnsCluster;
use crate::validate::FieldPath;

/// A type whose hosts only a proxy knows.
const ORIGINAL_DST: &str = "ORIGINAL_DST";

/// Where a cluster's hosts come from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Discovery {
    /// `STATIC`: the hosts of `load_assignment`. The same address twice is two hosts.
    Static(Vec<Arc<Host>>),
    /// Hosts are told while running, each address once: by an embedder, with
    /// [`Cluster::reset`](crate::engine::Cluster::reset) and its like.
    Dynamic,
    /// `EDS`: hosts come from the endpoint discovery service.
    Eds(EdsConfig),
    /// `STRICT_DNS`: every address of every name is a host.
    StrictDns(Arc<DnsConfig>),
    /// `LOGICAL_DNS`: the first address of the one name is the one host. As with Envoy, it counts as healthy until
    /// its checks fail it, also before the first.
    LogicalDns(Arc<DnsConfig>),
    /// A type whose hosts only a proxy knows, as `ORIGINAL_DST`.
    Other(Arc<str>),
}

/// Where the endpoints of a cluster are asked for.
///
/// Source: `envoy.config.cluster.v3.Cluster.EdsClusterConfig`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EdsConfig {
    /// `service_name`, or the name of the cluster: the resource that is asked for.
    pub service_name: Arc<str>,
    /// `eds_config`: whom to ask.
    pub source: Arc<ConfigSource>,
}

impl Discovery {
    pub(super) fn read(message: &Cluster, at: &FieldPath<'_>, report: &mut Report) -> Option<Self> {
        let discovery = match &message.cluster_discovery_type {
            None => read_static(message, at, report),
            Some(ClusterDiscoveryType::Type(discovery)) => {
                match DiscoveryType::try_from(*discovery).ok()? {
                    DiscoveryType::Static => read_static(message, at, report),
                    DiscoveryType::StrictDns => read_dns(message, false, at, report)?,
                    DiscoveryType::LogicalDns => read_dns(message, true, at, report)?,
                    DiscoveryType::Eds => return read_eds(message, at, report),
                    DiscoveryType::OriginalDst => Self::Other(ORIGINAL_DST.into()),
                }
            }
            Some(ClusterDiscoveryType::ClusterType(custom)) => {
                read_custom(message, custom, at, report)?
            }
        };
        if message.eds_cluster_config.is_some() {
            let reason = "is for clusters of type EDS only";
            return report.fault(&at.field("eds_cluster_config"), reason);
        }
        Some(discovery)
    }

    /// The field and the type that nothing built in finds hosts for, if that is so.
    pub(super) fn missing(&self) -> Option<(&'static str, &str)> {
        let dns = cfg!(feature = "dns");
        match self {
            Self::Static(_) | Self::Dynamic => None,
            Self::StrictDns(_) | Self::LogicalDns(_) if dns => None,
            Self::Eds(_) if cfg!(feature = "xds") => None,
            Self::Eds(_) => Some(("type", "EDS")),
            Self::StrictDns(_) => Some(("type", "STRICT_DNS")),
            Self::LogicalDns(_) => Some(("type", "LOGICAL_DNS")),
            Self::Other(kind) if **kind == *ORIGINAL_DST => Some(("type", kind)),
            Self::Other(kind) => Some(("cluster_type", kind)),
        }
    }
}

fn read_static(message: &Cluster, at: &FieldPath<'_>, report: &mut Report) -> Discovery {
    let checked = !message.health_checks.is_empty();
    let hosts = message.load_assignment.as_ref().map(|assignment| {
        endpoint::read_hosts(assignment, checked, &at.field("load_assignment"), report)
    });
    Discovery::Static(hosts.unwrap_or_default())
}

fn read_eds(message: &Cluster, at: &FieldPath<'_>, report: &mut Report) -> Option<Discovery> {
    let at = at.field("eds_cluster_config");
    let Some(eds) = &message.eds_cluster_config else {
        return report.fault(&at, "value is required for clusters of type EDS");
    };
    let at_source = at.field("eds_config");
    let Some(source) = &eds.eds_config else {
        return report.fault(&at_source, "value is required");
    };
    let by_path = matches!(
        source.config_source_specifier,
        Some(ConfigSourceSpecifier::Path(_))
    );
    report.deprecated(by_path, "path", &at_source);
    let name = Some(&eds.service_name).filter(|name| !name.is_empty());
    Some(Discovery::Eds(EdsConfig {
        service_name: name.unwrap_or(&message.name).as_str().into(),
        source: Arc::new(source.clone()),
    }))
}

fn read_dns(
    message: &Cluster,
    logical: bool,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Discovery> {
    let dns = DnsConfig::read(message, at, report)?;
    name_or_names(dns, logical, message, at, report)
}

fn name_or_names(
    dns: DnsConfig,
    logical: bool,
    message: &Cluster,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Discovery> {
    if !logical {
        return Some(Discovery::StrictDns(Arc::new(dns)));
    }
    let groups = message.load_assignment.iter().flat_map(|a| &a.endpoints);
    let count: usize = groups.map(|group| group.lb_endpoints.len()).sum();
    if count != 1 {
        let reason =
            format!("a cluster of type LOGICAL_DNS has one endpoint, but here are {count}");
        return report.fault(&at.field("load_assignment"), reason);
    }
    Some(Discovery::LogicalDns(Arc::new(dns)))
}

/// A type by extension: Envoy's own types have one each, found by the message or by the name.
fn read_custom(
    message: &Cluster,
    custom: &CustomClusterType,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Discovery> {
    let at_type = at.field("cluster_type");
    if let Some(config) = &custom.typed_config {
        let at_config = at_type.field("typed_config");
        let config = TypedConfig::from(config);
        let dns = match typed::bare(&config) {
            Ok(name) if name == DnsCluster::full_name() => {
                wire::decode_checked::<DnsCluster>(&config.value)
            }
            Ok(name) => return Some(Discovery::Other(name.into())),
            Err(error) => Err(error),
        };
        let dns = match dns {
            Ok(dns) => dns,
            Err(error) => return report.within(&at_config, error),
        };
        let logical = dns.all_addresses_in_single_endpoint;
        let dns = DnsConfig::read_extension(message, &dns, at, &at_config, report);
        return name_or_names(dns, logical, message, at, report);
    }
    match custom.name.as_str() {
        "envoy.cluster.static" => Some(read_static(message, at, report)),
        "envoy.cluster.strict_dns" | "envoy.cluster.dns" => read_dns(message, false, at, report),
        "envoy.cluster.logical_dns" => read_dns(message, true, at, report),
        name => Some(Discovery::Other(name.into())),
    }
}
