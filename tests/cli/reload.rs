//! A bootstrap file that is read again at SIGHUP, and what the service manager is told.

use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::config::{ADMIN, OFTEN, bootstrap, check};
use crate::daemon::{Answering, Daemon, eventually};

/// Clusters by name, each with one host.
fn clusters(hosts: &[(&str, SocketAddr)], fields: &str) -> String {
    let mut text = format!("{ADMIN}\nstatic_resources:\n  clusters:\n");
    for (name, host) in hosts {
        let of_one = bootstrap("", &[*host], &[check(&format!("{OFTEN}{fields}"))], "");
        let (_, cluster) = of_one.split_once("  clusters:\n").unwrap();
        text.push_str(&cluster.replacen("name: c\n", &format!("name: {name}\n"), 1));
    }
    text
}

/// Writes the file anew, as an editor does, and has it read.
async fn reload(daemon: &Daemon, config: &str, told: &str) {
    std::fs::write(daemon.path("next"), config).unwrap();
    std::fs::rename(daemon.path("next"), daemon.path("bootstrap.yaml")).unwrap();
    let before = daemon.read("err").matches(told).count();
    daemon.signal(Signal::HUP);
    let done = || (daemon.read("err").matches(told).count() > before).then_some(());
    eventually(told, done).await;
}

const APPLIED: &str = "configuration read again";
const REFUSED: &str = "refused: the old configuration stays in force";

/// A counter of a cluster's checks.
async fn counter(daemon: &Daemon, name: &str) -> u64 {
    let lines = daemon
        .page(&format!("/stats?filter=^{name}$"), |_| true)
        .await;
    let value = lines
        .first()
        .and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("{name}: {lines:?}"))
}

