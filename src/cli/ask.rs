//! Asks the admin port of a daemon that runs.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use axum::http::{Request, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
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

/// Asks for `path` at `admin`, `HOST:PORT` or the path of a socket, and gives each line of the answer to `line`.
pub(super) async fn lines(
    admin: &str,
    path: &str,
    mut line: impl FnMut(&str),
) -> Result<(), NoAnswer> {
    let wrong = |error: &dyn std::fmt::Display| {
        NoAnswer::Unreachable(format!("the admin port at {admin}: {error}"))
    };
    let asked = timeout(PATIENCE, ask(admin, path)).await;
    let (status, mut body) = asked
        .map_err(|_| wrong(&"no answer within 10s"))?
        .map_err(|error| wrong(&error))?;
    let (mut text, mut all) = (Vec::new(), String::new());
    while let Some(part) = timeout(PATIENCE, next(&mut body))
        .await
        .map_err(|_| wrong(&"the answer stopped"))?
    {
        text.extend(part.map_err(|error| wrong(&error))?);
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

/// As [`lines`], all of it at once.
pub(super) async fn text(admin: &str, path: &str) -> Result<String, NoAnswer> {
    let mut text = String::new();
    lines(admin, path, |line| {
        text.push_str(line);
        text.push('\n');
    })
    .await?;
    Ok(text)
}

async fn ask(admin: &str, path: &str) -> io::Result<(StatusCode, Incoming)> {
    if admin.contains('/') {
        let stream = UnixStream::connect(admin).await?;
        return exchange(TokioIo::new(stream), "localhost", path).await;
    }
    if let Some(name) = admin.strip_prefix('@') {
        let stream = UnixStream::connect(format!("\0{name}")).await?;
        return exchange(TokioIo::new(stream), "localhost", path).await;
    }
    let stream = TcpStream::connect(admin).await?;
    exchange(TokioIo::new(stream), admin, path).await
}

async fn exchange(
    io: impl hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    host: &str,
    path: &str,
) -> io::Result<(StatusCode, Incoming)> {
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
    let answer = answer.map_err(io::Error::other)?;
    Ok((answer.status(), answer.into_body()))
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
    fn names_of_any_kind_can_be_asked_for() {
        assert_eq!(escaped("a b&c=é[::1]:7"), "a%20b%26c%3D%C3%A9%5B::1%5D:7");
    }
}
