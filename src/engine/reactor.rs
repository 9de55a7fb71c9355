//! One poller for all sockets of a driver's attempts.
//!
//! A socket costs one registration and no deregistration, and many answers cost one wake-up. A driver that is
//! a task of some runtime has the runtime watch the poller's own descriptor. One that has a thread to itself
//! waits at the poller, which costs less: the kernel takes a lock of the whole system for each socket that is
//! added to a poller that another one watches.

use std::io;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use mio::{Events, Poll, Registry, Token};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::alarm::Alarm;

/// Answers taken from the poller at once.
const EVENTS: usize = 512;
/// Not a slot: what wakes a thread from outside.
const UNPARK: Token = Token(usize::MAX);
/// Nor this: what ends a wait between two milliseconds.
const ALARM: Token = Token(usize::MAX - 1);

#[derive(Debug)]
pub(super) struct Reactor {
    poll: Source,
    events: Events,
    registry: Arc<Registry>,
    /// None where the system has none.
    alarm: Option<Alarm>,
}

#[derive(Debug)]
enum Source {
    Watched(AsyncFd<Poll>),
    WaitedFor(Poll),
}

impl Reactor {
    /// A poller that the current runtime watches.
    pub(super) fn watched() -> io::Result<Self> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        #[expect(
            unsafe_code,
            reason = "tokio asks for a promise that a type's descriptor is its own and stays the same"
        )]
        // SAFETY: a `Poll` opens its descriptor when made, never changes it, and closes it when dropped; the
        // `AsyncFd` owns it and gives it up only by dropping it.
        let poll = unsafe { AsyncFd::register_with_interest(poll, Interest::READABLE)? };
        Ok(Self::new(Source::Watched(poll), registry))
    }

    /// A poller that a thread waits at, and what ends such a wait.
    pub(super) fn waited_for() -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let unpark = Unpark(mio::Waker::new(&registry, UNPARK)?);
        let reactor = Self::new(Source::WaitedFor(poll), registry);
        Ok((reactor, Waker::from(Arc::new(unpark))))
    }

    fn new(poll: Source, registry: Registry) -> Self {
        let alarm = Alarm::new(&registry, ALARM);
        if let Err(error) = &alarm {
            tracing::debug!(%error, "waits end with their millisecond");
        }
        Self {
            poll,
            events: Events::with_capacity(EVENTS),
            registry: Arc::new(registry),
            alarm: alarm.ok(),
        }
    }

    pub(super) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Has a wait that is to come end so soon, to less than a millisecond where the system can. One that was asked
    /// for before is forgotten.
    pub(super) fn end_wait_in(&self, after: Duration) {
        if let Some(alarm) = &self.alarm
            && !after.is_zero()
            && let Err(error) = alarm.set(after)
        {
            tracing::debug!(%error, "alarm not set");
        }
    }

    /// Waits until a socket is ready, and takes what there is. For a watched poller; never ends for others.
    pub(super) async fn ready(&mut self) -> io::Result<()> {
        let Source::Watched(poll) = &mut self.poll else {
            return std::future::pending().await;
        };
        let mut guard = poll.readable_mut().await?;
        take(
            guard.get_inner_mut(),
            &mut self.events,
            Some(Duration::ZERO),
        )?;
        if self.events.iter().nth(EVENTS - 1).is_none() {
            guard.clear_ready();
        }
        Ok(())
    }

    /// Blocks until a socket is ready or the wait is ended from outside, at most for `timeout`, and takes what
    /// there is.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let poll = match &mut self.poll {
            Source::Watched(poll) => poll.get_mut(),
            Source::WaitedFor(poll) => poll,
        };
        take(poll, &mut self.events, timeout)
    }

    /// Takes what there is without waiting.
    pub(super) fn look(&mut self) -> io::Result<()> {
        self.wait(Some(Duration::ZERO))
    }

    /// Hands each token that was ready to `f`, once.
    pub(super) fn drain(&mut self, mut f: impl FnMut(usize)) {
        for event in &self.events {
            if !matches!(event.token(), UNPARK | ALARM) {
                f(event.token().0);
            }
        }
        self.events.clear();
    }
}

fn take(poll: &mut Poll, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
    match poll.poll(events, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        other => other,
    }
}

struct Unpark(mio::Waker);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Err(error) = self.0.wake() {
            tracing::error!(%error, "shard not woken");
        }
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_micros(200);

    #[test]
    fn a_wait_ends_when_it_was_to_and_each_time() {
        let (mut reactor, _unpark) = Reactor::waited_for().unwrap();
        for _ in 0..3 {
            reactor.end_wait_in(LONG);
            reactor.end_wait_in(SHORT);
            reactor.wait(Some(LONG)).unwrap();
            assert!(reactor.events.iter().any(|event| event.token() == ALARM));
            reactor.drain(|slot| panic!("no slot, but {slot}"));
        }
    }

    #[tokio::test]
    async fn a_wait_by_the_runtime_ends_too() {
        let mut reactor = Reactor::watched().unwrap();
        for _ in 0..3 {
            reactor.end_wait_in(SHORT);
            reactor.ready().await.unwrap();
            reactor.drain(|slot| panic!("no slot, but {slot}"));
        }
    }
}
