//! Event logs that cannot be written, and files that are none.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use rustix::process::Signal;

use crate::bed::{Daemon, Host, QUICK, cluster, command, eventually, in_namespace};

const LOST: &str = "xds_health.event_log.write_errors";

fn logged(host: SocketAddr, path: &str) -> String {
    let check = format!("{QUICK}, always_log_health_check_success: true, event_log_path: {path}");
    cluster("far", &[host], &check, "")
}

#[test]
fn a_full_disk_loses_lines_and_nothing_else_until_there_is_room() {
    in_namespace(
        "files::a_full_disk_loses_lines_and_nothing_else_until_there_is_room",
        || {
            let directory = tempfile::tempdir().unwrap();
            let at = directory.path().display();
            if !command(&format!("mount -t tmpfs -o size=16k tmpfs {at}")) {
                println!("skipped: nothing can be mounted here");
                return;
            }
            let host = Host::new();
            let daemon = Daemon::start(&logged(host.address, &format!("{at}/events")), "");
            let before = daemon.held();
            daemon.calm_during(|| daemon.until(LOST, 5));
            assert!(daemon.log().contains("event log not written"));
            assert_eq!(daemon.stat("cluster.far.membership_healthy"), 1);
            assert!(command(&format!("mount -o remount,size=10m {at}")));
            let events = || std::fs::read_to_string(directory.path().join("events")).unwrap();
            let full = events().len();
            eventually("more lines", || {
                (events().len() > full + 1_000).then_some(())
            });
            let lost = daemon.stat(LOST);
            daemon.holds_no_more_than(before);
            daemon.stop();
            // Each line is whole, but for the one that the disk had no room for.
            let text = events();
            let broken = text.lines().filter(|line| !line.ends_with('}')).count();
            assert!(
                broken <= 1 && lost >= 5,
                "{broken} of {}",
                text.lines().count()
            );
            assert!(command(&format!("umount {at}")));
        },
    );
}

#[test]
fn a_log_that_was_removed_is_opened_anew_when_asked() {
    let host = Host::new();
    let daemon = Daemon::start(&logged(host.address, "events"), "");
    let events = daemon.path("events");
    eventually("lines", || {
        (std::fs::metadata(&events).ok()?.len() > 0).then_some(())
    });
    let before = daemon.held();
    daemon.calm_during(|| {
        std::fs::remove_file(&events).unwrap();
        let attempts = daemon.stat("cluster.far.health_check.attempt");
        daemon.until("cluster.far.health_check.attempt", attempts + 10);
        assert!(!events.exists());
        daemon.signal(Signal::USR1);
        eventually("a new file", || {
            (std::fs::metadata(&events).ok()?.len() > 0).then_some(())
        });
    });
    daemon.holds_no_more_than(before);
    // Its directory goes too: the old file is written on.
    daemon.stop();
}

#[test]
fn a_pipe_whose_reader_sleeps_holds_up_nobody() {
    let host = Host::new();
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(command(&format!("mkfifo {}", pipe.display())));
    // Without a reader it is refused at the start.
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_xds-health"))
        .args(["validate", "-c", "-"])
        .stdin({
            let path = directory.path().join("bootstrap.yaml");
            let pipe = pipe.display().to_string();
            let clusters = logged(host.address, &pipe);
            std::fs::write(&path, format!("static_resources:\n  clusters:\n{clusters}")).unwrap();
            std::fs::File::open(path).unwrap()
        })
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("cannot open") && said.contains("for appending"),
        "{said}"
    );
    // With one that does not read, lines are lost once the pipe is full.
    let reader = rustix::fs::open(
        &pipe,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    let quick = logged(host.address, &pipe.display().to_string())
        .replace("interval: 0.05s", "interval: 0.001s");
    let daemon = Daemon::start(&quick, "");
    daemon.calm_during(|| daemon.until(LOST, 5));
    assert_eq!(daemon.stat("cluster.far.membership_healthy"), 1);
    // And once it has gone for good, writing fails otherwise, and ends nothing.
    drop(reader);
    let lost = daemon.stat(LOST);
    daemon.calm_during(|| daemon.until(LOST, lost + 5));
    host.answers.store(false, Relaxed);
    daemon.until_is("cluster.far.membership_healthy", 0);
    daemon.stop();
}
