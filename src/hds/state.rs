//! What a health discovery service asks for, and what follows for the engine.
//!
//! A [`State`] takes specifiers and gives a verdict on each; what is to be done then comes out of
//! [`State::poll_action`]. It does no I/O and reads no clock.
//!
//! A cluster that is asked for again as it was causes nothing, so its sessions, counters and timers go on. One
//! bad cluster spoils itself only: its last good form stays in force, and the others of its specifier are
//! applied. A specifier that has clusters, but not one good one, changes nothing at all; one without clusters
//! drops all there are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use prost::Message;
use prost_types::Any;

use super::layout::Layout;
use crate::config::{ClusterConfig, ConfigError, Discovery, Warnings};
use crate::proto::envoy::service::health::v3::{ClusterHealthCheck, HealthCheckSpecifier};
use crate::proto::{duration, type_url};
use crate::registry::{Change, Registry, Update};
use crate::xds::quota::Quota;
use crate::xds::{ErrorState, Limits, Record, Time, short};

#[cfg(test)]
mod tests;

/// How often reports are sent where a specifier does not say, or says 0.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// Reports are not sent more often.
pub(super) const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);
/// Envoy cuts intervals to milliseconds; below that nothing is left.
const MILLISECOND: Duration = Duration::from_millis(1);

/// What comes before the names of clusters, so that no other source's cluster has the same key.
const KEY_PREFIX: &str = "hds\0";

/// What is to be done next.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// Note what is known of the endpoints, since nobody will check them from now on.
    Remember(Arc<Layout>),
    /// Tell the engine.
    Apply(Change),
}

/// What came of a specifier.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// It is the one before it.
    Same,
    /// It is in force, but for what is wrong with it.
    Applied(Option<ConfigError>),
    /// It changed nothing.
    Refused(ConfigError),
}

#[derive(Debug)]
pub(super) struct State {
    registry: Registry,
    limits: Limits,
    clusters: BTreeMap<Arc<str>, Known>,
    /// The clusters that have a good form, in the order in which they are reported.
    order: Vec<Arc<str>>,
    interval: Duration,
    actions: VecDeque<Action>,
    /// The last specifier of this stream was applied as a whole.
    whole: bool,
    log: Quota,
}

/// A cluster, by the last good form and by the last refused one.
#[derive(Debug, Default)]
struct Known {
    good: Option<Good>,
    error: Option<ErrorState>,
}

#[derive(Debug)]
struct Good {
    /// As it came.
    body: Any,
    config: Arc<ClusterConfig>,
    layout: Arc<Layout>,
    updated: SystemTime,
}

impl State {
    pub(super) fn new(registry: Registry, limits: Limits) -> Self {
        Self {
            registry,
            limits,
            clusters: BTreeMap::new(),
            order: Vec::new(),
            interval: INTERVAL,
            actions: VecDeque::new(),
            whole: false,
            log: Quota::default(),
        }
    }

    /// What is to be done next, if anything. To be drained after each specifier.
    pub(super) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether one more line of what is wrong may be logged.
    pub(super) fn may_log(&mut self, now: Instant) -> bool {
        self.log.allows(now)
    }

    /// How often reports are to be sent.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// The clusters to be reported, in order.
    pub(super) fn layouts(&self) -> Vec<Arc<Layout>> {
        let known = self.order.iter().filter_map(|name| self.good(name));
        known.map(|good| Arc::clone(&good.layout)).collect()
    }

    /// The clusters by name, also those of which only a refused form is known.
    pub(super) fn records(&self) -> Vec<Record> {
        let record = |(name, known): (&Arc<str>, &Known)| {
            let good = known.good.as_ref();
            Record {
                name: Arc::clone(name),
                version_info: None,
                resource: good.map(|good| good.body.clone()),
                last_updated: good.map(|good| good.updated),
                error_state: known.error.clone(),
            }
        };
        self.clusters.iter().map(record).collect()
    }

    /// The stream is gone: whatever comes on the next one counts as new.
    pub(super) fn handle_stream_closed(&mut self) {
        self.whole = false;
    }

