//! A process that runs short of descriptors, ports or memory, and hosts that are too many.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use crate::bed::{Daemon, Host, QUICK, cluster, command, in_namespace};

/// A timeout that is longer than any scarcity here.
const PATIENT: &str = "timeout: 20s, interval: 0.05s, unhealthy_threshold: 1, healthy_threshold: 1";

fn waited_for(what: &str) -> String {
    format!("xds_health.cluster.far.health_check.waited_for.{what}")
}

/// The shim of a process, if there is a C compiler.
pub(crate) fn shim(directory: &std::path::Path) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/shim.c");
    let library = directory.join("shim.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([library.as_os_str(), source.as_ref(), "-ldl".as_ref()])
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        println!("skipped: there is no C compiler");
        return None;
    }
    Some(library)
}

#[test]
fn without_descriptors_attempts_wait_and_no_host_is_failed() {
    let hosts: Vec<_> = (0..8).map(|_| Host::new()).collect();
    let addresses: Vec<_> = hosts.iter().map(|host| host.address).collect();
    let daemon = Daemon::start(&cluster("far", &addresses, PATIENT, ""), "");
    daemon.until_is("cluster.far.membership_healthy", 8);
    let before = daemon.held();
    let cpu = daemon.cpu();
    let usual = prlimit(Some(daemon.pid()), Resource::Nofile, limit(3)).unwrap();
    let none = |what: &str| {
        crate::bed::eventually(what, || {
            let queued = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid().as_raw_nonzero()));
            (queued.unwrap().count() <= before.descriptors + 8).then_some(())
        });
    };
    none("a stand-still");
    // Nothing can be asked now: the admin port needs a descriptor as well.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let used = daemon.cpu() - cpu;
    assert!(
        used < 0.7,
        "{used} s of CPU in a second without descriptors"
    );
    prlimit(Some(daemon.pid()), Resource::Nofile, usual).unwrap();
    let attempts = daemon.stat("cluster.far.health_check.attempt");
    daemon.until("cluster.far.health_check.attempt", attempts + 80);
    assert_eq!(daemon.stat("cluster.far.health_check.failure"), 0);
    assert_eq!(daemon.stat("cluster.bystanders.health_check.failure"), 0);
    daemon.holds_no_more_than(before);
    daemon.stop();
}

fn limit(descriptors: u64) -> Rlimit {
    Rlimit {
        current: Some(descriptors),
        maximum: getrlimit(Resource::Nofile).maximum,
    }
}

#[test]
fn when_the_system_has_no_room_attempts_wait_and_no_host_is_failed() {
    let directory = tempfile::tempdir().unwrap();
    let Some(library) = shim(directory.path()) else {
        return;
    };
    let file = directory.path().join("errno");
    let host = Host::new();
    let daemon = Daemon::start_by(
        &cluster("far", &[host.address], PATIENT, ""),
        "",
        |command| {
            command
                .env("LD_PRELOAD", &library)
                .env("FAULT_SOCKET", &file)
        },
    );
    daemon.until_is("cluster.far.membership_healthy", 1);
    let before = daemon.held();
    for (errno, what) in [
        (libc_errno::ENFILE, "descriptors"),
        (libc_errno::ENOBUFS, "buffers"),
        (libc_errno::ENOMEM, "buffers"),
    ] {
        let waited = daemon.stat(&waited_for(what));
        let failures = ["far", "bystanders"].map(|c| format!("cluster.{c}.health_check.failure"));
        std::fs::write(&file, errno.to_string()).unwrap();
        // Sockets that were opened before are used as long as there are some.
        let waits = crate::bed::eventually("attempts that wait", || {
            let held = daemon.stat("xds_health.attempts_in_flight");
            let now = daemon.stat(&waited_for(what)) + daemon.stat(&bystanders_waited_for(what));
            (now > waited || held == 0).then_some(now)
        });
        std::fs::remove_file(&file).unwrap();
        println!("{what}: {waits} waited");
        let attempts = daemon.stat("cluster.far.health_check.attempt");
        daemon.until("cluster.far.health_check.attempt", attempts + 20);
        for name in failures {
            assert_eq!(daemon.stat(&name), 0, "{name} by {errno}");
        }
    }
    daemon.holds_no_more_than(before);
    daemon.stop();
}

fn bystanders_waited_for(what: &str) -> String {
    waited_for(what).replace("cluster.far", "cluster.bystanders")
}

/// Of Linux.
mod libc_errno {
    pub(super) const ENFILE: i32 = 23;
    pub(super) const ENOBUFS: i32 = 105;
    pub(super) const ENOMEM: i32 = 12;
}

#[test]
fn without_a_local_port_attempts_wait_for_one() {
    in_namespace(
        "scarcity::without_a_local_port_attempts_wait_for_one",
        || {
            // They answer late enough to hold their ports for a while.
            let slow = |_| {
                Host::answering(Ipv4Addr::new(127, 0, 2, 1), |socket, _, from| {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    let _ = socket.send_to(b"pong", from);
                })
            };
            let hosts: Vec<_> = (0..40).map(slow).collect();
            let addresses: Vec<_> = hosts.iter().map(|host| host.address).collect();
            let source =
                "upstream_bind_config: {source_address: {address: 127.0.0.1, port_value: 0}}";
            let check =
                "timeout: 20s, interval: 0.01s, unhealthy_threshold: 1, healthy_threshold: 1";
            let daemon = Daemon::start(&cluster("far", &addresses, check, source), "");
            daemon.until_is("cluster.far.membership_healthy", 40);
            let before = daemon.held();
            assert!(command(
                "echo 61000 61003 > /proc/sys/net/ipv4/ip_local_port_range"
            ));
            daemon.until(&waited_for("ports"), 10);
            assert!(command(
                "echo 32768 60999 > /proc/sys/net/ipv4/ip_local_port_range"
            ));
            let attempts = daemon.stat("cluster.far.health_check.attempt");
            daemon.until("cluster.far.health_check.attempt", attempts + 400);
            assert_eq!(daemon.stat("cluster.far.health_check.failure"), 0);
            assert_eq!(daemon.stat("cluster.bystanders.health_check.failure"), 0);
            daemon.holds_no_more_than(before);
            daemon.stop();
        },
    );
}

