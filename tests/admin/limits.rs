//! Slow and many clients, and the end.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use xds_health::admin::{self, Admin, BootstrapDump, Limits};
use xds_health::engine::Origin;
use xds_health::proto::envoy::config::bootstrap::v3::Bootstrap;

use crate::common::until_initialized;
use crate::http::{exchange, get};
use crate::{Served, cluster, engine, host, script, serve, set};

const SOON: Duration = Duration::from_millis(50);

async fn served(limits: Limits) -> Served {
    serve(admin::router(Admin::new(engine())), limits).await
}

/// Has `stream` answer once and leaves it open.
async fn ask_on(stream: &mut TcpStream) {
    let request = b"GET /ready HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"LIVE\n") {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_request_that_does_not_come_ends_the_connection() {
    let served = served(Limits::default().with_request_timeout(SOON)).await;
    for begun in [&b""[..], b"GET /ready HTTP/1.1\r\nhost:"] {
        exchange(served.address, begun).await;
    }
    // Also after an answer.
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    ask_on(&mut stream).await;
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let served = served(Limits::default()).await;
    let head = format!(
        "GET /ready HTTP/1.1\r\nhost: x\r\na: {}",
        "x".repeat(64 * 1024)
    );
    let read = exchange(served.address, head.as_bytes()).await;
    assert!(read.starts_with(b"HTTP/1.1 431 "));
    // Also one that comes whole, in one piece.
    for (length, status) in [(60 * 1024, "200"), (70 * 1024, "431"), (1 << 20, "431")] {
        let name = "x".repeat(length);
        let head = format!(
            "GET /ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\na: {name}\r\n\r\n"
        );
        let read = exchange(served.address, head.as_bytes()).await;
        let read = String::from_utf8_lossy(&read);
        assert!(
            read.starts_with(&format!("HTTP/1.1 {status} ")),
            "{length}: {read}"
        );
    }
}

#[tokio::test]
async fn a_body_that_is_said_to_be_too_long_is_not_waited_for() {
    let served = served(Limits::default()).await;
    let head =
        "POST /healthcheck/ok HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n";
    let read = exchange(served.address, head.as_bytes()).await;
    let read = String::from_utf8_lossy(&read);
    assert!(read.starts_with("HTTP/1.1 413 "), "{read}");
}