    /// Takes a specifier, which came at `time`.
    pub(super) fn handle_specifier(
        &mut self,
        time: Time,
        specifier: &HealthCheckSpecifier,
    ) -> Verdict {
        let wall = time.wall;
        let interval = match interval(specifier) {
            Ok(interval) => interval,
            Err(error) => return Verdict::Refused(error),
        };
        let mut work = Work::default();
        for (index, message) in specifier.cluster_health_checks.iter().enumerate() {
            self.read(time.now, index, message, &mut work);
        }
        let refused = std::mem::take(&mut work.refused);
        let errors = refused.iter().map(|refused| refused.error.clone());
        let error = errors.chain(work.too_many.take()).reduce(ConfigError::and);
        let same = error.is_none()
            && self.whole
            && work.built.is_empty()
            && work.order == self.order
            && interval == self.interval;
        let nothing = error.is_some() && work.good == 0;
        if !nothing {
            self.whole = error.is_none();
            self.apply(wall, work, interval);
        }
        if nothing {
            // They are those of one specifier, never of all there ever were.
            self.clusters.retain(|_, known| known.good.is_some());
            self.clusters
                .values_mut()
                .for_each(|known| known.error = None);
        }
        for refused in refused {
            self.note(wall, refused);
        }
        match error {
            Some(error) if nothing => Verdict::Refused(error),
            _ if same => Verdict::Same,
            error => Verdict::Applied(error),
        }
    }

    fn read(&mut self, now: Instant, index: usize, message: &ClusterHealthCheck, work: &mut Work) {
        let name: Arc<str> = message.cluster_name.as_str().into();
        if work.seen.len() >= self.limits.clusters {
            let most = self.limits.clusters;
            work.left_out += 1;
            if work.left_out == 1 {
                let reason = format!("at most {most} clusters are taken");
                let error = ConfigError::new("", reason).at_index("cluster_health_checks", index);
                work.too_many = Some(error);
            }
            return;
        }
        if !work.seen.insert(Arc::clone(&name)) {
            if self.log.allows(now) {
                tracing::warn!(
                    cluster = short(&name),
                    path = format_args!("cluster_health_checks[{index}].cluster_name"),
                    "is that of another cluster of this specifier, so this one is not read"
                );
            }
            return;
        }
        let body = message.encode_to_vec();
        let good = self.good(&name);
        let known = good.is_some();
        let same = good.is_some_and(|good| good.body.value == body);
        if known {
            work.order.push(Arc::clone(&name));
        }
        let hosts = message
            .locality_endpoints
            .iter()
            .map(|group| group.endpoints.len());
        work.hosts += hosts.sum::<usize>();
        if same {
            work.good += 1;
            return;
        }
        let body = Any {
            type_url: type_url::<ClusterHealthCheck>(),
            value: body,
        };
        match self.build(now, &name, message, work.hosts) {
            Ok((update, layout)) => {
                if !known {
                    work.order.push(Arc::clone(&name));
                }
                work.good += 1;
                work.built.push((update, layout, body));
            }
            Err(error) => {
                let error = error.at_index("cluster_health_checks", index);
                work.refused.push(Refused { name, body, error });
            }
        }
    }

    fn build(
        &mut self,
        now: Instant,
        name: &str,
        message: &ClusterHealthCheck,
        hosts: usize,
    ) -> Result<(Update, Layout), ConfigError> {
        let named = self.limits.name(name);
        named.map_err(|error| error.at("cluster_name"))?;
        self.limits.hosts(hosts).map_err(|error| {
            let faults = error.faults().map(|fault| fault.reason.clone());
            ConfigError::new("locality_endpoints", faults.collect::<Vec<_>>().join(", "))
        })?;
        let mut warnings = Warnings::default();
        let config = ClusterConfig::from_health_check(message, &mut warnings)
            .map_err(|error| with_checkers(error, &self.registry, message))?;
        for warning in warnings.iter() {
            if self.log.allows(now) {
                tracing::warn!(cluster = name, path = %warning.path, "{}", warning.reason);
            }
        }
        let key: Arc<str> = format!("{KEY_PREFIX}{name}").into();
        let config = Arc::new(config.with_key(key));
        let update = self.registry.build(Arc::clone(&config))?;
        let hosts = match &config.discovery {
            Discovery::Static(hosts) => &hosts[..],
            _ => &[],
        };
        let groups = message.locality_endpoints.iter();
        let layout = Layout::new(
            &config.name,
            config.key(),
            !config.health_checks.is_empty(),
            hosts,
            groups.map(|group| group.endpoints.len()),
        );
        Ok((update, layout))
    }

