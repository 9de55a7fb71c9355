//! What the daemon logs.

use serde_json::Value;

use crate::config::{ADMIN, OFTEN, bootstrap, check};
use crate::daemon::{Answering, Daemon, eventually};

/// What a daemon that ran some rounds wrote to standard error.
async fn logged(args: &[&str]) -> String {
    let host = Answering::new().await;
    let check = check(&format!("{OFTEN}, event_log_path: events"));
    let config = bootstrap(ADMIN, &[host.address], &[check], "");
    let mut daemon = Daemon::start(&config, args);
    host.until_attempts(3).await;
    daemon.stop().await;
    assert_eq!(daemon.read("out"), "");
    daemon.read("err")
}

#[tokio::test]
async fn json_is_an_object_a_line() {
    let log = logged(&["--log-format", "json"]).await;
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let messages: Vec<_> = lines.iter().filter_map(|l| l["message"].as_str()).collect();
    assert_eq!(messages.len(), lines.len());
    for message in [
        "odd configuration",
        "admin port open",
        "host healthy",
        "stopping",
    ] {
        assert_eq!(
            messages.iter().filter(|m| **m == message).count(),
            1,
            "{log}"
        );
    }
    let warning = &lines[0];
    assert_eq!(warning["level"], "WARN");
    assert_eq!(warning["file"], "bootstrap.yaml");
    assert!(warning["place"].as_str().unwrap().starts_with("line "));
    let healthy = lines
        .iter()
        .find(|l| l["message"] == "host healthy")
        .unwrap();
    assert_eq!(healthy["cluster"], "c");
    assert!(healthy["host"].as_str().unwrap().starts_with("127.0.0.1:"));
}

#[tokio::test]
async fn text_is_for_people() {
    let log = logged(&[]).await;
    for message in [
        " WARN ",
        "admin port open address=127.0.0.1:",
        "host healthy",
        "stopping",
    ] {
        assert!(log.contains(message), "{message}\n{log}");
    }
    assert!(!log.contains('\u{1b}'), "no colours in a file");
}

#[tokio::test]
async fn a_level_and_a_filter_choose_lines() {
    assert_eq!(logged(&["--log-level", "off"]).await, "");
    let warnings = logged(&["--log-level", "warn"]).await;
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
    let some = logged(&["--log-level", "off,xds_health::engine=info"]).await;
    assert_eq!(some.lines().count(), 1, "{some}");
    assert!(some.contains("host healthy"));
}

/// A daemon whose standard error is `err`: it tells of a host that comes and goes for all that.
async fn goes_on_without_its_log(err: std::process::Stdio) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let host = Answering::new().await;
    let check = check(&format!("{OFTEN}, event_log_path: events"));
    let config = bootstrap("", &[host.address], &[check], "");
    std::fs::write(path("bootstrap.yaml"), config).unwrap();
    let child = crate::command::binary()
        .args(["run", "-c", "bootstrap.yaml"])
        .current_dir(directory.path())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(err)
        .spawn()
        .unwrap();
    let mut daemon = Daemon { child, directory };
    daemon.until_lines("events", 1).await;
    host.close().await;
    eventually("an ejection", || {
        daemon
            .read("events")
            .contains("eject_unhealthy")
            .then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_reader_of_the_log_that_went_ends_no_check() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    goes_on_without_its_log(writer.into()).await;
}

#[tokio::test]
async fn a_full_disk_under_the_log_ends_no_check() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    goes_on_without_its_log(full.into()).await;
}

#[tokio::test]
async fn a_reader_of_the_log_that_stands_still_holds_up_no_check() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while std::io::Write::write(&mut writer, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    goes_on_without_its_log(writer.into()).await;
    drop(reader);
}
