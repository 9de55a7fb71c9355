//! What an operator tells the process, and who may.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use xds_health::admin::{self, Admin, Control, Limits, LogLevel};

use crate::http::{ask, get, send};
use crate::{Served, engine, serve};

/// Writes down what it is told.
#[derive(Debug)]
struct Told {
    levels: Mutex<Vec<(String, LogLevel)>>,
    calls: Mutex<Vec<&'static str>>,
}

impl Told {
    fn new() -> Arc<Self> {
        let loggers = ["engine", "other"].map(|name| (name.to_owned(), LogLevel::Info));
        Arc::new(Self {
            levels: Mutex::new(loggers.to_vec()),
            calls: Mutex::default(),
        })
    }

    fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().unwrap().clone()
    }
}

impl Control for Told {
    fn loggers(&self) -> Vec<(String, LogLevel)> {
        self.levels.lock().unwrap().clone()
    }

    fn set_level(&self, logger: Option<&str>, level: LogLevel) {
        for (name, of) in self.levels.lock().unwrap().iter_mut() {
            if logger.is_none_or(|logger| logger == name) {
                *of = level;
            }
        }
    }

    fn reopen_logs(&self) {
        self.calls.lock().unwrap().push("reopen");
    }

    fn quit(&self) {
        self.calls.lock().unwrap().push("quit");
    }
}

async fn served(control: Arc<Told>) -> Served {
    let admin = Admin::new(engine()).with_control(control);
    serve(admin::router(admin), Limits::default()).await
}

#[tokio::test]
async fn the_server_drains_until_it_is_told_that_it_is_well() {
    let served = served(Told::new()).await;
    for (path, ready, state, gauges) in [
        (
            "fail",
            (503, "DRAINING\n"),
            "DRAINING",
            "server.live: 0\nserver.state: 1\n",
        ),
        (
            "fail",
            (503, "DRAINING\n"),
            "DRAINING",
            "server.live: 0\nserver.state: 1\n",
        ),
        (
            "ok",
            (200, "LIVE\n"),
            "LIVE",
            "server.live: 1\nserver.state: 0\n",
        ),
    ] {
        let answer = ask(served.address, "POST", &format!("/healthcheck/{path}")).await;
        assert_eq!((answer.status, &*answer.body), (200, "OK\n"));
        let answer = get(served.address, "/ready").await;
        assert_eq!((answer.status, &*answer.body), ready);
        let info = get(served.address, "/server_info").await.body;
        assert!(info.contains(&format!("\"state\": \"{state}\"")), "{info}");
        let stats = get(served.address, "/stats?filter=^server.(live|state)").await;
        assert_eq!(stats.body, gauges);
    }
}

#[tokio::test]
async fn what_changes_something_is_not_done_by_get() {
    let told = Told::new();
    let served = served(Arc::clone(&told)).await;
    for path in [
        "/healthcheck/fail",
        "/healthcheck/ok",
        "/logging?level=off",
        "/quitquitquit",
        "/reopen_logs",
    ] {
        for method in ["GET", "HEAD", "PUT"] {
            let answer = ask(served.address, method, path).await;
            assert_eq!(answer.status, 405, "{method} {path}");
            let wanted = format!("Method {method} not allowed, POST required.");
            let wanted = if method == "HEAD" { "" } else { &*wanted };
            assert_eq!(answer.body, wanted);
        }
    }
    assert_eq!(get(served.address, "/ready").await.status, 200);
    assert_eq!(told.calls(), [""; 0]);
    assert!(told.loggers().iter().all(|(_, of)| *of == LogLevel::Info));
}

#[tokio::test]
async fn the_process_is_told_to_open_its_files_anew_and_to_end() {
    let told = Told::new();
    let served = served(Arc::clone(&told)).await;
    for path in ["/reopen_logs", "/quitquitquit"] {
        let answer = ask(served.address, "POST", path).await;
        assert_eq!((answer.status, &*answer.body), (200, "OK\n"));
    }
    assert_eq!(told.calls(), ["reopen", "quit"]);
}

