//! The admin port over real HTTP: each path, each format, each error.
#![cfg(feature = "admin")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    missing_docs,
    reason = "a test ends at what it does not expect, and is read by nobody's compiler"
)]

#[path = "common/http.rs"]
mod http;
#[path = "common/prometheus.rs"]
mod prometheus;
#[path = "common/scripted.rs"]
mod scripted;

#[path = "admin/clusters.rs"]
mod clusters;
#[path = "admin/config_dump.rs"]
mod config_dump;
#[path = "admin/limits.rs"]
mod limits;
#[path = "admin/server.rs"]
mod server;
#[path = "admin/stats.rs"]
mod stats;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use xds_health::admin::{self, Admin, Limits};
use xds_health::engine::{Engine, Options};
use xds_health::stats::Stats;

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
