//! Asks the admin port of a daemon that runs.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use axum::http::{Request, Response, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// How long the port may take to answer, and then between two parts of its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The port says that what was asked makes no sense: its words.
    Refused(String),
    /// There is no such thing.
    NotFound(String),
    /// It cannot be reached, or does not speak sense.
    Unreachable(String),
}

/// Bytes of a line: a host with all that is known of it takes some thousand.
const LINE: usize = 1 << 20;
/// Bytes of an answer: two million hosts take some 600 MB.
const ANSWER: usize = 2 << 30;
/// Bytes of all that is known of the hosts at one address.
const DETAILS: usize = 16 << 20;
/// How long the whole of an answer may take.
const WHOLE: Duration = Duration::from_secs(60);

/// Asks for `path` at `admin`, `HOST:PORT` or the path of a socket, and gives each line of the answer to `line`.
async fn lines(admin: &str, path: &str, line: impl FnMut(&str)) -> Result<(), NoAnswer> {
    let all = timeout(WHOLE, lines_of(admin, path, line)).await;
    all.unwrap_or_else(|_| {
        let reason = format!("the admin port at {admin}: the answer did not end within 60s");
        Err(NoAnswer::Unreachable(reason))
    })
}

async fn lines_of(admin: &str, path: &str, mut line: impl FnMut(&str)) -> Result<(), NoAnswer> {
    let wrong = |error: &dyn std::fmt::Display| {
        NoAnswer::Unreachable(format!("the admin port at {admin}: {error}"))
    };
    let port = Port::read(admin).ok_or_else(|| {
        let reason = format!("--admin {admin}: want HOST:PORT or the path of a socket");
        NoAnswer::Refused(reason)
    })?;
    let asked = timeout(PATIENCE, ask(port, path)).await;
    let answer = asked
        .map_err(|_| wrong(&"no answer within 10s"))?
        .map_err(|error| wrong(&error))?;
    let status = answer.status();
    // Lists are JSON, and complaints plain text: what else is said, another said.
    let kind = answer.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let ours = match status.is_success() {
        true => kind.starts_with("application/json"),
        false => kind.starts_with("text/plain"),
    };
    if !ours {
        let said = format_args!("{status} of type {kind:?}: this is no admin port of xds-health");
        return Err(wrong(&said));
    }
    let mut body = answer.into_body();
    let (mut text, mut all, mut bytes) = (Vec::new(), String::new(), 0_usize);
    while let Some(part) = timeout(PATIENCE, next(&mut body))
        .await
        .map_err(|_| wrong(&"the answer stopped"))?
    {
        let part = part.map_err(|error| wrong(&error))?;
        bytes += part.len();
        text.extend(part);
        if text.len() > LINE || bytes > ANSWER {
            return Err(wrong(&"the answer is too long"));
        }
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else {
            continue;
        };
        let rest = text.split_off(end + 1);
        let whole = String::from_utf8_lossy(&text);
        match status.is_success() {
            true => whole.lines().for_each(&mut line),
            false => all.push_str(&whole),
        }
        drop(whole);
        text = rest;
    }
    all.push_str(&String::from_utf8_lossy(&text));
    let said = all.trim_end();
    match status {
        status if status.is_success() => {
            said.lines().for_each(line);
            Ok(())
        }
        StatusCode::NOT_FOUND => Err(NoAnswer::NotFound(said.to_owned())),
        StatusCode::BAD_REQUEST => Err(NoAnswer::Refused(said.to_owned())),
        status => Err(wrong(&format_args!("{status}: {said}"))),
    }
}

/// Asks for a list of hosts, and gives each to `host`: an object with its cluster, address and state. Tells the names of
/// clusters that have none.
pub(super) async fn hosts(
    admin: &str,
    path: &str,
    mut host: impl FnMut(Value),
) -> Result<Vec<String>, NoAnswer> {
    let mut at = List::Before;
    lines(admin, path, |line| {
        at = std::mem::replace(&mut at, List::Wrong).take(line, &mut host);
    })
    .await?;
    match at {
        List::Ended(empty) => Ok(empty),
        List::Before | List::Hosts | List::Wrong => Err(no_list(admin)),
    }
}

/// Where in a list of hosts, which has a line for each.
#[derive(Debug)]
enum List {
    Before,
    Hosts,
    Ended(Vec<String>),
    Wrong,
}

impl List {
    fn take(self, line: &str, host: &mut impl FnMut(Value)) -> Self {
        match (self, line) {
            (Self::Before, "{\"hosts\":[") => Self::Hosts,
            (Self::Hosts, "") => Self::Hosts,
            (Self::Hosts, line) if line.starts_with(']') => {
                read_end(line).map_or(Self::Wrong, Self::Ended)
            }
            (Self::Hosts, line) => match read_host(line) {
                Some(value) => {
                    host(value);
                    Self::Hosts
                }
                None => Self::Wrong,
            },
            _ => Self::Wrong,
        }
    }
}

