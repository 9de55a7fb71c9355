//! Answers: their headers, and bodies that are written while they are sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use super::Shared;

/// About as much is written at a time, in a fraction of a millisecond.
const CHUNK: usize = 32 * 1024;
/// So many small steps are taken at a time, if they write less.
const STEPS: usize = 4096;

const TEXT: &str = "text/plain; charset=UTF-8";

pub(super) fn text(status: StatusCode, text: impl Into<Body>) -> Response {
    answer(status, TEXT, text.into())
}

pub(super) fn html(text: impl Into<Body>) -> Response {
    answer(StatusCode::OK, "text/html; charset=UTF-8", text.into())
}

pub(super) fn json(json: impl Into<Body>) -> Response {
    answer(StatusCode::OK, "application/json", json.into())
}

/// Server-sent events.
pub(super) fn events(body: Body) -> Response {
    answer(StatusCode::OK, "text/event-stream", body)
}

/// Why there is no answer, as the client is told.
#[derive(Debug)]
pub(super) struct Refused(StatusCode, String);

impl Refused {
    /// The client asked for what cannot be.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, message.into())
    }

    /// The client may not ask for this.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self(StatusCode::FORBIDDEN, message.into())
    }

    /// What the client sends is too long in coming.
    pub(super) fn timeout(message: impl Into<String>) -> Self {
        Self(StatusCode::REQUEST_TIMEOUT, message.into())
    }

    /// What the client sends is too large.
    pub(super) fn too_large(message: impl Into<String>) -> Self {
        Self(StatusCode::PAYLOAD_TOO_LARGE, message.into())
    }

    /// What the client asks is too long.
    pub(super) fn head_too_large() -> Self {
        let message = "The head of the request is too long.\n".to_owned();
        Self(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message)
    }

    /// What should work does not.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, message.into())
    }

    /// There are too many who ask.
    pub(super) fn too_many(message: impl Into<String>) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, message.into())
    }

    /// This process has it not.
    pub(super) fn not_implemented(message: impl Into<String>) -> Self {
        Self(StatusCode::NOT_IMPLEMENTED, message.into())
    }

    /// The client asked for what is not there.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, message.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        text(self.0, self.1)
    }
}

fn answer(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-cache, max-age=0"),
        ),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("same-origin"),
        ),
        (header::SERVER, HeaderValue::from_static("xds-health")),
    ]);
    response
}

/// Runs `build` where it may take its time. Only a few run at once.
///
/// # Errors
///
/// When it panicked, or the runtime ends.
pub(super) async fn off_runtime<T: Send + 'static>(
    shared: &Shared,
    build: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refused> {
    let failed = || Refused::internal("the answer could not be built\n");
    let _permit = shared.builders.acquire().await.map_err(|_| failed())?;
    tokio::task::spawn_blocking(build)
        .await
        .map_err(|_| failed())
}

/// As [`off_runtime`], a text that is kept until the client has taken it. There are only a few such texts at once, so
/// that clients that are slow to take theirs cost no more than these.
///
/// # Errors
///
/// As there, and those of `build`.
pub(super) async fn kept_whole(
    shared: &Shared,
    build: impl FnOnce() -> Result<String, Refused> + Send + 'static,
) -> Result<Body, Refused> {
    let permit = Arc::clone(&shared.whole).acquire_owned().await;
    let permit = permit.map_err(|_| Refused::internal("the server ends\n"))?;
    let text = off_runtime(shared, build).await??;
    Ok(Body::new(Whole {
        text: text.into(),
        _permit: permit,
    }))
}

/// A body that lets go of its place once its text has been taken.
struct Whole {
    text: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl hyper::body::Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.text.is_empty() {
            return Poll::Ready(None);
        }
        let piece = self.text.len().min(CHUNK);
        Poll::Ready(Some(Ok(Frame::data(self.text.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.text.len() as u64)
    }
}

/// A body in pieces that are written when the client has taken those before.
pub(super) fn streamed(write: impl FnMut(&mut String) -> More + Send + Unpin + 'static) -> Body {
    streamed_in(STEPS, write)
}

/// The same for a writer whose steps are larger, of which at most `steps` are taken at a time.
pub(super) fn streamed_in(
    steps: usize,
    write: impl FnMut(&mut String) -> More + Send + Unpin + 'static,
) -> Body {
    Body::new(Pieces {
        write,
        steps,
        state: Piece::Next,
    })
}

/// Whether a writer has more to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    Yes,
    No,
}

struct Pieces<W> {
    write: W,
    steps: usize,
    state: Piece,
}

enum Piece {
    /// One is to be written.
    Next,
    /// One was written; other tasks, timers and sockets have their turn before the next.
    Rest(Pin<Box<dyn Future<Output = ()> + Send>>),
    Done,
}

impl<W: FnMut(&mut String) -> More + Unpin> hyper::body::Body for Pieces<W> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Piece::Rest(turn) = &mut self.state {
                ready!(turn.as_mut().poll(cx));
                self.state = Piece::Next;
            }
            if matches!(self.state, Piece::Done) {
                return Poll::Ready(None);
            }
            let mut chunk = String::with_capacity(CHUNK + CHUNK / 8);
            self.state = Piece::Rest(Box::pin(tokio::task::yield_now()));
            for _ in 0..self.steps {
                if (self.write)(&mut chunk) == More::No {
                    self.state = Piece::Done;
                    break;
                }
                if chunk.len() >= CHUNK {
                    break;
                }
            }
            if !chunk.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(chunk.into()))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, Piece::Done)
    }
}
