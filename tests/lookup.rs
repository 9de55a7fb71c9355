//! Look-ups allocate nothing, whoever changes what meanwhile.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;

use xds_health::config::{ClusterConfig, Discovery};
use xds_health::engine::{Engine, Options, Origin};
use xds_health::host::Host;
use xds_health::registry::Registry;
use xds_health::snapshot::Verdict;
use xds_health::stats::Stats;

/// Counts what each thread asks for.
struct Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn address(n: u16) -> SocketAddr {
    SocketAddr::from(([10, 1, 2, 3], n))
}

#[tokio::test]
async fn look_ups_by_address_and_name_allocate_nothing() {
    let stats = Arc::new(Stats::default());
    let engine = Engine::start_threads(Options::default().with_shards(2), stats).unwrap();
    let config = ClusterConfig::new("c", Discovery::Dynamic);
    let update = Registry::empty().build(config).unwrap();
    let cluster = engine.set_cluster(update, Origin::Static).await.unwrap();
    let hosts = |weight| {
        let host = move |n| {
            let host = Host::new(address(n)).with_hostname("games.example");
            host.with_weight(weight)
        };
        (1..=10_000).map(host)
    };
    cluster.reset(hosts(1)).await.unwrap();
    let mut changes = cluster.changes();
    while cluster.snapshot().len() < 10_000 {
        changes.changed().await.unwrap();
    }
    // Each thread's first look makes room for its own bookkeeping.
    cluster.verdict(address(1));
    let (mut reader, snapshot) = (cluster.reader(), cluster.snapshot());
    for round in 2..5 {
        cluster.reset(hosts(round)).await.unwrap();
        let before = ASKED.get();
        for n in 1..=10_000 {
            assert_eq!(cluster.verdict(address(n)), Some(Verdict::Healthy));
            assert!(reader.at(address(n)).unwrap().eligible());
            assert!(snapshot.at(address(n)).unwrap().eligible());
            assert_eq!(snapshot.named("games.example", n).count(), 1);
            assert_eq!(reader.named("games.example", n).count(), 1);
        }
        assert!(reader.at(address(10_001)).is_none());
        assert_eq!(ASKED.get(), before);
    }
    engine.stop().await;
}