/// All that is known of the hosts at one address.
pub(super) async fn details(admin: &str, path: &str) -> Result<Vec<Value>, NoAnswer> {
    let mut text = String::new();
    lines(admin, path, |line| {
        // No more than it would be read of.
        if text.len() <= DETAILS {
            text.push_str(line);
            text.push('\n');
        }
    })
    .await?;
    let mut told: Value = serde_json::from_str(&text).unwrap_or_default();
    match told["hosts"].take() {
        Value::Array(hosts) if hosts.iter().all(is_host) => Ok(hosts),
        _ => Err(no_list(admin)),
    }
}

fn no_list(admin: &str) -> NoAnswer {
    NoAnswer::Unreachable(format!(
        "the admin port at {admin}: this is no list of hosts"
    ))
}

fn is_host(host: &Value) -> bool {
    ["cluster", "address", "state"]
        .iter()
        .all(|name| host[*name].is_string())
}

fn read_end(line: &str) -> Option<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct End {
        /// Not told by earlier versions.
        #[serde(default)]
        empty: Vec<String>,
    }
    let end: End = serde_json::from_str(&format!("{{\"hosts\":[{line}")).ok()?;
    Some(end.empty)
}

fn read_host(line: &str) -> Option<Value> {
    let host = serde_json::from_str(line.trim_end_matches(',')).ok();
    host.filter(is_host)
}

/// Where the admin port is.
#[derive(Debug, PartialEq, Eq)]
enum Port<'a> {
    Tcp(&'a str),
    Pipe(Cow<'a, str>),
}

impl<'a> Port<'a> {
    /// As it is typed, or as a browser shows it.
    fn read(admin: &'a str) -> Option<Self> {
        if let Some(url) = admin.strip_prefix("http://") {
            let address = url.split_once('/').map_or(url, |(address, _)| address);
            return is_address(address).then_some(Self::Tcp(address));
        }
        if let Some(name) = admin.strip_prefix('@') {
            return Some(Self::Pipe(format!("\0{name}").into()));
        }
        if admin.contains("://") {
            return None;
        }
        if admin.contains('/') {
            return Some(Self::Pipe(admin.into()));
        }
        if is_address(admin) {
            return Some(Self::Tcp(admin));
        }
        let there = std::fs::symlink_metadata(admin).is_ok();
        there.then(|| Self::Pipe(admin.into()))
    }
}

/// Whether a text is a name or an address, and a port.
fn is_address(text: &str) -> bool {
    let named = text.rsplit_once(':').is_some_and(|(name, port)| {
        !name.is_empty() && !name.contains(':') && port.parse::<u16>().is_ok()
    });
    named || text.parse::<SocketAddr>().is_ok()
}

async fn ask(port: Port<'_>, path: &str) -> io::Result<Response<Incoming>> {
    match port {
        Port::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            exchange(TokioIo::new(stream), address, path).await
        }
        Port::Pipe(name) => {
            let stream = UnixStream::connect(&*name).await?;
            exchange(TokioIo::new(stream), "localhost", path).await
        }
    }
}

async fn exchange(
    io: impl hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    host: &str,
    path: &str,
) -> io::Result<Response<Incoming>> {
    let (mut sender, connection) = http1::handshake(io).await.map_err(io::Error::other)?;
    // It ends with the answer; what went wrong is told there.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    let request = Request::get(path)
        .header(header::HOST, host)
        .header(header::CONNECTION, "close")
        .body(axum::body::Body::empty())
        .map_err(io::Error::other)?;
    let answer = sender.send_request(request).await;
    answer.map_err(io::Error::other)
}

/// The next part of an answer.
async fn next(body: &mut Incoming) -> Option<Result<Vec<u8>, hyper::Error>> {
    let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
    Some(frame.map(|frame| {
        let data = frame.into_data();
        data.map_or_else(|_| Vec::new(), Vec::from)
    }))
}

/// A value of a query.
pub(super) fn escaped(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b':' => {
                text.push(char::from(byte));
            }
            byte => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_port_is_an_address_a_page_or_a_socket() {
        for (typed, port) in [
            ("127.0.0.1:9901", Some(Port::Tcp("127.0.0.1:9901"))),
            ("http://127.0.0.1:9901/", Some(Port::Tcp("127.0.0.1:9901"))),
            ("http://[::1]:9901/stats", Some(Port::Tcp("[::1]:9901"))),
            ("games.example:9901", Some(Port::Tcp("games.example:9901"))),
            ("./adm.sock", Some(Port::Pipe("./adm.sock".into()))),
            // A file that is there.
            ("Cargo.toml", Some(Port::Pipe("Cargo.toml".into()))),
            ("@adm", Some(Port::Pipe("\0adm".into()))),
            ("127.0.0.1", None),
            ("::1:9906", None),
            (":9906", None),
            ("http://127.0.0.1", None),
            ("https://127.0.0.1:9901/", None),
            ("adm.sock", None),
        ] {
            assert_eq!(Port::read(typed), port, "{typed}");
        }
    }

    #[test]
    fn names_of_any_kind_can_be_asked_for() {
        assert_eq!(escaped("a b&c=é[::1]:7"), "a%20b%26c%3D%C3%A9%5B::1%5D:7");
    }
}
