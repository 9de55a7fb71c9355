//! Streams that end, and servers that go and come.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tonic::Status;

use crate::server::{Bed, CHECK, Peer, all, cluster, source};
use xds_health::hds::Client;
use xds_health::proto::envoy::config::core::v3::Node;
use xds_health::proto::envoy::config::core::v3::api_config_source::ApiType;
use xds_health::registry::Registry;

#[tokio::test]
async fn checks_go_on_while_the_stream_is_gone_and_reports_resume_after_a_specifier() {
    let bed = Bed::new().await;
    let peer = Peer::new(true).await;
    let text = all(&[cluster("a", CHECK, &[&peer])]);
    let mut stream = bed.stream().await;
    stream.request().await;
    stream.send(&text).await;
    stream.until(&["a: HEALTHY"]).await;
    stream.end(Status::unavailable("as the test says"));

    let mut stream = bed.stream().await;
    stream.request().await;
    assert_eq!(bed.stat("hds_delegate.errors"), 1);
    // Without a specifier nothing is reported, but checks go on.
    let heard = peer.heard();
    while peer.heard() < heard + 8 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let sent = bed.stat("hds_delegate.responses");
    stream.send(&text).await;
    stream.until(&["a: HEALTHY"]).await;
    assert!(bed.stat("hds_delegate.responses") > sent);
    assert_eq!(bed.stat("hds_delegate.updates"), 2);
}

#[tokio::test]
async fn a_server_that_goes_and_comes_is_found_again() {
    let mut bed = Bed::new().await;
    let peer = Peer::new(true).await;
    let text = all(&[cluster("a", CHECK, &[&peer])]);
    let mut stream = bed.stream().await;
    stream.request().await;
    stream.send(&text).await;
    stream.until(&["a: HEALTHY"]).await;
    bed.stop();
    drop(stream);
    while bed.stat("hds_delegate.errors") < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bed.start().await;
    let mut stream = bed.stream().await;
    stream.request().await;
    stream.send(&text).await;
    stream.until(&["a: HEALTHY"]).await;
}

#[tokio::test]
async fn the_pause_before_a_stream_grows_until_a_specifier_comes() {
    let bed = Bed::new().await;
    let mut pauses = Vec::new();
    for _ in 0..5 {
        let stream = bed.stream().await;
        let ended = Instant::now();
        stream.end(Status::unavailable("as the test says"));
        // Looked at only when the next one is there.
        pauses.push(ended);
    }
    let last = bed.stream().await;
    pauses.push(Instant::now());
    drop(last);
    let waits: Vec<_> = pauses.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Ceilings are 500, 750, 1125, 1687 and 2531 ms, each taken from half on.
    assert!(waits[0] >= Duration::from_millis(250), "{waits:?}");
    assert!(waits[4] >= Duration::from_millis(1265), "{waits:?}");
    assert!(waits[4] < Duration::from_millis(4000), "{waits:?}");
}

#[test]
fn what_cannot_be_followed_is_told_by_name() {
    let refused = |change: fn(&mut xds_health::proto::envoy::config::core::v3::ApiConfigSource)| {
        let mut source = source(([127, 0, 0, 1], 1).into());
        change(&mut source);
        let (planes, registry) = (BTreeMap::new(), Registry::default());
        Client::new(&source, &planes, Node::default(), registry)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(|source| source.api_type = ApiType::Rest.into()),
        "api_type: REST is not supported: give GRPC"
    );
    assert_eq!(
        refused(|source| source.grpc_services.clear()),
        "grpc_services: one is required, but here are 0"
    );
    let error = refused(|source| {
        use xds_health::proto::envoy::config::core::v3::grpc_service::{
            EnvoyGrpc, TargetSpecifier,
        };
        let envoy = EnvoyGrpc {
            cluster_name: "none".into(),
            ..EnvoyGrpc::default()
        };
        source.grpc_services[0].target_specifier = Some(TargetSpecifier::EnvoyGrpc(envoy));
    });
    assert!(
        error.starts_with("grpc_services[0].envoy_grpc.cluster_name: "),
        "{error}"
    );
}
