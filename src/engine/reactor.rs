//! One poller for all sockets of a driver's attempts.
//!
//! The runtime watches the poller's own descriptor only. So a socket costs one registration and no
//! deregistration, and many answers cost one wake-up.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Poll, Registry};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Answers taken from the poller at once.
const EVENTS: usize = 512;

#[derive(Debug)]
pub(super) struct Reactor {
    poll: AsyncFd<Poll>,
    events: Events,
    registry: Arc<Registry>,
}

impl Reactor {
    /// A poller on the current runtime.
    pub(super) fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let registry = Arc::new(poll.registry().try_clone()?);
        #[expect(
            unsafe_code,
            reason = "tokio asks for a promise that a type's descriptor is its own and stays the same"
        )]
        // SAFETY: a `Poll` opens its descriptor when made, never changes it, and closes it when dropped; the
        // `AsyncFd` owns it and gives it up only by dropping it.
        let poll = unsafe { AsyncFd::register_with_interest(poll, Interest::READABLE)? };
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS),
            registry,
        })
    }

    pub(super) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Waits until a socket is ready, and takes what there is.
    pub(super) async fn ready(&mut self) -> io::Result<()> {
        let mut guard = self.poll.readable_mut().await?;
        take(guard.get_inner_mut(), &mut self.events)?;
        if self.events.iter().nth(EVENTS - 1).is_none() {
            guard.clear_ready();
        }
        Ok(())
    }

    /// Takes what there is without waiting.
    pub(super) fn look(&mut self) -> io::Result<()> {
        take(self.poll.get_mut(), &mut self.events)
    }

    /// Hands each token that was ready to `f`, once.
    pub(super) fn drain(&mut self, mut f: impl FnMut(usize)) {
        for event in &self.events {
            f(event.token().0);
        }
        self.events.clear();
    }
}

fn take(poll: &mut Poll, events: &mut Events) -> io::Result<()> {
    match poll.poll(events, Some(Duration::ZERO)) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        other => other,
    }
}
