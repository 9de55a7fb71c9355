//! The accept loop: connections with limits in number, in size of what they ask, and in patience.
//!
//! A connection that waits for its client, to ask or to take its answer, costs a seat and no more. When all
//! seats are taken, the one that waits longest is closed for the next that comes; so clients that only connect
//! keep nobody out.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::http::Extensions;
use axum::response::IntoResponse as _;
use axum::serve::Listener;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

use super::answer::Refused;
use super::seats::{Answering, Seat, Seats};

/// The least that is read of a head at once.
const LEAST_HEAD: usize = 8192;

/// What a client may take.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at once, default 512. One more takes the place of the one that has waited longest for its
    /// client to ask, or to take its answer; while there is none, it waits.
    pub connections: usize,
    /// Bytes of a request's head, at least 8192; default 64 KiB. It has 100 headers at most.
    pub head_bytes: usize,
    /// How long a connection may be without a whole request while none is answered, default 10 s.
    pub request_timeout: Duration,
    /// How long a client may take nothing of its answer, default 30 s.
    pub stall_timeout: Duration,
    /// How long answers may still go on after the end was asked for, default 5 s.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            head_bytes: 64 * 1024,
            request_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// The same with another number of connections at once.
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// The same with another [`Limits::head_bytes`].
    pub fn with_head_bytes(mut self, bytes: usize) -> Self {
        self.head_bytes = bytes;
        self
    }

    /// The same with another [`Limits::drain_timeout`].
    pub fn with_drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// The same with another [`Limits::request_timeout`].
    pub fn with_request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// The same with another [`Limits::stall_timeout`].
    pub fn with_stall_timeout(mut self, timeout: Duration) -> Self {
        self.stall_timeout = timeout;
        self
    }
}

/// What a request is answered under, in its extensions.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) limits: Limits,
    /// Becomes `true`, or loses its sender, when answers without end are to end.
    ending: Option<watch::Receiver<bool>>,
}

impl Terms {
    /// Those of a request; of one that another server took, the defaults.
    pub(super) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or(Self {
            limits: Limits::default(),
            ending: None,
        })
    }

    /// Completes when answers without end are to end.
    pub(super) async fn end(&mut self) {
        match &mut self.ending {
            // An error means that the loop is gone: an end as well.
            Some(ending) => drop(ending.wait_for(|end| *end).await),
            None => std::future::pending().await,
        }
    }
}

/// Serves `router`, as [`router`](super::router) makes it, at `listener` (TCP or a Unix socket) until
/// `shutdown` completes; then lets running answers end.
pub async fn serve<L: Listener>(
    mut listener: L,
    router: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()> + Send,
) {
    let seats = Seats::new(limits.connections);
    let (end, ending) = watch::channel(false);
    let terms = Terms {
        limits,
        ending: Some(ending),
    };
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    // Accepted, but without a seat: one at most, so that the kernel's queue bounds those who wait, too.
    let mut standing = None;
    loop {
        let next = async {
            if standing.is_none() {
                standing = Some(listener.accept().await.0);
            }
            seats.take().await
        };
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => (),
            seat = next => {
                if let Some(io) = standing.take() {
                    connections.spawn(connection(io, router.clone(), terms.clone(), seat));
                }
            }
        }
    }
    drop(listener);
    end.send_replace(true);
    // Those that take longer end with the set.
    let _ = timeout(limits.drain_timeout, async {
        while connections.join_next().await.is_some() {}
    })
    .await;
}

async fn connection(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    terms: Terms,
    seat: Arc<Seat>,
) {
    let limits = terms.limits;
    let io = TokioIo::new(Patient {
        io,
        seat: Arc::clone(&seat),
        limit: limits.stall_timeout,
        stalled: None,
    });
    let router = TowerToHyperService::new(router);
    let of_answers = (terms.clone(), Arc::clone(&seat));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (terms, seat) = &of_answers;
        let answering = seat.answer();
        request.extensions_mut().insert(terms.clone());
        // What was read at once can be longer than what is buffered.
        let fits = head_bytes(&request) <= terms.limits.head_bytes.max(LEAST_HEAD);
        let answer = fits.then(|| router.call(request));
        async move {
            let answer = match answer {
                Some(answer) => answer.await?,
                None => Refused::head_too_large().into_response(),
            };
            let given = |body| Given {
                body,
                _answering: answering,
            };
            Ok::<_, std::convert::Infallible>(answer.map(given))
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.request_timeout)
            .max_buf_size(limits.head_bytes.max(LEAST_HEAD))
            .serve_connection(io, service)
    );
    let mut terms = terms;
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = seat.given_up() => {
            tracing::debug!("admin connection gives way");
            return;
        }
        () = terms.end() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "admin connection ended");
    }
}

/// About how many bytes the head of a request has.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let uri = request.uri().path_and_query();
    let headers = request.headers().iter();
    // After a name stands a colon and a space, after a value the end of its line.
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + 4);
    uri.map_or(0, |uri| uri.as_str().len()) + headers.sum::<usize>()
}

/// The body of an answer; the connection answers until it is dropped.
struct Given {
    body: axum::body::Body,
    _answering: Answering,
}

impl Body for Given {
    type Data = axum::body::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Ends a connection whose peer takes nothing for too long.
struct Patient<I> {
    io: I,
    seat: Arc<Seat>,
    limit: Duration,
    /// Ticks while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<I> Patient<I> {
    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.stalled.take().is_some() {
                self.seat.set_stalled(false);
            }
            return written;
        }
        let (limit, seat) = (self.limit, &self.seat);
        let stalled = self.stalled.get_or_insert_with(|| {
            seat.set_stalled(true);
            Box::pin(sleep(limit))
        });
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Patient<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Patient<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.judge(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
