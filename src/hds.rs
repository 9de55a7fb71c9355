//! Health checks for, and reports to, a health discovery service (HDS).
//!
//! A [`Client`] asks a management server what to check, has an engine check it, and reports how the endpoints
//! are, at the interval that the server says. What follows from a specifier and what a report holds are
//! decided by pure parts, `state` and `report`; what stands here moves messages and keeps time. Long work on
//! many endpoints is done on the runtime's threads for blocking work, so no check waits for it.
//!
//! Checks do not depend on the stream: while it is gone they go on, and reports resume on the next one, after
//! a specifier. Streams are opened again after a wait that grows, up to a cap, and begins anew after a stream that
//! lasted and on which the server has sent a specifier.
//!
//! # Reports
//!
//! A report lists all endpoints that are checked, by cluster and locality, in the specifier's order. An endpoint
//! takes some 30 bytes, more with longer addresses, and as much again in the deprecated list of all endpoints.
//! That list is left out where a report would be longer with it than [`Options::flat_bytes`], by default 4 MiB,
//! which is what gRPC servers take unless told otherwise. So by default about 140,000 endpoints can be reported
//! to a server that was not told to take longer messages. A report that the server has not taken by the time
//! of the next one is not followed by others until it has.
//!
//! # Where it differs from Envoy
//!
//! - [`Traffic`](crate::engine::Traffic) rules HDS clusters like all others. In Envoy they never have traffic, so
//!   `no_traffic_interval`, by default 60 s, is the only interval in use; here `interval` is, unless the engine
//!   was told otherwise.
//! - A bad cluster spoils itself only: its last good form stays in force, and the others of its specifier are
//!   applied. Envoy passes over the whole message, or aborts. Either way it counts as one error.
//! - Report intervals from 1 ms to 50 ms are taken as 50 ms, and one below 1 ms as the default of 1 s, where Envoy
//!   reports in a busy loop. A negative one spoils the specifier.
//! - A change of `upstream_bind_config` is honoured also for a cluster that is known already.
//! - The wait before a stream is opened again grows, where Envoy's is always below 1 s.
//! - Localities without endpoints, or none that is checked, are left out of reports; Envoy crashes.
//! - A report without clusters is an empty `endpoint_health_response`; Envoy sends a message with neither member.
//! - Several checks without names are named by their positions in stats.
//! - Clusters are shown by `/clusters`, and their `membership_` stats count. As in Envoy, they are not among those
//!   that `cluster_manager.` counts.
//! - `FetchHealthCheck`, which Envoy does not know, is used where the source sets `refresh_delay`: each report is
//!   a call, and its answer the next specifier. `refresh_delay` stands for an `interval` that is not set.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost::Message as _;
use prost::bytes::Bytes;

use crate::config::{At, ConfigError};
use crate::engine::Engine;
use crate::proto::duration;
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::core::v3::api_config_source::ApiType;
use crate::proto::envoy::config::core::v3::{ApiConfigSource, Node};
use crate::proto::envoy::service::health::v3::capability::Protocol;
use crate::proto::envoy::service::health::v3::health_check_request_or_endpoint_health_response::RequestType;
use crate::proto::envoy::service::health::v3::{
    Capability, HealthCheckRequest, HealthCheckRequestOrEndpointHealthResponse,
};
use crate::registry::Registry;
use crate::xds::backoff::Backoff;
use crate::xds::channel::Service;
use crate::xds::{Connection, Limits, Record, cause, clock, node};

#[cfg(fuzzing)]
pub mod fuzzing;
mod layout;
mod report;
mod session;
mod state;
#[cfg(test)]
mod tests;
mod wire;

use report::Reporter;
use session::Session;
use state::State;
use wire::Wire;

/// How a client is to work, beside what the source says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What the server may ask for at most; `hosts` counts the endpoints of one specifier.
    pub limits: Limits,
    /// Whether reports hold the deprecated list of all endpoints; default true, as in Envoy.
    pub flat: bool,
    /// The list is left out where a report would have more bytes with it; default 4 MiB.
    pub flat_bytes: usize,
    /// Where jitter starts from; random by default.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            flat: true,
            flat_bytes: 4 << 20,
            seed: None,
        }
    }
}

impl Options {
    /// The same with other limits.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The same with, or without, the deprecated list of all endpoints in reports.
    pub fn with_flat(mut self, flat: bool) -> Self {
        self.flat = flat;
        self
    }

    /// The same with a fixed start for jitter.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }
}

/// Checks what a health discovery service asks for, and reports.
///
/// ```no_run
/// # use xds_health::{config::Bootstrap, engine::Engine, hds, registry::Registry};
/// # async fn run(bootstrap: Bootstrap, engine: Engine) -> Result<(), Box<dyn std::error::Error>> {
/// if let Some(source) = &bootstrap.hds_config {
///     let (planes, node) = (&bootstrap.control_planes, bootstrap.node.clone());
///     let client = hds::Client::new(source, planes, node, Registry::default())?;
///     tokio::spawn(client.run(engine));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    service: Service,
    /// `refresh_delay`: calls instead of a stream.
    fetch: Option<Duration>,
    hello: Bytes,
    options: Options,
    core: Arc<Mutex<Core>>,
}

/// The pure parts.
#[derive(Debug)]
struct Core {
    state: State,
    reporter: Reporter,
    connection: Connection,
}

/// Reads what a [`Client`] knows. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dump(Arc<Mutex<Core>>);

