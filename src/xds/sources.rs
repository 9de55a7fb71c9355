//! Whom resources are asked for from.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use prost::Message;

use super::channel::{Planes, Service};
use super::subscription::Variant;
use crate::config::{At, ConfigError};
use crate::proto::duration;
use crate::proto::envoy::config::core::v3::api_config_source::ApiType;
use crate::proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use crate::proto::envoy::config::core::v3::{
    ApiConfigSource, ApiVersion, ConfigSource, PathConfigSource,
};

/// Names a source, and no other ever after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SourceId(pub(super) usize);

#[derive(Debug)]
pub(super) enum Source {
    /// A stream of its own, for resources of one type; or the aggregated one.
    Stream(Arc<Stream>),
    /// A file.
    File(File),
}

/// How a stream is to be.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) service: Arc<Service>,
    pub(super) variant: Variant,
    /// `set_node_on_first_message_only`.
    pub(super) node_once: bool,
    /// `rate_limit_settings`: tokens at most, and how many come each second.
    pub(super) rate: Option<(u32, f64)>,
    pub(super) aggregated: bool,
}

/// A file that holds a response.
///
/// Source: `envoy.config.core.v3.PathConfigSource`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) path: PathBuf,
    /// `watched_directory`: what is moved in there is the sign to read again.
    pub(super) directory: Option<PathBuf>,
    /// `watched_directory.watch_modify`: so is a change in place.
    pub(super) modify: bool,
    /// `poll_interval`.
    pub(super) poll: Option<Duration>,
}

#[derive(Debug)]
struct Known {
    source: Arc<Source>,
    /// How many assignments are asked for there.
    users: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Sources {
    planes: Planes,
    list: BTreeMap<SourceId, Known>,
    next: usize,
    keys: HashMap<Vec<u8>, SourceId>,
    ads: Option<SourceId>,
    cds: Option<SourceId>,
}

impl Sources {
    /// Knows the aggregated stream, if there is one.
    pub(super) fn new(planes: Planes, ads: Option<&ApiConfigSource>) -> Result<Self, ConfigError> {
        let mut sources = Self {
            planes,
            ..Self::default()
        };
        if let Some(ads) = ads {
            let mut stream = sources.stream(ads).at("ads_config")?;
            stream.aggregated = true;
            sources.ads = Some(sources.push(Source::Stream(Arc::new(stream))));
        }
        Ok(sources)
    }

    pub(super) fn ads(&self) -> Option<SourceId> {
        self.ads
    }

