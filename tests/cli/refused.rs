//! What the daemon does not start with.

use std::net::TcpListener;

use crate::command::ran;
use crate::config::{ADMIN, OFTEN, bootstrap, check, sink};
use crate::daemon::{Answering, Daemon, eventually};

#[track_caller]
fn refused(config: &str, code: i32, complaints: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("b.yaml"), config).unwrap();
    let ran = ran(directory.path(), &["run", "-c", "b.yaml"], "");
    assert_eq!((ran.code, &*ran.out), (Some(code), ""), "{}", ran.err);
    assert_eq!(ran.err.lines().collect::<Vec<_>>(), complaints);
}

#[test]
fn a_bad_file_with_all_of_its_faults() {
    refused(
        "{nod: {}, admn: {}}",
        1,
        &[
            "b.yaml: line 1, column 7: nod: unknown field \"nod\" in envoy.config.bootstrap.v3.Bootstrap, did you mean node?",
            "b.yaml: line 1, column 17: admn: unknown field \"admn\" in envoy.config.bootstrap.v3.Bootstrap, did you mean admin?",
        ],
    );
}

#[test]
fn an_event_log_that_cannot_be_opened() {
    let host = ([127, 0, 0, 1], 1).into();
    let path = "/nonexistent/events";
    let loggers = format!("event_logger: [{}, {}]", sink("events"), sink(path));
    let deprecated = format!("event_log_path: {path}");
    for (fields, column, field) in [
        (deprecated, 129, "event_log_path"),
        (loggers, 438, "event_logger[1].typed_config.event_log_path"),
    ] {
        let checks = [check(&format!("{OFTEN}, {fields}"))];
        let complaint = format!(
            "b.yaml: line 11, column {column}: static_resources.clusters[0].health_checks[0].{field}: \
             cannot open \"{path}\" for appending: No such file or directory (os error 2)"
        );
        refused(&bootstrap(ADMIN, &[host], &checks, ""), 1, &[&complaint]);
    }
}

#[test]
fn an_admin_port_that_another_has() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let admin = ADMIN.replace("port_value: 0", &format!("port_value: {}", address.port()));
    let complaint = format!("error: admin port {address}: Address already in use (os error 98)");
    refused(&admin, 3, &[&complaint]);
}

#[test]
fn more_event_logs_than_a_quarter_of_the_descriptors() {
    let checks: Vec<_> = (0..8)
        .map(|number| {
            check(&format!(
                "{OFTEN}, name: c{number}, event_log_path: events{number}"
            ))
        })
        .collect();
    let host = ([127, 0, 0, 1], 1).into();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join("b.yaml"),
        bootstrap("", &[host], &checks, ""),
    )
    .unwrap();
    let ran = std::process::Command::new("sh")
        .args([
            "-c",
            "ulimit -n 28; exec \"$0\" run -c b.yaml",
            env!("CARGO_BIN_EXE_xds-health"),
        ])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    let reason = "health_checks[7].event_log_path: cannot open \"events7\" for appending: \
                  7 event logs are open already, and no more are";
    assert!(
        ran.status.code() == Some(1) && told.contains(reason),
        "{told}"
    );
}

/// However few descriptors there are, it works or says why not.
#[tokio::test]
async fn few_descriptors_are_told_of_and_end_in_no_panic() {
    let host = Answering::new().await;
    for descriptors in (6..=24).step_by(2) {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let checks = [check(&format!("{OFTEN}, event_log_path: events"))];
        std::fs::write(path("b.yaml"), bootstrap("", &[host.address], &checks, "")).unwrap();
        let run = format!("ulimit -n {descriptors}; exec \"$0\" run -c b.yaml");
        let child = std::process::Command::new("sh")
            .args(["-c", &run, env!("CARGO_BIN_EXE_xds-health")])
            .current_dir(directory.path())
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::fs::File::create(path("err")).unwrap())
            .spawn()
            .unwrap();
        let mut daemon = Daemon { child, directory };
        let child = std::sync::Mutex::new(&mut daemon.child);
        let (events, err) = (daemon.directory.path().join("events"), "err");
        let ended = eventually("its end or an event", || {
            let ended = child.lock().unwrap().try_wait().unwrap().map(Some);
            ended.or_else(|| {
                std::fs::metadata(&events)
                    .is_ok_and(|f| f.len() > 0)
                    .then_some(None)
            })
        })
        .await;
        match ended {
            None => daemon.stop().await,
            Some(status) => {
                let code = status.code();
                assert!(
                    matches!(code, Some(1 | 3)),
                    "{descriptors}: {code:?} {}",
                    daemon.read(err)
                );
                assert_ne!(daemon.read(err), "", "{descriptors}");
            }
        }
    }
}
