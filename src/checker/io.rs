//! What an attempt and its driver tell each other.

use std::io;
use std::num::NonZeroU16;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::Socket;

use crate::event::{Reason, Shortage};

/// An attempt's side of its driver.
///
/// An attempt may use it or not: one that only awaits other futures need not. Attempts that own a socket can
/// have the driver watch it, which costs less than a registration with the runtime. What is told by a clone that
/// outlives its attempt is not heard.
#[derive(Clone, Debug)]
pub struct AttemptIo {
    place: Arc<Inner>,
    /// Which of the attempts of its place it is for.
    turn: u32,
}

/// One for each place of a driver, used by one attempt after the other. What each poll asks for stands apart
/// from what few attempts need, which is behind locks.
#[derive(Debug)]
struct Inner {
    registry: Arc<Registry>,
    token: Token,
    /// Which attempt has the place.
    turn: AtomicU32,
    /// The attempt has been sent.
    sent: AtomicBool,
    /// It is polled for the last time.
    last_look: AtomicBool,
    /// A [`Waiting`].
    waiting: AtomicU8,
    /// What it waits for is its own: others need not wait for it.
    alone: AtomicBool,
    /// An answer may be looked for a little later, before the socket is watched.
    looks_later: AtomicBool,
    /// It is to be polled again a little later.
    again: AtomicBool,
    /// Whether sockets are left for later attempts at all.
    keeps_spares: bool,
    /// The local port of the attempt, or of the one before it at the same host until it has one; 0 if not known.
    port: AtomicU16,
    /// Whether `saw` holds something.
    has_seen: AtomicBool,
    /// Whether `spare` holds something.
    has_spare: AtomicBool,
    /// What it fails by if its time is up now; silence if it said nothing.
    saw: Mutex<Option<Reason>>,
    /// A socket that an earlier attempt left.
    spare: Mutex<Option<Spare>>,
    buffer: Arc<Mutex<Vec<u8>>>,
}

/// A socket that is watched already, has no peer and no port, and nothing to be read.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) socket: Socket,
    /// Of IPv6, not of IPv4.
    pub(super) v6: bool,
}

/// Whether an attempt waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It does not.
    No,
    /// It does, and has just said so.
    Began(Shortage),
    /// It still does.
    Still(Shortage),
}

impl Waiting {
    const KINDS: u8 = 3;

    /// What it waits for.
    pub(crate) fn what(self) -> Option<Shortage> {
        match self {
            Self::No => None,
            Self::Began(what) | Self::Still(what) => Some(what),
        }
    }

    fn code(self) -> u8 {
        let (first, what) = match self {
            Self::No => return 0,
            Self::Began(what) => (1, what),
            Self::Still(what) => (1 + Self::KINDS, what),
        };
        first + u8::try_from(what.index()).unwrap_or_default()
    }

    fn of(code: u8) -> Self {
        let Some(code) = code.checked_sub(1) else {
            return Self::No;
        };
        let what = Shortage::ALL[usize::from(code % Self::KINDS)];
        if code < Self::KINDS {
            Self::Began(what)
        } else {
            Self::Still(what)
        }
    }
}

impl AttemptIo {
    /// For attempts whose sockets are watched by `registry` under `token`.
    pub(crate) fn new(
        registry: Arc<Registry>,
        token: Token,
        buffer: Arc<Mutex<Vec<u8>>>,
        keeps_spares: bool,
    ) -> Self {
        let place = Inner {
            registry,
            token,
            turn: AtomicU32::new(0),
            looks_later: AtomicBool::default(),
            again: AtomicBool::default(),
            keeps_spares,
            sent: AtomicBool::default(),
            last_look: AtomicBool::default(),
            waiting: AtomicU8::default(),
            alone: AtomicBool::default(),
            port: AtomicU16::default(),
            has_seen: AtomicBool::default(),
            has_spare: AtomicBool::default(),
            saw: Mutex::default(),
            spare: Mutex::default(),
            buffer,
        };
        Self {
            place: Arc::new(place),
            turn: 0,
        }
    }

    /// Whether its attempt has its place still.
    fn is_current(&self) -> bool {
        self.place.turn.load(Relaxed) == self.turn
    }

