//! What specifiers change.

use std::time::Duration;

use crate::server::{Bed, CHECK, Peer, all, cluster, shown, specifier};
use xds_health::engine::Origin;
use xds_health::hds::Options;
use xds_health::proto::envoy::service::health::v3::capability::Protocol;
use xds_health::proto::prost_types;

#[tokio::test]
async fn a_stream_begins_with_who_asks_and_what_it_can_check() {
    let bed = Bed::new().await;
    let request = bed.stream().await.request().await;
    let node = request.node.unwrap();
    assert_eq!((&*node.id, &*node.user_agent_name), ("n1", "xds-health"));
    let protocols = request.capability.unwrap().health_check_protocols;
    assert_eq!(
        protocols,
        [i32::from(Protocol::Http), i32::from(Protocol::Tcp)]
    );
}

#[tokio::test]
async fn new_changed_removed_and_empty_specifiers_are_reported() {
    let bed = Bed::new().await;
    let (passing, silent) = (Peer::new(true).await, Peer::new(false).await);
    let mut stream = bed.stream().await;
    stream.request().await;
    stream
        .send(&all(&[cluster("a", CHECK, &[&passing, &silent])]))
        .await;
    stream.until(&["a: HEALTHY TIMEOUT"]).await;

    // The silent one goes, and a cluster comes; the other endpoint's counters go on.
    let before = bed.stat("cluster.a.health_check.attempt");
    stream
        .send(&all(&[
            cluster("b", CHECK, &[&silent]),
            cluster("a", CHECK, &[&passing]),
        ]))
        .await;
    stream.until(&["b: TIMEOUT", "a: HEALTHY"]).await;
    assert!(bed.stat("cluster.a.health_check.attempt") >= before);
    assert_eq!(bed.stat("cluster.a.health_check.healthy"), 1);

    stream.send(&all(&[])).await;
    stream.until(&[]).await;
    assert_eq!(bed.engine.clusters().len(), 0);
    assert_eq!(bed.stat("hds_delegate.updates"), 3);
    assert_eq!(
        (
            bed.stat("hds_delegate.requests"),
            bed.stat("hds_delegate.errors")
        ),
        (3, 0)
    );
}

#[tokio::test]
async fn a_changed_check_keeps_the_state_until_it_has_found_its_own() {
    let bed = Bed::new().await;
    let peer = Peer::new(true).await;
    let mut stream = bed.stream().await;
    stream.request().await;
    stream.send(&all(&[cluster("a", CHECK, &[&peer])])).await;
    stream.until(&["a: HEALTHY"]).await;
    let other = CHECK
        .replace("text: \"71\"", "text: \"72\"")
        .replace("timeout: 0.2s", "timeout: 0.5s");
    stream.send(&all(&[cluster("a", &other, &[&peer])])).await;
    // Two attempts of half a second each must fail, with reports every tenth of a second.
    let mut seen = Vec::new();
    loop {
        let report = shown(&stream.report().await).remove(0);
        if !seen.contains(&report) {
            seen.push(report.clone());
        }
        if report == "a: TIMEOUT" {
            break;
        }
    }
    assert_eq!(seen, ["a: HEALTHY", "a: TIMEOUT"]);
}

#[tokio::test]
async fn a_bad_cluster_and_a_bad_specifier_leave_what_was_good() {
    let bed = Bed::new().await;
    let (first, second) = (Peer::new(true).await, Peer::new(true).await);
    let mut stream = bed.stream().await;
    stream.request().await;
    stream.send(&all(&[cluster("a", CHECK, &[&first])])).await;
    stream.until(&["a: HEALTHY"]).await;

    let bad = CHECK.replace("text: \"70\"", "text: zz");
    let good = cluster("b", CHECK, &[&second]);
    stream
        .send(&all(&[cluster("a", &bad, &[&second]), good]))
        .await;
    stream.until(&["a: HEALTHY", "b: HEALTHY"]).await;
    assert_eq!(
        (
            bed.stat("hds_delegate.updates"),
            bed.stat("hds_delegate.errors")
        ),
        (2, 1)
    );
    let records = bed.dump.clusters();
    let error = records[0].error_state.as_ref().unwrap();
    assert!(
        error.details.starts_with(
            "cluster_health_checks[0].health_checks[0].custom_health_check.typed_config.send.text: "
        ),
        "{}",
        error.details
    );
    assert!(records[0].resource.is_some());

    stream.send(&all(&[cluster("c", &bad, &[&second])])).await;
    while bed.stat("hds_delegate.errors") < 2 {
        stream.report().await;
    }
    stream.until(&["a: HEALTHY", "b: HEALTHY"]).await;
    assert_eq!(bed.stat("hds_delegate.updates"), 2);
}