#[tokio::test]
async fn clusters_come_change_and_go_and_the_rest_goes_on() {
    let (a, b, c) = (
        Answering::new().await,
        Answering::new().await,
        Answering::new().await,
    );
    let old = clusters(&[("a", a.address), ("b", b.address)], "");
    let mut daemon = Daemon::start(&old, &[]);
    let healthy = |name: &str| format!("cluster.{name}.health_check.healthy: 1");
    for name in ["a", "b"] {
        let healthy = healthy(name);
        daemon
            .page("/stats", |lines| lines.contains(&&*healthy))
            .await;
    }
    let attempts = counter(&daemon, "cluster.a.health_check.attempt").await;

    let new = clusters(&[("a", a.address), ("c", c.address)], "");
    reload(&daemon, &new, APPLIED).await;
    let log = daemon.read("err");
    assert!(
        log.contains("added=1 changed=0 removed=1 unchanged=1"),
        "{log}"
    );
    let found = healthy("c");
    daemon
        .page("/stats", |lines| lines.contains(&&*found))
        .await;
    let gone = daemon.page("/clusters?filter=^b$", |_| true).await;
    assert_eq!(gone, [""; 0]);
    let seen = b.attempts();
    // The one that did not change never began anew: its counters and its verdict go on.
    assert!(counter(&daemon, "cluster.a.health_check.attempt").await >= attempts);
    assert_eq!(counter(&daemon, "cluster.a.health_check.failure").await, 0);
    a.until_attempts(5).await;
    assert!(
        b.attempts() <= seen + 1,
        "an attempt may have been on its way"
    );

    // What the file says is what is shown, and a change of a check takes effect.
    let dump = daemon.page("/config_dump", |_| true).await.join("\n");
    assert!(
        dump.contains("\"c\"") && !dump.contains("\"name\": \"b\""),
        "{dump}"
    );
    let moved = clusters(&[("a", c.address), ("c", c.address)], "");
    reload(&daemon, &moved, APPLIED).await;
    let log = daemon.read("err");
    assert!(
        log.contains("added=0 changed=1 removed=0 unchanged=1"),
        "{log}"
    );
    let flags = format!("a::{}::health_flags::healthy", c.address);
    daemon
        .page("/clusters", |lines| lines.contains(&&*flags))
        .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_pipe_in_place_of_the_file_is_refused() {
    let host = Answering::new().await;
    let old = clusters(&[("a", host.address)], "");
    let mut daemon = Daemon::start(&old, &[]);
    host.until_attempts(1).await;
    std::fs::remove_file(daemon.path("bootstrap.yaml")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(daemon.path("bootstrap.yaml"))
        .status();
    assert!(made.unwrap().success());
    daemon.signal(Signal::HUP);
    let refused = || daemon.read("err").contains(REFUSED).then_some(());
    eventually(REFUSED, refused).await;
    let log = daemon.read("err");
    let why = "cannot be read again: it is no regular file";
    assert!(log.contains(why), "{log}");
    // A file takes its place, and is read.
    let new = clusters(&[("a", host.address), ("b", host.address)], "");
    reload(&daemon, &new, APPLIED).await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_unchanged_cluster_keeps_its_schedule() {
    let host = Answering::new().await;
    let seldom = OFTEN.replace("interval: 0.02s", "interval: 3600s");
    let text = |sections: &str| bootstrap(sections, &[host.address], &[check(&seldom)], "");
    let mut daemon = Daemon::start(&text(ADMIN), &[]);
    host.until_attempts(1).await;
    let flags = format!("c::{}::health_flags::healthy", host.address);
    daemon
        .page("/clusters", |lines| lines.contains(&&*flags))
        .await;
    for round in 0..3 {
        let runtime = format!("{ADMIN}\nstats_flush_interval: {}s", round + 1);
        reload(&daemon, &text(&runtime), APPLIED).await;
    }
    assert_eq!(host.attempts(), 1, "no first check was made anew");
    daemon.stop().await;
}

#[tokio::test]
async fn a_bad_file_is_refused_with_its_faults_and_the_old_goes_on() {
    let host = Answering::new().await;
    let good = clusters(&[("a", host.address)], "");
    let mut daemon = Daemon::start(&good, &[]);
    host.until_attempts(1).await;
    for (bad, told) in [
        (good.replace("706F6E67", "7"), "typed_config.receive.text"),
        ("{nod: {}}".to_owned(), "path=nod"),
        ("node: {id".to_owned(), "unclosed bracket"),
    ] {
        reload(&daemon, &bad, REFUSED).await;
        assert!(daemon.read("err").contains(told), "{}", daemon.read("err"));
        host.until_attempts(3).await;
    }
    std::fs::remove_file(daemon.path("bootstrap.yaml")).unwrap();
    daemon.signal(Signal::HUP);
    let told = || {
        daemon
            .read("err")
            .contains("cannot be read: ")
            .then_some(())
    };
    eventually("a missing file is refused", told).await;
    host.until_attempts(3).await;
    reload(&daemon, &good, APPLIED).await;
    assert!(
        daemon
            .read("err")
            .contains("added=0 changed=0 removed=0 unchanged=1")
    );
    daemon.stop().await;
}

#[tokio::test]
async fn what_cannot_change_while_running_is_told() {
    let host = Answering::new().await;
    let old = clusters(&[("a", host.address)], "");
    let mut daemon = Daemon::start(&old, &[]);
    let admin = daemon.admin().await;
    let other = old.replace("port_value: 0}", "port_value: 1}");
    let eds = "  - {name: e, type: EDS, eds_cluster_config: {eds_config: {path_config_source: {path: /}}}}\n";
    reload(
        &daemon,
        &format!("node: {{id: other, cluster: c}}\n{other}{eds}"),
        APPLIED,
    )
    .await;
    let log = daemon.read("err");
    for path in [
        "path=\"node\"",
        "path=\"admin\"",
        "path=\"static_resources.clusters: \\\"e\\\"\"",
    ] {
        let line = log.lines().find(|line| line.contains(path));
        let line = line.unwrap_or_else(|| panic!("{path}: {log}"));
        assert!(line.contains("change without effect"), "{line}");
    }
    assert_eq!(daemon.admin().await, admin);
    assert!(
        daemon
            .page("/ready", |_| true)
            .await
            .contains(&"LIVE".to_owned())
    );
    daemon.stop().await;
}

/// What comes to the socket that a service manager would have.
struct Manager(UnixDatagram);

impl Manager {
    fn next(&self) -> String {
        let mut buffer = [0; 256];
        let length = self.0.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }
}

#[tokio::test]
async fn the_service_manager_hears_of_start_reload_and_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = |path: &Path| {
        let socket = UnixDatagram::bind(path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Manager(socket)
    };
    let manager = manager(&path);
    let host = Answering::new().await;
    let config = clusters(&[("a", host.address)], "");
    let env = [("NOTIFY_SOCKET", path.to_str().unwrap())];
    let mut daemon = Daemon::start_with(&config, &[], &env);
    assert_eq!(manager.next(), "READY=1");
    reload(&daemon, &config, APPLIED).await;
    let reloading = manager.next();
    let (first, at) = reloading.split_once("\nMONOTONIC_USEC=").unwrap();
    assert_eq!(first, "RELOADING=1");
    assert!(at.parse::<u64>().unwrap() > 0);
    assert_eq!(manager.next(), "READY=1");
    daemon.stop().await;
    assert_eq!(manager.next(), "STOPPING=1");
}

#[tokio::test]
async fn a_file_that_never_ends_does_not_hold_up_the_daemon() {
    let host = Answering::new().await;
    let mut daemon = Daemon::start(&clusters(&[("a", host.address)], ""), &[]);
    host.until_attempts(1).await;
    // A pipe that nobody writes to takes the file's place.
    let path = daemon.path("bootstrap.yaml");
    std::fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    daemon.signal(Signal::HUP);
    host.until_attempts(10).await;
    daemon.stop().await;
}
