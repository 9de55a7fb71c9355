//! Extensions by type URL, as a value.
//!
//! A [`Registry`] knows the factories of checkers and of event sinks and turns a cluster's configuration
//! into an [`Update`], in which every checker and sink is built: who has one knows that the configuration
//! can be run. Nothing is global; the daemon, an embedder and a test each make the one they need.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use prost_reflect::{DescriptorPool, MessageDescriptor};

use crate::checker::{Checker, CheckerFactory, udp::UdpFactory};
use crate::config::{
    At, CheckerConfig, ClusterConfig, ConfigError, Errors, HealthCheck, Resolved, TypedConfig,
    bare, held, resolve_with,
};
use crate::feed::{EventSink, EventSinkFactory, FileSinkFactory};
use crate::host::Host;
use crate::proto::envoy::config::cluster::v3::Cluster as ClusterMessage;
use crate::proto::envoy::config::core::v3::HealthCheck as HealthCheckMessage;
use crate::proto::envoy::config::core::v3::health_check::HealthChecker;
use crate::proto::envoy::config::core::v3::health_check::custom_health_check::ConfigType;
use crate::proto::{descriptor_pool, strip_type_url};

/// Factories by the name of their configuration's message.
#[derive(Clone)]
pub struct Registry {
    checkers: BTreeMap<String, Arc<dyn CheckerFactory>>,
    sinks: BTreeMap<String, Arc<dyn EventSinkFactory>>,
}

/// A cluster with the checkers and event sinks of its health checks.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Update {
    /// The cluster.
    pub config: Arc<ClusterConfig>,
    /// A checker for each of its health checks, in their order.
    pub checkers: Vec<Arc<dyn Checker>>,
    /// The event sinks of each of its health checks, in their order.
    pub sinks: Vec<Vec<Arc<dyn EventSink>>>,
}

/// What a feed of configuration, such as xDS, tells the engine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A cluster came, or changed.
    Cluster(Update),
    /// A cluster went.
    RemoveCluster(Arc<str>),
    /// The hosts of a cluster are these, and no others.
    Hosts {
        /// The cluster's name.
        cluster: Arc<str>,
        /// Its hosts.
        hosts: Arc<[Arc<Host>]>,
    },
    /// The hosts of a cluster are not to be waited for any longer.
    HostsUnavailable(Arc<str>),
    /// The first answer of clusters has been told, or is not to be waited for any longer. It comes once, and only
    /// where clusters are asked for; an engine does nothing for it. Who waits to be ready waits for it, and then for
    /// the first round of the clusters there are.
    ClustersTold,
}

impl Update {
    /// A cluster with checkers and event sinks made by other means, each of as many entries as the cluster
    /// has health checks. Nothing is refused here: every attempt of a check that has no checker fails, and checkers
    /// and sinks without a check are not used. [`Registry::build`] makes one that fits.
    pub fn new(
        config: Arc<ClusterConfig>,
        checkers: Vec<Arc<dyn Checker>>,
        sinks: Vec<Vec<Arc<dyn EventSink>>>,
    ) -> Self {
        Self {
            config,
            checkers,
            sinks,
        }
    }
}

impl Default for Registry {
    /// Knows the UDP checker and the file event sink.
    fn default() -> Self {
        Self::empty()
            .with_checker(UdpFactory)
            .with_sink(FileSinkFactory::default())
    }
}

impl Registry {
    /// Knows nothing.
    pub fn empty() -> Self {
        Self {
            checkers: BTreeMap::new(),
            sinks: BTreeMap::new(),
        }
    }

    /// The same with one more factory of checkers; it replaces one for the same message.
    pub fn with_checker(mut self, factory: impl CheckerFactory + 'static) -> Self {
        let name = factory.message_name().to_owned();
        self.checkers.insert(name, Arc::new(factory));
        self
    }

    /// The same with one more factory of event sinks; it replaces one for the same message.
    pub fn with_sink(mut self, factory: impl EventSinkFactory + 'static) -> Self {
        let name = factory.message_name().to_owned();
        self.sinks.insert(name, Arc::new(factory));
        self
    }

