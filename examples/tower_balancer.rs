//! tower's balancer over hosts that pass their checks: power of two choices by the requests that wait.
//!
//! The stream of eligible hosts is what tower calls `Discover`. Requests are questions over UDP here; any service
//! that can be made for a host will do.
//!
//! ```text
//! cargo run --example tower_balancer --features tower
//! ```

#![allow(clippy::print_stdout, reason = "an example tells what it sees")]

use std::collections::BTreeMap;
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::balance::p2c::Balance;
use tower::load::{CompleteOnResponse, PendingRequests};
use tower::{Service, ServiceExt};
use xds_health::config::{CheckerConfig, ClusterConfig, Discovery, HealthCheck};
use xds_health::engine::{Engine, Options, Origin};
use xds_health::host::Host;
use xds_health::registry::Registry;
use xds_health::stats::Stats;
use xds_health::tower::Hosts;

/// Asks one host.
#[derive(Clone, Debug)]
struct Ask(SocketAddr);

impl Service<&'static str> for Ask {
    type Response = u16;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<u16>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, question: &'static str) -> Self::Future {
        let address = self.0;
        Box::pin(async move {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            socket.connect(address).await?;
            socket.send(question.as_bytes()).await?;
            let mut answer = [0; 16];
            let len = timeout(Duration::from_secs(2), socket.recv(&mut answer)).await??;
            let text = std::str::from_utf8(&answer[..len]).map_err(io::Error::other)?;
            text.parse().map_err(io::Error::other)
        })
    }
}

/// A server: answers `ping` with `pong`, and anything else with its own port.
async fn serve() -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = socket.local_addr()?;
    let server = tokio::spawn(async move {
        let mut datagram = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut datagram).await {
            let port = address.port().to_string();
            let answer = match &datagram[..len] {
                b"ping" => b"pong",
                _ => port.as_bytes(),
            };
            if socket.send_to(answer, from).await.is_err() {
                return;
            }
        }
    });
    Ok((address, server))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(serve().await?);
    }
    let second = Duration::from_secs(1);
    let checker = CheckerConfig::udp(b"ping", b"pong")?;
    let check =
        HealthCheck::new(checker, second, second / 5, 2, 2).with_no_traffic_interval(second / 5);
    let config = ClusterConfig::new("answers", Discovery::Dynamic).with_health_check(check);
    let engine = Engine::start(Options::default(), Arc::new(Stats::default()))?;
    let update = Registry::default().build(config)?;
    let cluster = engine.set_cluster(update, Origin::Dynamic).await?;

    let hosts = Hosts::new(&cluster, |_, address| {
        PendingRequests::new(Ask(address), CompleteOnResponse::default())
    });
    let mut balance = Balance::new(hosts);
    cluster
        .reset(servers.iter().map(|(address, _)| Host::new(*address)))
        .await?;
    cluster.initialized().await?;

    let mut ask = async |count| -> Result<BTreeMap<u16, usize>, Box<dyn Error>> {
        let mut answers = BTreeMap::new();
        for _ in 0..count {
            // Waits, too, as long as no host is eligible.
            let service = balance.ready().await.map_err(|error| error.to_string())?;
            let port = service
                .call("who?")
                .await
                .map_err(|error| error.to_string())?;
            *answers.entry(port).or_default() += 1;
        }
        Ok(answers)
    };
    let answers = ask(300).await?;
    println!("three servers: {answers:?}");
    assert_eq!(answers.len(), 3);

    let (killed, server) = servers.remove(0);
    server.abort();
    let _ = server.await;
    let mut changes = cluster.changes();
    while cluster
        .snapshot()
        .at(killed)
        .is_some_and(|view| view.eligible())
    {
        changes.changed().await?;
    }
    // No request fails from here on.
    let answers = ask(300).await?;
    println!("after ejection: {answers:?}");
    assert!(!answers.contains_key(&killed.port()) && answers.len() == 2);
    Ok(())
}
