//! `/ready`, `/server_info`, `/help`, `/` and paths that are not there.

use tokio::sync::watch;
use xds_health::admin::{self, Admin, Limits};
use xds_health::engine::Origin;
use xds_health::proto::envoy::config::core::v3::{Locality, Node};

use crate::common::until_initialized;
use crate::http::{ask, get};
use crate::{HELD, PASSING, cluster, engine, held, host, script, serve, serve_engine, set};

#[tokio::test]
async fn ready_tells_when_static_clusters_are_initialized() {
    let engine = engine();
    let (release, released) = watch::channel(false);
    let script = held(released);
    let config = cluster("c1", vec![host(HELD)], &[""]);
    let waited = set(&engine, config, &script, Origin::Static).await;
    let served = serve_engine(&engine).await;

    let answer = get(served.address, "/ready").await;
    assert_eq!((answer.status, &*answer.body), (503, "PRE_INITIALIZING\n"));
    let answer = get(served.address, "/stats?filter=^server.(live|state)").await;
    assert_eq!(answer.body, "server.live: 1\nserver.state: 2\n");

    release.send(true).unwrap();
    until_initialized(&waited).await;
    let answer = get(served.address, "/ready").await;
    assert_eq!((answer.status, &*answer.body), (200, "LIVE\n"));
    for (name, value) in [
        ("content-type", "text/plain; charset=UTF-8"),
        ("cache-control", "no-cache, max-age=0"),
        ("x-content-type-options", "nosniff"),
        ("server", "xds-health"),
    ] {
        assert_eq!(answer.header(name), value);
    }

    // Once live, it stays so.
    let (_never, released) = watch::channel(false);
    let config = cluster("c2", vec![host(HELD)], &[""]);
    set(&engine, config, &held(released), Origin::Static).await;
    assert_eq!(get(served.address, "/ready").await.status, 200);
}

#[tokio::test]
async fn a_dynamic_cluster_is_not_waited_for_but_a_gate_is() {
    let engine = engine();
    let (_never, released) = watch::channel(false);
    let config = cluster("c1", vec![host(HELD)], &[""]);
    set(&engine, config, &held(released), Origin::Dynamic).await;
    let (gate, closed) = watch::channel(false);
    let admin = Admin::new(engine).with_gate(closed);
    let served = serve(admin::router(admin), Limits::default()).await;

    assert_eq!(get(served.address, "/ready").await.status, 503);
    gate.send(true).unwrap();
    assert_eq!(get(served.address, "/ready").await.status, 200);
}

#[tokio::test]
async fn server_info_tells_what_is_true_of_the_server() {
    let number = prost_types::Value {
        kind: Some(prost_types::value::Kind::NumberValue(1.5)),
    };
    let node = Node {
        id: "n1".to_owned(),
        metadata: Some(prost_types::Struct {
            fields: [("a<b".to_owned(), number)].into(),
        }),
        locality: Some(Locality {
            region: "r".to_owned(),
            ..Locality::default()
        }),
        user_agent_name: "xds-health".to_owned(),
        ..Node::default()
    };
    let admin = Admin::new(engine()).with_node(node);
    let served = serve(admin::router(admin), Limits::default()).await;
    let answer = get(served.address, "/server_info").await;
    assert_eq!(answer.header("content-type"), "application/json");
    assert!(answer.body.starts_with("{\n \"version\": \"xds-health/"));
    let info: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(info["state"], "LIVE");
    assert_eq!(info["uptime_current_epoch"], info["uptime_all_epochs"]);
    assert!(info["uptime_all_epochs"].as_str().unwrap().ends_with('s'));
    assert_eq!(info["hot_restart_version"], "disabled");
    assert_eq!(info["node"]["id"], "n1");
    assert_eq!(info["node"]["metadata"]["a<b"], 1.5);
    assert_eq!(info["node"]["locality"]["region"], "r");
    assert_eq!(info["node"]["locality"]["zone"], "");
}

#[tokio::test]
async fn wrong_paths_and_methods_are_told_what_would_be_right() {
    let served = serve_engine(&engine()).await;
    let help = get(served.address, "/help").await;
    assert_eq!(help.status, 200);
    assert!(help.body.starts_with("admin commands are:\n  /: "));
    assert!(help.body.contains("\n  /clusters: "));
    assert!(help.body.contains("\n      filter: "));
    for path in ["/nope", "/ready/", "/stats/", "/nope?x"] {
        let answer = get(served.address, path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.body, format!("invalid path. {}", help.body));
        assert_eq!(answer.header("content-type"), "text/plain; charset=UTF-8");
    }
    for method in ["POST", "DELETE", "OPTIONS"] {
        let answer = ask(served.address, method, "/clusters?x").await;
        assert_eq!(answer.status, 405, "{method}");
        let wanted = format!("Method {method} not allowed, GET required.");
        assert_eq!(answer.body, wanted);
    }
}

#[tokio::test]
async fn each_path_in_the_index_is_there_and_takes_head() {
    let engine = engine();
    let script = script();
    let config = cluster("c1", vec![host(PASSING)], &[""]);
    let checked = set(&engine, config, &script, Origin::Static).await;
    until_initialized(&checked).await;
    let served = serve_engine(&engine).await;
    let index = get(served.address, "/").await;
    assert_eq!(index.header("content-type"), "text/html; charset=UTF-8");
    let links: Vec<_> = index
        .body
        .split("href=\".")
        .skip(1)
        .map(|link| link.split_once('"').unwrap().0)
        .collect();
    assert_eq!(links.len(), 12);
    // Those that never end are looked at in other tests.
    for path in links.into_iter().filter(|path| *path != "/events") {
        let whole = get(served.address, path).await;
        let head = ask(served.address, "HEAD", path).await;
        assert_eq!((whole.status, head.status), (200, 200), "{path}");
        assert!(!whole.body.is_empty() && head.body.is_empty(), "{path}");
        assert_eq!(whole.header("content-type"), head.header("content-type"));
    }
}

#[tokio::test]
async fn the_pages_can_stand_in_a_router_of_ones_own() {
    let router = axum::Router::new().nest("/admin", admin::router(Admin::new(engine())));
    let served = serve(router, Limits::default()).await;
    assert_eq!(get(served.address, "/admin/ready").await.body, "LIVE\n");
    let answer = ask(served.address, "POST", "/admin/ready").await;
    assert_eq!(answer.body, "Method POST not allowed, GET required.");
}
