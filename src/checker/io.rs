//! What an attempt and its driver tell each other.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::event::{Reason, Shortage};

/// An attempt's side of its driver.
///
/// An attempt may use it or not: one that only awaits other futures need not. Attempts that own a socket can
/// have the driver watch it, which costs less than a registration with the runtime.
#[derive(Clone, Debug)]
pub struct AttemptIo(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Arc<Registry>,
    token: Token,
    notes: Mutex<Notes>,
    buffer: Arc<Mutex<Vec<u8>>>,
}

/// What an attempt has told its driver.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// It has been sent.
    pub(crate) sent: bool,
    /// What it fails by if its time is up now; silence if it said nothing.
    pub(crate) saw: Option<Reason>,
    /// What it waits for, if this process is short of something.
    pub(crate) waiting: Waiting,
    /// It is polled for the last time.
    pub(crate) last_look: bool,
}

/// Whether an attempt waits for room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It does not.
    #[default]
    No,
    /// It does, and has just said so.
    Began(Shortage),
    /// It still does.
    Still(Shortage),
}

impl Waiting {
    /// What it waits for.
    pub(crate) fn what(self) -> Option<Shortage> {
        match self {
            Self::No => None,
            Self::Began(what) | Self::Still(what) => Some(what),
        }
    }
}

impl AttemptIo {
    /// For attempts whose sockets are watched by `registry` under `token`.
    pub(crate) fn new(registry: Arc<Registry>, token: Token, buffer: Arc<Mutex<Vec<u8>>>) -> Self {
        Self(Arc::new(Inner {
            registry,
            token,
            notes: Mutex::default(),
            buffer,
        }))
    }

    /// Has the attempt polled again when `socket` becomes readable, and `writable` too if so asked.
    /// It is told of changes only: what is there already has to be taken until the socket would block. The
    /// watch ends when the socket is closed.
    ///
    /// # Errors
    ///
    /// Those of `epoll_ctl` or its like.
    pub fn watch(&self, socket: &impl AsFd, writable: bool) -> io::Result<()> {
        let interest = if writable {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        let fd = socket.as_fd().as_raw_fd();
        self.0
            .registry
            .register(&mut SourceFd(&fd), self.0.token, interest)
    }

    /// The attempt has been sent: its timeout and its round trip begin here.
    pub fn sent(&self) {
        let mut notes = self.notes();
        notes.sent = true;
        notes.waiting = Waiting::No;
    }

    /// What the attempt fails by if its time is up now, instead of silence.
    pub fn saw(&self, reason: Reason) {
        self.notes().saw = Some(reason);
    }

    /// This process is short of something that the attempt needs. It is polled again when there may be
    /// room; only if there is none until its deadline it fails.
    pub fn wait_for(&self, what: Shortage) {
        let mut notes = self.notes();
        notes.waiting = match notes.waiting {
            Waiting::No => Waiting::Began(what),
            waiting => waiting,
        };
    }

    /// The attempt's time is up: what it finds in this poll still counts, and it is not polled again.
    pub fn last_look(&self) -> bool {
        self.notes().last_look
    }

    /// Calls `f` with a buffer of `len` bytes that attempts share; its contents are arbitrary.
    pub fn with_buffer<T>(&self, len: usize, f: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut buffer = self.0.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        f(&mut buffer[..len])
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
