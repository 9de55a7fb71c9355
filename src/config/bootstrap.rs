//! What the process is started with.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::error::Report;
use super::text::Document;
use super::{
    BindConfig, ClusterConfig, ConfigError, Discovery, DnsResolverConfig, IntervalLimits, Warnings,
    address, limits, wire,
};
use crate::host::Address;
use crate::proto::envoy::config::bootstrap::v3::bootstrap::DynamicResources;
use crate::proto::envoy::config::bootstrap::v3::{Admin as AdminMessage, Bootstrap as Message};
use crate::proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use crate::proto::envoy::config::core::v3::{ApiConfigSource, Node};
use crate::validate::FieldPath;

/// What the process is started with.
///
/// Source: `envoy.config.bootstrap.v3.Bootstrap`. What only a proxy needs, such as listeners, is passed over.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Bootstrap {
    /// `node`: what this process calls itself before control planes.
    pub node: Node,
    /// `admin`: what an operator reads over HTTP, if anything.
    pub admin: Option<Admin>,
    /// `static_resources.clusters`, each with a name of its own.
    pub clusters: Vec<Arc<ClusterConfig>>,
    /// `cluster_manager.upstream_bind_config`, which holds for clusters that have none. Those of
    /// [`Bootstrap::clusters`] have it already.
    pub bind: Option<Arc<BindConfig>>,
    /// `typed_dns_resolver_config`, which holds for clusters that have none. Those of
    /// [`Bootstrap::clusters`] have it already.
    pub dns_resolver: Option<Arc<DnsResolverConfig>>,
    /// `health_check.min_interval` and `health_check.max_interval` of `layered_runtime`.
    pub limits: IntervalLimits,
    /// `dynamic_resources`: where clusters are asked for.
    pub dynamic_resources: Option<Arc<DynamicResources>>,
    /// `hds_config`: from where health checks are told, and where they are reported.
    pub hds_config: Option<Arc<ApiConfigSource>>,
    /// `stats_flush_interval`; default 5 s.
    pub stats_flush_interval: Duration,
}

/// What an operator reads over HTTP.
///
/// Source: `envoy.config.bootstrap.v3.Admin`. Its access log is passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admin {
    /// `address`, without which nothing listens.
    pub address: Option<Address>,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// JSON text.
    Json,
    /// YAML text.
    Yaml,
    /// A serialized message.
    Binary,
}

impl Format {
    /// What a file's name tells: `.json` is JSON, `.pb` is binary and all else is YAML.
    ///
    /// ```
    /// use xds_health::config::Format;
    ///
    /// assert_eq!(Format::of("envoy.JSON".as_ref()), Format::Json);
    /// assert_eq!(Format::of("envoy.yml".as_ref()), Format::Yaml);
    /// ```
    pub fn of(path: &Path) -> Self {
        match path.extension() {
            Some(extension) if extension.eq_ignore_ascii_case("json") => Self::Json,
            Some(extension) if extension.eq_ignore_ascii_case("pb") => Self::Binary,
            _ => Self::Yaml,
        }
    }
}

impl Bootstrap {
    /// Checks a message.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, with paths such as `static_resources.clusters[0].name`. What a checker or
    /// an event sink is told is not looked at.
    pub fn from_message(message: &Message, warnings: &mut Warnings) -> Result<Self, ConfigError> {
        wire::convert(message, warnings, Self::read)
    }

    /// Checks a serialized message.
    ///
    /// # Errors
    ///
    /// As of [`Bootstrap::from_message`]; also for bytes that are no such message.
    pub fn from_bytes(bytes: &[u8], warnings: &mut Warnings) -> Result<Self, ConfigError> {
        Self::from_message(&wire::decode(bytes)?, warnings)
    }

    /// Checks what a text tells, in which all faults then have their places.
    ///
    /// # Errors
    ///
    /// As of [`Bootstrap::from_message`]; also what cannot be read.
    pub fn from_document(
        document: &Document,
        warnings: &mut Warnings,
    ) -> Result<Self, ConfigError> {
        wire::convert_document(document, warnings, Self::read)
    }

    /// Checks a YAML text.
    ///
    /// ```
    /// use xds_health::config::{Bootstrap, Warnings};
    ///
    /// let text = "
    /// static_resources:
    ///   clusters:
    ///   - name: game
    ///     upstream_bind_config: {source_address: {address: localhost, port_value: 0}}
    /// ";
    /// let error = Bootstrap::from_yaml(text, &mut Warnings::default()).unwrap_err();
    /// assert!(error.to_string().starts_with(
    ///     "line 5, column 54: static_resources.clusters[0].upstream_bind_config.source_address.address: \
    ///      malformed IP address \"localhost\""
    /// ));
    /// ```
    ///
    /// # Errors
    ///
    /// As of [`Bootstrap::from_document`]; also what is no YAML.
    pub fn from_yaml(text: &str, warnings: &mut Warnings) -> Result<Self, ConfigError> {
        Self::from_document(&Document::from_yaml(text)?, warnings)
    }