    /// Builds the checkers and event sinks of a cluster.
    ///
    /// Of a cluster that was read from a text, the faults found here have no lines yet, unless they are looked for
    /// in the text:
    ///
    /// ```
    /// use xds_health::config::text::Document;
    /// use xds_health::config::{ClusterConfig, Warnings};
    /// use xds_health::registry::Registry;
    ///
    /// let text = "
    /// name: games
    /// health_checks:
    /// - {timeout: 1s, interval: 5s, unhealthy_threshold: 3, healthy_threshold: 2, tcp_health_check: {}}
    /// ";
    /// let document = Document::from_yaml(text)?;
    /// let config = ClusterConfig::from_document(&document, &mut Warnings::default())?;
    /// let error = Registry::default().build(config).unwrap_err();
    /// let error = error.located_in(&document).to_string();
    /// assert!(error.contains("line 4"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// All that is wrong, with paths relative to the cluster: type URLs that nothing is known for, which are
    /// told with those that are, and what the factories refuse. Of a cluster that was put together by hand also
    /// several checks without names of their own, more than 64, or a timeout or interval below 1 ms.
    pub fn build(&self, config: impl Into<Arc<ClusterConfig>>) -> Result<Update, ConfigError> {
        let config = config.into();
        let mut errors = Errors::default();
        errors.note(config.check_by_hand());
        let (mut checkers, mut sinks) = (Vec::new(), Vec::new());
        for (index, check) in config.health_checks.iter().enumerate() {
            let at = |error: ConfigError| error.at_index("health_checks", index);
            checkers.extend(errors.note(self.checker(check).map_err(at)));
            let configs = check.event_sinks.iter().map(Some);
            let path = check.event_log_path.as_deref();
            sinks.extend(errors.note(self.sinks(configs, path).map_err(at)));
        }
        errors.finish(Update {
            config,
            checkers,
            sinks,
        })
    }

    /// The checker that a health check asks for.
    ///
    /// # Errors
    ///
    /// See [`Registry::build`]; paths are relative to the health check.
    pub fn checker(&self, check: &HealthCheck) -> Result<Arc<dyn Checker>, ConfigError> {
        match &check.checker {
            CheckerConfig::Custom(config) => self.custom(config),
            CheckerConfig::BuiltIn { field, config } => {
                let message = config.type_url.rsplit('/').next().unwrap_or_default();
                match self.checkers.get(message) {
                    Some(factory) => guarded(|| factory.create(&config.value)).at(field),
                    None => {
                        let known: Vec<&str> = self.checkers.keys().map(String::as_str).collect();
                        let reason = format!(
                            "this checker is not built in; custom_health_check takes {}",
                            known.join(", ")
                        );
                        Err(ConfigError::new(*field, reason))
                    }
                }
            }
        }
    }

    fn custom(&self, config: &TypedConfig) -> Result<Arc<dyn Checker>, ConfigError> {
        find(&self.checkers, config, |factory| factory.descriptor_set())
            .and_then(|(factory, held)| guarded(|| factory.create(&held.value)).at(held.path))
            .at("custom_health_check.typed_config")
    }

    /// All that is wrong with what the checkers and event sinks of `message` are told, even if the cluster as a
    /// whole cannot be used: for who wants to hear of every fault at once. Paths are relative to the cluster.
    pub fn faults_of(&self, message: &ClusterMessage) -> Option<ConfigError> {
        self.faults_of_checks(&message.health_checks)
    }

    /// As [`Registry::faults_of`], of the field `health_checks` of any message.
    pub fn faults_of_checks(&self, checks: &[HealthCheckMessage]) -> Option<ConfigError> {
        let mut errors = Errors::default();
        for (index, check) in checks.iter().enumerate() {
            let at = |error: ConfigError| error.at_index("health_checks", index);
            if let Some(HealthChecker::CustomHealthCheck(custom)) = &check.health_checker
                && let Some(ConfigType::TypedConfig(config)) = &custom.config_type
            {
                errors.note(self.custom(&config.into()).map_err(at));
            }
            let sinks = check.event_logger.iter().map(|sink| {
                let config = sink.typed_config.as_ref();
                config.map(TypedConfig::from)
            });
            let sinks: Vec<_> = sinks.collect();
            let path = Some(&*check.event_log_path).filter(|path| !path.is_empty());
            let sinks = sinks.iter().map(Option::as_ref);
            errors.note(self.sinks(sinks, path).map_err(at));
        }
        errors.finish(()).err()
    }