    pub(super) fn get(&self, id: SourceId) -> Option<&Arc<Source>> {
        self.list.get(&id).map(|known| &known.source)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether assignments are asked for there, or clusters are.
    pub(super) fn is_used(&self, id: SourceId) -> bool {
        let users = self.list.get(&id).map_or(0, |known| known.users);
        users > 0 || [self.ads, self.cds].contains(&Some(id))
    }

    /// One more assignment is asked for there.
    pub(super) fn take(&mut self, id: SourceId) {
        if let Some(known) = self.list.get_mut(&id) {
            known.users += 1;
        }
    }

    /// One assignment less is.
    pub(super) fn release(&mut self, id: SourceId) {
        if let Some(known) = self.list.get_mut(&id) {
            known.users = known.users.saturating_sub(1);
        }
    }

    /// Forgets where nothing is asked for. Else ever new ones would be kept for good.
    pub(super) fn sweep(&mut self) {
        let kept = [self.ads, self.cds];
        self.list
            .retain(|id, known| known.users > 0 || kept.contains(&Some(*id)));
        let list = &self.list;
        self.keys.retain(|_, id| list.contains_key(id));
    }

    /// Reads where clusters come from, which is where `self` leads from then on.
    pub(super) fn set_cds(&mut self, source: &ConfigSource) -> Result<SourceId, ConfigError> {
        // Its stream is not one for endpoints, even if it is described alike.
        let id = match &source.config_source_specifier {
            Some(ConfigSourceSpecifier::ApiConfigSource(api)) => {
                let stream = self.stream(api).at("api_config_source")?;
                self.push(Source::Stream(Arc::new(stream)))
            }
            _ => self.of(source)?,
        };
        self.cds = Some(id);
        Ok(id)
    }

    /// The source that a message tells of.
    ///
    /// # Errors
    ///
    /// It is of a kind that cannot be asked; paths are relative to it.
    pub(super) fn of(&mut self, source: &ConfigSource) -> Result<SourceId, ConfigError> {
        let key = ConfigSource {
            config_source_specifier: source.config_source_specifier.clone(),
            ..ConfigSource::default()
        };
        let key = key.encode_to_vec();
        if let Some(id) = self.keys.get(&key) {
            return Ok(*id);
        }
        let missing = |field, reason: &str| ConfigError::new(field, reason);
        let made = match &source.config_source_specifier {
            None => return Err(missing("config_source_specifier", "value is required")),
            Some(ConfigSourceSpecifier::Ads(_)) => {
                let reason = "there is no ads_config in dynamic_resources";
                return self.ads.ok_or_else(|| missing("ads", reason));
            }
            Some(ConfigSourceSpecifier::Self_(_)) => {
                let reason = "the cluster came from no server that could be asked again";
                let cds = self.cds.ok_or_else(|| missing("self", reason))?;
                return self.endpoints_of(cds).at("self");
            }
            Some(ConfigSourceSpecifier::Path(path)) => Source::File(File {
                path: path.into(),
                directory: None,
                modify: false,
                poll: None,
            }),
            Some(ConfigSourceSpecifier::PathConfigSource(path)) => Source::File(read_file(path)),
            Some(ConfigSourceSpecifier::ApiConfigSource(api)) => {
                Source::Stream(Arc::new(self.stream(api).at("api_config_source")?))
            }
        };
        let id = self.push(made);
        self.keys.insert(key, id);
        Ok(id)
    }

    /// Whether nobody is asked, but a file read.
    pub(super) fn is_file(&self, id: SourceId) -> bool {
        matches!(self.get(id).map(Arc::as_ref), Some(Source::File(_)))
    }

    /// Whether the files that a source needs can be read now.
    pub(super) fn check_files(&self, id: SourceId) -> Result<(), ConfigError> {
        match self.get(id).map(Arc::as_ref) {
            Some(Source::Stream(stream)) => {
                let wrong = |error: super::channel::TlsError| error.to_string();
                let checked = stream.service.check_files().map_err(wrong);
                checked.map_err(|reason| ConfigError::new("grpc_services[0]", reason))
            }
            Some(Source::File(file)) => check_file(file).at("path_config_source"),
            None => Ok(()),
        }
    }

    /// Whom endpoints are asked for from, if clusters come from `cds`.
    fn endpoints_of(&mut self, cds: SourceId) -> Result<SourceId, ConfigError> {
        match self.get(cds).map(Arc::as_ref) {
            Some(Source::Stream(stream)) if !stream.aggregated => {
                let key = format!("self of {}", cds.0).into_bytes();
                if let Some(id) = self.keys.get(&key) {
                    return Ok(*id);
                }
                let stream = Stream {
                    service: Arc::clone(&stream.service),
                    ..**stream
                };
                let id = self.push(Source::Stream(Arc::new(stream)));
                self.keys.insert(key, id);
                Ok(id)
            }
            _ => Ok(cds),
        }
    }

    fn push(&mut self, source: Source) -> SourceId {
        let id = SourceId(self.next);
        self.next += 1;
        let known = Known {
            source: Arc::new(source),
            users: 0,
        };
        self.list.insert(id, known);
        id
    }

    fn stream(&self, message: &ApiConfigSource) -> Result<Stream, ConfigError> {
        let kind = message.api_type();
        let variant = match kind {
            ApiType::Grpc => Variant::Sotw,
            ApiType::DeltaGrpc => Variant::Delta,
            ApiType::Rest
            | ApiType::DeprecatedAndUnavailableDoNotUse
            | ApiType::AggregatedGrpc
            | ApiType::AggregatedDeltaGrpc => {
                let reason = format!(
                    "{} is not supported: give GRPC or DELTA_GRPC",
                    kind.as_str_name()
                );
                return Err(ConfigError::new("api_type", reason));
            }
        };
        if message.transport_api_version() == ApiVersion::V2 {
            return Err(ConfigError::new(
                "transport_api_version",
                "V2 is not supported: give V3",
            ));
        }
        if !message.config_validators.is_empty() {
            return Err(ConfigError::new("config_validators", "are not supported"));
        }
        if !message.cluster_names.is_empty() {
            let reason = "cannot be set for a source over gRPC: give grpc_services";
            return Err(ConfigError::new("cluster_names", reason));
        }
        let [service] = &*message.grpc_services else {
            let reason = format!(
                "one is required, but here are {}",
                message.grpc_services.len()
            );
            return Err(ConfigError::new("grpc_services", reason));
        };
        let service = Service::read(service, &self.planes).at_index("grpc_services", 0)?;
        let rate = message.rate_limit_settings.as_ref().map(|settings| {
            let tokens = settings.max_tokens.unwrap_or(100).max(1);
            (tokens, settings.fill_rate.unwrap_or(10.0))
        });
        if rate.is_some_and(|(_, fill)| !fill.is_finite()) {
            let error = ConfigError::new("fill_rate", "must be a finite number");
            return Err(error.at("rate_limit_settings"));
        }
        Ok(Stream {
            service: Arc::new(service),
            variant,
            node_once: message.set_node_on_first_message_only,
            rate,
            aggregated: false,
        })
    }
}

/// Whether the files that a cluster's endpoints are to come from are there.
pub(super) fn check_endpoint_files(source: &ConfigSource) -> Result<(), ConfigError> {
    match &source.config_source_specifier {
        Some(ConfigSourceSpecifier::Path(path)) => exists("path", path.as_ref()),
        Some(ConfigSourceSpecifier::PathConfigSource(path)) => {
            check_file(&read_file(path)).at("path_config_source")
        }
        _ => Ok(()),
    }
}

/// As with Envoy, what is watched must be there when the watching begins.
fn check_file(file: &File) -> Result<(), ConfigError> {
    exists("path", &file.path)?;
    match &file.directory {
        Some(directory) => exists("path", directory).at("watched_directory"),
        None => Ok(()),
    }
}

fn exists(field: &str, path: &Path) -> Result<(), ConfigError> {
    if path.exists() {
        return Ok(());
    }
    Err(ConfigError::new(field, format!("{path:?} does not exist")))
}

fn read_file(message: &PathConfigSource) -> File {
    let directory = message.watched_directory.as_ref();
    File {
        path: message.path.as_str().into(),
        directory: directory.map(|directory| directory.path.as_str().into()),
        modify: directory.is_some_and(|directory| directory.watch_modify),
        poll: message
            .poll_interval
            .and_then(|poll| duration::read(&poll).ok()),
    }
}
