//! `/stats` and `/stats/prometheus`.

use xds_health::engine::{Engine, Origin};

use crate::common::until_initialized;
use crate::http::get;
use crate::prometheus::Scrape;
use crate::{FAILING, PASSING, cluster, engine, host, script, serve_engine, set};

const ODD: &str = "a \"b\\c\".d\n\u{e9}";

/// A plain cluster, and one with an odd name and oddly named checks; all checks done.
async fn scene() -> Engine {
    let engine = engine();
    let script = script();
    let hosts = || vec![host(FAILING), host(PASSING)];
    for config in [
        cluster("c1", hosts(), &[""]),
        cluster(ODD, hosts(), &["x y\"z\\.k-1", "q"]),
    ] {
        let checked = set(&engine, config, &script, Origin::Static).await;
        until_initialized(&checked).await;
    }
    engine
}

#[tokio::test]
async fn text_has_envoys_lines() {
    let served = serve_engine(&scene().await).await;
    let answer = get(served.address, "/stats?filter=^cluster.c1.health_check").await;
    assert_eq!(answer.header("content-type"), "text/plain; charset=UTF-8");
    assert_eq!(
        answer.body,
        "\
cluster.c1.health_check.attempt: 2
cluster.c1.health_check.degraded: 0
cluster.c1.health_check.failure: 1
cluster.c1.health_check.healthy: 1
cluster.c1.health_check.network_failure: 1
cluster.c1.health_check.passive_failure: 0
cluster.c1.health_check.success: 1
cluster.c1.health_check.verify_cluster: 0
"
    );
}

#[tokio::test]
async fn lines_can_be_chosen() {
    let served = serve_engine(&scene().await).await;
    let lines = |path: &'static str| async move {
        let body = get(served.address, path).await.body;
        body.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        lines("/stats?usedonly&filter=^cluster.c1.*k[.][afsv]").await,
        [
            "cluster.c1.health_check.attempt: 2",
            "cluster.c1.health_check.failure: 1",
            "cluster.c1.health_check.success: 1",
        ]
    );
    assert_eq!(
        lines("/stats?type=Gauges&filter=^cluster_manager.[aw]").await,
        [
            "cluster_manager.active_clusters: 2",
            "cluster_manager.warming_clusters: 0",
        ]
    );
    assert!(lines("/stats?type=TextReadouts").await.is_empty());
    assert_eq!(
        lines("/stats?invert_filter&filter=^[^s]").await.len(),
        3,
        "all but those of the server"
    );
    let numbers = lines("/stats?invert_filter&filter=cluster.a|_ms$").await;
    let names = numbers.iter().map(|l| l.split_once(": ").unwrap().0);
    assert!(names.is_sorted());
}

#[tokio::test]
async fn a_histogram_without_values_says_so() {
    let served = serve_engine(&engine()).await;
    let answer = get(served.address, "/stats?type=Histograms&filter=trip").await;
    assert_eq!(
        answer.body,
        "xds_health.round_trip_ms: No recorded values\n"
    );
}

#[tokio::test]
async fn json_holds_what_the_text_holds() {
    let served = serve_engine(&scene().await).await;
    let answer = get(
        served.address,
        "/stats?format=json&filter=c1.health_check.attempt$",
    )
    .await;
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(
        answer.body,
        "{\"stats\":[{\"name\":\"cluster.c1.health_check.attempt\",\"value\":2}]}"
    );
    let answer = get(served.address, "/stats?format=json").await;
    let json: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    let list = json["stats"].as_array().unwrap();
    let odd = format!("cluster.{ODD}.health_check.name.q.attempt");
    assert!(list.iter().any(|stat| stat["name"] == odd.as_str()));
    let histograms = &list.last().unwrap()["histograms"];
    assert_eq!(
        histograms["computed_quantiles"].as_array().unwrap().len(),
        2
    );
    let answer = get(served.address, "/stats?format=json&filter=zzz").await;
    assert_eq!(answer.body, "{\"stats\":[]}");
}

#[tokio::test]
async fn prometheus_reads_odd_names_whole() {
    let served = serve_engine(&scene().await).await;
    let answer = get(served.address, "/stats/prometheus").await;
    assert_eq!(answer.header("content-type"), "text/plain; charset=UTF-8");
    let scrape = Scrape::read(&answer.body);
    let attempts = "envoy_cluster_health_check_attempt";
    assert_eq!(scrape.types[attempts], "counter");
    let plain = [("envoy_cluster_name", "c1")];
    assert_eq!(scrape.value(attempts, &plain), Some(2.0));
    for check in ["x y\"z\\.k-1", "q"] {
        let labels = [
            ("envoy_health_check_name", check),
            ("envoy_cluster_name", ODD),
        ];
        assert_eq!(scrape.value(attempts, &labels), Some(2.0), "{check}");
    }
    let healthy = "envoy_cluster_health_check_healthy";
    assert_eq!(scrape.types[healthy], "gauge");
    let odd = [("envoy_cluster_name", ODD)];
    assert_eq!(scrape.value(healthy, &odd), Some(1.0));
    let reason = [("envoy_cluster_name", "c1"), ("reason", "refused")];
    let reasons = "xds_health_cluster_health_check_failure_reason";
    assert_eq!(scrape.value(reasons, &reason), Some(1.0));
    assert_eq!(scrape.value("envoy_server_live", &[]), Some(1.0));
    assert_eq!(scrape.types["xds_health_round_trip_ms"], "histogram");
    assert!(answer.body.contains(
        "envoy_cluster_health_check_attempt{envoy_health_check_name=\"q\",envoy_cluster_name="
    ));
    assert!(
        answer
            .body
            .contains("\nenvoy_cluster_manager_cluster_added{} 2\n")
    );
    // The same by the other path; only the uptime may have moved on.
    let same = get(served.address, "/stats?format=prometheus&filter=c1").await;
    let only = get(served.address, "/stats/prometheus?format=json&filter=c1").await;
    assert_eq!(same.body, only.body);
    assert!(!same.body.is_empty());
}

