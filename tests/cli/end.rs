//! How the daemon ends.

use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::config::{ADMIN, OFTEN, bootstrap, check};
use crate::daemon::{Answering, Daemon};

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
