//! Hosts, and paths to them, that answer in other ways than they should.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::bed::{Daemon, Host, QUICK, cluster};

const HEALTHY: &str = "cluster.far.membership_healthy";

fn reason(label: &str) -> String {
    format!("xds_health.cluster.far.health_check.failure_reason.{label}")
}

#[test]
fn a_flood_of_wrong_datagrams_fails_its_host_only() {
    // To whoever asked last, as fast as one thread can: some hundred thousand a second.
    let flooding = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (told, counted) = (Arc::clone(&flooding), Arc::clone(&sent));
    let host = Host::answering(Ipv4Addr::LOCALHOST, move |socket, _, from| {
        if !told.load(Relaxed) {
            let _ = socket.send_to(b"pong", from);
            return;
        }
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(150) {
            for _ in 0..100 {
                // A port that has gone says so.
                let _ = socket.send_to(b"wrong", from);
            }
            counted.fetch_add(100, Relaxed);
        }
    });
    let daemon = Daemon::start(&cluster("far", &[host.address], QUICK, ""), "");
    daemon.until_is(HEALTHY, 1);
    let before = daemon.held();
    daemon.calm_during(|| {
        flooding.store(true, Relaxed);
        daemon.until_is(HEALTHY, 0);
        daemon.until(&reason("mismatch"), 8);
        flooding.store(false, Relaxed);
        daemon.until_is(HEALTHY, 1);
    });
    println!("{} datagrams in all", sent.load(Relaxed));
    daemon.holds_no_more_than(before);
    let log = daemon.stop();
    assert!(
        log.contains("no matching answer within the timeout"),
        "{log}"
    );
}

#[test]
fn answers_from_other_ports_and_addresses_count_for_nothing() {
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let elsewhere = UdpSocket::bind("127.0.3.1:0").unwrap();
    let host = Host::answering(Ipv4Addr::LOCALHOST, move |_, _, from| {
        for spoof in [&stranger, &elsewhere] {
            let _ = spoof.send_to(b"pong", from);
        }
    });
    let daemon = Daemon::start(&cluster("far", &[host.address], QUICK, ""), "");
    daemon.calm_during(|| daemon.until(&reason("silent"), 5));
    assert_eq!(daemon.stat("cluster.far.health_check.success"), 0);
    assert_eq!(daemon.stat(HEALTHY), 0);
    daemon.stop();
}

#[test]
fn a_path_that_loses_doubles_and_reorders_fails_no_host_within_its_threshold() {
    let mut number = 0_u64;
    let mut held: Option<std::net::SocketAddr> = None;
    let host = Host::answering(Ipv4Addr::LOCALHOST, move |socket, _, from| {
        number += 1;
        if number.is_multiple_of(100) {
            return;
        }
        if number.is_multiple_of(10) {
            // Later than the next one, if the next comes at all: it is late for its own attempt.
            if let Some(other) = held.replace(from) {
                let _ = socket.send_to(b"pong", other);
            }
            let _ = socket.send_to(b"pong", from);
            return;
        }
        let times = 1 + u64::from(number.is_multiple_of(7));
        for _ in 0..times {
            let _ = socket.send_to(b"pong", from);
        }
    });
    let check = "timeout: 0.2s, interval: 0.001s, unhealthy_threshold: 3, healthy_threshold: 1";
    let daemon = Daemon::start(&cluster("far", &[host.address], check, ""), "");
    daemon.calm_during(|| daemon.until("cluster.far.health_check.success", 1_000));
    let lost = daemon.stat(&reason("silent"));
    assert!((1..=1 + host.heard() / 100).contains(&lost), "{lost} lost");
    assert_eq!(daemon.stat("cluster.far.health_check.failure"), lost);
    assert_eq!(daemon.stat(HEALTHY), 1);
    let log = daemon.stop();
    assert!(!log.contains("host unhealthy"), "{log}");
}