    /// Checks a JSON text.
    ///
    /// # Errors
    ///
    /// As of [`Bootstrap::from_document`]; also what is no JSON.
    pub fn from_json(text: &str, warnings: &mut Warnings) -> Result<Self, ConfigError> {
        Self::from_document(&Document::from_json(text)?, warnings)
    }

    /// Reads a file and checks it; its name tells the [`Format`].
    ///
    /// # Errors
    ///
    /// As of the other constructors; also if the file cannot be read.
    pub fn from_file(path: &Path, warnings: &mut Warnings) -> Result<Self, ConfigError> {
        let bytes = std::fs::read(path)
            .map_err(|error| ConfigError::new("", format!("cannot be read: {error}")))?;
        let text = || {
            std::str::from_utf8(&bytes)
                .map_err(|error| ConfigError::new("", format!("is no text: {error}")))
        };
        match Format::of(path) {
            Format::Json => Self::from_json(text()?, warnings),
            Format::Yaml => Self::from_yaml(text()?, warnings),
            Format::Binary => Self::from_bytes(&bytes, warnings),
        }
    }

    fn read(message: &Message, at: &FieldPath<'_>, report: &mut Report) -> Option<Self> {
        let bind = message.cluster_manager.as_ref().and_then(|manager| {
            let at = at.field("cluster_manager");
            let at = at.field("upstream_bind_config");
            let bind = manager.upstream_bind_config.as_ref()?;
            BindConfig::read(bind, &at, report).map(Arc::new)
        });
        let resolver = message.typed_dns_resolver_config.as_ref();
        let dns_resolver = resolver.and_then(|resolver| {
            let at = at.field("typed_dns_resolver_config");
            DnsResolverConfig::read_extension(resolver, &at, report)
        });
        let clusters = read_clusters(message, at, report);
        let clusters = clusters.into_iter().map(|cluster| {
            let cluster = cluster.with_default_bind(bind.as_ref());
            Arc::new(cluster.with_default_dns_resolver(dns_resolver.as_ref()))
        });
        let admin = message.admin.as_ref();
        let admin = admin.map(|admin| read_admin(admin, &at.field("admin"), report));
        let limits = message
            .layered_runtime
            .as_ref()
            .map(|runtime| limits::read(runtime, &at.field("layered_runtime"), report));
        let flush = message.stats_flush_interval.as_ref();
        Some(Self {
            node: message.node.clone().unwrap_or_default(),
            admin,
            clusters: clusters.collect(),
            bind,
            dns_resolver,
            limits: limits.unwrap_or_default(),
            dynamic_resources: message.dynamic_resources.clone().map(Arc::new),
            hds_config: message.hds_config.clone().map(Arc::new),
            stats_flush_interval: flush
                .and_then(wire::duration)
                .unwrap_or(Duration::from_secs(5)),
        })
    }
}

impl TryFrom<&Message> for Bootstrap {
    type Error = ConfigError;

    fn try_from(message: &Message) -> Result<Self, ConfigError> {
        Self::from_message(message, &mut Warnings::default())
    }
}

fn read_clusters(message: &Message, at: &FieldPath<'_>, report: &mut Report) -> Vec<ClusterConfig> {
    let Some(resources) = &message.static_resources else {
        return Vec::new();
    };
    let at = at.field("static_resources");
    let mut clusters = Vec::with_capacity(resources.clusters.len());
    let mut names = HashMap::with_capacity(resources.clusters.len());
    for (index, cluster) in resources.clusters.iter().enumerate() {
        let at = at.item("clusters", index);
        if let Some(first) = names.insert(&cluster.name, index)
            && !cluster.name.is_empty()
        {
            let reason = format!(
                "duplicate cluster {:?}: see clusters[{first}]",
                cluster.name
            );
            report.fault::<()>(&at.field("name"), reason);
        }
        let Some(cluster) = ClusterConfig::read(cluster, &at, report) else {
            continue;
        };
        if let Discovery::Eds(eds) = &cluster.discovery
            && let Some(ConfigSourceSpecifier::Self_(_)) = eds.source.config_source_specifier
        {
            let at = at.field("eds_cluster_config");
            let at = at.field("eds_config");
            let reason = "the cluster came from no server that could be asked again";
            report.fault::<()>(&at.field("self"), reason);
        }
        clusters.push(cluster);
    }
    clusters
}

fn read_admin(message: &AdminMessage, at: &FieldPath<'_>, report: &mut Report) -> Admin {
    report.deprecated(!message.access_log_path.is_empty(), "access_log_path", at);
    let at_address = at.field("address");
    let address = message.address.as_ref();
    let address = address.and_then(|address| address::read(address, &at_address, report));
    if let Some(Address::Internal(_)) = address {
        report.fault::<()>(
            &at_address,
            "an internal listener cannot be listened on here",
        );
    }
    Admin { address }
}
