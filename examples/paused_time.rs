//! How to test a program that embeds the library: on a paused clock, with hosts that do as they are told.
//!
//! All that is scheduled goes by tokio's clock. With `start_paused`, or `tokio::time::pause`, it stands still while
//! anything is to be done and jumps to the next deadline when nothing is, so a test of hours takes milliseconds and
//! gives the same result each time. It needs the feature `test-util` of tokio, in `[dev-dependencies]`.
//!
//! Never use real sockets on a paused clock: while an answer is on its way the program is idle, so the clock jumps
//! to the timeout. Hosts are played by a checker instead, as here.
//!
//! ```text
//! cargo run --example paused_time
//! ```

#![allow(clippy::print_stdout, reason = "an example tells what it sees")]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;
use xds_health::checker::{Attempt, AttemptIo, Checker, HostChecker, Target};
use xds_health::config::{CheckerConfig, ClusterConfig, Discovery, HealthCheck, TypedConfig};
use xds_health::engine::{Engine, Options, Origin};
use xds_health::event::{EventKind, HealthCheckerType, Outcome, Reason};
use xds_health::host::Host;
use xds_health::registry::Update;
use xds_health::stats::Stats;

/// Hosts that answer after 50 ms, or not at all.
#[derive(Clone, Debug, Default)]
struct Played {
    silent: Arc<AtomicBool>,
}

impl Checker for Played {
    fn health_checker_type(&self) -> HealthCheckerType {
        HealthCheckerType::Udp
    }

    fn for_host(&self, _: Target<'_>) -> Box<dyn HostChecker> {
        Box::new(self.clone())
    }
}

impl HostChecker for Played {
    fn attempt<'a>(&'a mut self, io: &'a AttemptIo) -> Attempt<'a> {
        Box::pin(async move {
            io.sent();
            tokio::time::sleep(Duration::from_millis(50)).await;
            if self.silent.load(Relaxed) {
                return std::future::pending().await;
            }
            Outcome::SUCCESS
        })
    }
}

// A test would be `#[tokio::test(start_paused = true)]`.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let second = Duration::from_secs(1);
    // The checker is given by hand, so what the configuration says of it is not looked at.
    let any = CheckerConfig::Custom(TypedConfig::default());
    let mut check = HealthCheck::new(any, second, 60 * second, 3, 2);
    check.unhealthy_edge_interval = 10 * second;
    let config = ClusterConfig::new("games", Discovery::Dynamic).with_health_check(check);
    let hosts = Played::default();
    let update = Update::new(
        Arc::new(config),
        vec![Arc::new(hosts.clone())],
        vec![vec![]],
    );

    // Jitter, if there were any, would be the same each time by the seed.
    let options = Options::default().with_seed(7);
    let engine = Engine::start(options, Arc::new(Stats::default()))?;
    let cluster = engine.set_cluster(update, Origin::Static).await?;
    let mut events = cluster.events();
    let address = SocketAddr::from(([10, 0, 0, 1], 7777));
    cluster.reset([Host::new(address)]).await?;
    cluster.note_traffic().await?;

    let first = events.next().await?;
    assert_eq!(first.kind, EventKind::AddHealthy { first_check: true });
    // To the millisecond or two that timers round up by.
    let rtt = first.round_trip.ok_or("a success has a round trip")?;
    assert!(rtt.abs_diff(Duration::from_millis(50)) <= Duration::from_millis(2));

    // Silent from now on: after a minute the first of three failures, each of a second, ten seconds apart.
    hosts.silent.store(true, Relaxed);
    let began = Instant::now();
    let ejected = events.next().await?;
    assert!(matches!(ejected.kind, EventKind::EjectUnhealthy { .. }));
    assert_eq!(ejected.reason, Some(Reason::Silent));
    let took = began.elapsed();
    println!("ejected {took:?} after it fell silent");
    assert!(took.abs_diff(83 * second) < Duration::from_millis(20));
    Ok(())
}
