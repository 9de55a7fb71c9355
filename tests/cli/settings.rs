//! What a bootstrap and arguments set, seen at the hosts and at the admin port.

use std::time::Duration;

use crate::config::{ADMIN, OFTEN, bootstrap, check};
use crate::daemon::{Answering, Daemon};

const LONG: &str = "timeout: 20s, unhealthy_threshold: 1, healthy_threshold: 1";

#[tokio::test]
async fn with_traffic_the_interval_rules_and_without_it_the_other() {
    let (often, seldom) = ("interval: 0.02s", "no_traffic_interval: 3600s");
    let (seldom_with, often_without) = ("interval: 3600s", "no_traffic_interval: 0.02s");
    for (args, intervals) in [
        (&[][..], [often, seldom]),
        (&["--traffic", "always"], [often, seldom]),
        (&["--traffic", "never"], [seldom_with, often_without]),
    ] {
        let host = Answering::new().await;
        let check = check(&format!("{LONG}, {}", intervals.join(", ")));
        let mut daemon = Daemon::start(&bootstrap("", &[host.address], &[check], ""), args);
        host.until_attempts(10).await;
        daemon.stop().await;
    }
}

#[tokio::test]
async fn without_traffic_a_short_interval_does_not_rule() {
    let host = Answering::new().await;
    let check = check(&format!(
        "{LONG}, interval: 0.001s, no_traffic_interval: 0.2s"
    ));
    let config = bootstrap("", &[host.address], &[check], "");
    let mut daemon = Daemon::start(&config, &["--traffic", "never"]);
    // Some of it may be missing at the first, if that was seen late.
    assert!(host.until_attempts(6).await > Duration::from_millis(600));
    daemon.stop().await;
}

#[tokio::test]
async fn runtime_bounds_the_intervals() {
    let host = Answering::new().await;
    let often = OFTEN.replace("0.02s", "0.001s");
    let runtime =
        "layered_runtime: {layers: [{name: a, static_layer: {health_check.min_interval: 200}}]}";
    let config = bootstrap(runtime, &[host.address], &[check(&often)], "");
    let mut daemon = Daemon::start(&config, &[]);
    assert!(host.until_attempts(6).await > Duration::from_millis(600));
    daemon.stop().await;
}

#[tokio::test]
async fn each_named_check_has_its_counters() {
    let host = Answering::new().await;
    let checks = ["a", "b"].map(|name| check(&format!("name: {name}, {OFTEN}")));
    let config = bootstrap(ADMIN, &[host.address], &checks, "");
    let mut daemon = Daemon::start(&config, &[]);
    host.until_attempts(6).await;
    let names = ["a.success", "b.success"];
    let path = "/stats?usedonly&filter=^cluster.c.health_check";
    let stats = daemon
        .page(path, |lines| {
            names.iter().all(|name| {
                let name = format!("cluster.c.health_check.name.{name}: ");
                lines.iter().any(|line| line.starts_with(&name))
            })
        })
        .await;
    assert!(stats.contains(&"cluster.c.health_check.healthy: 1".to_owned()));
    assert!(
        !stats
            .iter()
            .any(|s| s.starts_with("cluster.c.health_check.attempt"))
    );
    daemon.stop().await;
}

#[tokio::test]
async fn the_other_name_stands_in_stats_and_nowhere_else() {
    let host = Answering::new().await;
    let check = check(&format!("{OFTEN}, event_log_path: events"));
    let config = bootstrap(ADMIN, &[host.address], &[check], "alt_stat_name: other");
    let mut daemon = Daemon::start(&config, &[]);
    daemon.until_lines("events", 1).await;
    let healthy = "cluster.other.health_check.healthy: 1";
    daemon
        .page("/stats", |lines| lines.contains(&healthy))
        .await;
    let stats = daemon.page("/stats?filter=^cluster.c[.]", |_| true).await;
    assert_eq!(stats, [""; 0]);
    let clusters = daemon.page("/clusters", |_| true).await;
    assert!(clusters.contains(&"c::observability_name::other".to_owned()));
    daemon.stop().await;
    assert!(daemon.read("events").contains("\"cluster_name\":\"c\""));
}

#[tokio::test]
async fn hosts_of_the_start_are_never_pending() {
    let silent = crate::peer::Peer::new().await;
    let config = bootstrap(
        ADMIN,
        &[silent.address()],
        &[check(OFTEN)],
        "common_lb_config: {ignore_new_hosts_until_first_hc: true}",
    );
    let mut daemon = Daemon::start(&config, &[]);
    let (_, from) = silent.next().await;
    let host = format!("c::{}::health_flags::", silent.address());
    let line = format!("{host}/failed_active_hc");
    daemon
        .page("/clusters", |lines| lines.contains(&&*line))
        .await;
    assert_eq!(daemon.page("/ready", |_| true).await, ["PRE_INITIALIZING"]);
    let excluded = daemon
        .page("/stats?filter=c.membership_excluded", |_| true)
        .await;
    assert_eq!(excluded, ["cluster.c.membership_excluded: 0"]);
    silent.answer(from, b"pong").await;
    let line = format!("{host}healthy");
    daemon
        .page("/clusters", |lines| lines.contains(&&*line))
        .await;
    daemon.stop().await;
}

#[tokio::test]
async fn all_hosts_are_checked_however_many_threads_and_attempts_may_run() {
    let host = Answering::new().await;
    let config = bootstrap(ADMIN, &[host.address; 20], &[check(OFTEN)], "");
    let args = ["--concurrency", "3", "--max-in-flight", "3"];
    let mut daemon = Daemon::start(&config, &args);
    let healthy = "cluster.c.health_check.healthy: 20";
    daemon
        .page("/stats", |lines| lines.contains(&healthy))
        .await;
    let limit = "xds_health.attempts_in_flight_limit: 3";
    daemon.page("/stats", |lines| lines.contains(&limit)).await;
    daemon.stop().await;
}
