//! `xds-health status`, asked of a daemon that runs.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::Value;

use crate::command::{Ran, binary, ran};
use crate::config::{ADMIN, OFTEN, bootstrap, check};
use crate::daemon::{Answering, Daemon};
use crate::peer::Peer;
use crate::snapshot::{same, steady};

/// Runs a command against a daemon, beside it.
pub async fn asked(daemon: &Daemon, args: &[&str]) -> Ran {
    let admin = daemon.admin().await.to_string();
    let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let directory = daemon.directory.path().to_owned();
    let run = move || {
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        ran(&directory, &[&args[..], &["--admin", &admin]].concat(), "")
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// A daemon whose hosts, one good and one closed, have been checked.
pub async fn two_hosts() -> (Daemon, Answering, Peer) {
    let (good, closed) = loop {
        let (good, closed) = (Answering::new().await, Peer::closed().await);
        // They are listed by their addresses.
        if good.address < closed.address() {
            break (good, closed);
        }
    };
    let hosts = [good.address, closed.address()];
    let config = bootstrap(ADMIN, &hosts, &[check(OFTEN)], "");
    let daemon = Daemon::start(&config, &[]);
    let flags = [
        format!("c::{}::health_flags::healthy", hosts[0]),
        format!("c::{}::health_flags::/failed_active_hc", hosts[1]),
    ];
    let both = |lines: &[&str]| flags.iter().all(|flag| lines.contains(&&**flag));
    daemon.page("/clusters", both).await;
    (daemon, good, closed)
}

#[tokio::test]
async fn clusters_are_counted_and_hosts_that_are_not_well_are_listed() {
    let (mut daemon, good, closed) = two_hosts().await;
    let names = [
        (good.address.to_string(), "GOOD"),
        (closed.address().to_string(), "CLOSED"),
    ];
    let told = asked(&daemon, &["status"]).await;
    assert_eq!((told.code, &*told.err), (Some(0), ""));
    same("status", &steady(&told.out, &names));
    let all = asked(&daemon, &["status", "--all"]).await;
    same("status-all", &steady(&all.out, &names));
    let healthy = asked(&daemon, &["status", "--state", "healthy,unknown"]).await;
    let healthy = steady(&healthy.out, &names);
    assert!(
        healthy.contains("GOOD") && !healthy.contains("CLOSED"),
        "{healthy}"
    );
    let one = asked(&daemon, &["status", "--all", "--limit", "1"]).await;
    assert!(one.out.ends_with("\nand 1 more\n"), "{}", one.out);

    let json = asked(&daemon, &["status", "--format", "json", "--cluster", "c"]).await;
    let json: Value = serde_json::from_str(&json.out).unwrap();
    let counts = serde_json::json!({
        "cluster": "c", "hosts": 2, "healthy": 1, "degraded": 0, "unhealthy": 1, "unknown": 0
    });
    assert_eq!(json["clusters"], serde_json::json!([counts]));
    assert_eq!(json["hosts"][0]["address"], closed.address().to_string());
    assert_eq!(json["hosts"][0]["reason"]["kind"], "refused");

    let none = asked(&daemon, &["status", "--cluster", "d"]).await;
    assert_eq!((none.code, &*none.out), (Some(2), ""));
    assert_eq!(none.err, "error: There is no cluster of that name.\n");
    daemon.stop().await;
}

fn watching(admin: &str) -> std::process::Command {
    let mut command = binary();
    command.args([
        "status",
        "--watch",
        "--interval",
        "10ms",
        "--format",
        "json",
    ]);
    command.args(["--admin", admin]);
    command
}

#[tokio::test]
async fn who_watches_is_told_again_and_again() {
    let (mut daemon, _good, _closed) = two_hosts().await;
    let admin = daemon.admin().await.to_string();
    let watched = tokio::task::spawn_blocking(move || {
        let mut child = watching(&admin).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines: Vec<_> = lines.take(3).map(Result::unwrap).collect();
        // Its reader is gone: so it ends.
        assert_eq!(child.wait().unwrap().code(), Some(0));
        lines
    });
    for line in watched.await.unwrap() {
        let told: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(told["clusters"][0]["hosts"], 2);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn who_watches_waits_for_a_daemon_that_is_started_anew() {
    let (mut daemon, _good, _closed) = two_hosts().await;
    let admin = daemon.admin().await.to_string();
    let mut child = watching(&admin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let err = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(out.next().unwrap().unwrap().starts_with('{'));
    daemon.stop().await;
    let last = tokio::task::spawn_blocking(move || {
        // What is told until the port is closed is of no interest here.
        std::thread::spawn(move || out.for_each(drop));
        err.map(Result::unwrap).nth(2).unwrap()
    });
    let last = last.await.unwrap();
    assert!(last.starts_with("error: the admin port at "), "{last}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn a_socket_in_the_file_system_can_be_asked() {
    let admin = "admin: {address: {pipe: {path: admin.sock, mode: 384}}}";
    let mut daemon = Daemon::start(&bootstrap(admin, &[], &[check(OFTEN)], ""), &[]);
    let path = daemon.path("admin.sock");
    // Only its owner may ask.
    let mode = || {
        let mode = std::fs::metadata(&path).ok()?.permissions().mode() & 0o777;
        (mode == 0o600).then_some(())
    };
    crate::daemon::eventually("the socket", mode).await;
    let directory = daemon.directory.path().to_owned();
    let run = move || ran(&directory, &["status", "--admin", "./admin.sock"], "");
    let told = tokio::task::spawn_blocking(run).await.unwrap();
    assert_eq!((told.code, &*told.err), (Some(0), ""));
    // The cluster has no host, and is shown all the same.
    let rows: Vec<_> = told
        .out
        .lines()
        .map(|line| line.split_whitespace())
        .collect();
    let rows = rows
        .into_iter()
        .map(|row| row.collect::<Vec<_>>().join(" "));
    let head = "CLUSTER HOSTS HEALTHY DEGRADED UNHEALTHY UNKNOWN";
    assert!(rows.eq([head, "c 0 0 0 0 0"]), "{}", told.out);
    daemon.stop().await;
}

#[test]
fn a_port_where_nobody_listens_is_trouble_of_this_machine() {
    let directory = tempfile::tempdir().unwrap();
    for command in [&["status"][..], &["explain", "c", "127.0.0.1:1"]] {
        let admin = ["--admin", "127.0.0.1:1"];
        let ran = ran(directory.path(), &[command, &admin].concat(), "");
        assert_eq!((ran.code, &*ran.out), (Some(3), ""));
        let told = "error: the admin port at 127.0.0.1:1: Connection refused";
        assert!(ran.err.starts_with(told), "{}", ran.err);
    }
}

#[test]
fn what_another_server_says_is_not_taken_for_an_answer() {
    for (answer, told) in [
        (
            "200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi",
            "200 OK of type \"text/html\": this is no admin port of xds-health",
        ),
        (
            "404 Not Found\r\ncontent-length: 3\r\n\r\n<p>",
            "404 Not Found of type \"\": this is no admin port of xds-health",
        ),
    ] {
        told_of(answer.to_owned(), &["status"], told);
    }
}

#[test]
fn what_is_no_list_of_hosts_is_not_taken_for_an_empty_one() {
    let list = |body: &str| format!("200 OK\r\ncontent-type: application/json\r\n\r\n{body}");
    for command in [&["status"][..], &["explain", "c", "127.0.0.1:1"]] {
        for body in [
            "",
            "{\"hosts\": null}\n",
            "[[[[[[\n",
            "{\"hosts\":[\n{\"cluster\":1,\"address\":\"a\",\"state\":\"healthy\"}\n],\"more\":false}\n",
            "{\"hosts\":[\n",
        ] {
            told_of(list(body), command, "this is no list of hosts");
        }
        let endless = format!("{{\"hosts\":[\n{}", " ".repeat(3 << 20));
        told_of(list(&endless), command, "the answer is too long");
    }
}

/// Answers the next question of a command so, and looks at what it says of that.
#[track_caller]
fn told_of(answer: String, command: &[&str], told: &str) {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let mut asked = BufReader::new(stream.try_clone().unwrap()).lines();
        while asked.next().is_some_and(|line| !line.unwrap().is_empty()) {}
        // Who has heard enough of it goes.
        let _ = write!(stream, "HTTP/1.1 {answer}");
    });
    let directory = tempfile::tempdir().unwrap();
    let admin = ["--admin", &address];
    let ran = ran(directory.path(), &[command, &admin].concat(), "");
    server.join().unwrap();
    assert_eq!((ran.code, &*ran.out), (Some(3), ""));
    let wanted = format!("error: the admin port at {address}: {told}\n");
    assert_eq!(ran.err, wanted);
}