#[test]
fn a_local_port_that_another_process_has_holds_up_its_own_cluster_only() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let hosts: Vec<_> = (0..4).map(|_| Host::new()).collect();
    let addresses: Vec<_> = hosts.iter().map(|host| host.address).collect();
    let source = format!(
        "upstream_bind_config: {{source_address: {{address: 127.0.0.1, port_value: {port}}}}}"
    );
    let check = "timeout: 1s, interval: 0.05s, unhealthy_threshold: 1, healthy_threshold: 1";
    let daemon = Daemon::start(&cluster("far", &addresses, check, &source), "");
    let before = daemon.held();
    daemon.calm_during(|| {
        daemon.until(
            "xds_health.cluster.far.health_check.failure_reason.shortage",
            8,
        );
    });
    assert_eq!(daemon.stat("cluster.far.membership_healthy"), 0);
    drop(taken);
    // They share it, one after the other.
    daemon.calm_during(|| daemon.until_is("cluster.far.membership_healthy", 4));
    daemon.holds_no_more_than(before);
    let log = daemon.stop();
    assert!(log.contains("out of ports until the deadline"), "{log}");
}

#[test]
fn very_many_silent_hosts_stretch_their_own_schedule_only() {
    // Nobody listens there, and nobody says so: it is this test's socket, which is never read.
    let silent = UdpSocket::bind("127.0.4.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let mute = vec![SocketAddr::from((Ipv4Addr::new(127, 0, 4, 1), port)); 3_000];
    let check = "timeout: 0.5s, interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1";
    let daemon = Daemon::start_by(&cluster("far", &mute, check, ""), "", |command| {
        command.args(["--max-in-flight", "64"])
    });
    // 3,000 attempts of half a second each, 64 at a time, are a round of 23 s.
    let attempts =
        daemon.bystanders_pass_during(|| daemon.until("cluster.far.health_check.failure", 500));
    // In the order of hosts they would have had one or two. Clusters have turns, however slow the machine is.
    assert!(attempts >= 80, "{attempts} attempts");
    assert!(daemon.stat("xds_health.attempts_queued") > 1_000);
    drop(silent);
    daemon.stop();
}

#[test]
fn quick_and_slow_clusters_have_their_turns() {
    let host = Host::new();
    let daemon = Daemon::start_by(
        &cluster("far", &[host.address; 3], QUICK, ""),
        "",
        |command| command.args(["--max-in-flight", "1", "--concurrency", "1"]),
    );
    daemon.calm_during(|| daemon.until("cluster.far.health_check.success", 100));
    daemon.stop();
}

/// As few threads as a user may have, if this is the superuser: who else runs them cannot be told.
#[test]
fn too_few_threads_are_told_of_and_end_in_no_panic() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("b.yaml");
    // What it starts with enough of them fails at the admin port, so that it ends.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let admin = format!("{{address: 127.0.0.1, port_value: {port}}}");
    let text = format!("admin: {{address: {{socket_address: {admin}}}}}");
    std::fs::write(&config, text).unwrap();
    let binary = directory.path().join("xds-health");
    std::fs::copy(env!("CARGO_BIN_EXE_xds-health"), &binary).unwrap();
    let open: Permissions = PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).unwrap();
    for threads in 1..16 {
        // Nobody else is this user.
        let user = ["--reuid", "54321", "--regid", "54321", "--clear-groups"];
        let mut command = Command::new("setpriv");
        command
            .args(user)
            .arg("prlimit")
            .arg(format!("--nproc={threads}"));
        command
            .arg(&binary)
            .args(["run", "--concurrency", "2", "-c"]);
        let ran = command.arg(&config).output();
        let Ok(ran) = ran else {
            println!("skipped: there is no setpriv(1)");
            return;
        };
        let told = String::from_utf8_lossy(&ran.stderr);
        if told.contains("setpriv: ")
            || told.contains("prlimit: ")
            || told.contains("Permission denied")
        {
            println!("skipped: {told}");
            return;
        }
        assert_eq!(ran.status.code(), Some(3), "{threads}: {told}");
        let few = told.starts_with("error: cannot start: too few threads: ");
        let enough = told.contains("error: admin port ");
        assert!(few || threads > 3 && enough, "{threads}: {told}");
        assert!(!told.contains("panicked"), "{threads}: {told}");
    }
}

/// Clients of the admin port that only connect take no descriptor from attempts, however few there are.
#[test]
fn idle_clients_take_no_descriptors_from_attempts() {
    let host = Host::new();
    for descriptors in [64, 128, 520] {
        let limit = format!("ulimit -n {descriptors}");
        let daemon = Daemon::start_limited(&cluster("far", &[host.address], QUICK, ""), &limit);
        daemon.until_is("cluster.far.membership_healthy", 1);
        let idle: Vec<_> = (0..descriptors + 64)
            .map(|_| std::net::TcpStream::connect(daemon.admin()).unwrap())
            .collect();
        let before = host.heard();
        crate::bed::eventually("attempts", || (host.heard() > before + 20).then_some(()));
        assert_eq!(daemon.stat(&waited_for("descriptors")), 0, "{descriptors}");
        assert_eq!(daemon.stat("cluster.far.health_check.failure"), 0);
        drop(idle);
    }
}
