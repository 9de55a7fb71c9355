//! `/hosts`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use xds_health::engine::{Engine, Origin};
use xds_health::event::{Mismatch, Outcome, Reason};
use xds_health::host::{EdsHealth, Locality};

use crate::common::{Step, until_initialized};
use crate::http::get;
use crate::{FAILING, PASSING, SILENT, Served, cluster, engine, host, script, serve_engine, set};

/// Attempts at this port are answered with what was not wanted.
const WRONG: u16 = 5;
/// A host of this port is never checked.
const UNCHECKED: u16 = 6;
const ODD: &str = "a \"b\\c\".d\n<\u{e9}>";

fn locality(region: &str, zone: &str) -> Arc<Locality> {
    Arc::new(Locality {
        region: region.into(),
        zone: zone.into(),
        sub_zone: "".into(),
    })
}

async fn scene() -> (Engine, Served) {
    let engine = engine();
    let script = script();
    let mismatch = Mismatch::note(None, b"pong", b"po<>");
    let wrong = Outcome::timeout(Reason::Mismatch(Arc::new(mismatch)));
    script.script(WRONG, [Step::After(Duration::ZERO, wrong)]);
    let here = locality("here", "a");
    let first = vec![
        host(FAILING),
        host(PASSING)
            .with_locality(Arc::clone(&here))
            .with_weight(7),
        host(SILENT).with_locality(locality("here", "b")),
        host(WRONG).with_priority(2).with_hostname("w<w"),
    ];
    let second = vec![
        host(PASSING).with_eds_health(EdsHealth::Degraded),
        host(UNCHECKED).with_check_disabled(),
    ];
    for (name, hosts) in [("c1", first), (ODD, second)] {
        let config = cluster(name, hosts, &[""]);
        let checked = set(&engine, config, &script, Origin::Static).await;
        until_initialized(&checked).await;
    }
    let served = serve_engine(&engine).await;
    (engine, served)
}

async fn hosts(served: &Served, query: &str) -> Vec<Value> {
    let answer = get(served.address, &format!("/hosts{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.header("content-type"), "application/json");
    let json: Value = serde_json::from_str(&answer.body).unwrap();
    json["hosts"].as_array().unwrap().clone()
}

async fn ports(served: &Served, query: &str) -> Vec<u16> {
    let hosts = hosts(served, query).await;
    let port = |host: &Value| {
        let address = host["address"].as_str().unwrap();
        address.rsplit_once(':').unwrap().1.parse().unwrap()
    };
    hosts.iter().map(port).collect()
}

#[tokio::test]
async fn each_host_is_told_with_its_state_and_why() {
    let (_engine, served) = scene().await;
    let hosts = hosts(&served, "").await;
    let told: Vec<_> = hosts
        .iter()
        .map(|host| {
            (
                host["cluster"].as_str().unwrap(),
                host["state"].as_str().unwrap(),
            )
        })
        .collect();
    let wanted = [
        (ODD, "degraded"),
        (ODD, "healthy"),
        ("c1", "unhealthy"),
        ("c1", "healthy"),
        ("c1", "unhealthy"),
        ("c1", "unhealthy"),
    ];
    assert_eq!(told, wanted);
    assert_eq!(hosts[0]["flags"], json!(["degraded_eds_health"]));
    assert_eq!(hosts[0]["eds_health_status"], "DEGRADED");
    assert_eq!(hosts[1]["check_disabled"], true);
    assert_eq!(hosts[2]["flags"], json!(["failed_active_hc"]));
    assert_eq!(hosts[2]["reason"]["kind"], "refused");
    assert!(hosts[3]["reason"].is_null());
    assert_eq!(
        (&hosts[3]["weight"], &hosts[3]["priority"]),
        (&json!(7), &json!(0))
    );
    let wanted = json!({"region": "here", "zone": "a", "sub_zone": ""});
    assert_eq!(hosts[3]["locality"], wanted);
    assert_eq!(hosts[4]["reason"]["kind"], "silent");
    assert_eq!(hosts[5]["hostname"], "w<w");
    assert_eq!(hosts[5]["priority"], 2);
    let reason = &hosts[5]["reason"];
    assert_eq!(
        (&reason["bytes"], &reason["first_difference"]),
        (&json!("706f3c3e"), &json!(2))
    );
    for host in &hosts {
        let since = host["since"].as_str().unwrap();
        assert!(since.starts_with("20") && since.ends_with('Z'), "{since}");
    }
}

#[tokio::test]
async fn hosts_can_be_chosen() {
    let (_engine, served) = scene().await;
    for (query, wanted) in [
        ("?cluster=c1", &[FAILING, PASSING, SILENT, WRONG][..]),
        ("?cluster=c1&state=unhealthy", &[FAILING, SILENT, WRONG]),
        ("?state=healthy,degraded", &[PASSING, UNCHECKED, PASSING]),
        ("?state=unknown", &[]),
        ("?locality=here", &[PASSING, SILENT]),
        ("?locality=here/b", &[SILENT]),
        ("?locality=there", &[]),
        ("?cluster=c1&address=127.0.0.1:5", &[WRONG]),
        ("?address=127.0.0.1:4", &[PASSING, PASSING]),
        ("?limit=3&state=unhealthy", &[FAILING, SILENT, WRONG]),
    ] {
        assert_eq!(ports(&served, query).await, wanted, "{query}");
    }
    let odd = "?cluster=a%20%22b%5Cc%22.d%0a%3C%C3%A9%3E";
    assert_eq!(ports(&served, odd).await, [PASSING, UNCHECKED]);
}

#[tokio::test]
async fn a_limit_is_told_of_when_there_is_more() {
    let (_engine, served) = scene().await;
    for (limit, told, more) in [(0, 0, true), (5, 5, true), (6, 6, false), (7, 6, false)] {
        let answer = get(served.address, &format!("/hosts?limit={limit}")).await;
        let json: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(json["hosts"].as_array().unwrap().len(), told, "{limit}");
        assert_eq!(json["more"], more, "{limit}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_refused() {
    let (_engine, served) = scene().await;
    for (query, status) in [
        ("?cluster=c2", 404),
        ("?state=up", 400),
        ("?state=healthy,up", 400),
        ("?limit=x", 400),
        ("?limit=-1", 400),
    ] {
        assert_eq!(
            get(served.address, &format!("/hosts{query}")).await.status,
            status,
            "{query}"
        );
    }
}

#[tokio::test]
async fn a_long_list_is_written_in_pieces() {
    let engine = engine();
    let hosts = (0..20_000).map(|i| host(10_000 + i)).collect();
    let checked = set(
        &engine,
        cluster("c1", hosts, &[""]),
        &script(),
        Origin::Static,
    )
    .await;
    until_initialized(&checked).await;
    let served = serve_engine(&engine).await;
    assert_eq!(ports(&served, "").await.len(), 20_000);
    assert_eq!(ports(&served, "?state=unhealthy").await, [0; 0]);
}