#[tokio::test]
async fn levels_are_set_and_refused_as_by_envoy() {
    let served = served(Told::new()).await;
    let level = |path: &'static str| async move { ask(served.address, "POST", path).await };
    let list = |engine, other| format!("active loggers:\n  engine: {engine}\n  other: {other}\n\n");
    for (path, engine, other) in [
        ("/logging", "info", "info"),
        ("/logging?level=debug", "debug", "debug"),
        ("/logging?engine=trace", "trace", "debug"),
        ("/logging?level=", "trace", "debug"),
        ("/logging?engine=", "trace", "debug"),
        ("/logging?paths=engine:warning,other:off", "warning", "off"),
        ("/logging?paths=", "warning", "off"),
        ("/logging?level=critical", "critical", "critical"),
    ] {
        let answer = level(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.body, list(engine, other), "{path}");
    }
    for (path, reason) in [
        ("/logging?level=bogus", "unknown logger level"),
        ("/logging?level=DEBUG", "unknown logger level"),
        ("/logging?engine=warn", "unknown logger level"),
        ("/logging?nosuch=debug", "unknown logger name"),
        (
            "/logging?paths=engine:debug,nosuch:debug",
            "unknown logger name",
        ),
        ("/logging?paths=engine:bogus", "unknown logger level"),
        (
            "/logging?paths=engine",
            "empty logger name or empty logger level",
        ),
        (
            "/logging?paths=engine:info,",
            "empty logger name or empty logger level",
        ),
        (
            "/logging?level=info&engine=info",
            "invalid number of parameters",
        ),
    ] {
        let answer = level(path).await;
        assert_eq!(answer.status, 400, "{path}");
        let begin = format!("error: {reason}\n\nusage: /logging?<name>=<level> ");
        assert!(answer.body.starts_with(&begin), "{path}: {}", answer.body);
        let end = list("critical", "critical");
        assert!(answer.body.ends_with(&end), "nothing is set: {path}");
    }
    // As a form sends it, as with Envoy.
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let answer = send(served.address, "POST", "/logging", &form, "level=error").await;
    assert_eq!(answer.body, list("error", "error"));
    let answer = send(served.address, "POST", "/logging", &[], "level=info").await;
    assert_eq!(answer.body, list("error", "error"));
}

#[tokio::test]
async fn without_control_there_is_nothing_to_be_told() {
    let served = serve(admin::router(Admin::new(engine())), Limits::default()).await;
    for path in ["/logging", "/quitquitquit", "/reopen_logs"] {
        assert_eq!(
            ask(served.address, "POST", path).await.status,
            501,
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_page_of_another_origin_can_have_nothing_done() {
    let told = Told::new();
    let served = served(Arc::clone(&told)).await;
    let own = format!("http://{}", served.address);
    for (headers, status) in [
        (
            &[("origin", &*own), ("sec-fetch-site", "same-origin")][..],
            200,
        ),
        (&[("sec-fetch-site", "none")], 200),
        (&[("origin", "http://evil.example")], 403),
        (&[("origin", "null")], 403),
        (&[("sec-fetch-site", "cross-site")], 403),
        (&[("sec-fetch-site", "same-site")], 403),
        (&[("origin", &*own), ("origin", "http://evil.example")], 403),
        (&[("origin", &*own), ("host", "evil.example")], 403),
    ] {
        let before = told.calls().len();
        let answer = send(served.address, "POST", "/reopen_logs", headers, "").await;
        assert_eq!(answer.status, status, "{headers:?}");
        assert_eq!(told.calls().len() - before, usize::from(status == 200));
    }
}

#[tokio::test]
async fn a_foreign_name_of_this_machine_is_not_answered_to() {
    let admin = Admin::new(engine()).with_own_names_only();
    let served = serve(admin::router(admin), Limits::default()).await;
    for (host, status) in [
        ("localhost:9901", 200),
        ("127.0.0.1", 200),
        ("rebound.evil.example:9901", 403),
    ] {
        for path in ["/ready", "/", "/config_dump"] {
            let answer = send(served.address, "GET", path, &[("host", host)], "").await;
            assert_eq!(answer.status, status, "{host} {path}");
        }
    }
}

#[tokio::test]
async fn a_body_is_read_in_bounds_of_size_and_time() {
    let admin = Admin::new(engine()).with_control(Told::new());
    let limits = Limits::default().with_request_timeout(Duration::from_millis(50));
    let served = serve(admin::router(admin), limits).await;
    let large = "x".repeat(5000);
    let answer = send(served.address, "POST", "/healthcheck/fail", &[], &large).await;
    assert_eq!(answer.status, 413);

    let mut stream = TcpStream::connect(served.address).await.unwrap();
    let begun = b"POST /healthcheck/fail HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nx";
    stream.write_all(begun).await.unwrap();
    let mut read = Vec::new();
    stream.read_to_end(&mut read).await.unwrap();
    assert!(read.starts_with(b"HTTP/1.1 408 "));
    assert_eq!(get(served.address, "/ready").await.body, "LIVE\n");
}
