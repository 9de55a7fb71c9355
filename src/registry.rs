//! Extensions by type URL, as a value.
//!
//! A [`Registry`] knows the factories of checkers and of event sinks and turns a cluster's configuration
//! into an [`Update`], in which every checker and sink is built: who has one knows that the configuration
//! can be run. Nothing is global; the daemon, an embedder and a test each make the one they need.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::checker::{Checker, CheckerFactory, udp::UdpFactory};
use crate::config::{CheckerConfig, ClusterConfig, HealthCheck, TypedConfig, typed};
use crate::feed::{EventSink, EventSinkFactory, FileSinkFactory};
use crate::validate::Fault;

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
    /// # Errors
    ///
    /// All that is wrong, with paths relative to the cluster: type URLs that nothing is known for, which are
    /// listed with those that are, and what the factories refuse.
    pub fn build(&self, config: Arc<ClusterConfig>) -> Result<Update, Vec<Fault>> {
        let mut faults = Vec::new();
        let (mut checkers, mut sinks) = (Vec::new(), Vec::new());
        for (index, check) in config.health_checks.iter().enumerate() {
            let path = format!("health_checks[{index}]");
            match self.checker(check) {
                Ok(checker) => checkers.push(checker),
                Err(found) => faults.extend(below(&path, found)),
            }
            match self.sinks(check) {
                Ok(of_check) => sinks.push(of_check),
                Err(found) => faults.extend(below(&path, found)),
            }
        }
        if faults.is_empty() {
            Ok(Update {
                config,
                checkers,
                sinks,
            })
        } else {
            Err(faults)
        }
    }

    /// The checker that a health check asks for.
    ///
    /// # Errors
    ///
    /// See [`Registry::build`]; paths are relative to the health check.
    pub fn checker(&self, check: &HealthCheck) -> Result<Arc<dyn Checker>, Vec<Fault>> {
        match &check.checker {
            CheckerConfig::Custom(config) => {
                let path = "custom_health_check.typed_config";
                self.custom(config).map_err(|found| below(path, found))
            }
            CheckerConfig::BuiltIn { field, config } => {
                let built_in = typed::message_name(&config.type_url)
                    .ok()
                    .and_then(|name| self.checkers.get(name));
                match built_in {
                    Some(factory) => factory
                        .create(&config.value)
                        .map_err(|found| below(field, found)),
                    None => Err(vec![Fault::new(*field, "this checker is not built in")]),
                }
            }
        }
    }

    fn custom(&self, config: &TypedConfig) -> Result<Arc<dyn Checker>, Vec<Fault>> {
        let names = self.checkers.keys().map(String::as_str);
        let (factory, value) = find(&self.checkers, names, config, |f| f.descriptor_set())?;
        factory.create(&value)
    }

    fn sinks(&self, check: &HealthCheck) -> Result<Vec<Arc<dyn EventSink>>, Vec<Fault>> {
        let (mut sinks, mut faults) = (Vec::new(), Vec::new());
        for (index, config) in check.event_sinks.iter().enumerate() {
            let names = self.sinks.keys().map(String::as_str);
            let built = find(&self.sinks, names, config, |f| f.descriptor_set())
                .and_then(|(factory, value)| factory.create(&value));
            match built {
                Ok(sink) => sinks.push(sink),
                Err(found) => {
                    let path = format!("event_logger[{index}].typed_config");
                    faults.extend(below(&path, found));
                }
            }
        }
        if let Some(path) = &check.event_log_path {
            let file = self.sinks.get(FileSinkFactory::MESSAGE_NAME);
            let built = match file {
                Some(factory) => factory.create(&FileSinkFactory::config(path)),
                None => Err(vec![Fault::new("", "no file event sink is built in")]),
            };
            match built {
                Ok(sink) => sinks.push(sink),
                // The path of the sink's own field says nothing here.
                Err(found) => faults.extend(
                    found
                        .into_iter()
                        .map(|fault| Fault::new("event_log_path", fault.reason)),
                ),
            }
        }
        if faults.is_empty() {
            Ok(sinks)
        } else {
            Err(faults)
        }
    }
}

/// The factory that `config` names, and the serialized message for it.
fn find<'a, F: ?Sized>(
    factories: &'a BTreeMap<String, Arc<F>>,
    known: impl Iterator<Item = &'a str>,
    config: &TypedConfig,
    descriptor_set: impl Fn(&F) -> Option<&[u8]>,
) -> Result<(&'a Arc<F>, Vec<u8>), Vec<Fault>> {
    let name = typed::message_name(&config.type_url).map_err(|fault| vec![fault])?;
    let unknown = |name: &str| {
        let known: Vec<&str> = known.collect();
        let reason = format!(
            "no extension for type URL {name:?}; known: {}",
            known.join(", ")
        );
        vec![Fault::new("", reason)]
    };
    if !typed::is_typed_struct(name) {
        return match factories.get(name) {
            Some(factory) => Ok((factory, config.value.to_vec())),
            None => Err(unknown(&config.type_url)),
        };
    }
    let inner = typed::open(name, &config.value)?;
    let Some(factory) = factories.get(inner.name()) else {
        return Err(unknown(inner.type_url()));
    };
    let value = inner.encode(descriptor_set(factory))?;
    Ok((factory, value))
}

fn below(path: &str, faults: Vec<Fault>) -> Vec<Fault> {
    faults
        .into_iter()
        .map(|fault| {
            let path = match fault.path.as_str() {
                "" => path.to_owned(),
                inner => format!("{path}.{inner}"),
            };
            Fault::new(path, fault.reason)
        })
        .collect()
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("checkers", &self.checkers.keys())
            .field("sinks", &self.sinks.keys())
            .finish()
    }
}
