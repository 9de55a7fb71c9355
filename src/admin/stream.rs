//! Server-sent events: answers without end, of which each has a task of its own.
//!
//! A task waits while its client does not take what was sent, so what is kept for a client is one event and
//! what the kernel holds. It ends with its client, or when the server does.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::answer::{self, Refused};
use super::serve::Terms;

/// Streams at once.
const STREAMS: usize = 64;
/// A client hears at least this often, so that one that is gone is found.
const SIGN: Duration = Duration::from_secs(15);

/// How many streams there may be.
#[derive(Debug)]
pub(super) struct Streams(Arc<Semaphore>);

impl Default for Streams {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STREAMS)))
    }
}

/// The client is gone, or the server ends.
#[derive(Debug)]
pub(super) struct Gone;

impl Streams {
    /// An answer that `tell` writes in a task.
    ///
    /// # Errors
    ///
    /// There are too many already.
    pub(super) fn open<F>(
        &self,
        terms: Terms,
        tell: impl FnOnce(Lines) -> F,
    ) -> Result<Response, Refused>
    where
        F: Future<Output = Result<(), Gone>> + Send + 'static,
    {
        // Others are to find the port open, however few connections it takes.
        let most = STREAMS.min((terms.limits.connections / 2).max(1));
        let open = STREAMS - self.0.available_permits();
        let place = || Arc::clone(&self.0).try_acquire_owned().ok();
        let permit = (open < most).then(place).flatten();
        let permit = permit.ok_or_else(|| Refused::too_many("There are too many streams.\n"))?;
        let (to, from) = mpsc::channel(1);
        let mut signs = interval(SIGN);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        signs.reset();
        let told = tell(Lines {
            to: to.clone(),
            signs,
            _permit: permit,
        });
        let mut terms = terms;
        tokio::spawn(async move {
            tokio::select! {
                _ = told => (),
                () = to.closed() => (),
                () = terms.end() => (),
            }
        });
        Ok(answer::events(Body::new(Taken(from))))
    }
}

/// Where a stream is written.
#[derive(Debug)]
pub(super) struct Lines {
    to: mpsc::Sender<String>,
    signs: Interval,
    _permit: OwnedSemaphorePermit,
}

impl Lines {
    /// Sends an event. Its data is one line.
    pub(super) async fn send(&mut self, event: &str, data: &str) -> Result<(), Gone> {
        self.put(format!("event: {event}\ndata: {data}\n\n")).await
    }

    /// The same, with a number by which a client can go on after it.
    pub(super) async fn send_numbered(
        &mut self,
        id: u64,
        event: &str,
        data: &str,
    ) -> Result<(), Gone> {
        let mut text = String::new();
        let _ = write!(text, "id: {id}\nevent: {event}\ndata: {data}\n\n");
        self.put(text).await
    }

    /// Waits for `what`, and gives signs meanwhile.
    pub(super) async fn until<T>(&mut self, what: impl Future<Output = T>) -> Result<T, Gone> {
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                done = &mut what => return Ok(done),
                _ = self.signs.tick() => self.put(":\n\n".to_owned()).await?,
            }
        }
    }

    async fn put(&mut self, text: String) -> Result<(), Gone> {
        self.to.send(text).await.map_err(|_| Gone)?;
        self.signs.reset();
        Ok(())
    }
}

/// The body of such an answer.
struct Taken(mpsc::Receiver<String>);

impl hyper::body::Body for Taken {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let text = self.0.poll_recv(cx);
        text.map(|text| text.map(|text| Ok(Frame::data(text.into()))))
    }
}
