//! `/clusters`, text and JSON.

use std::net::SocketAddr;
use std::sync::Arc;

use prost_reflect::DynamicMessage;
use xds_health::engine::{Engine, Origin};
use xds_health::host::{Address, EdsHealth, Host, Locality};
use xds_health::proto::descriptor_pool;
use xds_health::proto::envoy::admin::v3::Clusters;
use xds_health::proto::envoy::config::core::v3::HealthStatus;

use crate::common::until_initialized;
use crate::http::get;
use crate::{
    FAILING, PASSING, SILENT, cluster, engine, engine_of, host, script, serve_engine, set,
};

/// Reads JSON as `envoy.admin.v3.Clusters`; unknown fields are errors.
fn decode(json: &str) -> Clusters {
    let descriptor = descriptor_pool()
        .get_message_by_name("envoy.admin.v3.Clusters")
        .unwrap();
    let mut json = serde_json::Deserializer::from_str(json);
    let message = DynamicMessage::deserialize(descriptor, &mut json).unwrap();
    json.end().unwrap();
    message.transcode_to().unwrap()
}

/// Two clusters: one with a host of each kind, one that came later and has no host.
async fn scene() -> Engine {
    let engine = engine();
    let script = script();
    let locality = Arc::new(Locality {
        region: "r".into(),
        zone: "z".into(),
        sub_zone: "s".into(),
    });
    let six: SocketAddr = "[::1]:80".parse().unwrap();
    let mut canary = host(PASSING);
    canary.canary = true;
    let hosts = vec![
        host(FAILING)
            .with_hostname("f<\"o")
            .with_weight(5)
            .with_locality(locality),
        canary.with_eds_health(EdsHealth::Draining),
        host(SILENT),
        Host::new(six).with_eds_health(EdsHealth::Degraded),
        Host::new(Address::Pipe("/run/x.sock".into()))
            .with_eds_health(EdsHealth::Timeout)
            .with_priority(1),
    ];
    let mut config = cluster("odd \"name\".x", hosts, &[""]);
    config.alt_stat_name = Some("alt".into());
    config.thresholds[1].max_retries = 0;
    let checked = set(&engine, config, &script, Origin::Static).await;
    let config = cluster("later", Vec::new(), &[""]);
    let later = set(&engine, config, &script, Origin::Dynamic).await;
    until_initialized(&checked).await;
    until_initialized(&later).await;
    engine
}

#[tokio::test]
async fn text_has_envoys_lines() {
    let engine = engine();
    let script = script();
    let config = cluster("c1", vec![host(FAILING).with_hostname("h")], &[""]);
    let checked = set(&engine, config, &script, Origin::Static).await;
    until_initialized(&checked).await;
    let served = serve_engine(&engine).await;
    let answer = get(served.address, "/clusters").await;
    assert_eq!(answer.header("content-type"), "text/plain; charset=UTF-8");
    assert_eq!(
        answer.body,
        "\
c1::observability_name::c1
c1::default_priority::max_connections::1024
c1::default_priority::max_pending_requests::1024
c1::default_priority::max_requests::1024
c1::default_priority::max_retries::3
c1::high_priority::max_connections::1024
c1::high_priority::max_pending_requests::1024
c1::high_priority::max_requests::1024
c1::high_priority::max_retries::3
c1::added_via_api::false
c1::127.0.0.1:1::cx_active::0
c1::127.0.0.1:1::cx_connect_fail::0
c1::127.0.0.1:1::cx_total::0
c1::127.0.0.1:1::rq_active::0
c1::127.0.0.1:1::rq_error::0
c1::127.0.0.1:1::rq_pending_active::0
c1::127.0.0.1:1::rq_success::0
c1::127.0.0.1:1::rq_timeout::0
c1::127.0.0.1:1::rq_total::0
c1::127.0.0.1:1::hostname::h
c1::127.0.0.1:1::health_flags::/failed_active_hc
c1::127.0.0.1:1::weight::1
c1::127.0.0.1:1::region::
c1::127.0.0.1:1::zone::
c1::127.0.0.1:1::sub_zone::
c1::127.0.0.1:1::canary::false
c1::127.0.0.1:1::priority::0
c1::127.0.0.1:1::success_rate::-1
c1::127.0.0.1:1::local_origin_success_rate::-1
"
    );
}

#[tokio::test]
async fn text_tells_every_kind_of_host() {
    let served = serve_engine(&scene().await).await;
    let body = get(served.address, "/clusters").await.body;
    for line in [
        "later::added_via_api::true",
        "odd \"name\".x::observability_name::alt",
        "odd \"name\".x::high_priority::max_retries::0",
        "odd \"name\".x::127.0.0.1:1::hostname::f<\"o",
        "odd \"name\".x::127.0.0.1:1::weight::5",
        "odd \"name\".x::127.0.0.1:1::zone::z",
        "odd \"name\".x::127.0.0.1:2::health_flags::/failed_active_hc/active_hc_timeout",
        "odd \"name\".x::127.0.0.1:4::health_flags::/eds_status_draining",
        "odd \"name\".x::127.0.0.1:4::canary::true",
        "odd \"name\".x::[::1]:80::health_flags::/degraded_eds_health",
        "odd \"name\".x::/run/x.sock::health_flags::/failed_eds_health",
        "odd \"name\".x::/run/x.sock::priority::1",
    ] {
        assert!(body.lines().any(|l| l == line), "{line}\n{body}");
    }
}

