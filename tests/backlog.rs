//! What an engine was told and has not done yet: it holds up neither other clusters nor the engine's end, and hosts that
//! are told anew are the only ones that count.
//!
//! Engine and test share one thread here, so what is told without waiting is told before any of it is begun.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;

use common::{Events, Scripted, check, host, once, run, until};
use xds_health::config::{ClusterConfig, Discovery};
use xds_health::engine::{Cluster, Ended, Engine, Options};
use xds_health::host::Host;
use xds_health::stats::Stats;

/// Far more than are looked at in one turn.
const MANY: u32 = 40_000;

/// Hosts that a script knows by `port`.
fn many(port: u16) -> Vec<Arc<Host>> {
    let address = |n| SocketAddr::from((Ipv4Addr::from(0x7f10_0000 + n), port));
    (0..MANY).map(|n| Arc::new(Host::new(address(n)))).collect()
}

async fn dynamic(engine: &Engine, name: &str, checker: &Scripted) -> Cluster {
    let config = ClusterConfig::new(name, Discovery::Dynamic).with_health_check(once(""));
    run(engine, config, checker.clone(), &Events::default()).await
}

/// An engine with a cluster that has one host, and one that is to have many.
async fn bed(checker: &Scripted) -> (Engine, Cluster, Cluster) {
    let options = Options::default().with_seed(1);
    let engine = Engine::start(options, Arc::new(Stats::default())).unwrap();
    let small = dynamic(&engine, "small", checker).await;
    small.reset([host(1)]).await.unwrap();
    small.initialized().await.unwrap();
    let large = dynamic(&engine, "large", checker).await;
    large.reset(Vec::<Arc<Host>>::new()).await.unwrap();
    large.initialized().await.unwrap();
    (engine, small, large)
}

#[tokio::test]
async fn a_small_cluster_does_not_wait_for_a_large_one_whose_last_hosts_are_the_only_ones() {
    let checker = Scripted::default();
    let (engine, small, large) = bed(&checker).await;
    for port in 11..=14 {
        large.reset(many(port)).await.unwrap();
        large.remove([host(port).address.clone()]).await.unwrap();
    }
    large.reset(many(15)).await.unwrap();
    let address = &host(1).address;
    assert_eq!(small.explain(address).await.unwrap().len(), 1);
    assert_eq!(small.set_unhealthy(address).await, Ok(true));
    assert_eq!(small.note_traffic().await, Ok(()));
    small.upsert([host(2)]).await.unwrap();
    until(&small, |hosts| hosts.len() == 2).await;
    assert!(large.snapshot().is_empty(), "still on its way");

    let last = large.initialized().await.unwrap();
    assert_eq!(last.len(), MANY as usize);
    assert!(
        last.hosts()
            .all(|view| view.host.address.port() == Some(15))
    );
    let begun = (11..=15).map(|port| checker.attempts(port));
    assert!(begun.eq([0, 0, 0, 0, MANY as usize]));
    drop(engine);
}

#[tokio::test]
async fn a_cluster_is_told_and_asked_in_one_order() {
    let checker = Scripted::default();
    let (engine, _, large) = bed(&checker).await;
    let hosts = many(11);
    let address = hosts[0].address.clone();
    large.reset(hosts).await.unwrap();
    // Asked while the change is made, answered when it was.
    assert_eq!(large.explain(&address).await.unwrap().len(), 1);
    large.reset([host(2)]).await.unwrap();
    large.upsert([host(3)]).await.unwrap();
    large.remove([host(2).address.clone()]).await.unwrap();
    assert_eq!(large.set_unhealthy(&host(3).address).await, Ok(true));
    drop(engine);
}

#[tokio::test]
async fn other_clusters_are_served_between_the_pieces_of_any_large_change() {
    let checker = Scripted::default();
    let (engine, small, large) = bed(&checker).await;
    let given = ClusterConfig::new("given", Discovery::Static(many(11))).with_health_check(check());
    for upserts in [true, false] {
        let changes = if upserts {
            large.upsert(many(11)).await.unwrap();
            large.clone()
        } else {
            run(&engine, given.clone(), checker.clone(), &Events::default()).await
        };
        let mut answers = 0;
        while changes.snapshot().is_empty() {
            small.explain(&host(1).address).await.unwrap();
            answers += 1;
        }
        assert!(answers >= 5, "{answers}, upserts: {upserts}");
        assert_eq!(changes.snapshot().len(), MANY as usize);
    }
}

#[tokio::test]
async fn an_engine_that_ends_does_nothing_more_of_what_it_was_told() {
    for stops in [true, false] {
        let checker = Scripted::default();
        let (engine, small, large) = bed(&checker).await;
        large.reset(many(11)).await.unwrap();
        small.explain(&host(1).address).await.unwrap();
        // All of these wait, and then one more for room.
        for _ in 0..63 {
            large.upsert([host(12)]).await.unwrap();
        }
        let mut waits = pin!(large.upsert([host(12)]));
        tokio::select! {
            biased;
            told = &mut waits => panic!("{told:?}"),
            () = std::future::ready(()) => (),
        }
        let mut changes = large.changes();
        if stops {
            engine.stop().await;
        } else {
            drop(engine);
        }
        while changes.changed().await.is_ok() {}
        assert_eq!(waits.await, Err(Ended));
        assert!(large.ended() && large.snapshot().is_empty());
        assert!(checker.attempts(11) < MANY as usize);
        assert_eq!((checker.attempts(12), checker.running()), (0, 0));
    }
}