    /// Makes what was read what is in force.
    fn apply(&mut self, wall: SystemTime, work: Work, interval: Duration) {
        self.interval = interval;
        let gone = self
            .clusters
            .iter()
            .filter(|(name, _)| !work.seen.contains(*name));
        let gone: Vec<_> = gone.map(|(name, _)| Arc::clone(name)).collect();
        for name in gone {
            if let Some(Known {
                good: Some(good), ..
            }) = self.clusters.remove(&name)
            {
                let key = Arc::clone(good.config.key());
                self.actions
                    .push_back(Action::Apply(Change::RemoveCluster(key)));
            }
        }
        for (update, layout, body) in work.built {
            let known = self
                .clusters
                .entry(Arc::clone(&update.config.name))
                .or_default();
            let config = Arc::clone(&update.config);
            if let Some(before) = &known.good
                && before.layout.checked
                && !layout.checked
            {
                self.actions
                    .push_back(Action::Remember(Arc::clone(&before.layout)));
            }
            if known
                .good
                .as_ref()
                .is_none_or(|before| before.config != config)
            {
                self.actions
                    .push_back(Action::Apply(Change::Cluster(update)));
            }
            known.good = Some(Good {
                body,
                config,
                layout: Arc::new(layout),
                updated: wall,
            });
        }
        self.order = work.order;
        self.clusters
            .values_mut()
            .for_each(|known| known.error = None);
    }

    fn good(&self, name: &str) -> Option<&Good> {
        self.clusters.get(name)?.good.as_ref()
    }

    /// Notes a refused form, if its name can be kept.
    fn note(&mut self, wall: SystemTime, refused: Refused) {
        if self.limits.name(&refused.name).is_ok() {
            let error = ErrorState::new(&refused.body, "".into(), wall, &refused.error);
            self.clusters.entry(refused.name).or_default().error = Some(error);
        }
    }
}

/// What was read of a specifier.
#[derive(Default)]
struct Work {
    seen: BTreeSet<Arc<str>>,
    /// Those that have a good form, be it an earlier one.
    order: Vec<Arc<str>>,
    /// How many are good as they stand here.
    good: usize,
    hosts: usize,
    /// Good ones that are new or other than before.
    built: Vec<(Update, Layout, Any)>,
    refused: Vec<Refused>,
    /// How many clusters are beyond what is taken, and what is said of it.
    left_out: usize,
    too_many: Option<ConfigError>,
}

struct Refused {
    name: Arc<str>,
    body: Any,
    error: ConfigError,
}

/// All that is wrong: also with what checkers are told.
fn with_checkers(
    error: ConfigError,
    registry: &Registry,
    message: &ClusterHealthCheck,
) -> ConfigError {
    match registry.faults_of_checks(&message.health_checks) {
        Some(more) => error.and(more),
        None => error,
    }
}

/// How often to report.
fn interval(specifier: &HealthCheckSpecifier) -> Result<Duration, ConfigError> {
    let Some(message) = &specifier.interval else {
        return Ok(INTERVAL);
    };
    let read = duration::read(message);
    let interval = read.map_err(|wrong| ConfigError::new("interval", wrong.to_string()))?;
    if interval < MILLISECOND {
        return Ok(INTERVAL);
    }
    Ok(interval.max(SHORTEST_INTERVAL))
}
