//! A small HTTP/1.1 client: one request a connection, over loopback.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its part of this"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// `GET` of a path.
pub async fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, "GET", path).await
}

/// Asks once; the body may be in chunks or up to the end of the connection.
pub async fn ask(address: SocketAddr, method: &str, path: &str) -> Answer {
    send(address, method, path, &[], "").await
}

/// The same, with headers of one's own and a body.
pub async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        request.push_str(&format!("host: {address}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        request.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    request.push_str(&format!("\r\n{body}"));
    let read = exchange(address, request.as_bytes()).await;
    let end = read.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(read[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let headers: BTreeMap<_, _> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let body = &read[end + 4..];
    let chunked = headers
        .get("transfer-encoding")
        .is_some_and(|v| v == "chunked");
    let body = if chunked && method != "HEAD" {
        unchunk(body)
    } else {
        body.to_vec()
    };
    Answer {
        status: status.parse().unwrap(),
        headers,
        body: String::from_utf8(body).unwrap(),
    }
}

/// Sends bytes and reads until the other side closes.
pub async fn exchange(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    exchange_over(TcpStream::connect(address).await.unwrap(), request).await
}

/// The same over a connection of any kind.
pub async fn exchange_over(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &[u8],
) -> Vec<u8> {
    stream.write_all(request).await.unwrap();
    let mut read = Vec::new();
    stream.read_to_end(&mut read).await.unwrap();
    read
}

fn unchunk(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = chunks.windows(2).position(|w| w == b"\r\n").unwrap();
        let size = std::str::from_utf8(&chunks[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let chunk = &chunks[end + 2..];
        body.extend_from_slice(&chunk[..size]);
        assert_eq!(&chunk[size..size + 2], b"\r\n");
        chunks = &chunk[size + 2..];
        if size == 0 {
            assert!(chunks.is_empty(), "nothing follows the last chunk");
            return body;
        }
    }
}
