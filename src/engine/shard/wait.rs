//! What a shard waits for.

use std::pin::pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use super::Shard;
use super::shown::PUBLISH_EVERY;
use crate::engine::clock;
use crate::engine::door;

/// How soon attempts that wait for room look again by themselves.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(10);

/// What ends a wait, beside the reactor and time.
enum Told {
    Input(Option<door::Told>),
    Woken,
}

impl Shard {
    /// Waits for the first of all inputs; false when there will be no more.
    pub(super) async fn wait(&mut self, deadline: Option<Instant>) -> bool {
        let sleep = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let woken = Arc::clone(self.attempts.woken());
        tokio::select! {
            biased;
            input = self.inputs.recv() => match input {
                Some(told) => return self.hear(told),
                None => return false,
            },
            ready = self.reactor.ready() => if let Err(error) = ready {
                tracing::error!(%error, "poller failed");
            },
            () = woken.wait() => (),
            () = sleep => (),
        }
        true
    }

    /// The same on a thread of its own, which it blocks.
    pub(super) fn park(&mut self, deadline: Option<Instant>, cx: &mut task::Context<'_>) -> bool {
        match self.told(deadline, cx) {
            Poll::Ready(Told::Input(Some(told))) => return self.hear(told),
            Poll::Ready(Told::Input(None)) => return false,
            // Attempts that wake themselves keep no others waiting.
            Poll::Ready(Told::Woken) => self.look_at_sockets(),
            Poll::Pending => (),
        }
        true
    }

    /// Takes what there is at the poller, without waiting.
    pub(super) fn look_at_sockets(&mut self) {
        if let Err(error) = self.reactor.look() {
            tracing::error!(%error, "poller failed");
        }
    }

    /// What ends the wait at once; pending after the reactor's.
    fn told(&mut self, deadline: Option<Instant>, cx: &mut task::Context<'_>) -> Poll<Told> {
        let woken = Arc::clone(self.attempts.woken());
        let inputs = &mut self.inputs;
        let mut told = pin!(async {
            tokio::select! {
                biased;
                input = inputs.recv() => Told::Input(input),
                () = woken.wait() => Told::Woken,
            }
        });
        // It is kept while the reactor waits: what comes meanwhile ends the wait through `cx`, and is found in
        // the next turn.
        let polled = told.as_mut().poll(cx);
        if polled.is_pending() {
            let timeout = deadline.map(|at| at.saturating_duration_since(clock::now()));
            if let Err(error) = self.reactor.wait(timeout) {
                tracing::error!(%error, "poller failed");
            }
        }
        polled
    }

    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let room = self.anyone_waits().then(|| now + LOOK_FOR_ROOM);
        let first = self
            .pace
            .wait()
            .filter(|_| self.queue.has_first() && self.has_room());
        let first = first.map(|wait| now + wait);
        let publish = self
            .published
            .filter(|_| self.clusters.has_changed())
            .map(|at| at + PUBLISH_EVERY);
        let timer = self.clusters.poll_timeout();
        let early = self.early.wake();
        [room, first, publish, timer, early]
            .into_iter()
            .flatten()
            .min()
    }
}
