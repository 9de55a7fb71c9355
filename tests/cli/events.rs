//! What the daemon tells of two hosts, one of which answers: events, pages, counters.

use std::net::SocketAddr;

use crate::command::ran;
use crate::config::{ADMIN, OFTEN, bootstrap, check, sink};
use crate::daemon::{Answering, Daemon};
use crate::http::{exchange_over, get};
use crate::peer::Peer;

/// An event as Envoy writes it, but for its time: `before` and `after` are what stands around that.
fn event(host: SocketAddr, before: &str, after: &str) -> String {
    let (address, port) = (host.ip(), host.port());
    format!(
        r#"{{"health_checker_type":"UDP","host":{{"socket_address":{{"protocol":"TCP","address":"{address}","port_value":{port},"resolver_name":"","ipv4_compat":false,"network_namespace_filepath":""}}}},"cluster_name":"c",{before}"timestamp":"TIME",{after}"locality":{{"region":"","zone":"","sub_zone":""}}}}"#
    )
}

fn added(host: SocketAddr, first: bool) -> String {
    let kind = format!(r#""add_healthy_event":{{"first_check":{first}}},"#);
    event(host, &kind, "")
}

fn failed(host: SocketAddr, first: bool) -> String {
    let kind = format!(
        r#""health_check_failure_event":{{"failure_type":"NETWORK","first_check":{first},"http_status_code":0}},"#
    );
    event(host, "", &kind)
}

fn ejected(host: SocketAddr) -> String {
    let kind = r#""eject_unhealthy_event":{"failure_type":"NETWORK","http_status_code":0},"#;
    event(host, kind, "")
}

fn succeeded(host: SocketAddr) -> String {
    let line = event(host, "", "");
    let line = line.strip_suffix('}').unwrap();
    format!("{line},\"successful_health_check_event\":{{}}}}")
}

/// The lines of an event log, each with its time taken out once that was looked at.
fn events(log: &str) -> Vec<String> {
    let mark = "\"timestamp\":\"";
    let lines = log.lines().map(|line| {
        let (before, rest) = line.split_once(mark).expect(line);
        let (time, after) = rest.split_once('"').expect(line);
        let digits: String = time
            .chars()
            .map(|c| if c.is_ascii_digit() { '0' } else { c })
            .collect();
        // On a whole second there is no fraction.
        let forms = ["0000-00-00T00:00:00.000Z", "0000-00-00T00:00:00Z"];
        assert!(forms.contains(&&*digits), "{time}");
        format!("{before}{mark}TIME\"{after}")
    });
    lines.collect()
}

#[tokio::test]
async fn an_answering_and_a_closed_host_are_told_of_as_envoy_tells() {
    let (answering, closed) = (Answering::new().await, Peer::closed().await);
    let hosts = [answering.address, closed.address()];
    let check = check(&format!("{OFTEN}, event_logger: [{}]", sink("events")));
    let config = bootstrap(ADMIN, &hosts, &[check], "");
    let mut daemon = Daemon::start(&config, &[]);
    let admin = daemon.admin().await;

    let ready = daemon.page("/ready", |lines| lines == ["LIVE"]).await;
    assert_eq!(ready, ["LIVE"]);
    assert_eq!(get(admin, "/ready").await.status, 200);

    // Some rounds, in which nothing is new.
    answering.until_attempts(5).await;
    let flags = |host: SocketAddr, flags: &str| format!("c::{host}::health_flags::{flags}");
    let clusters = daemon.page("/clusters", |_| true).await;
    assert!(clusters.contains(&flags(hosts[0], "healthy")));
    assert!(clusters.contains(&flags(hosts[1], "/failed_active_hc")));

    let counters = "/stats?filter=^cluster.c.(health_check|membership)";
    let stats = daemon.page(counters, |_| true).await;
    let value = |name: &str| {
        let stat = stats.iter().find_map(|line| line.strip_prefix(name));
        let value = stat.and_then(|rest| rest.strip_prefix(": "));
        value.expect(name).parse::<u64>().unwrap()
    };
    let of = |name: &str| value(&format!("cluster.c.health_check.{name}"));
    assert!(of("attempt") >= 7 && of("success") >= 4 && of("failure") >= 1);
    assert_eq!(of("network_failure"), of("failure"));
    assert_eq!(of("healthy"), 1);
    assert_eq!(
        (of("passive_failure"), of("verify_cluster"), of("degraded")),
        (0, 0, 0)
    );
    let members = |name: &str| value(&format!("cluster.c.membership_{name}"));
    assert_eq!(
        (members("total"), members("healthy"), members("change")),
        (2, 1, 1)
    );

    daemon.stop().await;
    let mut told = events(&daemon.read("events"));
    let mut wanted = [added(hosts[0], true), failed(hosts[1], true)];
    told.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(told, wanted);
    assert_eq!(daemon.read("out"), "");
}

#[tokio::test]
async fn a_host_that_goes_and_comes_is_ejected_and_added() {
    let host = Answering::new().await;
    let address = host.address;
    let check = check(&format!("{OFTEN}, event_log_path: events"));
    let mut daemon = Daemon::start(&bootstrap("", &[address], &[check], ""), &[]);
    daemon.until_lines("events", 1).await;
    host.close().await;
    daemon.until_lines("events", 2).await;
    let _back = Answering::at(address).await;
    daemon.until_lines("events", 3).await;
    daemon.stop().await;
    // An attempt that was on its way when the port was closed is lost without a sign.
    let told = daemon.read("events").replace("NETWORK_TIMEOUT", "NETWORK");
    let wanted = [
        added(address, true),
        ejected(address),
        added(address, false),
    ];
    assert_eq!(events(&told), wanted);
}

#[tokio::test]
async fn each_result_is_told_where_that_is_asked_for() {
    let (answering, closed) = (Answering::new().await, Peer::closed().await);
    let hosts = [answering.address, closed.address()];
    let always = "always_log_health_check_failures: true, always_log_health_check_success: true";
    let check = check(&format!("{OFTEN}, {always}, event_log_path: events"));
    let mut daemon = Daemon::start(&bootstrap("", &hosts, &[check], ""), &[]);
    daemon.until_lines("events", 10).await;
    daemon.stop().await;
    let told = events(&daemon.read("events"));
    let of = |host: SocketAddr| {
        let port = format!(":{},", host.port());
        told.iter().filter(move |line| line.contains(&port))
    };
    for (host, first, later) in [
        (hosts[0], added(hosts[0], true), succeeded(hosts[0])),
        (hosts[1], failed(hosts[1], true), failed(hosts[1], false)),
    ] {
        let mut told = of(host);
        assert_eq!(told.next(), Some(&first));
        assert!(told.all(|line| *line == later));
    }
}

#[tokio::test]
async fn two_sinks_on_one_file_write_each_line_twice() {
    let host = Answering::new().await;
    let sinks = format!("event_logger: [{}, {}]", sink("events"), sink("events"));
    let check = check(&format!("{OFTEN}, {sinks}"));
    let config = bootstrap("", &[host.address], &[check], "");
    let mut daemon = Daemon::start(&config, &[]);
    daemon.until_lines("events", 2).await;
    daemon.stop().await;
    let line = added(host.address, true);
    assert_eq!(events(&daemon.read("events")), [line.clone(), line]);
}

#[tokio::test]
async fn a_moved_log_is_opened_anew_when_told() {
    let host = Answering::new().await;
    let log = "always_log_health_check_success: true, event_log_path: events";
    let config = bootstrap(
        "",
        &[host.address],
        &[check(&format!("{OFTEN}, {log}"))],
        "",
    );
    let mut daemon = Daemon::start(&config, &[]);
    daemon.until_lines("events", 3).await;
    std::fs::rename(daemon.path("events"), daemon.path("old")).unwrap();
    // The file that was moved is still the one that is written.
    let before = daemon.lines("old");
    daemon.until_lines("old", before + 2).await;
    assert!(!daemon.path("events").exists());
    daemon.signal(rustix::process::Signal::USR1);
    daemon.until_lines("events", 2).await;
    daemon.stop().await;
    let (old, new) = (daemon.lines("old"), daemon.lines("events"));
    let answered = host.attempts();
    assert!(
        (answered - 1..=answered).contains(&(old + new)),
        "none is lost"
    );
}

/// How many sockets the process listens with.
#[cfg(target_os = "linux")]
fn listening(process: u32) -> usize {
    let fds = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let links = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    let inodes: Vec<_> = links
        .filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    let tables = ["tcp", "tcp6"].map(|name| {
        std::fs::read_to_string(format!("/proc/{process}/net/{name}")).unwrap_or_default()
    });
    let sockets = tables.iter().flat_map(|table| table.lines().skip(1));
    let listens = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields[3] == "0A" && inodes.iter().any(|inode| inode == fields[9])
    };
    sockets.filter(listens).count()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn without_an_admin_section_no_port_is_open() {
    let host = Answering::new().await;
    for (admin, wanted) in [(ADMIN, 1), ("", 0), ("admin: {}", 0)] {
        let config = bootstrap(admin, &[host.address], &[check(OFTEN)], "");
        let mut daemon = Daemon::start(&config, &[]);
        // The port, if any, is open before the first attempt.
        host.until_attempts(2).await;
        assert_eq!(listening(daemon.child.id()), wanted, "{admin}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn an_admin_section_with_a_path_opens_a_socket_there() {
    let host = Answering::new().await;
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("admin.sock");
    let section = format!("admin: {{address: {{pipe: {{path: {}}}}}}}", path.display());
    let config = bootstrap(&section, &[host.address], &[check(OFTEN)], "");
    // As left by one that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());

    let mut daemon = Daemon::start(&config, &[]);
    host.until_attempts(2).await;
    let request = b"GET /server_info HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    let answer = exchange_over(stream, request).await;
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));

    let second = ran(
        daemon.directory.path(),
        &["run", "-c", "bootstrap.yaml"],
        "",
    );
    assert_eq!(second.code, Some(3));
    let complaint = format!(
        "error: admin port {}: Address already in use",
        path.display()
    );
    assert!(second.err.starts_with(&complaint), "{}", second.err);
    daemon.stop().await;
}
