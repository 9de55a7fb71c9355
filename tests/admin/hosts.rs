//! `/hosts`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use xds_health::config::{ClusterConfig, Discovery};
use xds_health::engine::{Engine, Options, Origin};
use xds_health::event::{Mismatch, Outcome, Reason};
use xds_health::host::{EdsHealth, Host, Locality};
use xds_health::stats::Stats;

use crate::common::{Step, check, until, until_initialized};
use crate::http::{Stream, get};
use crate::{
    FAILING, PASSING, SILENT, Served, cluster, engine, host, script, serve_engine, set, set_checked,
};

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
        ("?cluster=c1&stat=healthy", 400),
        ("?watch=0&cluster=c1", 200),
        ("?watch=false&state=healthy", 200),
    ] {
        assert_eq!(
            get(served.address, &format!("/hosts{query}")).await.status,
            status,
            "{query}"
        );
    }
    let answer = get(served.address, "/hosts?stat=healthy").await;
    let told = "There is no parameter \"stat\": known are address, cluster, limit, locality, state, watch.\n";
    assert_eq!(answer.body, told);
    // The page refuses a state that there is not, too.
    let answer = get(served.address, "/?cluster=games&state=bogus").await;
    let usage = "usage: /?state=(healthy|degraded|unhealthy|unknown)\n";
    assert_eq!((answer.status, &*answer.body), (400, usage));
    for query in ["/?cluster=&state=&locality=", "/?state=healthy"] {
        assert_eq!(get(served.address, query).await.status, 200, "{query}");
    }
}

#[tokio::test]
async fn a_long_list_is_written_in_pieces() {
    let engine = engine();
    let hosts = (0..20_000).map(|i| host(10_000 + i)).collect();
    set_checked(&engine, hosts).await;
    let served = serve_engine(&engine).await;
    assert_eq!(ports(&served, "").await.len(), 20_000);
    assert_eq!(ports(&served, "?state=unhealthy").await, [0; 0]);
}