#[tokio::test]
async fn what_prometheus_reads_holds_whatever_names_are_given() {
    let engine = scene().await;
    let script = script();
    // Names that differ by what a metric's name cannot hold, and two clusters of one name.
    for (name, alt, checks) in [
        ("a.b", None, &["x.y", "x_y"][..]),
        ("a_b", None, &["x.y", "x_y"]),
        ("s1", Some("same"), &["{}", ",=\""]),
        ("s2", Some("same"), &["{}", ",=\""]),
        ("\\", None, &["\\", "\\n"]),
        ("\r\u{2028}\u{85}", None, &["le", "quantile"]),
    ] {
        let hosts = vec![host(FAILING), host(PASSING)];
        let mut config = cluster(name, hosts, checks);
        config.alt_stat_name = alt.map(Into::into);
        let checked = set(&engine, config, &script, Origin::Static).await;
        until_initialized(&checked).await;
    }
    let served = serve_engine(&engine).await;
    let text = get(served.address, "/stats/prometheus").await.body;
    let scrape = Scrape::read(&text);
    let attempts = "envoy_cluster_health_check_attempt";
    for (cluster, check, count) in [
        ("a.b", "x.y", 2.0),
        ("a.b", "x_y", 2.0),
        ("a_b", "x.y", 2.0),
        ("same", "{}", 4.0),
        ("same", ",=\"", 4.0),
        ("\\", "\\", 2.0),
        ("\\", "\\n", 2.0),
        ("\r\u{2028}\u{85}", "le", 2.0),
    ] {
        let labels = [
            ("envoy_health_check_name", check),
            ("envoy_cluster_name", cluster),
        ];
        assert_eq!(
            scrape.value(attempts, &labels),
            Some(count),
            "{cluster:?} {check:?}"
        );
    }
    for (name, kind) in &scrape.types {
        let own = name.starts_with("xds_health_");
        assert!(own || name.starts_with("envoy_"), "{name}");
        assert_eq!(scrape.help.contains_key(name), own, "{name}");
        // What others would take for parts of something else.
        for reserved in ["_bucket", "_sum", "_count", "_created", "_info"] {
            assert!(!name.ends_with(reserved), "{kind} {name}");
        }
    }
    promtool(&text);
}

/// Has Prometheus's own tool read it, where there is one.
fn promtool(text: &str) {
    use std::io::Write;
    use std::process::{Command, Stdio};

    let tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut tool) = tool else {
        eprintln!("not read by promtool: there is none");
        return;
    };
    tool.stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let said = tool.wait_with_output().unwrap();
    // 3 is for names that it would have chosen otherwise; these are Envoy's.
    assert!(matches!(said.status.code(), Some(0 | 3)), "{said:?}");
}

#[tokio::test]
async fn prometheus_can_leave_out_what_is_unused() {
    let served = serve_engine(&scene().await).await;
    let answer = get(
        served.address,
        "/stats/prometheus?usedonly&filter=c1.*check",
    )
    .await;
    let scrape = Scrape::read(&answer.body);
    let plain = [("envoy_cluster_name", "c1")];
    let value = |name: &str| scrape.value(name, &plain);
    assert_eq!(value("envoy_cluster_health_check_success"), Some(1.0));
    assert_eq!(value("envoy_cluster_health_check_verify_cluster"), None);
}

#[tokio::test]
async fn what_is_not_understood_is_refused() {
    let served = serve_engine(&engine()).await;
    for (path, message) in [
        (
            "/stats?format=xml",
            "usage: /stats?format=(json|prometheus|text)\n\n",
        ),
        (
            "/stats/prometheus?format=xml",
            "usage: /stats?format=(json|prometheus|text)\n\n",
        ),
        (
            "/stats?filter=[",
            "Invalid regex: unclosed character class\n",
        ),
        (
            "/stats/prometheus?filter=(",
            "Invalid regex: unclosed group\n",
        ),
        (
            "/stats?filter=(x{999}){999}",
            "Invalid regex: it is too large\n",
        ),
        ("/stats?filter=%FF", "Invalid query: not UTF-8\n"),
        ("/stats?type=x", "invalid &type= param"),
    ] {
        let answer = get(served.address, path).await;
        assert_eq!((answer.status, &*answer.body), (400, message), "{path}");
        assert_eq!(answer.header("content-type"), "text/plain; charset=UTF-8");
    }
}
