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

/// Server-sent events, as they come.
pub struct Stream {
    stream: TcpStream,
    /// What was read of the body, its chunks taken apart.
    body: Vec<u8>,
    raw: Vec<u8>,
}

/// One of them.
#[derive(Debug, Default)]
pub struct Sent {
    pub id: Option<u64>,
    pub event: String,
    pub data: String,
}

impl Stream {
    /// Opens a stream, whose answer has begun.
    pub async fn open(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut raw = Vec::new();
        let end = loop {
            let end = raw.windows(4).position(|w| w == b"\r\n\r\n");
            if let Some(end) = end {
                break end;
            }
            assert_ne!(stream.read_buf(&mut raw).await.unwrap(), 0);
        };
        let head = String::from_utf8(raw.drain(..end + 4).collect()).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        Self {
            stream,
            body: Vec::new(),
            raw,
        }
    }

    /// The next event; none at the end.
    pub async fn next(&mut self) -> Option<Sent> {
        loop {
            while let Some(chunk) = self.chunk() {
                self.body.extend_from_slice(&chunk);
            }
            if let Some(end) = self.body.windows(2).position(|w| w == b"\n\n") {
                let text = String::from_utf8(self.body.drain(..end + 2).collect()).unwrap();
                let mut sent = Sent::default();
                for line in text.lines() {
                    match line.split_once(": ") {
                        Some(("id", id)) => sent.id = Some(id.parse().unwrap()),
                        Some(("event", event)) => event.clone_into(&mut sent.event),
                        Some(("data", data)) => data.clone_into(&mut sent.data),
                        _ => (),
                    }
                }
                if !sent.event.is_empty() {
                    return Some(sent);
                }
                continue;
            }
            if self.stream.read_buf(&mut self.raw).await.unwrap() == 0 {
                return None;
            }
        }
    }

    /// The next event of a kind.
    pub async fn next_of(&mut self, event: &str) -> Sent {
        loop {
            let sent = self.next().await.unwrap();
            if sent.event == event {
                return sent;
            }
        }
    }

    fn chunk(&mut self) -> Option<Vec<u8>> {
        let end = self.raw.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&self.raw[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let whole = end + 2 + size + 2;
        let chunk = self.raw.get(end + 2..whole - 2)?.to_vec();
        self.raw.get(whole - 2..whole)?;
        self.raw.drain(..whole);
        Some(chunk)
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
