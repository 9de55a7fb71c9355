//! Events for whoever follows them in process: a bounded broadcast.

use std::sync::{Arc, OnceLock};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::event::HealthCheckEvent;

/// Gives events to all who follow. Nothing is kept, and nothing paid, before the first of them.
#[derive(Debug)]
pub(crate) struct Broadcast {
    /// How many events are kept for whoever is slow.
    capacity: usize,
    sender: OnceLock<broadcast::Sender<Arc<HealthCheckEvent>>>,
}

impl Broadcast {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            // The most that a channel takes is far more than that.
            capacity: capacity.clamp(1, 1 << 20),
            sender: OnceLock::new(),
        }
    }

    /// Whether anyone follows.
    pub(crate) fn followed(&self) -> bool {
        let sender = self.sender.get();
        sender.is_some_and(|sender| sender.receiver_count() > 0)
    }

    pub(crate) fn send(&self, event: &Arc<HealthCheckEvent>) {
        if let Some(sender) = self.sender.get() {
            // Whoever followed may just have gone.
            let _ = sender.send(Arc::clone(event));
        }
    }

    pub(crate) fn follow(&self) -> Events {
        let sender = self
            .sender
            .get_or_init(|| broadcast::channel(self.capacity).0);
        Events(sender.subscribe())
    }
}

/// Events from the moment on at which this was asked for.
///
/// A bounded number of them is kept for a reader that is slow; one that falls behind further is told how many
/// it has missed, and goes on with the oldest that is kept. What hosts are like is never lost by that: it is in
/// the snapshot.
#[derive(Debug)]
pub struct Events(broadcast::Receiver<Arc<HealthCheckEvent>>);

/// Why there is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoEvent {
    /// This reader was too slow: so many events are lost to it. The next call goes on after them.
    #[error("{0} events were missed")]
    Missed(u64),
    /// There will be no more: the cluster was removed, or the engine has ended.
    #[error("there are no more events")]
    Ended,
}

impl Events {
    /// Those of what has ended already.
    pub(crate) fn ended() -> Self {
        Self(broadcast::channel(1).1)
    }

    /// Waits for the next event. May be dropped while it waits; no event is lost by that.
    ///
    /// # Errors
    ///
    /// When events were missed, or there will be no more.
    pub async fn next(&mut self) -> Result<Arc<HealthCheckEvent>, NoEvent> {
        self.0.recv().await.map_err(|error| match error {
            RecvError::Lagged(missed) => NoEvent::Missed(missed),
            RecvError::Closed => NoEvent::Ended,
        })
    }

    /// The next event if it is there already.
    ///
    /// # Errors
    ///
    /// When events were missed, or there will be no more.
    pub fn try_next(&mut self) -> Result<Option<Arc<HealthCheckEvent>>, NoEvent> {
        match self.0.try_recv() {
            Ok(event) => Ok(Some(event)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Lagged(missed)) => Err(NoEvent::Missed(missed)),
            Err(TryRecvError::Closed) => Err(NoEvent::Ended),
        }
    }
}
