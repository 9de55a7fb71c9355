//! What it costs to look a host's health up with every packet, while nothing changes and while all changes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bench prints and ends at the first surprise"
)]

use std::hint::black_box;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::args::Args;
use common::process::Cpu;
use xds_health::config::{ClusterConfig, Discovery};
use xds_health::engine::{Cluster, Engine, Options, Origin};
use xds_health::host::{EdsHealth, Host};
use xds_health::registry::Registry;
use xds_health::stats::Stats;

mod common;

/// Hosts told anew in one change.
const CHANGED: u32 = 256;
/// Longer than any machine takes for one change.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let args = Args::new();
    let hosts = args.value("--hosts", if args.short() { 1_000 } else { 100_000 });
    let rounds = args.value("--rounds", if args.short() { 20_000 } else { 20_000_000 });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stats = Arc::new(Stats::default());
    let options = Options::default().with_shards(args.value("--shards", 1));
    let engine = Engine::start_threads(options, stats).unwrap();
    let update = Registry::empty()
        .build(ClusterConfig::new("games", Discovery::Dynamic))
        .unwrap();
    let cluster = runtime.block_on(async {
        let cluster = engine.set_cluster(update, Origin::Static).await.unwrap();
        let all = (0..hosts).map(|n| host(n, EdsHealth::Healthy));
        cluster.reset(all).await.unwrap();
        let mut changes = cluster.changes();
        while cluster.snapshot().len() < usize::try_from(hosts).unwrap() {
            changes.changed().await.unwrap();
        }
        cluster
    });

    println!("{hosts} hosts; nanoseconds of CPU for each look-up of another host by its address");
    println!("{:<44}{:>12}{:>16}", "", "no changes", "under changes");
    let quiet = measure(&cluster, hosts, rounds);
    let (ends, told) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let writer = {
        let (cluster, ends, told) = (cluster.clone(), Arc::clone(&ends), Arc::clone(&told));
        std::thread::spawn(move || runtime.block_on(change(&cluster, hosts, &ends, &told)))
    };
    let (began, version) = (Instant::now(), *cluster.changes().borrow());
    // A short one may be over before the writer has had its turn.
    let (busy, versions) = loop {
        let busy = measure(&cluster, hosts, rounds);
        let versions = *cluster.changes().borrow() - version;
        if versions > 0 || began.elapsed() > PATIENCE {
            break (busy, versions);
        }
    };
    let took = began.elapsed();
    ends.store(true, Relaxed);
    writer.join().unwrap();
    for ((what, quiet), (_, busy)) in quiet.iter().zip(&busy) {
        println!("{what:<44}{quiet:>12.1}{busy:>16.1}");
    }
    let each = |n: u64| n as f64 / took.as_secs_f64();
    println!(
        "while {:.0} changes of health a second were published in {:.0} views",
        each(told.load(Relaxed)),
        each(versions)
    );
    if versions == 0 {
        println!("nothing changed: this says nothing");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn address(n: u32) -> SocketAddr {
    let [a, b, c, d] = n.to_be_bytes();
    SocketAddr::from(([10, b.wrapping_add(a), c, d], 7777))
}

fn host(n: u32, health: EdsHealth) -> Host {
    Host::new(address(n)).with_eds_health(health)
}

/// Turns the health of one host after the other, until told to end.
async fn change(cluster: &Cluster, hosts: u32, ends: &AtomicBool, told: &AtomicU64) {
    let mut next = 0_u32;
    let mut round = 0_u64;
    while !ends.load(Relaxed) {
        round += 1;
        let health = match round % 2 {
            0 => EdsHealth::Healthy,
            _ => EdsHealth::Unhealthy,
        };
        let changed = (0..CHANGED).map(|n| host((next + n * 389) % hosts, health));
        cluster.upsert(changed).await.unwrap();
        told.fetch_add(u64::from(CHANGED), Relaxed);
        next = (next + 1) % hosts;
        // About as often as views are published.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn measure(cluster: &Cluster, hosts: u32, rounds: u32) -> Vec<(&'static str, f64)> {
    let snapshot = cluster.snapshot();
    let mut reader = cluster.reader();
    let one = rounds / 1000;
    // Where a host stands is known to who keeps its slot.
    let list = &snapshot.parts()[0].hosts;
    let slots = u32::try_from(list.slots()).unwrap();
    let slot = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => (v4.ip().to_bits() & 0x00ff_ffff) % slots,
        SocketAddr::V6(_) => 0,
    };
    vec![
        (
            "the loop alone",
            each(rounds, hosts, |address| black_box(address).port() == 1),
        ),
        (
            "HostList::get, of a snapshot that is kept",
            each(rounds, hosts, |address| {
                let view = list.get(slot(address) as usize);
                view.is_some_and(|view| view.eligible())
            }),
        ),
        (
            "HostList::get, always the same host",
            each(rounds, 1, |address| {
                let view = list.get(slot(address) as usize);
                view.is_some_and(|view| view.eligible())
            }),
        ),
        (
            "Snapshot::at, of a snapshot that is kept",
            each(rounds, hosts, |address| {
                snapshot.at(address).is_some_and(|view| view.eligible())
            }),
        ),
        (
            "Reader::at",
            each(rounds, hosts, |address| {
                reader.at(address).is_some_and(|view| view.eligible())
            }),
        ),
        (
            "Reader::at, always the same host",
            each(rounds, 1, |address| {
                reader.at(address).is_some_and(|view| view.eligible())
            }),
        ),
        (
            "Cluster::verdict",
            each(rounds, hosts, |address| cluster.verdict(address).is_some()),
        ),
        (
            "Cluster::snapshot, then Snapshot::at",
            each(one.max(1000), hosts, |address| {
                let snapshot = cluster.snapshot();
                snapshot.at(address).is_some_and(|view| view.eligible())
            }),
        ),
    ]
}

/// Nanoseconds of this thread's CPU for each call, of so many, with addresses in no order.
fn each(rounds: u32, hosts: u32, mut look: impl FnMut(SocketAddr) -> bool) -> f64 {
    let before = Cpu::of_thread();
    let (mut n, mut found) = (0_u32, 0_u64);
    for _ in 0..rounds {
        n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let which = (u64::from(n) * u64::from(hosts)) >> 32;
        let which = u32::try_from(which).unwrap_or_default();
        found += u64::from(look(address(which)));
    }
    black_box(found);
    (Cpu::of_thread() - before).micros_per(u64::from(rounds)) * 1e3
}
