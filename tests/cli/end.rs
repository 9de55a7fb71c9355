//! How the daemon ends.

use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::config::{ADMIN, OFTEN, bootstrap, check};
use crate::daemon::{Answering, Daemon, eventually};

const SOON: Duration = Duration::from_secs(2);

#[tokio::test]
async fn told_to_stop_it_ends_soon_and_loses_no_event() {
    for signal in [Signal::TERM, Signal::INT] {
        let host = Answering::new().await;
        let log = "always_log_health_check_success: true, event_log_path: events";
        let often = OFTEN.replace("0.02s", "0.001s");
        let check = check(&format!("{often}, {log}"));
        let mut daemon = Daemon::start(&bootstrap(ADMIN, &[host.address], &[check], ""), &[]);
        // A client that neither asks nor goes does not hold it up.
        let mut idle = TcpStream::connect(daemon.admin().await).await.unwrap();
        idle.write_all(b"GET /ready HTTP/1.1\r\n").await.unwrap();
        daemon.until_lines("events", 50).await;
        daemon.signal(signal);
        let (status, took) = daemon.ended().await;
        assert_eq!(status.code(), Some(0), "{}", daemon.read("err"));
        assert!(took < SOON, "{took:?}");
        let log = daemon.read("events");
        assert!(log.ends_with("}\n"));
        // Each answer made an event, but for one that came too late.
        let (told, answered) = (log.lines().count(), host.attempts());
        assert!(
            (answered - 1..=answered).contains(&told),
            "{told} of {answered}"
        );
    }
}

#[tokio::test]
async fn attempts_that_hang_do_not_hold_up_the_end() {
    let silent = crate::peer::Peer::new().await;
    let config = bootstrap("", &[silent.address()], &[check(OFTEN)], "");
    let mut daemon = Daemon::start(&config, &[]);
    silent.next().await;
    daemon.signal(Signal::TERM);
    let (status, took) = daemon.ended().await;
    assert_eq!(status.code(), Some(0));
    assert!(took < SOON, "{took:?}");
}

/// A file that takes a while to be read: a pipe that nobody has written to yet.
fn slow_file() -> Option<(Daemon, std::path::PathBuf)> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slow.yaml");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    // Without mkfifo(1), there is no such file here.
    made.ok().filter(|made| made.success())?;
    let daemon = Daemon::start_in(directory, "slow.yaml", &[]);
    Some((daemon, path))
}

/// Whether a process has handlers for these signals, by its status.
fn heeds(daemon: &Daemon, signals: &[Signal]) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    let bit = |signal: &Signal| 1_u64 << (signal.as_raw() - 1);
    signals.iter().all(|signal| caught & bit(signal) != 0)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn signals_are_heeded_while_the_file_is_read() {
    let all = [Signal::HUP, Signal::USR1, Signal::TERM];
    let Some((mut daemon, _)) = slow_file() else {
        return;
    };
    eventually("handlers", || heeds(&daemon, &all).then_some(())).await;
    for signal in all {
        daemon.signal(signal);
    }
    let (status, took) = daemon.ended().await;
    assert_eq!(status.code(), Some(0), "{}", daemon.read("err"));
    assert!(took < SOON, "{took:?}");

    // What is asked for meanwhile is done when the file is in force.
    let Some((mut daemon, path)) = slow_file() else {
        return;
    };
    eventually("handlers", || heeds(&daemon, &all).then_some(())).await;
    daemon.signal(Signal::HUP);
    daemon.signal(Signal::USR1);
    std::fs::write(path, bootstrap(ADMIN, &[], &[check(OFTEN)], "")).unwrap();
    eventually("a word of the reload", || {
        let log = daemon.read("err");
        log.contains("it is no regular file").then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_file_that_may_grow_no_more_costs_lines_and_no_process() {
    let host = Answering::new().await;
    let log = "always_log_health_check_success: true, event_log_path: events";
    let check = check(&format!("{OFTEN}, {log}"));
    let config = bootstrap(ADMIN, &[host.address], &[check], "");
    // In units of 512 bytes.
    let mut daemon = Daemon::start_limited("ulimit -f 8", &config);
    let lost = |lines: &[&str]| {
        let name = "xds_health.event_log.write_errors: ";
        let count = lines.iter().find_map(|line| line.strip_prefix(name));
        count.is_some_and(|count| count != "0")
    };
    daemon.page("/stats", lost).await;
    assert!(daemon.read("events").len() <= 4096);
    host.until_attempts(10).await;
    daemon.stop().await;
}
