//! Which connections wait for their clients, and since when: those that give way when there are too many.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// A number of seats. Who waits for its client longest gives way to whoever comes when none is free.
#[derive(Debug)]
pub(super) struct Seats {
    free: Arc<Semaphore>,
    waiting: Mutex<Waiting>,
    /// One more waits for its client.
    more: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// From the one that waits longest.
    by_age: BTreeMap<u64, Arc<Notify>>,
}

impl Seats {
    pub(super) fn new(seats: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(seats.max(1))),
            waiting: Mutex::default(),
            more: Notify::new(),
        })
    }

    /// Takes a seat. While none is free and nobody waits for its client, this waits.
    pub(super) async fn take(self: &Arc<Self>) -> Arc<Seat> {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                break permit;
            }
            let longest = self.lock().by_age.pop_first();
            let one_leaves = longest.is_some();
            if let Some((_, leave)) = longest {
                leave.notify_one();
            }
            tokio::select! {
                Ok(permit) = Arc::clone(&self.free).acquire_owned() => break permit,
                () = self.more.notified(), if !one_leaves => (),
            }
        };
        let seat = Arc::new(Seat {
            seats: Arc::clone(self),
            leave: Arc::new(Notify::new()),
            at: Mutex::default(),
            _permit: permit,
        });
        seat.change(|_| ());
        seat
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A taken seat.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    leave: Arc<Notify>,
    at: Mutex<At>,
    _permit: OwnedSemaphorePermit,
}

/// What a connection is at.
#[derive(Debug, Default)]
struct At {
    answering: bool,
    stalled: bool,
    /// Its place among those who wait.
    waits: Option<u64>,
}

impl Seat {
    /// Completes when it has to be given up.
    pub(super) async fn given_up(&self) {
        self.leave.notified().await;
    }

    /// An answer is given until the guard is dropped.
    pub(super) fn answer(self: &Arc<Self>) -> Answering {
        self.change(|at| at.answering = true);
        Answering(Arc::clone(self))
    }

    /// The client takes, or no longer takes, what it is sent.
    pub(super) fn set_stalled(&self, stalled: bool) {
        self.change(|at| at.stalled = stalled);
    }

    fn change(&self, change: impl FnOnce(&mut At)) {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut at);
        let waits = !at.answering || at.stalled;
        if waits == at.waits.is_some() {
            return;
        }
        let mut waiting = self.seats.lock();
        if let Some(place) = at.waits.take() {
            waiting.by_age.remove(&place);
            return;
        }
        let place = waiting.next;
        waiting.next += 1;
        waiting.by_age.insert(place, Arc::clone(&self.leave));
        at.waits = Some(place);
        drop(waiting);
        self.seats.more.notify_one();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let at = self.at.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = at.waits {
            self.seats.lock().by_age.remove(&place);
        }
    }
}

/// An answer that is given.
#[derive(Debug)]
pub(super) struct Answering(Arc<Seat>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.change(|at| at.answering = false);
    }
}
