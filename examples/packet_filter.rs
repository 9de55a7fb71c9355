//! A filter for a UDP proxy that works packet by packet, in the manner of Quilkin: of the endpoints that a packet
//! may go to, those stay that pass their checks.
//!
//! A proxy has a chain of filters on each of its worker threads, and calls them with every packet. So the filter
//! takes no lock, allocates nothing and does one look-up for each endpoint; health changes behind its back. In
//! panic, when too few endpoints are eligible, all stay, as with Envoy.
//!
//! ```text
//! cargo run --example packet_filter
//! ```

#![allow(clippy::print_stdout, reason = "an example tells what it sees")]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use xds_health::config::{CheckerConfig, ClusterConfig, Discovery, HealthCheck};
use xds_health::engine::{Cluster, Engine, Options, Origin, Reader};
use xds_health::host::Host;
use xds_health::registry::Registry;
use xds_health::stats::Stats;

/// A packet on its way through the filters, with the endpoints that it may still go to.
struct ReadContext<'a> {
    destinations: &'a mut Vec<SocketAddr>,
    contents: &'a [u8],
}

/// What a proxy asks of a filter.
trait Filter {
    /// Whether the packet is to go on.
    fn read(&mut self, packet: &mut ReadContext<'_>) -> bool;
}

/// Keeps the endpoints that pass their checks. One for each worker.
struct HealthFilter {
    cluster: Cluster,
    hosts: Reader,
    /// Of so many percent of the destinations that are eligible, the others are left out; of fewer, none is. As the
    /// cluster is configured.
    panic_threshold: usize,
}

impl HealthFilter {
    fn new(cluster: &Cluster) -> Self {
        Self {
            cluster: cluster.clone(),
            hosts: cluster.reader(),
            panic_threshold: cluster.balance_rules().healthy_panic_threshold as usize,
        }
    }
}

impl Filter for HealthFilter {
    fn read(&mut self, packet: &mut ReadContext<'_>) -> bool {
        // After it was noted once, this is a look at a flag. When it cannot be noted now, the next packet tries.
        if self.cluster.try_note_traffic().is_err() {
            return false;
        }
        // Those that pass go to the front; what stands behind them is left out, or is not.
        let destinations = &mut *packet.destinations;
        let mut passed = 0;
        for index in 0..destinations.len() {
            if self.hosts.eligible(destinations[index]) {
                destinations.swap(passed, index);
                passed += 1;
            }
        }
        if passed * 100 >= destinations.len() * self.panic_threshold {
            destinations.truncate(passed);
        }
        !packet.contents.is_empty() && !destinations.is_empty()
    }
}

/// Answers checks until the process ends.
fn serve() -> std::io::Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = socket.local_addr()?;
    std::thread::spawn(move || {
        let mut ping = [0; 16];
        while let Ok((_, from)) = socket.recv_from(&mut ping) {
            if socket.send_to(b"pong", from).is_err() {
                return;
            }
        }
    });
    Ok(address)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (first, second) = (serve()?, serve()?);
    // Nobody is there.
    let closed = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;

    let check = HealthCheck::new(
        CheckerConfig::udp(b"ping", b"pong")?,
        Duration::from_secs(2),
        Duration::from_secs(1),
        2,
        1,
    );
    let config = ClusterConfig::new("games", Discovery::Dynamic).with_health_check(check);
    // Threads of its own: workers that are busy with packets do not hold up checks.
    let engine = Engine::start_threads(Options::default(), Arc::new(Stats::default()))?;
    let update = Registry::default().build(config)?;
    let cluster = engine.set_cluster(update, Origin::Dynamic).await?;
    cluster
        .reset([first, second, closed].map(Host::new))
        .await?;
    cluster.initialized().await?;

    let worker = std::thread::spawn({
        let mut filter = HealthFilter::new(&cluster);
        move || {
            let mut destinations = Vec::with_capacity(3);
            let mut pass = |endpoints: &[SocketAddr]| {
                destinations.clear();
                destinations.extend_from_slice(endpoints);
                let goes = filter.read(&mut ReadContext {
                    destinations: &mut destinations,
                    contents: b"a move",
                });
                (goes, destinations.clone())
            };
            assert_eq!(pass(&[closed, first, second]), (true, vec![first, second]));
            // Less than half of what there is to choose from passes: better to try than to drop.
            assert_eq!(pass(&[closed]), (true, vec![closed]));
            for _ in 0..100_000 {
                assert!(pass(&[first, closed]).0);
            }
        }
    });
    worker.join().map_err(|_| "the worker failed")?;
    println!("packets go to {first} and {second}, not to {closed}");
    engine.stop().await;
    Ok(())
}
