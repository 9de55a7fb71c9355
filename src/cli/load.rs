//! From a bootstrap file to what can be run.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use prost::Message as _;

use crate::config::{
    At, Bootstrap, ClusterConfig, ConfigError, Errors, Format, Warnings, text::Document,
};
use crate::hds;
use crate::proto::envoy::config::bootstrap::v3::Bootstrap as Message;
use crate::registry::{Registry, Update};
use crate::stats::Stats;
use crate::xds::Client;

/// Where the clusters of a bootstrap stand.
const CLUSTERS: &str = "static_resources.clusters";

/// A bootstrap that can be run.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) bootstrap: Bootstrap,
    /// The bootstrap as it was read.
    pub(super) message: Message,
    /// Its static clusters, with their checkers built.
    pub(super) clusters: Vec<Update>,
    /// Follows its control planes.
    pub(super) client: Client,
    /// Follows its health discovery service, if it has one.
    pub(super) hds: Option<hds::Client>,
    pub(super) warnings: Warnings,
}

/// What messages call the file.
pub(super) fn name(path: &Path) -> Cow<'_, str> {
    if path == Path::new("-") {
        "<stdin>".into()
    } else {
        path.to_string_lossy()
    }
}

/// Reads `path`, or standard input for `-`.
pub(super) fn load(
    path: &Path,
    registry: &Registry,
    stats: &Arc<Stats>,
) -> Result<Loaded, ConfigError> {
    let unreadable = |error| ConfigError::new("", format!("cannot be read: {error}"));
    let (bytes, format) = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin()
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        (bytes, Format::Yaml)
    } else {
        (std::fs::read(path).map_err(unreadable)?, Format::of(path))
    };
    load_bytes(&bytes, format, registry, stats)
}

fn load_bytes(
    bytes: &[u8],
    format: Format,
    registry: &Registry,
    stats: &Arc<Stats>,
) -> Result<Loaded, ConfigError> {
    let text = || {
        std::str::from_utf8(bytes)
            .map_err(|error| ConfigError::new("", format!("is no text: {error}")))
    };
    let document = match format {
        Format::Json => Some(Document::from_json(text()?)?),
        Format::Binary => None,
        _ => Some(Document::from_yaml(text()?)?),
    };
    let mut warnings = Warnings::default();
    let read = match &document {
        Some(document) => Bootstrap::from_document(document, &mut warnings),
        None => Bootstrap::from_bytes(bytes, &mut warnings),
    };
    let loaded = match read {
        Ok(bootstrap) => {
            let message = message(bytes, &document).unwrap_or_default();
            build(bootstrap, message, warnings, registry, stats)
        }
        Err(error) => Err(match wrong_checkers(bytes, &document, registry) {
            Some(more) => error.and(more),
            None => error,
        }),
    };
    loaded.map_err(|error| match &document {
        Some(document) => error.located_in(document).in_order(),
        None => error,
    })
}

fn build(
    bootstrap: Bootstrap,
    message: Message,
    warnings: Warnings,
    registry: &Registry,
    stats: &Arc<Stats>,
) -> Result<Loaded, ConfigError> {
    let mut errors = Errors::default();
    let client = errors.note(Client::new(&bootstrap, registry.clone(), Arc::clone(stats)));
    let hds = bootstrap.hds_config.as_deref().map(|source| {
        let (planes, node) = (&bootstrap.control_planes, bootstrap.node.clone());
        hds::Client::new(source, planes, node, registry.clone()).at("hds_config")
    });
    let hds = errors.note(hds.transpose()).flatten();
    let mut clusters = Vec::new();
    for (index, config) in bootstrap.clusters.iter().enumerate() {
        let built = build_cluster(config, registry).at_index(CLUSTERS, index);
        clusters.extend(errors.note(built));
    }
    let loaded = client.map(|client| Loaded {
        bootstrap,
        message,
        clusters,
        client,
        hds,
        warnings,
    });
    errors
        .finish(loaded)?
        .ok_or_else(|| ConfigError::new("", "cannot be used"))
}

/// Builds what a cluster is run by, or tells all that stands in the way.
fn build_cluster(config: &Arc<ClusterConfig>, registry: &Registry) -> Result<Update, ConfigError> {
    let found = config.require_built_in();
    match (found, registry.build(Arc::clone(config))) {
        (Ok(()), built) => built,
        (Err(error), Ok(_)) => Err(error),
        (Err(error), Err(more)) => Err(error.and(more)),
    }
}

/// What is wrong with the checkers and event sinks of a bootstrap that cannot be used for other reasons.
fn wrong_checkers(
    bytes: &[u8],
    document: &Option<Document>,
    registry: &Registry,
) -> Option<ConfigError> {
    let text = document.as_ref().map(Document::read::<Message>);
    let message = match &text {
        Some(text) => text.message.clone(),
        None => Message::decode(bytes).ok()?,
    };
    let mut wrong = Vec::new();
    let clusters = message.static_resources.unwrap_or_default().clusters;
    for (index, cluster) in clusters.iter().enumerate() {
        let faults = match ClusterConfig::from_message(cluster, &mut Warnings::default()) {
            Ok(config) => build_cluster(&Arc::new(config), registry).err(),
            Err(_) => registry.faults_of(cluster),
        };
        let faults = faults.map(|faults| Vec::from(faults.at_index(CLUSTERS, index)));
        wrong.extend(faults.unwrap_or_default());
    }
    // A field is no fault of its checker if it could not be read.
    wrong.retain(|fault| !text.as_ref().is_some_and(|t| t.explains(&fault.path)));
    ConfigError::from_faults(wrong)
}

/// What was read, as far as it could be.
fn message(bytes: &[u8], document: &Option<Document>) -> Option<Message> {
    match document {
        Some(document) => Some(document.read::<Message>().message),
        None => Message::decode(bytes).ok(),
    }
}
