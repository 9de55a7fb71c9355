//! The admin port over real HTTP: each path, each format, each error.
#![cfg(feature = "admin")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    missing_docs,
    reason = "a test ends at what it does not expect, and is read by nobody's compiler"
)]

mod common;
#[path = "common/http.rs"]
mod http;
#[path = "common/prometheus.rs"]
mod prometheus;

#[path = "admin/clusters.rs"]
mod clusters;
#[path = "admin/config_dump.rs"]
mod config_dump;
#[path = "admin/control.rs"]
mod control;
#[path = "admin/events.rs"]
mod events;
#[path = "admin/hosts.rs"]
mod hosts;
#[path = "admin/limits.rs"]
mod limits;
#[path = "admin/server.rs"]
mod server;
#[path = "admin/stats.rs"]
mod stats;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use common::{Events, Scripted, Step};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use xds_health::admin::{self, Admin, Limits};
use xds_health::config::{ClusterConfig, Discovery};
use xds_health::engine::{Cluster, Engine, Options, Origin};
use xds_health::event::{Outcome, Reason};
use xds_health::host::Host;
use xds_health::stats::Stats;

/// Attempts at this port fail.
const FAILING: u16 = 1;
/// Attempts at this port time out.
const SILENT: u16 = 2;
/// Attempts at this port succeed once they are released.
const HELD: u16 = 3;
/// Attempts at this port, and all others, succeed.
const PASSING: u16 = 4;

/// With attempts at [`HELD`] released.
fn script() -> Scripted {
    let script = Scripted::default();
    for (port, reason) in [
        (FAILING, Outcome::network(Reason::Refused)),
        (SILENT, Outcome::timeout(Reason::Silent)),
    ] {
        script.script(port, [Step::After(Duration::ZERO, reason)]);
    }
    script
}

/// With attempts at [`HELD`] waiting for `released`.
fn held(released: watch::Receiver<bool>) -> Scripted {
    let script = script();
    script.script(HELD, [Step::Held(released)]);
    script
}

fn host(port: u16) -> Host {
    Host::clone(&common::host(port))
}

/// A cluster of `hosts` with a check for each of `checks`.
fn cluster(name: &str, hosts: Vec<Host>, checks: &[&str]) -> ClusterConfig {
    let hosts = hosts.into_iter().map(Arc::new).collect();
    let cluster = ClusterConfig::new(name, Discovery::Static(hosts));
    checks.iter().fold(cluster, |cluster, name| {
        cluster.with_health_check(common::once(name))
    })
}

/// Gives `engine` a cluster that `script` checks.
async fn set(engine: &Engine, config: ClusterConfig, script: &Scripted, origin: Origin) -> Cluster {
    common::run_as(engine, config, script.clone(), &Events::default(), origin).await
}

/// The cluster `c1` of these hosts, once each was checked.
async fn set_checked(engine: &Engine, hosts: Vec<Host>) -> Cluster {
    let config = cluster("c1", hosts, &[""]);
    let checked = set(engine, config, &script(), Origin::Static).await;
    common::until_initialized(&checked).await;
    checked
}

/// An engine on this runtime.
fn engine() -> Engine {
    engine_of(1)
}

fn engine_of(shards: usize) -> Engine {
    let options = Options::default().with_shards(shards).with_seed(1);
    Engine::start(options, Arc::new(Stats::default())).unwrap()
}

/// An admin port that is served.
struct Served {
    address: SocketAddr,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn serve(router: Router, limits: Limits) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, ended) = oneshot::channel();
    let task = tokio::spawn(async move {
        let shutdown = async {
            let _ = ended.await;
        };
        admin::serve(listener, router, limits, shutdown).await;
    });
    Served { address, end, task }
}

async fn serve_engine(engine: &Engine) -> Served {
    let router = admin::router(Admin::new(engine.clone()));
    serve(router, Limits::default()).await
}
