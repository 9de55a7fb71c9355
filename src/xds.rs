//! Clusters and endpoints from a control plane: the client of the discovery services.
//!
//! A [`Client`] follows what `dynamic_resources` of a bootstrap says, and the endpoints that clusters of type
//! EDS ask for. It tells what follows as [`Change`]s in a channel, which whoever owns an engine applies. All
//! decisions are made by pure parts: `subscription` knows the protocol, `state` knows clusters and endpoints.
//! What stands here and in `ads`, `files` and `channel` only moves messages.
//!
//! A change is told once its checkers were built, and an answer is acknowledged then; nothing waits for checks.
//! When the channel is full the client waits, and with it its streams.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::config::{At, Bootstrap, ConfigError, Discovery};
use crate::proto;
use crate::proto::envoy::config::core::v3::Node;
use crate::registry::{Change, Registry};
use crate::stats::Stats;

mod ads;
pub(crate) mod backoff;
pub(crate) mod cause;
pub(crate) mod channel;
pub(crate) mod clock;
mod driver;
mod dump;
mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
mod limits;
pub(crate) mod node;
pub(crate) mod quota;
mod rate;
mod read;
mod sources;
mod state;
pub mod subscription;

use driver::Driver;
pub use dump::{Connection, Dump, ErrorState, Failure, Nack, Record};
pub use limits::Limits;
use sources::{SourceId, Sources};
use state::State;
#[cfg(feature = "hds")]
pub(crate) use state::{Time, short};

/// Type URL of the resources of the cluster discovery service.
pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Type URL of the resources of the endpoint discovery service.
pub const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// How a client is to work, beside what the bootstrap says.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// What control planes may send at most.
    pub limits: Limits,
    /// Where jitter starts from; random by default.
    pub seed: Option<u64>,
}

impl Options {
    /// The same with other limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The same with a fixed start for jitter.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
}

/// Follows control planes.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use xds_health::{config::{Bootstrap, Warnings}, engine::{Engine, Options}};
/// # use xds_health::{registry::Registry, stats::Stats, xds::Client};
/// # async fn run(bootstrap: Bootstrap) -> Result<(), Box<dyn std::error::Error>> {
/// let stats = Arc::new(Stats::default());
/// let engine = Engine::start(Options::default(), Arc::clone(&stats))?;
/// let client = Client::new(&bootstrap, Registry::default(), stats)?;
/// let (changes, mut told) = tokio::sync::mpsc::channel(16);
/// tokio::spawn(client.run(changes));
/// while let Some(change) = told.recv().await {
///     engine.apply(change).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    state: Arc<Mutex<State>>,
    stats: Arc<Stats>,
    node: Node,
    options: Options,
    cds: Option<SourceId>,
    cds_timeout: Option<std::time::Duration>,
}

impl Client {
    /// Reads what a bootstrap says of control planes. The engine must be told of its static clusters; the
    /// client tells the endpoints of those of type EDS.
    ///
    /// # Errors
    ///
    /// What cannot be followed, with paths such as `dynamic_resources.ads_config.grpc_services[0]`.
    pub fn new(
        bootstrap: &Bootstrap,
        registry: Registry,
        stats: Arc<Stats>,
    ) -> Result<Self, ConfigError> {
        Self::with_options(bootstrap, registry, stats, Options::default())
    }

    /// As [`Client::new`], by `options`.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn with_options(
        bootstrap: &Bootstrap,
        registry: Registry,
        stats: Arc<Stats>,
        options: Options,
    ) -> Result<Self, ConfigError> {
        let resources = bootstrap.dynamic_resources.as_deref();
        let planes = bootstrap.control_planes.clone();
        let ads = resources.and_then(|resources| resources.ads_config.as_ref());
        let mut sources = Sources::new(planes, ads).at("dynamic_resources")?;
        let cds = resources.and_then(|resources| resources.cds_config.as_ref());
        let cds_id = match cds {
            Some(cds) => {
                stats.cds.use_them();
                let id = sources.set_cds(cds).and_then(|id| {
                    sources.check_files(id)?;
                    Ok(id)
                });
                Some(id.at("dynamic_resources.cds_config")?)
            }
            None => None,
        };
        if let Some(ads) = sources.ads() {
            let checked = sources.check_files(ads);
            checked.at("dynamic_resources.ads_config")?;
            stats.control_plane.use_them();
        }
        let timeout = cds.and_then(|cds| cds.initial_fetch_timeout);
        let timeout = match timeout {
            Some(timeout) => proto::duration::read(&timeout).ok(),
            None => Some(state::FIRST_FETCH),
        };
        let bind = bootstrap.bind.clone();
        let mut state = State::new(registry, bind, sources, options.limits, Arc::clone(&stats))
            .with_dns_resolver(bootstrap.dns_resolver.clone());
        for (index, cluster) in bootstrap.clusters.iter().enumerate() {
            let there = match &cluster.discovery {
                Discovery::Eds(eds) => sources::check_endpoint_files(&eds.source),
                _ => Ok(()),
            };
            let there = there.at("eds_cluster_config.eds_config");
            let added = there.and_then(|()| state.add_static(clock::time(), cluster));
            added.at_index("static_resources.clusters", index)?;
        }
        Ok(Self {
            state: Arc::new(Mutex::new(state)),
            stats,
            node: node::identify(bootstrap.node.clone()),
            options,
            cds: cds_id,
            cds_timeout: timeout.filter(|timeout| !timeout.is_zero()),
        })
    }

    /// Reads what the client knows, also after [`Client::run`] was called.
    pub fn dump(&self) -> Dump {
        Dump(Arc::clone(&self.state))
    }

    /// Whether clusters are asked for, so that [`Change::ClustersTold`] will come.
    pub fn awaits_clusters(&self) -> bool {
        self.cds.is_some()
    }

    /// Follows the control planes, and tells what follows in `changes`, until nobody takes them. Must run
    /// within a tokio runtime that has I/O and time enabled.
    ///
    /// # Panics
    ///
    /// Never, as far as is known. Should it, in whichever of its tasks, this panics too: the `JoinHandle` of the task
    /// that it runs in tells, and `changes` is closed.
    pub async fn run(self, changes: mpsc::Sender<Change>) {
        Driver::new(self, changes).run().await;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // What panicked while it held the lock has left nothing half done that would be wrong to read.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
