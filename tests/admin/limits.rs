//! Slow and many clients, and the end.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use xds_health::admin::{self, Admin, Limits};
use xds_health::engine::Origin;

use crate::common::until_initialized;
use crate::http::{exchange, get};
use crate::{Served, cluster, engine, host, script, serve, set};

const SOON: Duration = Duration::from_millis(50);

async fn served(limits: Limits) -> Served {
    serve(admin::router(Admin::new(engine())), limits).await
}

/// Has `stream` answer once and leaves it open.
async fn ask_on(stream: &mut TcpStream) {
    let request = b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n";
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
}

#[tokio::test]
async fn one_connection_too_many_waits_for_its_turn() {
    let served = served(Limits::default().with_connections(1)).await;
    let mut first = TcpStream::connect(served.address).await.unwrap();
    ask_on(&mut first).await;
    let address = served.address;
    let second = tokio::spawn(async move { get(address, "/ready").await });
    // The first is still the one that is answered.
    ask_on(&mut first).await;
    assert!(!second.is_finished());
    drop(first);
    assert_eq!(second.await.unwrap().status, 200);
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
    let request = b"GET /clusters HTTP/1.1\r\nhost: x\r\n\r\n";
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
