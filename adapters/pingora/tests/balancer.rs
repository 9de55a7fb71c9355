//! A Pingora balancer over real hosts: those that pass are chosen, others are not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora_load_balancing::discovery::ServiceDiscovery;
use pingora_load_balancing::selection::RoundRobin;
use pingora_load_balancing::{Backends, LoadBalancer};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use xds_health::config::{CheckerConfig, ClusterConfig, Discovery as Kind, HealthCheck};
use xds_health::engine::{Engine, Options, Origin};
use xds_health::host::Host;
use xds_health::registry::Registry;
use xds_health::stats::Stats;
use xds_health_pingora::{Discovery, Health};

async fn serve() -> (SocketAddr, JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut ping = [0; 16];
        while let Ok((_, from)) = socket.recv_from(&mut ping).await {
            socket.send_to(b"pong", from).await.unwrap();
        }
    });
    (address, server)
}

fn chosen(balancer: &LoadBalancer<RoundRobin>) -> BTreeSet<String> {
    let chosen = (0..20).filter_map(|_| balancer.select(b"", 10));
    chosen.map(|backend| backend.addr.to_string()).collect()
}

#[tokio::test]
async fn a_balancer_chooses_among_the_hosts_that_pass() {
    let (first, server) = serve().await;
    let (second, _other) = serve().await;
    // Bound, and silent: its first check takes as long as the timeout.
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let silent_at = silent.local_addr().unwrap();

    let checker = CheckerConfig::udp(b"ping", b"pong").unwrap();
    let second_long = Duration::from_secs(1);
    let check = HealthCheck::new(checker, 5 * second_long, second_long / 10, 1, 1)
        .with_no_traffic_interval(second_long / 10);
    let config = ClusterConfig::new("web", Kind::Dynamic).with_health_check(check);
    let engine = Engine::start(Options::default(), Arc::new(Stats::default())).unwrap();
    let update = Registry::default().build(config).unwrap();
    let cluster = engine.set_cluster(update, Origin::Static).await.unwrap();
    let mut changes = cluster.changes();

    let mut backends = Backends::new(Box::new(Discovery::new(&cluster)));
    backends.set_health_check(Box::new(Health::new(&cluster)));
    let balancer = LoadBalancer::<RoundRobin>::from_backends(backends);
    let hosts = [first, second, silent_at].map(Host::new);
    cluster.reset(hosts).await.unwrap();
    while cluster.snapshot().eligible().count() < 2 {
        changes.changed().await.unwrap();
    }
    // The one that was never checked is withheld.
    let (found, _) = Discovery::new(&cluster).discover().await.unwrap();
    assert_eq!(found.len(), 2);
    balancer.update().await.unwrap();
    let both = BTreeSet::from([first.to_string(), second.to_string()]);
    assert_eq!(chosen(&balancer), both);

    server.abort();
    let _ = server.await;
    while cluster.snapshot().at(first).unwrap().eligible() {
        changes.changed().await.unwrap();
    }
    // Either way it learns: by the checks alone, and by discovery alone.
    balancer.backends().run_health_check(false).await;
    assert_eq!(chosen(&balancer), BTreeSet::from([second.to_string()]));
    let (_, enabled) = Discovery::new(&cluster).discover().await.unwrap();
    assert_eq!(enabled.values().filter(|enabled| **enabled).count(), 1);
}
