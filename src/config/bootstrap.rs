//! What the process is started with.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::error::Report;
use super::text::{Document, Read};
use super::{
    BindConfig, ClusterConfig, ConfigError, Discovery, DnsResolverConfig, IntervalLimits, Warnings,
    address, limits, wire,
};
use crate::host::Address;
use crate::proto::envoy::config::bootstrap::v3::bootstrap::DynamicResources;
use crate::proto::envoy::config::bootstrap::v3::{Admin as AdminMessage, Bootstrap as Message};
use crate::proto::envoy::config::cluster::v3::Cluster as ClusterMessage;
use crate::proto::envoy::config::core::v3::address::Address as Specifier;
use crate::proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use crate::proto::envoy::config::core::v3::{ApiConfigSource, Node};
use crate::validate::FieldPath;

mod agreement;
mod defaults;

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
    /// The clusters of `static_resources` by which control planes can be reached, since HTTP/2 is spoken to
    /// them: by name, as they were given.
    pub control_planes: BTreeMap<String, Arc<ClusterMessage>>,
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
    /// `address.pipe.mode`: the permissions of a socket in the file system, if they are not to follow from the umask.
    pub mode: Option<u32>,
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
    /// A message as protobuf's own text, which is not read.
    ProtoText,
}

impl Format {
    /// What a file's name tells: `.json` is JSON, `.pb` is binary, `.pb_text` is protobuf's text and all else is
    /// YAML.
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
            Some(extension) if extension.eq_ignore_ascii_case("pb_text") => Self::ProtoText,
            _ => Self::Yaml,
        }
    }

    /// What is wrong with [`Format::ProtoText`].
    pub(crate) fn not_read() -> ConfigError {
        let reason = "protobuf's text is not read: give YAML, JSON or a serialized message";
        ConfigError::new("", reason)
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

    /// As [`Bootstrap::from_document`], of what was read of `document` already.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn from_read(
        read: &Read<Message>,
        document: &Document,
        warnings: &mut Warnings,
    ) -> Result<Self, ConfigError> {
        wire::convert_read(read, document, warnings, Self::read)
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
            Format::ProtoText => Err(Format::not_read()),
        }
    }

    fn read(message: &Message, at: &FieldPath<'_>, report: &mut Report) -> Option<Self> {
        let clusters = read_clusters(message, at, report);
        let bind = defaults::read_bind(message, &clusters, at, report);
        let dns_resolver = defaults::read_resolver(message, &clusters, at, report);
        let clusters = clusters.into_iter().map(|cluster| {
            let cluster = cluster.with_default_bind(bind.as_ref());
            Arc::new(cluster.with_default_dns_resolver(dns_resolver.as_ref()))
        });
        agreement::check(message, at, report);
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
            control_planes: control_planes(message),
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
        if let Err(reason) = wire::printable(&cluster.name) {
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

/// A cluster of a few hundred thousand hosts is never kept twice for this: none of these speaks HTTP/2.
fn control_planes(message: &Message) -> BTreeMap<String, Arc<ClusterMessage>> {
    let clusters = message
        .static_resources
        .iter()
        .flat_map(|all| &all.clusters);
    clusters
        .filter(|cluster| {
            cluster.http2_protocol_options.is_some()
                || !cluster.typed_extension_protocol_options.is_empty()
        })
        .map(|cluster| (cluster.name.clone(), Arc::new(cluster.clone())))
        .collect()
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
    let specifier = message.address.as_ref().and_then(|a| a.address.as_ref());
    let mode = match specifier {
        Some(Specifier::Pipe(pipe)) if pipe.mode != 0 => Some(pipe.mode),
        _ => None,
    };
    Admin { address, mode }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::config::error::UNEXPLAINED;
    use crate::config::testing;

    fn bootstrap(text: &str) -> (Bootstrap, Vec<String>) {
        testing::parse(text, Bootstrap::read).unwrap()
    }

    #[track_caller]
    fn refused(text: &str, faults: &str) {
        assert_eq!(testing::faults(text, Bootstrap::read), faults);
    }

    const WHOLE: &str = "
node: {id: i, cluster: c}
admin:
  access_log: [{name: x, typed_config: {'@type': a/b}}]
  access_log_path: /dev/null
  address: {socket_address: {address: 127.0.0.1, port_value: 9901}}
static_resources:
  listeners: [{name: l}]
  clusters:
  - name: a
  - {name: b, upstream_bind_config: {}}
cluster_manager: {upstream_bind_config: {source_address: {address: 127.0.0.1, port_value: 0}}}
layered_runtime: {layers: [{name: l, static_layer: {health_check: {min_interval: 20}}}]}
dynamic_resources: {cds_config: {ads: {}}}
hds_config: {api_type: GRPC}
stats_flush_interval: 7s
flags_path: /x
stats_config: {stats_matcher: {}}
";

    #[test]
    fn everything_that_concerns_checks_is_carried() {
        let (bootstrap, warnings) = bootstrap(WHOLE);
        assert_eq!(bootstrap.node.id, "i");
        let admin = bootstrap.admin.unwrap().address.unwrap();
        assert_eq!(admin.to_string(), "127.0.0.1:9901");
        let [a, b] = &*bootstrap.clusters else {
            panic!("{:?}", bootstrap.clusters);
        };
        assert!(a.bind.as_ref().unwrap().source.is_some());
        assert!(b.bind.as_ref().unwrap().source.is_none());
        assert!(bootstrap.bind.is_some());
        assert_eq!(bootstrap.limits.min, Duration::from_millis(20));
        assert!(bootstrap.dynamic_resources.is_some() && bootstrap.hds_config.is_some());
        assert_eq!(bootstrap.stats_flush_interval, Duration::from_secs(7));
        assert_eq!(warnings, ["admin.access_log_path: is deprecated"]);
    }

    #[test]
    fn nothing_is_required() {
        let (bootstrap, warnings) = bootstrap("{}");
        assert_eq!(warnings, [""; 0]);
        assert_eq!(
            bootstrap,
            Bootstrap::from_bytes(b"", &mut Warnings::default()).unwrap()
        );
        assert_eq!(bootstrap.admin, None);
        assert_eq!(bootstrap.limits, IntervalLimits::default());
        assert_eq!(bootstrap.stats_flush_interval, Duration::from_secs(5));
    }

    #[test]
    fn faults_have_the_paths_of_their_places() {
        refused(
            "static_resources: {clusters: [{name: a}, {name: b}, {name: a}]}",
            "static_resources.clusters[2].name: duplicate cluster \"a\": see clusters[0]",
        );
        refused(
            "static_resources: {clusters: [{name: a}, {name: b, upstream_bind_config: {source_address: {address: x, named_port: http}}}]}",
            "static_resources.clusters[1].upstream_bind_config.source_address.named_port: a port by name cannot be resolved; give port_value\n\
             static_resources.clusters[1].upstream_bind_config.source_address.address: malformed IP address \"x\"; names are resolved in clusters of type STRICT_DNS and LOGICAL_DNS only",
        );
        refused(
            "{node: {id: i, cluster: c}, static_resources: {clusters: [{name: a, type: EDS, eds_cluster_config: {eds_config: {self: {}}}}]}}",
            "static_resources.clusters[0].eds_cluster_config.eds_config.self: the cluster came from no server that could be asked again",
        );
        refused(
            "admin: {address: {envoy_internal_address: {server_listener_name: x}}}",
            "admin.address: an internal listener cannot be listened on here",
        );
        refused(
            "admin: {address: {pipe: {path: '@x', mode: 1}}}",
            "admin.address.pipe.mode: an abstract socket has no mode",
        );
        refused(
            "static_resources: {clusters: [{name: \"a\\nb\"}]}",
            "static_resources.clusters[0].name: holds the control character '\\n'",
        );
        refused(
            "layered_runtime: {layers: [{name: a, static_layer: {x: null}}]}",
            "layered_runtime.layers[0].static_layer.x: a runtime value is a number, text, bool or mapping",
        );
        refused(
            "stats_flush_interval: 300s",
            "stats_flush_interval: value must be inside range [0.001s, 300s), but is 300s",
        );
    }

    #[test]
    fn a_fault_of_the_text_stands_for_what_follows_from_it() {
        let text = "static_resources:
  clusters:
  - name: a
    health_checks: {timeout: 1ms, interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1, tcp_health_check: {}}
  - name: [b]
    upstream_bind_config: {source_address: {address: 127.0.0.1, port_value: x}}
";
        let error = Bootstrap::from_yaml(text, &mut Warnings::default()).unwrap_err();
        let places: Vec<_> = error
            .located()
            .map(|(fault, place)| (&*fault.path, place.map(|p| (p.line, p.column))))
            .collect();
        assert_eq!(
            places,
            [
                (
                    "static_resources.clusters[0].health_checks[0].timeout",
                    Some((4, 30))
                ),
                ("static_resources.clusters[1].name", Some((5, 11))),
                (
                    "static_resources.clusters[1].upstream_bind_config.source_address.port_value",
                    Some((6, 77))
                ),
            ]
        );
    }

    #[test]
    fn a_files_name_tells_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let read = |name: &str, contents: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, contents).unwrap();
            Bootstrap::from_file(&path, &mut Warnings::default()).map_err(|e| e.to_string())
        };
        let message = Document::from_yaml(WHOLE)
            .unwrap()
            .read::<Message>()
            .message;
        let whole = bootstrap(WHOLE).0;
        assert_eq!(read("a.yaml", WHOLE.as_bytes()), Ok(whole.clone()));
        assert_eq!(read("a", WHOLE.as_bytes()), Ok(whole.clone()));
        assert_eq!(read("a.pb", &message.encode_to_vec()), Ok(whole));
        assert!(read("a.json", b"{\"node\": {},}").is_ok());
        assert!(read("a.json", WHOLE.as_bytes()).is_err());
        let fault = read("b.pb", b"\xff").unwrap_err();
        assert!(
            fault.starts_with("no message of type envoy.config.bootstrap.v3.Bootstrap: "),
            "{fault}"
        );
        let fault = read("b.yaml", b"\xff").unwrap_err();
        assert!(fault.starts_with("is no text: "), "{fault}");
        let fault = read("b.pb_text", b"node {}").unwrap_err();
        assert!(fault.starts_with("protobuf's text is not read"), "{fault}");
        let gone = Bootstrap::from_file(&directory.path().join("gone"), &mut Warnings::default());
        assert!(
            gone.unwrap_err()
                .to_string()
                .starts_with("cannot be read: ")
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_panic_or_a_fault_without_a_reason(bytes in testing::wire_bytes()) {
            if let Err(error) = Bootstrap::from_bytes(&bytes, &mut Warnings::default()) {
                prop_assert!(error.faults().all(|fault| fault.reason != UNEXPLAINED), "{error}");
            }
        }
    }
}