    /// Has the attempt polled again when `socket` becomes readable, and `writable` too if so asked.
    /// It is told of changes only: what is there already has to be taken until the socket would block. The
    /// watch ends when the socket is closed.
    ///
    /// # Errors
    ///
    /// Those of `epoll_ctl` or its like, and one when the attempt has ended.
    pub fn watch(&self, socket: &impl AsFd, writable: bool) -> io::Result<()> {
        if !self.is_current() {
            return Err(io::Error::other("the attempt has ended"));
        }
        let interest = if writable {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        let fd = socket.as_fd().as_raw_fd();
        let Inner {
            registry, token, ..
        } = &*self.place;
        match registry.register(&mut SourceFd(&fd), *token, interest) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                registry.reregister(&mut SourceFd(&fd), *token, interest)
            }
            other => other,
        }
    }

    /// The attempt has been sent: its timeout and its round trip begin here.
    pub fn sent(&self) {
        if !self.is_current() {
            return;
        }
        self.place.sent.store(true, Relaxed);
        self.place.waiting.store(Waiting::No.code(), Relaxed);
    }

    /// What the attempt fails by if its time is up now, instead of silence.
    pub fn saw(&self, reason: Reason) {
        if !self.is_current() {
            return;
        }
        *lock(&self.place.saw) = Some(reason);
        self.place.has_seen.store(true, Relaxed);
    }

    /// What the attempt said that it [saw](AttemptIo::saw), if it did.
    pub fn seen(&self) -> Option<Reason> {
        match self.is_current() && self.place.has_seen.load(Relaxed) {
            true => lock(&self.place.saw).clone(),
            false => None,
        }
    }

    /// This process is short of something that the attempt needs. It is polled again when there may be
    /// room; only if there is none until its deadline it fails.
    pub fn wait_for(&self, what: Shortage) {
        if !self.is_current() {
            return;
        }
        // Only when an attempt begins its driver asks whether there is something to look for later.
        self.place.looks_later.store(false, Relaxed);
        if self.waiting() == Waiting::No {
            let began = Waiting::Began(what);
            self.place.waiting.store(began.code(), Relaxed);
        }
    }

    /// As [`AttemptIo::wait_for`], of something that only attempts of its kind are short of, such as a local
    /// port that they share. Other attempts go on meanwhile.
    pub fn wait_alone_for(&self, what: Shortage) {
        if !self.is_current() {
            return;
        }
        self.wait_for(what);
        self.place.alone.store(true, Relaxed);
    }

    /// The attempt's time is up: what it finds in this poll still counts, and it is not polled again.
    pub fn last_look(&self) -> bool {
        !self.is_current() || self.place.last_look.load(Relaxed)
    }

    /// Calls `f` with a buffer of `len` bytes that attempts share; its contents are arbitrary. While it is used, others
    /// get one of their own, and nobody waits.
    pub fn with_buffer<T>(&self, len: usize, f: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut buffer = match self.place.buffer.try_lock() {
            Ok(buffer) => buffer,
            Err(TryLockError::Poisoned(buffer)) => buffer.into_inner(),
            Err(TryLockError::WouldBlock) => return f(&mut vec![0; len]),
        };
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        f(&mut buffer[..len])
    }

    /// Whether it begins with others, so that what each takes adds up.
    pub(super) fn is_one_of_many(&self) -> bool {
        self.looks_later()
    }

    /// Whether the attempt may do without having its socket watched at first, and be polled again a little later
    /// if it so asks: by then most answers are there, if hosts are near.
    pub(super) fn looks_later(&self) -> bool {
        self.place.looks_later.load(Relaxed)
    }

    /// Has the attempt polled again a little later.
    pub(super) fn look_again(&self) {
        self.place.again.store(true, Relaxed);
    }

    /// Whether it is to be polled again a little later. Told once.
    pub(crate) fn take_again(&self) -> bool {
        let again = self.place.again.load(Relaxed);
        if again {
            self.place.again.store(false, Relaxed);
        }
        again
    }

    /// The attempt has this local port, or one that is not worth asking for.
    pub(super) fn has_port(&self, port: Option<NonZeroU16>) {
        let port = port.map_or(0, NonZeroU16::get);
        self.place.port.store(port, Relaxed);
    }

    /// The local port of the attempt, or, until it has one, of the one before it at the same host; none if it is not
    /// known.
    pub(crate) fn port(&self) -> Option<NonZeroU16> {
        NonZeroU16::new(self.place.port.load(Relaxed))
    }

    /// Another attempt begins, which may look for an answer a little later; the one before it at its host had the
    /// local port `before`. What clones of before tell is not heard any longer.
    pub(crate) fn begin(&mut self, looks_later: bool, before: Option<NonZeroU16>) {
        self.turn = self.turn.wrapping_add(1);
        self.place.turn.store(self.turn, Relaxed);
        self.place.looks_later.store(looks_later, Relaxed);
        self.place.again.store(false, Relaxed);
        self.place.sent.store(false, Relaxed);
        self.place.last_look.store(false, Relaxed);
        self.place.waiting.store(Waiting::No.code(), Relaxed);
        self.place.alone.store(false, Relaxed);
        self.has_port(before);
        if self.place.has_seen.load(Relaxed) {
            self.take_seen();
        }
    }

    /// Whether others need not wait for what it waits for.
    pub(crate) fn waits_alone(&self) -> bool {
        self.place.alone.load(Relaxed)
    }

    /// Whether it has been sent.
    pub(crate) fn was_sent(&self) -> bool {
        self.place.sent.load(Relaxed)
    }

    /// It is polled for the last time from now on.
    pub(crate) fn look_for_the_last_time(&self) {
        self.place.last_look.store(true, Relaxed);
    }

    /// Whether the attempt waits for room.
    pub(crate) fn waiting(&self) -> Waiting {
        Waiting::of(self.place.waiting.load(Relaxed))
    }

    /// The same; that it began is told once.
    pub(crate) fn take_waiting(&self) -> Waiting {
        let waiting = self.waiting();
        if let Waiting::Began(what) = waiting {
            let still = Waiting::Still(what);
            self.place.waiting.store(still.code(), Relaxed);
        }
        waiting
    }

    /// What the attempt fails by, if it said so.
    pub(crate) fn take_seen(&self) -> Option<Reason> {
        self.place.has_seen.store(false, Relaxed);
        lock(&self.place.saw).take()
    }

    /// Whether a socket may be left to a later attempt.
    pub(super) fn keeps_spares(&self) -> bool {
        self.place.keeps_spares
    }

    /// A socket that an earlier attempt left.
    pub(super) fn take_spare(&self) -> Option<Spare> {
        if !self.has_spare() {
            return None;
        }
        self.place.has_spare.store(false, Relaxed);
        lock(&self.place.spare).take()
    }

    /// Leaves a socket to a later attempt.
    pub(super) fn leave_spare(&self, spare: Spare) {
        *lock(&self.place.spare) = Some(spare);
        self.place.has_spare.store(true, Relaxed);
    }

    /// Whether there is a socket that an earlier attempt left.
    pub(crate) fn has_spare(&self) -> bool {
        self.place.has_spare.load(Relaxed)
    }

    /// Closes the socket that an earlier attempt left.
    pub(crate) fn close_spare(&self) {
        self.take_spare();
    }
}

