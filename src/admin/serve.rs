//! The accept loop: connections with limits in number, in size of what they ask, and in patience.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

/// What a client may take.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at once, default 512. Further ones wait to be accepted.
    pub connections: usize,
    /// Bytes of a request's head, at least 8192; default 64 KiB.
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

/// Serves `router`, as [`router`](super::router) makes it, at `listener` (TCP or a Unix socket) until
/// `shutdown` completes; then lets running answers end.
pub async fn serve<L: Listener>(
    mut listener: L,
    router: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()> + Send,
) {
    let permits = Arc::new(Semaphore::new(limits.connections.max(1)));
    let (end, ending) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        // Who waits is not accepted, so that the kernel's queue bounds those who wait, too.
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await.0)
        };
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => (),
            (permit, io) = next => {
                let connection = connection(io, router.clone(), limits, ending.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(permit);
                });
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
    limits: Limits,
    mut ending: watch::Receiver<bool>,
) {
    let ending = async move {
        // An error means that the loop is gone: an end as well.
        let _ = ending.wait_for(|end| *end).await;
    };
    let io = TokioIo::new(Patient {
        io,
        limit: limits.stall_timeout,
        stalled: None,
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.request_timeout)
            .max_buf_size(limits.head_bytes.max(8192))
            .serve_connection(io, TowerToHyperService::new(router))
    );
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = ending => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "admin connection ended");
    }
}

/// Ends a connection whose peer takes nothing for too long.
struct Patient<I> {
    io: I,
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
            self.stalled = None;
            return written;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
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