#[tokio::test]
async fn one_host_is_told_with_its_checks_and_last_attempts() {
    let options = Options::default().with_seed(1).with_journal(100);
    let engine = Engine::start(options, Arc::new(Stats::default())).unwrap();
    let script = script();
    let pass = Step::pass();
    let fail = Step::After(Duration::ZERO, Outcome::network(Reason::Refused));
    script.script(7, [pass, fail, Step::Silent]);
    let mut check = check();
    check.interval = Duration::from_millis(1);
    check.unhealthy_edge_interval = Duration::from_millis(1);
    check.no_traffic_interval = Duration::from_millis(1);
    check.no_traffic_healthy_interval = Duration::from_millis(1);
    check.timeout = Duration::from_secs(600);
    check.name = "<q>".into();
    let hosts = vec![Arc::new(host(7)), Arc::new(host(PASSING))];
    let config = ClusterConfig::new(ODD, Discovery::Static(hosts)).with_health_check(check);
    set(&engine, config, &script, Origin::Static).await;
    let served = serve_engine(&engine).await;
    let path = "?cluster=a%20%22b%5Cc%22.d%0a%3C%C3%A9%3E&address=127.0.0.1:7";
    // Until the third attempt runs.
    let host = loop {
        let hosts = hosts_at(&served, path).await;
        if hosts["checks"][0]["state"] == "attempting" && script.attempts(7) == 3 {
            break hosts;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (&host["cluster"], &host["state"]),
        (&json!(ODD), &json!("healthy"))
    );
    let check = &host["checks"][0];
    assert_eq!(check["check"], "<q>");
    assert_eq!(
        (&check["failures"], &check["unhealthy_threshold"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(check["last"]["reason"]["kind"], "refused");
    assert_eq!(check["timeout_ms"], 600_000.0);
    assert_eq!(check["interval_ms"], 1.0);
    assert!(check["due"].is_string() && check["why"].is_string());
    let attempts = host["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2);
    assert_eq!(
        (&attempts[0]["passed"], &attempts[1]["passed"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(attempts[0]["kind"], "refused");
    assert!(attempts[1]["took_ms"].is_number());

    let nobody = path.replace(":7", ":8");
    assert_eq!(ports(&served, &nobody).await, [0; 0]);
}

async fn hosts_at(served: &Served, query: &str) -> Value {
    hosts(served, query).await.remove(0)
}

/// What a watcher knows: states by cluster and address.
#[derive(Default)]
struct Known(std::collections::BTreeMap<(String, String), String>);

impl Known {
    /// Takes what comes until all is as wanted.
    async fn until(&mut self, stream: &mut Stream, wanted: &[(&str, u16, &str)]) {
        let wanted: Vec<_> = wanted
            .iter()
            .map(|(cluster, port, state)| {
                let key = ((*cluster).to_owned(), format!("127.0.0.1:{port}"));
                (key, (*state).to_owned())
            })
            .collect();
        while !self.0.clone().into_iter().eq(wanted.iter().cloned()) {
            let sent = stream.next().await.unwrap();
            let data: Value = serde_json::from_str(&sent.data).unwrap();
            let cluster = data["cluster"].as_str().unwrap_or_default().to_owned();
            let list = data["list"].as_array().cloned().unwrap_or_default();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            for item in list {
                match &*sent.event {
                    "gone" => drop(self.0.remove(&(cluster.clone(), text(&item)))),
                    "hosts" => {
                        let key = (cluster.clone(), text(&item["address"]));
                        self.0.insert(key, text(&item["state"]));
                    }
                    event => panic!("{event}"),
                }
            }
            if sent.event == "cluster_gone" {
                self.0.retain(|(of, _), _| *of != cluster);
            }
        }
    }
}

#[tokio::test]
async fn a_watcher_is_told_all_and_then_what_changes() {
    let engine = engine();
    let script = script();
    let config = |name, ports: &[u16]| {
        let hosts = ports.iter().map(|port| Arc::new(host(*port))).collect();
        ClusterConfig::new(name, Discovery::Static(hosts))
            .with_health_check(crate::common::once(""))
    };
    let c1 = set(
        &engine,
        config("c1", &[FAILING, PASSING]),
        &script,
        Origin::Dynamic,
    )
    .await;
    until_initialized(&c1).await;
    let served = serve_engine(&engine).await;
    let mut known = Known::default();
    let mut stream = Stream::open(served.address, "/hosts?watch", &[]).await;
    let first = stream.next().await.unwrap();
    let first: Value = serde_json::from_str(&first.data).unwrap();
    let cluster = json!({"cluster": "c1", "key": "c1", "checks": [""], "initialized": true});
    assert_eq!(first, cluster);
    let mut all = [("c1", FAILING, "unhealthy"), ("c1", PASSING, "healthy")].to_vec();
    known.until(&mut stream, &all).await;
    stream.next_of("all").await;

    // One changes, one comes, one goes.
    let address = host(PASSING).address.clone();
    c1.set_unhealthy(&address).await.unwrap();
    all[1].2 = "unhealthy";
    known.until(&mut stream, &all).await;
    set(
        &engine,
        config("c1", &[PASSING, UNCHECKED]),
        &script,
        Origin::Dynamic,
    )
    .await;
    let all = [("c1", PASSING, "unhealthy"), ("c1", UNCHECKED, "healthy")];
    known.until(&mut stream, &all).await;

    let c2 = set(&engine, config("c2", &[PASSING]), &script, Origin::Dynamic).await;
    until(&c2, |hosts| hosts.iter().all(|host| !host.unchecked)).await;
    let both = [all[0], all[1], ("c2", PASSING, "healthy")];
    known.until(&mut stream, &both).await;
    // Who comes now is told all at once; who wants one cluster, that.
    let mut second = Stream::open(served.address, "/hosts?watch", &[]).await;
    Known::default().until(&mut second, &both).await;
    let mut third = Stream::open(served.address, "/hosts?watch&cluster=c2", &[]).await;
    Known::default().until(&mut third, &both[2..]).await;

    engine.remove_cluster("c1").await.unwrap();
    known.until(&mut stream, &both[2..]).await;
    let answer = get(served.address, "/hosts?watch&state=healthy").await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn many_hosts_are_watched_in_pieces() {
    let engine = engine();
    let hosts: Vec<Host> = (0..5_000).map(|i| host(10_000 + i)).collect();
    set_checked(&engine, hosts).await;
    let served = serve_engine(&engine).await;
    let mut stream = Stream::open(served.address, "/hosts?watch", &[]).await;
    let mut count = 0;
    while count < 5_000 {
        let sent = stream.next_of("hosts").await;
        assert!(sent.data.len() < 32 * 1024);
        let data: Value = serde_json::from_str(&sent.data).unwrap();
        count += data["list"].as_array().unwrap().len();
    }
    assert_eq!(count, 5_000);
    assert_eq!(stream.next().await.unwrap().event, "all");
}
