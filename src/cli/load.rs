//! From a bootstrap file to what can be run.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use prost::{Message as _, Name as _};

use crate::config::text::{Document, Read};
use crate::config::{
    At, Bootstrap, ClusterConfig, ConfigError, Errors, Format, Warnings, explains,
};
use crate::hds;
use crate::proto::envoy::config::bootstrap::v3::Bootstrap as Message;
use crate::registry::{Registry, Update};
use crate::stats::Stats;
use crate::xds::Client;

/// Where the clusters of a bootstrap stand.
pub(super) const CLUSTERS: &str = "static_resources.clusters";

/// A bootstrap that can be run.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) bootstrap: Bootstrap,
    /// The bootstrap as it was read.
    pub(super) message: Message,
    /// The text it was read from, unless it was none.
    pub(super) document: Option<Document>,
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

/// How long a file may be: more than anybody writes, and less than what a device gives.
const LONGEST: u64 = 256 << 20;

fn unreadable(error: io::Error) -> ConfigError {
    ConfigError::new("", format!("cannot be read: {error}"))
}

/// All that `from` gives, unless that is too long.
fn bounded(from: impl io::Read) -> Result<Vec<u8>, ConfigError> {
    let mut bytes = Vec::new();
    let mut from = from.take(LONGEST + 1);
    let read = from.read_to_end(&mut bytes).map_err(unreadable)?;
    if read as u64 > LONGEST {
        let reason = "cannot be read: it is longer than 256 MiB";
        return Err(ConfigError::new("", reason));
    }
    Ok(bytes)
}

/// A bootstrap as bytes.
#[derive(Debug)]
pub(super) struct Source {
    bytes: Vec<u8>,
    format: Format,
}

impl Source {
    /// Reads `path`, or standard input for `-`.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        if path == Path::new("-") {
            let bytes = bounded(io::stdin())?;
            let format = Format::Yaml;
            return Ok(Self { bytes, format });
        }
        let bytes = bounded(File::open(path).map_err(unreadable)?)?;
        let format = Format::of(path);
        Ok(Self { bytes, format })
    }

    /// Reads `path` once more. What is no regular file, a pipe for one, could keep who reads it for ever.
    pub(super) fn read_again(path: &Path) -> Result<Self, ConfigError> {
        // Else the opening of a pipe waits for who writes.
        let at_once = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = File::options()
            .read(true)
            .custom_flags(at_once)
            .open(path)
            .map_err(unreadable)?;
        if !file.metadata().map_err(unreadable)?.is_file() {
            let reason = "cannot be read again: it is no regular file";
            return Err(ConfigError::new("", reason));
        }
        let (bytes, format) = (bounded(file)?, Format::of(path));
        Ok(Self { bytes, format })
    }

    /// A bootstrap in YAML.
    pub(super) fn yaml(text: &str) -> Self {
        Self {
            bytes: text.into(),
            format: Format::Yaml,
        }
    }

    /// The text, unless it is a serialized message.
    pub(super) fn text(&self) -> Option<&str> {
        match self.format {
            Format::Binary => None,
            _ => std::str::from_utf8(&self.bytes).ok(),
        }
    }

    /// Makes of it what can be run, or tells all that is wrong.
    pub(super) fn load(
        &self,
        registry: &Registry,
        stats: &Arc<Stats>,
    ) -> Result<Loaded, ConfigError> {
        let mut warnings = Warnings::default();
        let loaded = self.load_and_warn(registry, stats, &mut warnings)?;
        Ok(Loaded { warnings, ..loaded })
    }

    /// The same, with what there is to warn of in `warnings`, be it usable or not.
    pub(super) fn load_and_warn(
        &self,
        registry: &Registry,
        stats: &Arc<Stats>,
        warnings: &mut Warnings,
    ) -> Result<Loaded, ConfigError> {
        let text = || {
            std::str::from_utf8(&self.bytes)
                .map_err(|error| ConfigError::new("", format!("is no text: {error}")))
        };
        let document = match self.format {
            Format::Json => Document::from_json(text()?)?,
            Format::Binary => return load_message(&self.bytes, registry, stats, warnings),
            Format::ProtoText => return Err(Format::not_read()),
            _ => Document::from_yaml(text()?)?,
        };
        load_document(&document, registry, stats, warnings)
            .map_err(|error| error.located_in(&document).in_order())
            .map(|loaded| Loaded {
                document: Some(document),
                ..loaded
            })
    }
}

fn load_document(
    document: &Document,
    registry: &Registry,
    stats: &Arc<Stats>,
    warnings: &mut Warnings,
) -> Result<Loaded, ConfigError> {
    let read = document.read::<Message>();
    match Bootstrap::from_read(&read, document, warnings) {
        Ok(bootstrap) => build(bootstrap, read.message, registry, stats),
        Err(error) => Err(and_checkers(error, &read.message, Some(&read), registry)),
    }
}

fn load_message(
    bytes: &[u8],
    registry: &Registry,
    stats: &Arc<Stats>,
    warnings: &mut Warnings,
) -> Result<Loaded, ConfigError> {
    let message = Message::decode(bytes).map_err(|error| {
        ConfigError::new(
            "",
            format!("no message of type {}: {error}", Message::full_name()),
        )
    })?;
    match Bootstrap::from_message(&message, warnings) {
        Ok(bootstrap) => build(bootstrap, message, registry, stats),
        Err(error) => Err(and_checkers(error, &message, None, registry)),
    }
}

fn build(
    bootstrap: Bootstrap,
    message: Message,
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
        document: None,
        clusters,
        client,
        hds,
        warnings: Warnings::default(),
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

/// What is wrong with a bootstrap, and beside it what is wrong with its checkers and event sinks. `read` is
/// the text that the message comes from.
fn and_checkers(
    error: ConfigError,
    message: &Message,
    read: Option<&Read<Message>>,
    registry: &Registry,
) -> ConfigError {
    let mut wrong = Vec::new();
    let clusters = message.static_resources.iter().flat_map(|r| &r.clusters);
    for (index, cluster) in clusters.enumerate() {
        let faults = match ClusterConfig::from_message(cluster, &mut Warnings::default()) {
            Ok(config) => build_cluster(&Arc::new(config), registry).err(),
            Err(_) => registry.faults_of(cluster),
        };
        let faults = faults.map(|faults| Vec::from(faults.at_index(CLUSTERS, index)));
        wrong.extend(faults.unwrap_or_default());
    }
    // A field is no fault of its checker if it could not be read.
    wrong.retain(|fault| !read.is_some_and(|read| explains(read, fault)));
    match ConfigError::from_faults(wrong) {
        Some(more) => error.and(more),
        None => error,
    }
}