#[tokio::test]
async fn json_has_envoys_layout() {
    let engine = engine();
    let script = script();
    let config = cluster("c1", vec![host(SILENT).with_hostname("f<")], &[""]);
    let checked = set(&engine, config, &script, Origin::Static).await;
    until_initialized(&checked).await;
    let served = serve_engine(&engine).await;
    let answer = get(served.address, "/clusters?format=json").await;
    assert_eq!(answer.header("content-type"), "application/json");
    let wanted = include_str!("../data/admin_clusters.json");
    assert_eq!(answer.body, wanted);
}

#[tokio::test]
async fn json_decodes_as_the_message() {
    let served = serve_engine(&scene().await).await;
    let body = get(served.address, "/clusters?format=json").await.body;
    let clusters = decode(&body).cluster_statuses;
    assert_eq!(clusters.len(), 2);
    let (later, odd) = (&clusters[0], &clusters[1]);
    assert!(later.added_via_api && later.host_statuses.is_empty());
    assert!(!odd.added_via_api);
    assert_eq!(odd.name, "odd \"name\".x");
    assert_eq!(odd.observability_name, "alt");
    let limits = &odd.circuit_breakers.as_ref().unwrap().thresholds;
    assert_eq!(limits[1].max_retries, Some(0));
    let hosts = &odd.host_statuses;
    let health = |i: usize| hosts[i].health_status.as_ref().unwrap();
    assert_eq!(hosts.len(), 5);
    assert_eq!((&*hosts[0].hostname, hosts[0].weight), ("f<\"o", 5));
    assert_eq!(hosts[0].locality.as_ref().unwrap().sub_zone, "s");
    assert!(health(0).failed_active_health_check);
    assert!(health(2).active_hc_timeout && !health(1).failed_active_health_check);
    let statuses = [
        HealthStatus::Healthy,
        HealthStatus::Draining,
        HealthStatus::Healthy,
        HealthStatus::Degraded,
        // As Envoy has it, which keeps of a timeout no more than that.
        HealthStatus::Unhealthy,
    ];
    for (i, status) in statuses.into_iter().enumerate() {
        assert_eq!(health(i).eds_health_status(), status);
    }
    assert!(body.contains("\"address\": \"::1\",\n"));
    assert!(body.contains("\"path\": \"/run/x.sock\"\n"));
    assert_eq!(hosts[4].priority, 1);
    assert_eq!(hosts[0].stats.len(), 9);
}

#[tokio::test]
async fn a_filter_chooses_clusters_by_name() {
    let served = serve_engine(&scene().await).await;
    let named = |path: &'static str| async move {
        let body = get(served.address, path).await.body;
        let clusters = decode(&body).cluster_statuses;
        clusters.into_iter().map(|c| c.name).collect::<Vec<_>>()
    };
    assert_eq!(
        named("/clusters?format=json&filter=at.%2B").await,
        ["later"]
    );
    assert_eq!(
        named("/clusters?filter=^odd.%22&format=json").await.len(),
        1
    );
    assert_eq!(named("/clusters?filter=&format=json").await.len(), 2);
    let answer = get(served.address, "/clusters?filter=zzz&format=json").await;
    assert_eq!(answer.body, "{}\n");
    let answer = get(served.address, "/clusters?filter=zzz").await;
    assert_eq!((answer.status, &*answer.body), (200, ""));
    // Envoy takes any other format for text.
    let answer = get(served.address, "/clusters?format=xml&filter=later").await;
    assert!(
        answer
            .body
            .starts_with("later::observability_name::later\n")
    );
    let answer = get(served.address, "/clusters?filter=[").await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.body, "Invalid regex: unclosed character class\n");
}

#[tokio::test]
async fn many_hosts_come_in_pieces_and_whole() {
    let engine = engine_of(3);
    let script = script();
    let hosts = (0..2000).map(|i| host(10_000 + i)).collect();
    let config = cluster("c1", hosts, &[""]);
    let checked = set(&engine, config, &script, Origin::Static).await;
    until_initialized(&checked).await;
    let served = serve_engine(&engine).await;
    let text = get(served.address, "/clusters").await;
    assert_eq!(text.header("transfer-encoding"), "chunked");
    assert_eq!(text.body.lines().count(), 10 + 2000 * 19);
    let json = get(served.address, "/clusters?format=json").await;
    assert_eq!(
        decode(&json.body).cluster_statuses[0].host_statuses.len(),
        2000
    );
}
