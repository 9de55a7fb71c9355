//! What is known: clusters, their endpoints, and what follows from each answer.
//!
//! A [`State`] takes answers and gives verdicts. A cluster is taken only after its checkers were built, so an
//! accepted answer is one that runs. It tells the engine, by [`State::poll_change`], and whoever holds the
//! streams, by [`State::poll_want`], what follows. It does no I/O and reads no clock.
//!
//! One bad resource spoils itself only: the good ones of its answer are taken, and its own last good form
//! stays in force. A resource that is given again as it was changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use prost::{Message, Name};
use prost_types::Any;

use super::dump::{Connection, ErrorState, Record};
use super::limits::Limits;
use super::quota::Quota;
use super::sources::{SourceId, Sources};
use super::subscription::{Answer, Item, Verdict};
use crate::config::{
    BindConfig, ClusterConfig, ConfigError, Discovery, DnsResolverConfig, Warnings,
};
use crate::host::Host;
use crate::proto::duration;
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use crate::registry::{Change, Registry, Update};
use crate::stats::Stats;

mod clusters;
mod endpoints;
#[cfg(test)]
mod tests;

/// For how long what is asked for is waited for where `initial_fetch_timeout` is not set.
pub(super) const FIRST_FETCH: Duration = Duration::from_secs(15);

/// When something happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    /// By the clock that deadlines are set by.
    pub(crate) now: Instant,
    /// By the clock on the wall.
    pub(crate) wall: SystemTime,
}

/// Whose assignment is, or is no longer, asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Endpoints(SourceId, Arc<str>),
    NoEndpoints(SourceId, Arc<str>),
}