    /// Opens anew the files that event sinks write to, after they were moved away.
    pub fn reopen(&self) {
        for factory in self.sinks.values() {
            factory.reopen();
        }
    }

    /// The sinks of a check's `event_logger`, of which some may have no configuration, and `event_log_path`.
    fn sinks<'a>(
        &self,
        loggers: impl Iterator<Item = Option<&'a TypedConfig>>,
        path: Option<&str>,
    ) -> Result<Vec<Arc<dyn EventSink>>, ConfigError> {
        let mut errors = Errors::default();
        let mut sinks = Vec::new();
        for (index, config) in loggers.enumerate() {
            let Some(config) = config else {
                continue;
            };
            let built = find(&self.sinks, config, |factory| factory.descriptor_set())
                .and_then(|(factory, held)| {
                    // As with Envoy's own; a factory that gives descriptors asks for more.
                    if factory.descriptor_set().is_none() {
                        bare(config)?;
                    }
                    guarded(|| factory.create(&held.value)).at(held.path)
                })
                .at("typed_config")
                .at_index("event_logger", index);
            sinks.extend(errors.note(built));
        }
        if let Some(path) = path {
            let config = FileSinkFactory::config(path);
            let built = match self.sinks.get(FileSinkFactory::MESSAGE_NAME) {
                // The field is named alike in the sink's own configuration.
                Some(factory) => guarded(|| factory.create(&config)),
                None => Err(ConfigError::new(
                    "event_log_path",
                    "no file sink is built in",
                )),
            };
            sinks.extend(errors.note(built));
        }
        errors.finish(sinks)
    }
}

/// What a factory makes. That it panics is a fault of what it is given: a server may have sent it.
fn guarded<T>(make: impl FnOnce() -> Result<T, ConfigError>) -> Result<T, ConfigError> {
    catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let reason = format!(
            "its factory panicked: {}",
            text.unwrap_or("nobody knows why")
        );
        Err(ConfigError::new("", reason))
    })
}

/// The factory for what `config` holds, and the message for it.
fn find<'a, 'b, F: ?Sized>(
    factories: &'a BTreeMap<String, Arc<F>>,
    config: &'b TypedConfig,
    descriptor_set: impl FnOnce(&F) -> Option<&[u8]>,
) -> Result<(&'a F, Resolved<'b>), ConfigError> {
    if strip_type_url(&config.type_url).is_none() {
        let reason = format!("{:?} is no type URL: want host/message", config.type_url);
        return Err(ConfigError::new("", reason));
    }
    let name = held(config)?;
    let Some(factory) = factories.get(&name) else {
        let known: Vec<&str> = factories.keys().map(String::as_str).collect();
        let reason = format!(
            "nothing is built in for a message {name:?}; known are {}",
            known.join(", ")
        );
        return Err(ConfigError::new("", reason));
    };
    let mut without = None;
    let resolved = resolve_with(config, |name| {
        let known = descriptor_pool().get_message_by_name(name);
        known.or_else(|| match described(descriptor_set(factory), name) {
            Ok(message) => Some(message),
            Err(reason) => {
                without = Some(reason);
                None
            }
        })
    });
    match without {
        Some(reason) => Err(ConfigError::new("", reason)),
        None => Ok((factory, resolved?)),
    }
}

/// The message `name` by what its factory gives, so that it can be told as text.
fn described(descriptor_set: Option<&[u8]>, name: &str) -> Result<MessageDescriptor, String> {
    let Some(set) = descriptor_set else {
        return Err(format!(
            "{name:?} is registered without descriptors, so it cannot be told as text or in a TypedStruct: its \
             factory's descriptor_set() is to give them, or it is to be told as bytes"
        ));
    };
    let pool = DescriptorPool::decode(set)
        .map_err(|error| format!("what descriptor_set() gives for {name:?} is none: {error}"))?;
    let message = pool.get_message_by_name(name);
    message.ok_or_else(|| format!("what descriptor_set() gives does not hold {name:?}"))
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("checkers", &self.checkers.keys())
            .field("sinks", &self.sinks.keys())
            .finish()
    }
}