#[tokio::test]
async fn one_connection_too_many_takes_the_place_of_an_idle_one() {
    let served = served(Limits::default().with_connections(1)).await;
    let mut first = TcpStream::connect(served.address).await.unwrap();
    ask_on(&mut first).await;
    assert_eq!(get(served.address, "/ready").await.status, 200);
    assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn one_connection_too_many_waits_while_all_are_answered() {
    let served = served(Limits::default().with_connections(1)).await;
    let mut first = TcpStream::connect(served.address).await.unwrap();
    // It is being answered while its body is read.
    let head = "POST /healthcheck/fail HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n";
    let head = format!("{head}content-length: 1\r\n\r\n");
    first.write_all(head.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"HTTP/1.1 100 Continue\r\n\r\n") {
        assert_ne!(first.read_buf(&mut read).await.unwrap(), 0);
    }
    let address = served.address;
    let second = tokio::spawn(async move { get(address, "/ready").await });
    first.write_all(b"x").await.unwrap();
    while !read.ends_with(b"OK\n") {
        assert_ne!(first.read_buf(&mut read).await.unwrap(), 0);
    }
    // Asked later, it is answered later.
    assert_eq!(second.await.unwrap().body, "DRAINING\n");
}

#[tokio::test]
async fn ten_thousand_idle_connections_do_no_harm() {
    use rustix::process::{Resource, getrlimit, setrlimit};

    const IDLE: u64 = 10_000;
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let idle = limit
        .maximum
        .map_or(IDLE, |most| most.min(IDLE + 2000) - 2000);
    if idle < IDLE {
        eprintln!("only {idle} connections: descriptors do not allow more");
    }
    let served = served(Limits::default()).await;
    let mut held = Vec::new();
    for _ in 0..idle {
        held.push(TcpStream::connect(served.address).await.unwrap());
    }
    assert_eq!(get(served.address, "/ready").await.body, "LIVE\n");
    // They are not kept waiting, but closed: all but as many as there are seats.
    let mut closed = 0;
    for stream in &mut held[..usize::try_from(idle).unwrap() - 512] {
        closed += usize::from(matches!(stream.read(&mut [0]).await, Ok(0)));
    }
    assert_eq!(closed, held.len() - 512);
}

#[tokio::test]
async fn clients_that_take_nothing_of_a_dump_have_only_a_few_texts() {
    let mut bootstrap = Bootstrap::default();
    // More than sockets hold.
    bootstrap.node.get_or_insert_default().id = "x".repeat(16 << 20);
    let dump = BootstrapDump::new(&bootstrap, std::time::UNIX_EPOCH);
    let admin = Admin::new(engine()).with_bootstrap(dump);
    let served = serve(admin::router(admin), Limits::default()).await;
    let ask = async || {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let request = b"GET /config_dump HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        stream
    };
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut stream = ask().await;
        stream.read_exact(&mut [0; 8]).await.unwrap();
        held.push(stream);
    }
    let mut waits = ask().await;
    // All else is answered, and so is this one when another has gone.
    assert_eq!(get(served.address, "/ready").await.status, 200);
    assert!(get(served.address, "/clusters").await.status == 200);
    let early = std::io::Error::from(std::io::ErrorKind::WouldBlock).kind();
    assert_eq!(waits.try_read(&mut [0]).unwrap_err().kind(), early);
    drop(held.pop());
    let mut read = Vec::new();
    waits.read_to_end(&mut read).await.unwrap();
    assert!(read.starts_with(b"HTTP/1.1 200 ") && read.len() > 16 << 20);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_given_up() {
    let engine = engine();
    // Some megabytes: more than sockets hold.
    let hosts = (0..10_000).map(|i| host(10_000 + i)).collect();
    let config = cluster("c1", hosts, &[""]);
    let checked = set(&engine, config, &script(), Origin::Static).await;
    until_initialized(&checked).await;
    let limits = Limits::default()
        .with_connections(1)
        .with_stall_timeout(SOON);
    let served = serve(admin::router(Admin::new(engine)), limits).await;
    let mut slow = TcpStream::connect(served.address).await.unwrap();
    let request = b"GET /clusters HTTP/1.1\r\nhost: localhost\r\n\r\n";
    slow.write_all(request).await.unwrap();
    // It holds the only place until it is given up.
    assert_eq!(get(served.address, "/ready").await.status, 200);
}

#[tokio::test]
async fn the_end_closes_idle_connections_and_the_listener() {
    let served = served(Limits::default()).await;
    let mut idle = TcpStream::connect(served.address).await.unwrap();
    ask_on(&mut idle).await;
    served.end.send(()).unwrap();
    served.task.await.unwrap();
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
    assert!(TcpStream::connect(served.address).await.is_err());
}

#[tokio::test]
async fn hostile_heads_are_refused_and_harm_nobody() {
    let limits = Limits::default().with_request_timeout(SOON);
    let served = served(limits).await;
    let head = |rest: &str| format!("GET /ready HTTP/1.1\r\nhost: localhost\r\n{rest}\r\n");
    let many = "a: b\r\n".repeat(1000);
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(70_000));
    let query = format!("GET /hosts?{} HTTP/1.1\r\n\r\n", "a=%ff&".repeat(1000));
    for (request, status) in [
        (head(&many), Some(431)),
        (long, None),
        (query, Some(400)),
        (head("bad name: x\r\n"), Some(400)),
        (head("a: b\u{0}c\r\n"), Some(400)),
        (head("content-length: x\r\n"), Some(400)),
        (
            head("content-length: 1\r\ncontent-length: 2\r\n"),
            Some(400),
        ),
        (head("transfer-encoding: gzip, gzip\r\n"), Some(400)),
        (
            head("upgrade: websocket\r\nconnection: upgrade\r\n"),
            Some(200),
        ),
        ("\u{0}\u{1}\u{2}\r\n\r\n".to_owned(), Some(400)),
        ("GET http:// HTTP/1.1\r\n\r\n".to_owned(), Some(400)),
        ("GET /ready HTTP/9.9\r\n\r\n".to_owned(), Some(400)),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), None),
        ("\r\n".repeat(100), None),
    ] {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        // The other side may have closed before it has all.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut read = Vec::new();
        let _ = stream.read_to_end(&mut read).await;
        let told = read
            .get(9..12)
            .map(|status| String::from_utf8_lossy(status).into_owned());
        if let Some(status) = status {
            assert_eq!(told, Some(status.to_string()), "{request:.60?}");
        }
        assert_eq!(
            get(served.address, "/ready").await.status,
            200,
            "{request:.60?}"
        );
    }
}
