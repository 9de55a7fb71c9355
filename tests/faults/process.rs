//! A process that is stopped, whose clock is set, or that is asked by too many.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bed::{Daemon, Host, QUICK, cluster, eventually};
use crate::scarcity::shim;

#[test]
fn a_process_that_was_stopped_fails_no_host_for_it() {
    let host = Host::new();
    let daemon = Daemon::start(&cluster("far", &[host.address], QUICK, ""), "");
    daemon.until_is("cluster.far.membership_healthy", 1);
    let before = daemon.held();
    for stalls in 1..=2 {
        daemon.signal(Signal::STOP);
        // Several times the timeout.
        std::thread::sleep(Duration::from_secs(2));
        daemon.signal(Signal::CONT);
        daemon.until("xds_health.stalls", stalls);
        let attempts = daemon.stat("cluster.far.health_check.attempt");
        daemon.until("cluster.far.health_check.attempt", attempts + 10);
    }
    for cluster in ["far", "bystanders"] {
        assert_eq!(
            daemon.stat(&format!("cluster.{cluster}.health_check.failure")),
            0
        );
    }
    daemon.holds_no_more_than(before);
    let log = daemon.stop();
    assert!(log.contains("did not run for a while"), "{log}");
    assert!(!log.contains("host unhealthy"), "{log}");
}

#[test]
fn a_wall_clock_that_is_set_changes_timestamps_only() {
    let directory = tempfile::tempdir().unwrap();
    let Some(library) = shim(directory.path()) else {
        return;
    };
    let file = directory.path().join("seconds");
    let host = Host::new();
    let logged = format!("{QUICK}, event_log_path: events");
    let daemon = Daemon::start_by(
        &cluster("far", &[host.address], &logged, ""),
        "",
        |command| {
            command
                .env("LD_PRELOAD", &library)
                .env("FAULT_CLOCK", &file)
        },
    );
    daemon.until_is("cluster.far.membership_healthy", 1);
    let events = || std::fs::read_to_string(daemon.path("events")).unwrap();
    let year = |line: &str| -> i32 {
        let (_, rest) = line.split_once("\"timestamp\":\"").unwrap();
        rest[..4].parse().unwrap()
    };
    let now = year(events().lines().next().unwrap());
    // Ten years on, then ten years back from today.
    for (seconds, years) in [(315_576_000_i64, 10), (-315_576_000, -10)] {
        daemon.calm_during(|| {
            std::fs::write(&file, seconds.to_string()).unwrap();
            let before = events().lines().count();
            for answers in [false, true] {
                host.answers
                    .store(answers, std::sync::atomic::Ordering::Relaxed);
                daemon.until_is("cluster.far.membership_healthy", u64::from(answers));
            }
            let told = eventually("two events", || {
                let told = events();
                (told.lines().count() >= before + 2).then_some(told)
            });
            let last = year(told.lines().last().unwrap());
            assert!((last - now - years).abs() <= 1, "{last}");
        });
    }
    assert_eq!(daemon.stat("xds_health.stalls"), 0);
    daemon.stop();
}

#[test]
fn ten_thousand_idle_connections_take_the_admin_port_at_most() {
    let most = raised() / 2;
    let daemon = Daemon::start("", "");
    let before = daemon.held();
    let began = Instant::now();
    daemon.calm_during(|| {
        let mut idle = Vec::new();
        while idle.len() < 10_000.min(most) && began.elapsed() < Duration::from_secs(8) {
            // The kernel's queue may be full, and takes the rest later.
            if let Ok(stream) =
                TcpStream::connect_timeout(&daemon.admin(), Duration::from_millis(50))
            {
                idle.push(stream);
            }
            if idle.len() >= 2_000 && began.elapsed() > Duration::from_secs(4) {
                break;
            }
        }
        println!("{} connections", idle.len());
        assert!(daemon.held().descriptors <= before.descriptors + 512 + 16);
        // One that begins to ask and stops is let go as well.
        if let Some(first) = idle.first_mut() {
            let _ = first.write_all(b"GET /");
        }
    });
    daemon.holds_no_more_than(before);
    daemon.stop();
}

/// How many descriptors this process may have now.
fn raised() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let now = getrlimit(Resource::Nofile).current;
    now.map_or(usize::MAX, |now| usize::try_from(now).unwrap())
}
