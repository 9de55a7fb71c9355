//! What the daemon does when its admin port is told to.

use crate::config::{ADMIN, OFTEN, bootstrap, check};
use crate::daemon::{Answering, Daemon, eventually};
use crate::http::{ask, send};

fn always(host: &Answering) -> String {
    let log = "always_log_health_check_success: true, event_log_path: events";
    let check = check(&format!("{OFTEN}, {log}"));
    bootstrap(ADMIN, &[host.address], &[check], "")
}

#[tokio::test]
async fn quitquitquit_is_answered_and_ends_it_in_order() {
    let host = Answering::new().await;
    let mut daemon = Daemon::start(&always(&host), &[]);
    daemon.until_lines("events", 1).await;
    let answer = ask(daemon.admin().await, "POST", "/quitquitquit").await;
    assert_eq!((answer.status, &*answer.body), (200, "OK\n"));
    assert_eq!(
        daemon.ended().await.0.code(),
        Some(0),
        "{}",
        daemon.read("err")
    );
    assert!(daemon.read("events").ends_with("}\n"));
}

#[tokio::test]
async fn reopen_logs_opens_event_logs_anew() {
    let host = Answering::new().await;
    let mut daemon = Daemon::start(&always(&host), &[]);
    daemon.until_lines("events", 2).await;
    std::fs::rename(daemon.path("events"), daemon.path("old")).unwrap();
    let answer = ask(daemon.admin().await, "POST", "/reopen_logs").await;
    assert_eq!((answer.status, &*answer.body), (200, "OK\n"));
    daemon.until_lines("events", 2).await;
    daemon.stop().await;
}

#[tokio::test]
async fn levels_of_log_lines_change_while_it_runs() {
    let host = Answering::new().await;
    for format in ["text", "json"] {
        let mut daemon = Daemon::start(&always(&host), &["--log-format", format]);
        let admin = eventually("admin port", || {
            let log = daemon.read("err");
            let (_, rest) = log.split_once("127.0.0.1:")?;
            let port = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            format!("127.0.0.1:{port}").parse().ok()
        })
        .await;
        let levels = ask(admin, "POST", "/logging").await.body;
        assert!(levels.contains("  admin: info\n  cli: info\n"), "{levels}");
        // Refused by hyper, and told of at this level only.
        let spoil = || async { crate::http::exchange(admin, b"\x01\r\n\r\n").await };
        spoil().await;
        assert!(!daemon.read("err").contains("admin connection ended"));
        let levels = ask(admin, "POST", "/logging?admin=debug").await.body;
        assert!(levels.contains("  admin: debug\n  cli: info\n"), "{levels}");
        spoil().await;
        let told = || daemon.read("err").contains("admin connection ended");
        eventually("a line of that level", || told().then_some(())).await;

        let levels = ask(admin, "POST", "/logging?level=off").await.body;
        assert!(levels.contains("  admin: off\n  cli: off\n"), "{levels}");
        daemon.stop().await;
        assert!(!daemon.read("err").contains("stopping"));
    }
}

#[tokio::test]
async fn a_foreign_name_is_not_answered_to_on_loopback() {
    let host = Answering::new().await;
    let mut daemon = Daemon::start(&always(&host), &[]);
    let admin = daemon.admin().await;
    for (name, status) in [("localhost", 200), ("evil.example", 403)] {
        let answer = send(admin, "GET", "/server_info", &[("host", name)], "").await;
        assert_eq!(answer.status, status, "{name}");
    }
    daemon.stop().await;
}
