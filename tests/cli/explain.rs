//! `xds-health explain`, asked of a daemon that runs.

use serde_json::Value;

use crate::config::{ADMIN, bootstrap, check};
use crate::daemon::{Answering, Daemon};
use crate::manners::Host;
use crate::snapshot::{same, steady};
use crate::status::{asked, two_hosts};

#[tokio::test]
async fn a_failed_host_is_explained_with_the_bytes_that_came() {
    let wrong = Host::answering(b"pang");
    let fields = "timeout: 0.2s, interval: 3600s, unhealthy_threshold: 3, healthy_threshold: 2";
    let checks = [check(&format!("name: ping, {fields}"))];
    let config = bootstrap(ADMIN, &[wrong.address], &checks, "");
    let mut daemon = Daemon::start(&config, &[]);
    let flags = format!("c::{}::health_flags::", wrong.address);
    let failed = |lines: &[&str]| {
        let flags = lines.iter().find_map(|line| line.strip_prefix(&*flags));
        flags.is_some_and(|flags| flags.contains("/failed_active_hc") && wrong.heard() > 0)
    };
    let reason = |text: &str| text.contains("reason");
    let host = wrong.address.to_string();
    daemon.page("/clusters", failed).await;
    // The first attempt has its timeout before it.
    let told = loop {
        let told = asked(&daemon, &["explain", "c", &host]).await;
        assert_eq!((told.code, &*told.err), (Some(0), ""));
        if reason(&told.out) {
            break told;
        }
    };
    let names = [(host.clone(), "HOST"), ("3600s".to_owned(), "HOUR")];
    let text = steady(&told.out, &names);
    // The wait is an hour, or a moment less.
    let text = text.replace("59m 59s", "HOUR").replace("1h 0m", "HOUR");
    same("explain-failed", &text);
    let json = asked(&daemon, &["explain", "c", &host, "--format", "json"]).await;
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json[0]["reason"]["bytes"], "70616e67");
    assert_eq!(json[0]["checks"][0]["check"], "ping");
    daemon.stop().await;
}

#[tokio::test]
async fn a_healthy_host_is_explained_by_any_of_its_names() {
    let good = Answering::new().await;
    let fields = "timeout: 60s, interval: 3600s, unhealthy_threshold: 3, healthy_threshold: 2";
    let config = bootstrap(ADMIN, &[good.address], &[check(fields)], "");
    let named = config.replace("endpoint: {", "endpoint: {hostname: games-1, ");
    let mut daemon = Daemon::start(&named, &[]);
    let flags = format!("c::{}::health_flags::healthy", good.address);
    daemon
        .page("/clusters", |lines| lines.contains(&&*flags))
        .await;
    let address = good.address.to_string();
    for name in [&*address, "127.0.0.1", "games-1"] {
        let told = asked(&daemon, &["explain", "c", name]).await;
        assert_eq!((told.code, &*told.err), (Some(0), ""), "{name}");
        let names = [(address.clone(), "HOST"), ("3600s".to_owned(), "HOUR")];
        let text = steady(&told.out, &names);
        let text = text.replace("59m 59s", "HOUR").replace("1h 0m", "HOUR");
        same("explain-healthy", &text);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_host_or_a_cluster_that_is_not_there_is_told() {
    let (mut daemon, good, _closed) = two_hosts().await;
    for name in ["127.0.0.1:1", "nobody"] {
        let none = asked(&daemon, &["explain", "c", name]).await;
        assert_eq!((none.code, &*none.out), (Some(2), ""));
        assert_eq!(
            none.err,
            format!("error: cluster \"c\" has no host \"{name}\"\n")
        );
    }
    let host = good.address.to_string();
    let none = asked(&daemon, &["explain", "d e", &host]).await;
    assert_eq!((none.code, &*none.out), (Some(2), ""));
    assert_eq!(none.err, "error: There is no cluster of that name.\n");
    daemon.stop().await;
}