impl Dump {
    /// The clusters that are asked for, by name, as `envoy.service.health.v3.ClusterHealthCheck`; also those of
    /// which only a refused form is known. They have no versions.
    pub fn clusters(&self) -> Vec<Record> {
        lock(&self.0).state.records()
    }

    /// How it goes with the server. An answer that is in force but for what is wrong with it counts as refused.
    pub fn connection(&self) -> Connection {
        lock(&self.0).connection.clone()
    }
}

impl Client {
    /// Reads what `hds_config` of a bootstrap says. `control_planes` are the clusters that it may name.
    ///
    /// # Errors
    ///
    /// What cannot be followed, with paths such as `grpc_services[0].envoy_grpc.cluster_name`.
    pub fn new(
        source: &ApiConfigSource,
        control_planes: &BTreeMap<String, Arc<Cluster>>,
        node: Node,
        registry: Registry,
    ) -> Result<Self, ConfigError> {
        Self::with_options(source, control_planes, node, registry, Options::default())
    }

    /// As [`Client::new`], by `options`.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn with_options(
        source: &ApiConfigSource,
        control_planes: &BTreeMap<String, Arc<Cluster>>,
        node: Node,
        registry: Registry,
        options: Options,
    ) -> Result<Self, ConfigError> {
        let kind = source.api_type();
        // As with Envoy, there is nothing that would be told as a delta.
        if !matches!(kind, ApiType::Grpc | ApiType::DeltaGrpc) {
            let reason = format!("{} is not supported: give GRPC", kind.as_str_name());
            return Err(ConfigError::new("api_type", reason));
        }
        let [service] = &*source.grpc_services else {
            let count = source.grpc_services.len();
            let reason = format!("one is required, but here are {count}");
            return Err(ConfigError::new("grpc_services", reason));
        };
        let service = Service::read(service, control_planes).at_index("grpc_services", 0)?;
        let checked = service.check_files().map_err(|error| error.to_string());
        checked.map_err(|reason| ConfigError::new("grpc_services[0]", reason))?;
        let fetch = source
            .refresh_delay
            .and_then(|delay| duration::read(&delay).ok());
        Ok(Self {
            fetch: fetch.map(|delay| delay.max(state::SHORTEST_INTERVAL)),
            hello: hello(node).encode_to_vec().into(),
            core: Arc::new(Mutex::new(Core {
                state: State::new(registry, options.limits),
                reporter: Reporter::new(options.flat, options.flat_bytes),
                connection: Connection {
                    server: Arc::clone(&service.name),
                    service: "HDS",
                    ..Connection::default()
                },
            })),
            options,
            service,
        })
    }

    /// Reads what the client knows, also after [`Client::run`] was called.
    pub fn dump(&self) -> Dump {
        Dump(Arc::clone(&self.core))
    }

    /// Has `engine` check what the server asks for, and reports, until the engine has ended. Must run within a
    /// tokio runtime that has I/O and time enabled. Where it is dropped, the checks go on.
    ///
    /// # Panics
    ///
    /// Never, as far as is known. Should it, the `JoinHandle` of the task that it runs in tells.
    pub async fn run(self, engine: Engine) {
        let stats = Arc::clone(engine.stats());
        stats.hds.use_them();
        let seed = self.options.seed.unwrap_or_else(|| fastrand::u64(..));
        let (base, max) = self.service.backoff;
        let mut session = Session {
            client: &self,
            engine: &engine,
            stats: &stats.hds,
            answered: false,
        };
        let mut backoff = Backoff::new(base, max, seed);
        let (mut turn, name) = (0, &self.service.name);
        loop {
            let mut wait = None;
            let reason = match self.service.connect(&mut turn).await {
                Err(error) => {
                    let error = cause::whole(&error);
                    tracing::warn!(control_plane = %name, error, "cannot connect");
                    error
                }
                Ok(channel) => {
                    let bytes = self.options.limits.message_bytes;
                    let wire = Wire::new(&self.service, channel, bytes);
                    session.answered = false;
                    let since = clock::now();
                    let ended = match self.fetch {
                        None => session.exchange(wire).await,
                        Some(delay) => session.poll(wire, delay).await,
                    };
                    let Ok(status) = ended else {
                        return;
                    };
                    let lived = clock::now().saturating_duration_since(since);
                    wait = Some(backoff.after(lived, session.answered));
                    let reason = cause::of_end(&status);
                    tracing::warn!(control_plane = %name, reason, "health discovery stream ended");
                    reason
                }
            };
            stats.hds.errors.inc();
            stats.hds.connected.set(0);
            {
                let mut core = lock(&self.core);
                core.state.handle_stream_closed();
                core.connection.set_closed(clock::time().wall, &reason);
            }
            tokio::time::sleep(wait.unwrap_or_else(|| backoff.next())).await;
        }
    }
}

/// The first message of a stream. As Envoy's, it names HTTP and TCP: there is no word for other checks, which are
/// taken all the same.
fn hello(node: Node) -> HealthCheckRequestOrEndpointHealthResponse {
    let protocols = [Protocol::Http, Protocol::Tcp];
    let request = HealthCheckRequest {
        node: Some(node::identify(node)),
        capability: Some(Capability {
            health_check_protocols: protocols.map(i32::from).to_vec(),
        }),
    };
    HealthCheckRequestOrEndpointHealthResponse {
        request_type: Some(RequestType::HealthCheckRequest(request)),
    }
}

fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}