fn lock<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io() -> AttemptIo {
        let poll = mio::Poll::new().unwrap();
        let registry = poll.registry().try_clone().unwrap();
        AttemptIo::new(Arc::new(registry), Token(0), Arc::default(), false)
    }

    #[test]
    fn what_a_clone_tells_after_its_attempt_is_not_heard() {
        let mut io = io();
        io.begin(false, None);
        let late = io.clone();
        late.saw(Reason::Silent);
        assert_eq!(io.seen(), Some(Reason::Silent));
        io.begin(false, None);
        late.sent();
        late.saw(Reason::Silent);
        late.wait_alone_for(Shortage::Descriptors);
        assert!(!io.was_sent() && !io.waits_alone());
        assert_eq!((io.seen(), late.seen()), (None, None));
        assert_eq!(io.waiting(), Waiting::No);
        assert!(late.last_look());
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(late.watch(&socket, false).is_err());
        assert!(io.watch(&socket, false).is_ok());
    }

    #[test]
    fn a_buffer_may_be_asked_for_while_it_is_used() {
        let io = io();
        let lens = io.with_buffer(10, |outer| {
            (outer.len(), io.with_buffer(5, |inner| inner.len()))
        });
        assert_eq!(lens, (10, 5));
    }

    #[test]
    fn every_kind_of_waiting_has_its_code() {
        assert_eq!(Waiting::of(0), Waiting::No);
        for what in Shortage::ALL {
            for waiting in [Waiting::Began(what), Waiting::Still(what)] {
                assert_eq!(Waiting::of(waiting.code()), waiting);
            }
        }
    }
}