/// An assignment that is asked for: by whom and by which name.
type Key = (SourceId, Arc<str>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deadline {
    /// Hosts are not waited for any longer.
    FirstFetch(Key),
    /// What was given for a time only has not been given again.
    ClusterExpires(Arc<str>),
    EndpointsExpire(Key),
    /// An assignment has not been given again in the time that it names itself.
    EndpointsStale(Key),
}

/// A cluster, by the last good form and by the last refused one.
#[derive(Debug)]
struct Known {
    good: Option<Good>,
    error: Option<ErrorState>,
    expires: Option<Instant>,
}

#[derive(Debug)]
struct Good {
    config: Arc<ClusterConfig>,
    /// As it came; none for a static cluster.
    body: Option<Any>,
    version: Arc<str>,
    updated: SystemTime,
    eds: Option<Key>,
    /// Later ones are told their endpoints first, as by Envoy.
    order: u64,
}

/// An assignment that some cluster waits for.
#[derive(Debug, Default)]
struct Watched {
    clusters: BTreeSet<Arc<str>>,
    hosts: Option<Arc<[Arc<Host>]>>,
    body: Option<Any>,
    version: Arc<str>,
    updated: Option<SystemTime>,
    error: Option<ErrorState>,
    /// The wait for hosts has ended without any.
    unavailable: bool,
    first_fetch: Option<Instant>,
    expires: Option<Instant>,
    stale: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct State {
    registry: Registry,
    bind: Option<Arc<BindConfig>>,
    dns_resolver: Option<Arc<DnsResolverConfig>>,
    limits: Limits,
    stats: Arc<Stats>,
    pub(super) sources: Sources,
    /// How it goes with them; told by whoever holds the streams.
    pub(super) connections: BTreeMap<SourceId, Connection>,
    clusters: BTreeMap<Arc<str>, Known>,
    /// Names under which clusters are known to the server, where these are not their own; one for each.
    renamed: HashMap<String, Arc<str>>,
    names: HashMap<Arc<str>, String>,
    watched: HashMap<Key, Watched>,
    /// Hosts of all assignments and static clusters.
    hosts: usize,
    /// Bytes of all resources that are kept.
    kept: usize,
    log: Quota,
    version: Arc<str>,
    /// [`Change::ClustersTold`] was told.
    clusters_told: bool,
    changes: VecDeque<Change>,
    wants: VecDeque<Want>,
    deadlines: BTreeSet<(Instant, Deadline)>,
    next_order: u64,
}

impl State {
    /// The same, with the resolver of clusters that do not say whom to ask.
    pub(crate) fn with_dns_resolver(mut self, resolver: Option<Arc<DnsResolverConfig>>) -> Self {
        self.dns_resolver = resolver;
        self
    }

    pub(crate) fn new(
        registry: Registry,
        bind: Option<Arc<BindConfig>>,
        sources: Sources,
        limits: Limits,
        stats: Arc<Stats>,
    ) -> Self {
        Self {
            registry,
            bind,
            dns_resolver: None,
            limits,
            stats,
            sources,
            connections: BTreeMap::new(),
            clusters: BTreeMap::new(),
            renamed: HashMap::new(),
            names: HashMap::new(),
            watched: HashMap::new(),
            hosts: 0,
            kept: 0,
            log: Quota::default(),
            version: "".into(),
            clusters_told: false,
            changes: VecDeque::new(),
            wants: VecDeque::new(),
            deadlines: BTreeSet::new(),
            next_order: 0,
        }
    }

    /// Takes a cluster of the bootstrap. Whoever runs it has told the engine of it; here its endpoints are
    /// asked for, and no answer can change it.
    ///
    /// # Errors
    ///
    /// Its endpoints cannot be asked for as it says.
    pub(crate) fn add_static(
        &mut self,
        time: Time,
        config: &Arc<ClusterConfig>,
    ) -> Result<(), ConfigError> {
        let eds = self.eds_key(config)?;
        let order = self.next_order();
        let good = Good {
            config: Arc::clone(config),
            body: None,
            version: "".into(),
            updated: time.wall,
            eds: None,
            order,
        };
        let known = Known {
            good: Some(good),
            error: None,
            expires: None,
        };
        self.clusters.insert(Arc::clone(&config.name), known);
        self.watch(time, &config.name, eds);
        Ok(())
    }

    /// What the engine is to do next, if anything.
    pub(crate) fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Whose endpoints are, or are no longer, to be asked for.
    pub(crate) fn poll_want(&mut self) -> Option<Want> {
        self.wants.pop_front()
    }

    /// When [`State::handle_timeout`] is next due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Advances time.
    pub(crate) fn handle_timeout(&mut self, time: Time) {
        while let Some((at, _)) = self.deadlines.first()
            && *at <= time.now
        {
            let Some((_, deadline)) = self.deadlines.pop_first() else {
                return;
            };
            match deadline {
                Deadline::FirstFetch(key) => self.first_fetch_ended(&key),
                Deadline::ClusterExpires(name) => {
                    if self.log.allows(time.now) {
                        tracing::warn!(cluster = &*name, "time to live ended");
                    }
                    self.remove_cluster(&name);
                }
                Deadline::EndpointsExpire(key) => {
                    if self.log.allows(time.now) {
                        tracing::warn!(service_name = &*key.1, "time to live ended");
                    }
                    self.forget_endpoints(&key);
                }
                Deadline::EndpointsStale(key) => {
                    if self.log.allows(time.now) {
                        tracing::warn!(service_name = &*key.1, "endpoint_stale_after ended");
                    }
                    self.endpoints_stale(&key);
                }
            }
        }
        self.sources.sweep();
    }

    /// How many hosts all assignments have.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn hosts(&self) -> usize {
        self.hosts
    }

    /// The first clusters are there, or are not to be waited for any longer.
    pub(crate) fn end_wait_for_clusters(&mut self) {
        if !std::mem::replace(&mut self.clusters_told, true) {
            self.changes.push_back(Change::ClustersTold);
        }
    }

    fn refuse(
        &mut self,
        time: Time,
        refusals: &mut Refusals,
        name: &str,
        key: Option<&str>,
        error: &ConfigError,
    ) {
        refusals.add(name, key, error, self.log.allows(time.now));
    }

    /// Tells of what is odd with a cluster.
    fn warn(&mut self, time: Time, cluster: &str, warnings: &Warnings) {
        for warning in warnings.iter() {
            if self.log.allows(time.now) {
                tracing::warn!(cluster, path = %warning.path, "{}", warning.reason);
            }
        }
    }

    /// Whether one more line of what is wrong may be logged.
    pub(super) fn may_log(&mut self, now: Instant) -> bool {
        self.log.allows(now)
    }

    /// Whether the name and the version of a resource can be kept, and its time is one.
    fn labelled(&self, item: &Item, version: &str) -> Result<(), ConfigError> {
        time_to_live(item)?;
        if let Some(name) = &item.name {
            self.limits.name(name)?;
        }
        self.limits.version(version)
    }

    /// Bytes that are kept were `before` and are `after`.
    fn reweigh(&mut self, before: usize, after: usize) {
        self.kept = self.kept.saturating_sub(before) + after;
    }

    /// What is kept of a refused form, which is little where there is no room for all of it.
    fn error_state(
        &self,
        body: &Any,
        version: Arc<str>,
        time: Time,
        error: &ConfigError,
    ) -> ErrorState {
        let mut state = ErrorState::new(body, version, time.wall, error);
        if self.limits.kept(self.kept + state.weight()).is_err() {
            state.failed_configuration.value = Vec::new();
        }
        state
    }

    fn next_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    fn set_deadline(&mut self, before: Option<Instant>, after: Option<Instant>, what: Deadline) {
        if let Some(before) = before {
            self.deadlines.remove(&(before, what.clone()));
        }
        if let Some(after) = after {
            self.deadlines.insert((after, what));
        }
    }
}

/// A message of type `M` in a resource.
fn decode<M: Message + Name + Default>(body: &Any) -> Result<M, ConfigError> {
    let wanted = M::full_name();
    if body.type_url.rsplit('/').next() != Some(wanted.as_str()) {
        let reason = format!("is of type {:?}, but {wanted} was asked for", body.type_url);
        return Err(ConfigError::new("", reason));
    }
    M::decode(&*body.value)
        .map_err(|error| ConfigError::new("", format!("no message of type {wanted}: {error}")))
}

impl Known {
    /// Bytes that are kept of it.
    fn weight(&self) -> usize {
        let good = self.good.as_ref().and_then(|good| good.body.as_ref());
        good.map_or(0, |body| body.value.len()) + self.error.as_ref().map_or(0, ErrorState::weight)
    }

    /// The hosts of a cluster that brings its own, by the control plane.
    fn static_hosts(&self) -> usize {
        match &self.good {
            Some(Good {
                config,
                body: Some(_),
                ..
            }) => own_hosts(config),
            _ => 0,
        }
    }
}

fn own_hosts(config: &ClusterConfig) -> usize {
    match &config.discovery {
        Discovery::Static(hosts) => hosts.len(),
        _ => 0,
    }
}

impl Watched {
    /// Bytes that are kept of it.
    fn weight(&self) -> usize {
        let body = self.body.as_ref().map_or(0, |body| body.value.len());
        body + self.error.as_ref().map_or(0, ErrorState::weight)
    }
}

/// Gathers what is wrong with an answer.
#[derive(Default)]
struct Refusals {
    lines: String,
    refused: BTreeSet<String>,
}

impl Refusals {
    /// Notes that the resource `name`, under `key` in the protocol, is not taken, a line for each fault.
    fn add(&mut self, name: &str, key: Option<&str>, error: &ConfigError, log: bool) {
        use std::fmt::Write;

        if log {
            tracing::warn!(resource = name, error = error.to_string(), "refused");
        }
        for (fault, place) in error.located() {
            if self.lines.len() > super::subscription::MAX_ERROR_DETAIL {
                break;
            }
            let separator = if self.lines.is_empty() { "" } else { "\n" };
            // Writing to a String does not fail.
            let _ = match place {
                Some(place) => write!(self.lines, "{separator}{name}: {place}: {fault}"),
                None => write!(self.lines, "{separator}{name}: {fault}"),
            };
        }
        self.refused.insert(key.unwrap_or(name).to_owned());
    }

    fn verdict(self) -> Verdict {
        Verdict {
            error: (!self.lines.is_empty()).then_some(self.lines),
            refused: self.refused,
        }
    }
}

/// How long a resource holds, if that is told.
fn time_to_live(item: &Item) -> Result<Option<Duration>, ConfigError> {
    match item.bad_ttl {
        Some(wrong) => Err(ConfigError::new("ttl", wrong.to_string())),
        None => Ok(item.ttl),
    }
}

/// What stands for a resource that has no name.
fn label(item: &Item, index: usize) -> String {
    match &item.name {
        Some(name) if !name.is_empty() => short(name),
        _ => format!("resources[{index}]"),
    }
}

/// A name that is too long to be shown whole.
pub(crate) fn short(name: &str) -> String {
    let mut shown: String = name.chars().take(64).collect();
    if shown.len() < name.len() {
        shown.push_str("...");
    }
    shown
}