#[tokio::test]
async fn without_checks_the_last_states_are_told_and_nobody_is_asked() {
    let bed = Bed::new().await;
    let (passing, silent) = (Peer::new(true).await, Peer::new(false).await);
    let both = [&passing, &silent];
    let mut stream = bed.stream().await;
    stream.request().await;
    stream.send(&all(&[cluster("a", CHECK, &both)])).await;
    stream.until(&["a: HEALTHY TIMEOUT"]).await;
    stream.send(&all(&[cluster("a", "", &both)])).await;
    while bed.stat("hds_delegate.updates") < 2 {
        stream.report().await;
    }
    // A datagram that was sent before may still be on its way.
    stream.report().await;
    let heard = passing.heard();
    for _ in 0..3 {
        assert_eq!(shown(&stream.report().await), ["a: HEALTHY TIMEOUT"]);
    }
    assert_eq!(passing.heard(), heard);
    silent.set_answers(true);
    stream.send(&all(&[cluster("a", CHECK, &both)])).await;
    stream.until(&["a: HEALTHY HEALTHY"]).await;
}

#[tokio::test]
async fn another_interval_acts_at_once() {
    let bed = Bed::new().await;
    let mut stream = bed.stream().await;
    stream.request().await;
    stream.send("interval: 3600s").await;
    while bed.stat("hds_delegate.updates") < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stream.send("interval: 0.1s").await;
    stream.report().await;
    stream.report().await;
}

#[tokio::test]
async fn clusters_stand_beside_others_of_their_name() {
    let bed = Bed::new().await;
    let (own, hds) = (Peer::new(true).await, Peer::new(false).await);
    let config = crate::common::cluster("a", crate::common::check(), vec![]);
    let scripted = crate::common::Scripted::default();
    crate::common::run(
        &bed.engine,
        config,
        scripted,
        &crate::common::Events::default(),
    )
    .await;
    let mut stream = bed.stream().await;
    stream.request().await;
    stream
        .send(&all(&[cluster("a", CHECK, &[&own, &hds])]))
        .await;
    stream.until(&["a: HEALTHY TIMEOUT"]).await;
    let clusters = bed.engine.clusters();
    let mut shown: Vec<_> = clusters
        .iter()
        .map(|cluster| {
            (
                &**cluster.name(),
                cluster.origin(),
                cluster.snapshot().len(),
            )
        })
        .collect();
    shown.sort_by_key(|(_, _, hosts)| *hosts);
    assert_eq!(shown, [("a", Origin::Static, 0), ("a", Origin::Hds, 2)]);
    assert_eq!(bed.stat("cluster_manager.active_clusters"), 1);
    assert_eq!(bed.stat("cluster.a.health_check.healthy"), 1);
    stream.send(&all(&[])).await;
    stream.until(&[]).await;
    assert_eq!(bed.engine.cluster("a").unwrap().origin(), Origin::Static);
}

#[tokio::test]
async fn the_flat_list_can_be_switched_off() {
    let bed = Bed::with(Options::default().with_flat(false), None).await;
    let peer = Peer::new(true).await;
    let mut stream = bed.stream().await;
    stream.request().await;
    stream.send(&all(&[cluster("a", CHECK, &[&peer])])).await;
    let report = stream.report().await;
    assert_eq!(
        (
            report.endpoints_health.len(),
            report.cluster_endpoints_health.len()
        ),
        (0, 1)
    );
}

#[tokio::test]
async fn an_interval_that_is_no_duration_spoils_its_specifier_and_nothing_else() {
    let bed = Bed::new().await;
    let peer = Peer::new(true).await;
    let mut stream = bed.stream().await;
    stream.request().await;
    let text = all(&[cluster("a", CHECK, &[&peer])]);
    stream.send(&text).await;
    stream.until(&["a: HEALTHY"]).await;
    let mut wrong = specifier(&text);
    for (sent, seconds) in (1..).zip([i64::MIN, -1, i64::MAX]) {
        wrong.interval = Some(prost_types::Duration { seconds, nanos: 0 });
        stream.send_message(wrong.clone()).await;
        while bed.stat("hds_delegate.errors") < sent {
            stream.report().await;
        }
        let refused = bed.dump.connection().last_nack.unwrap().details;
        assert!(
            refused.starts_with("interval: Invalid duration: "),
            "{refused}"
        );
    }
    // On the same stream.
    stream.send(&all(&[])).await;
    stream.until(&[]).await;
}
