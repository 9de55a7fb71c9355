//! The way in to a shard: one line for all that it is told, and room for it.
//!
//! Changes and short questions come by one channel, so the shard hears them in the order in which they were told.
//! The channel itself has no bound: who tells something has found room for it first. Changes and questions have room
//! of their own, which each gives back when it was done, so questions need not wait until changes were made.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc};

use super::Ended;
use super::shard::Input;

/// Changes that may wait for a shard; who tells it more waits for it.
const CHANGES: usize = 64;
/// Questions that may wait for a shard beside them.
const QUESTIONS: usize = 64;

/// What a shard is told, with the room that it takes until it was done.
pub(super) struct Told {
    pub(super) input: Input,
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// Where a shard is told of something.
#[derive(Clone, Debug)]
pub(super) struct Door {
    told: mpsc::UnboundedSender<Told>,
    changes: Arc<Semaphore>,
    questions: Arc<Semaphore>,
}

/// Where a shard hears of it. Once it is gone, nobody waits for room.
#[derive(Debug)]
pub(super) struct Inbox {
    told: mpsc::UnboundedReceiver<Told>,
    changes: Arc<Semaphore>,
    questions: Arc<Semaphore>,
}

/// Room for one thing to be told.
pub(super) struct Room<'a> {
    door: &'a Door,
    permit: OwnedSemaphorePermit,
}

pub(super) fn door() -> (Door, Inbox) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let changes = Arc::new(Semaphore::new(CHANGES));
    let questions = Arc::new(Semaphore::new(QUESTIONS));
    let door = Door {
        told: sender,
        changes: Arc::clone(&changes),
        questions: Arc::clone(&questions),
    };
    let inbox = Inbox {
        told: receiver,
        changes,
        questions,
    };
    (door, inbox)
}

impl Door {
    /// Waits for room for a change.
    pub(super) async fn room(&self) -> Result<Room<'_>, Ended> {
        self.wait(&self.changes).await
    }

    /// Waits for room for a question.
    pub(super) async fn room_to_ask(&self) -> Result<Room<'_>, Ended> {
        self.wait(&self.questions).await
    }

    /// Room for a question, if there is some now.
    pub(super) fn room_now(&self) -> Result<Option<Room<'_>>, Ended> {
        match Arc::clone(&self.questions).try_acquire_owned() {
            Ok(permit) => Ok(Some(Room { door: self, permit })),
            Err(TryAcquireError::NoPermits) => Ok(None),
            Err(TryAcquireError::Closed) => Err(Ended),
        }
    }

    /// Has the shard end. It needs no room, and whatever waits is left undone.
    pub(super) fn stop(&self) {
        stop(&self.told);
    }

    /// What can end the shard, and does not keep it going.
    pub(super) fn stopper(&self) -> Stopper {
        Stopper(self.told.downgrade())
    }

    async fn wait(&self, room: &Arc<Semaphore>) -> Result<Room<'_>, Ended> {
        let permit = Arc::clone(room).acquire_owned().await.map_err(|_| Ended)?;
        Ok(Room { door: self, permit })
    }
}

/// What can end a shard whoever else has its door.
#[derive(Clone, Debug)]
pub(super) struct Stopper(mpsc::WeakUnboundedSender<Told>);

impl Stopper {
    pub(super) fn stop(&self) {
        if let Some(told) = self.0.upgrade() {
            stop(&told);
        }
    }
}

fn stop(told: &mpsc::UnboundedSender<Told>) {
    let stop = Told {
        input: Input::Stop,
        room: None,
    };
    // It has ended already.
    let _ = told.send(stop);
}

impl Room<'_> {
    pub(super) fn tell(self, input: Input) {
        let told = Told {
            input,
            room: Some(self.permit),
        };
        // A shard that ends leaves undone what it was told last.
        let _ = self.door.told.send(told);
    }
}

impl Inbox {
    /// What was told next, if anything was.
    pub(super) fn try_recv(&mut self) -> Result<Told, mpsc::error::TryRecvError> {
        self.told.try_recv()
    }

    /// Waits for what is told next; none when nobody can tell anything any more.
    pub(super) async fn recv(&mut self) -> Option<Told> {
        self.told.recv().await
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.changes.close();
        self.questions.close();
    }
}
