//! The admin port: what an operator reads over HTTP, under Envoy's paths and in Envoy's forms.
//!
//! An [`Admin`] says what is to be read; [`router`] makes an axum router of it, which an embedder can serve
//! within its own, and [`serve`] is an accept loop with limits for who has none. Nothing asked here changes a
//! check; what changes the process goes through its [`Control`]. Long answers are built off the runtime or in small pieces between which
//! other tasks run, so that checks go on in time.
//!
//! Where it differs from Envoy: read-only paths take `GET` and `HEAD` only (Envoy takes any method); a filter
//! is a regular expression of the `regex` crate with ASCII classes, close to RE2; warming clusters are shown;
//! a cluster's name is one label value for Prometheus even with dots in it; histograms know no interval and
//! show upper bounds of buckets.
//!
//! ```no_run
//! use xds_health::admin::{self, Admin, Limits};
//! # async fn example(engine: xds_health::engine::Engine, end: tokio::sync::oneshot::Receiver<()>) -> std::io::Result<()> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:9901").await?;
//! let pages = admin::router(Admin::new(engine));
//! let end = async { end.await.unwrap_or_default() };
//! admin::serve(listener, pages, Limits::default(), end).await;
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub use axum;
use axum::Router;
use tokio::sync::{Semaphore, watch};

use crate::engine::{Engine, Origin};
use crate::proto::envoy::config::core::v3::Node;

mod answer;
mod clusters;
mod config_dump;
mod control;
mod control_planes;
mod events;
mod guard;
mod hosts;
mod init_dump;
mod json;
mod page;
mod pages;
mod prometheus;
mod query;
mod seats;
mod serve;
mod server;
mod stats;
mod stream;

pub use config_dump::BootstrapDump;
pub use control::{Control, LogLevel};
pub use serve::{Limits, serve};

/// Name and version of this program.
const VERSION: &str = concat!("xds-health/", env!("CARGO_PKG_VERSION"));
/// How many answers are built off the runtime at once; further ones wait. Each may take a processor.
const BUILDERS: usize = 2;
/// Texts that are kept at once until their clients have taken them.
const WHOLE: usize = 8;

/// What the admin port tells of.
#[derive(Clone, Debug)]
pub struct Admin {
    engine: Engine,
    node: Option<Node>,
    gate: Option<watch::Receiver<bool>>,
    control: Option<Arc<dyn Control>>,
    /// Whether this machine is the only one to reach the port, so that it is asked for by no other names.
    own_names: bool,
    /// The bootstrap in force.
    bootstrap: Option<watch::Receiver<BootstrapDump>>,
    #[cfg(feature = "xds")]
    dump: Option<crate::xds::Dump>,
    #[cfg(feature = "hds")]
    hds_dump: Option<crate::hds::Dump>,
}

impl Admin {
    /// Tells of `engine`, and keeps it going. To be made when the engine has been given its static
    /// clusters: `/ready` waits for those that are there.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            node: None,
            gate: None,
            control: None,
            own_names: false,
            bootstrap: None,
            #[cfg(feature = "xds")]
            dump: None,
            #[cfg(feature = "hds")]
            hds_dump: None,
        }
    }

    /// The same, with the node that this process is to a control plane.
    pub fn with_node(mut self, node: Node) -> Self {
        self.node = Some(node);
        self
    }

    /// The same, not ready before `gate` has said `true` or its sender is gone: for clusters that are yet
    /// to come from a control plane. Who opens it may wait for
    /// [`Change::ClustersTold`](crate::registry::Change::ClustersTold), and for the first round of those clusters.
    pub fn with_gate(mut self, gate: watch::Receiver<bool>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// The same, with what `/logging`, `/reopen_logs` and `/quitquitquit` do.
    pub fn with_control(mut self, control: Arc<dyn Control>) -> Self {
        self.control = Some(control);
        self
    }

    /// The same, for a port that only this machine reaches: it is to be asked for by an IP address or as
    /// `localhost`. By any other name only a browser comes that was led here (DNS rebinding); it is refused.
    pub fn with_own_names_only(mut self) -> Self {
        self.own_names = true;
        self
    }

    /// The same, with what the process was started with, for `/config_dump`.
    pub fn with_bootstrap(self, bootstrap: BootstrapDump) -> Self {
        let (_, told) = watch::channel(bootstrap);
        self.with_bootstraps(told)
    }

    /// As [`Admin::with_bootstrap`], for a process that reads its bootstrap again: the last one told is shown.
    pub fn with_bootstraps(mut self, told: watch::Receiver<BootstrapDump>) -> Self {
        self.bootstrap = Some(told);
        self
    }

    /// The bootstrap that was told last.
    fn bootstrap(&self) -> Option<BootstrapDump> {
        Some(self.bootstrap.as_ref()?.borrow().clone())
    }

    /// The same, with what control planes told, for `/config_dump`.
    #[cfg(feature = "xds")]
    pub fn with_dump(mut self, dump: crate::xds::Dump) -> Self {
        self.dump = Some(dump);
        self
    }

    /// The same, with what a health discovery service told, for `/config_dump`.
    #[cfg(feature = "hds")]
    pub fn with_hds_dump(mut self, dump: crate::hds::Dump) -> Self {
        self.hds_dump = Some(dump);
        self
    }
}

/// The pages of `admin`, for a server of one's own.
pub fn router(admin: Admin) -> Router {
    pages::router(Arc::new(Shared {
        history: events::History::new(&admin.engine),
        streams: stream::Streams::default(),
        admin,
        initialized: AtomicBool::new(false),
        draining: AtomicBool::new(false),
        builders: Semaphore::new(BUILDERS),
        whole: Arc::new(Semaphore::new(WHOLE)),
    }))
}

/// What the pages share.
#[derive(Debug)]
struct Shared {
    admin: Admin,
    history: events::History,
    streams: stream::Streams,
    /// Whether all that is waited for was there once: it is not waited for again.
    initialized: AtomicBool,
    /// `/healthcheck/fail` was asked for.
    draining: AtomicBool,
    builders: Semaphore,
    /// Places for answers that are kept as one text until they are taken.
    whole: Arc<Semaphore>,
}

/// Where the server is in its life.
///
/// Source: `envoy.admin.v3.ServerInfo.State`, of which these are known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerState {
    Live = 0,
    Draining = 1,
    PreInitializing = 2,
}

impl ServerState {
    fn name(self) -> &'static str {
        match self {
            Self::Live => "LIVE",
            Self::Draining => "DRAINING",
            Self::PreInitializing => "PRE_INITIALIZING",
        }
    }
}

impl Shared {
    fn state(&self) -> ServerState {
        match (self.initialized(), self.draining.load(Relaxed)) {
            (false, _) => ServerState::PreInitializing,
            (true, true) => ServerState::Draining,
            (true, false) => ServerState::Live,
        }
    }

    fn initialized(&self) -> bool {
        if self.initialized.load(Relaxed) {
            return true;
        }
        let open = match &self.admin.gate {
            Some(gate) => *gate.borrow() || gate.has_changed().is_err(),
            None => true,
        };
        let initialized = open
            && self.admin.engine.clusters().iter().all(|cluster| {
                cluster.origin() != Origin::Static || cluster.snapshot().initialized()
            });
        if initialized {
            self.initialized.store(true, Relaxed);
        }
        initialized
    }
}
