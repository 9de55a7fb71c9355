//! The attempts that run: their futures, and who is to be polled.

use std::any::Any;
use std::future::Future;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use mio::{Registry, Token};
use tokio::sync::Notify;
use tracing::Span;

use crate::checker::{Attempt, AttemptIo, Checker, HostChecker, Target, Waiting};
use crate::cluster::SessionId;
use crate::event::{Outcome, Reason, Shortage};
use crate::session::AttemptId;

/// Slots in an [`AttemptId`]; the rest of it tells attempts of one slot apart.
const SLOT_BITS: u32 = 20;

/// How many attempts may run at once at most.
pub(super) const MOST: usize = 1 << SLOT_BITS;

/// The future of an attempt, with all that it needs.
pub(super) enum Run {
    /// It ends with its checker.
    Once(Attempt<'static>),
    /// It gives its checker back.
    Kept(Pin<Box<dyn Future<Output = Ended> + Send>>),
}

type Ended = (Outcome, Kept);

/// A host's checker that is kept between attempts.
pub(super) struct Kept {
    /// What made it: another checker's hosts are none of its. Weak, since to drop a checker may do anything.
    maker: Weak<dyn Checker>,
    host: Box<dyn HostChecker>,
}

impl Kept {
    pub(super) fn new(maker: &Arc<dyn Checker>, target: Target<'_>) -> Self {
        Self {
            maker: Arc::downgrade(maker),
            host: maker.for_host(target),
        }
    }

    pub(super) fn is_of(&self, checker: &Arc<dyn Checker>) -> bool {
        std::ptr::addr_eq(self.maker.as_ptr(), Arc::as_ptr(checker))
    }
}

impl Run {
    /// An attempt whose checker is kept.
    pub(super) fn keeping(mut kept: Kept, io: AttemptIo) -> Self {
        Self::Kept(Box::pin(async move {
            let outcome = kept.host.attempt(&io).await;
            (outcome, kept)
        }))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Outcome, Option<Kept>)> {
        match self {
            Self::Once(run) => run.as_mut().poll(cx).map(|outcome| (outcome, None)),
            Self::Kept(run) => {
                let ended = run.as_mut().poll(cx);
                ended.map(|(outcome, kept)| (outcome, Some(kept)))
            }
        }
    }
}

/// Slots that were woken, other than by the poller.
#[derive(Debug, Default)]
pub(super) struct Woken {
    slots: Mutex<Vec<usize>>,
    notify: Notify,
}

impl Woken {
    /// Waits until a slot is woken.
    pub(super) async fn wait(&self) {
        self.notify.notified().await;
    }

    /// Moves the slots that were woken to `ready`.
    pub(super) fn take(&self, ready: &mut Vec<usize>) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        ready.append(&mut slots);
    }
}

struct SlotWaker {
    slot: usize,
    woken: Arc<Woken>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken
            .slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.slot);
        self.woken.notify.notify_one();
    }
}

struct Slot {
    io: AttemptIo,
    waker: Waker,
    generation: u32,
    attempt: Option<Running>,
}

struct Running {
    id: AttemptId,
    session: SessionId,
    /// What the journal knows the host by.
    tag: u32,
    /// What its checker logs is within.
    span: Span,
    run: Run,
    sent: Option<Instant>,
    /// A poll has ended before it was sent.
    waited: bool,
}

/// Whether others need not wait for what an attempt waits for.
pub(super) type Alone = bool;

/// What came of polling an attempt.
pub(super) enum Polled {
    /// It goes on.
    Pending,
    /// It goes on, and was sent only now, after it had to wait for room.
    SentLate(SessionId, AttemptId),
    /// It began to wait for something that this process is short of, or only attempts like it are.
    Short(SessionId, Shortage, Alone),
    /// It ended.
    Ended(Report),
}

/// How an attempt ended.
pub(super) struct Report {
    pub(super) session: SessionId,
    pub(super) tag: u32,
    pub(super) span: Span,
    pub(super) attempt: AttemptId,
    pub(super) outcome: Outcome,
    /// When it was sent, if it said so.
    pub(super) sent: Option<Instant>,
    /// Its local port, or that of the attempt before it if it got none.
    pub(super) local_port: Option<NonZeroU16>,
    /// What made it, if it is to be kept and did not panic.
    pub(super) checker: Option<Kept>,
}

/// All running attempts of a driver.
pub(super) struct Attempts {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Free slots with a socket that an earlier attempt left: these are taken first.
    warm: Vec<usize>,
    /// How many of these there may be.
    spares: usize,
    registry: Arc<Registry>,
    buffer: Arc<Mutex<Vec<u8>>>,
    woken: Arc<Woken>,
}

impl Attempts {
    /// None yet. Up to `spares` sockets that attempts leave are kept for those to come.
    pub(super) fn new(registry: Arc<Registry>, spares: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            warm: Vec::new(),
            spares,
            registry,
            buffer: Arc::default(),
            woken: Arc::default(),
        }
    }

    pub(super) fn woken(&self) -> &Arc<Woken> {
        &self.woken
    }

    /// How many run.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len() - self.warm.len()
    }

    /// Closes the sockets that earlier attempts left.
    pub(super) fn close_spares(&mut self) {
        for slot in self.warm.drain(..) {
            self.slots[slot].io.close_spare();
            self.free.push(slot);
        }
    }

    /// The name of the next attempt, which [`Attempts::begin`] is to be given; none if too many run.
    pub(super) fn next_id(&mut self) -> Option<AttemptId> {
        if self.warm.is_empty() && self.free.is_empty() {
            let slot = self.slots.len();
            if slot >= MOST {
                return None;
            }
            self.slots.push(Slot {
                io: AttemptIo::new(
                    Arc::clone(&self.registry),
                    Token(slot),
                    Arc::clone(&self.buffer),
                    self.spares > 0,
                ),
                waker: Waker::from(Arc::new(SlotWaker {
                    slot,
                    woken: Arc::clone(&self.woken),
                })),
                generation: 0,
                attempt: None,
            });
            self.free.push(slot);
        }
        let slot = *self.warm.last().or_else(|| self.free.last())?;
        let generation = self.slots[slot].generation << SLOT_BITS;
        Some(AttemptId(generation | u32::try_from(slot).ok()?))
    }

    /// Begins the attempt that was named `id`; it is to be polled then, in the slot that is told. `run` makes
    /// it; none if that panics.
    pub(super) fn begin(
        &mut self,
        id: AttemptId,
        (session, tag, span): (SessionId, u32, Span),
        looks_later: bool,
        port_before: Option<NonZeroU16>,
        run: impl FnOnce(AttemptIo) -> Run,
    ) -> Option<usize> {
        let slot = slot_of(id);
        let place = &mut self.slots[slot];
        place.io.begin(looks_later, port_before);
        let io = place.io.clone();
        let run = guard(|| span.in_scope(|| run(io)))?;
        place.attempt = Some(Running {
            id,
            session,
            tag,
            span,
            run,
            sent: None,
            waited: false,
        });
        let _taken = self.warm.pop().or_else(|| self.free.pop());
        Some(slot)
    }

    /// Polls the attempt in `slot`, if one is there. `clock` is read when it has been sent.
    pub(super) fn poll(&mut self, slot: usize, clock: fn() -> Instant) -> Polled {
        let Some(place) = self.slots.get_mut(slot) else {
            return Polled::Pending;
        };
        let Some(attempt) = &mut place.attempt else {
            return Polled::Pending;
        };
        let mut cx = Context::from_waker(&place.waker);
        let Running { run, span, .. } = attempt;
        let polled = guard(|| span.in_scope(|| run.poll(&mut cx)));
        let sent = place.io.was_sent();
        let mut late = false;
        if sent && attempt.sent.is_none() {
            attempt.sent = Some(clock());
            late = attempt.waited;
        }
        attempt.waited |= !sent;
        let waiting = place.io.take_waiting();
        let alone = place.io.waits_alone();
        let (id, session) = (attempt.id, attempt.session);
        match polled {
            Some(Poll::Pending) => match waiting {
                Waiting::Began(what) => Polled::Short(session, what, alone),
                _ if late => Polled::SentLate(session, id),
                _ => Polled::Pending,
            },
            Some(Poll::Ready((outcome, checker))) => self.end(slot, outcome, checker),
            None => self.end(slot, Outcome::network(Reason::Panicked), None),
        }
    }

    /// Polls attempt `id` for the last time and ends it: by what it finds, or as one that took too long.
    pub(super) fn expire(&mut self, id: AttemptId, clock: fn() -> Instant) -> Option<Report> {
        let slot = self.find(id)?;
        let io = &self.slots[slot].io;
        let waited_for = io.waiting().what();
        io.look_for_the_last_time();
        if let Polled::Ended(report) = self.poll(slot, clock) {
            return Some(report);
        }
        let io = &self.slots[slot].io;
        // What was sent by this last poll only has had no time to be answered.
        let outcome = match (io.waiting().what().or(waited_for), io.take_seen()) {
            (Some(what), _) => Outcome::network(Reason::Shortage(what)),
            (None, saw) => Outcome::timeout(saw.unwrap_or(Reason::Silent)),
        };
        match self.end(slot, outcome, None) {
            Polled::Ended(report) => Some(report),
            _ => None,
        }
    }

    /// Ends attempt `id` without a report.
    pub(super) fn cancel(&mut self, id: AttemptId) {
        if let Some(slot) = self.find(id) {
            self.end(slot, Outcome::SUCCESS, None);
        }
    }

    /// Whether an attempt runs in `slot`.
    pub(super) fn runs(&self, slot: usize) -> bool {
        self.slots
            .get(slot)
            .is_some_and(|place| place.attempt.is_some())
    }

    /// Whether the attempt in `slot` asked to be polled again a little later. Told once.
    pub(super) fn looks_again(&self, slot: usize) -> bool {
        self.slots
            .get(slot)
            .is_some_and(|place| place.io.take_again())
    }

    /// When the attempt in `slot` was sent, if it runs and was.
    pub(super) fn sent(&self, slot: usize) -> Option<Instant> {
        self.slots.get(slot)?.attempt.as_ref()?.sent
    }

    /// Whether the attempt in `slot` waits for room.
    pub(super) fn waits(&self, slot: usize) -> bool {
        self.slots
            .get(slot)
            .is_some_and(|place| place.attempt.is_some() && place.io.waiting() != Waiting::No)
    }

    fn find(&self, id: AttemptId) -> Option<usize> {
        let slot = slot_of(id);
        let attempt = self.slots.get(slot)?.attempt.as_ref()?;
        (attempt.id == id).then_some(slot)
    }

    fn end(&mut self, slot: usize, outcome: Outcome, checker: Option<Kept>) -> Polled {
        let place = &mut self.slots[slot];
        let Some(attempt) = place.attempt.take() else {
            return Polled::Pending;
        };
        place.generation = (place.generation + 1) & (u32::MAX >> SLOT_BITS);
        let Running {
            id,
            session,
            tag,
            span,
            run,
            sent,
            ..
        } = attempt;
        guard(|| drop(run));
        let io = &self.slots[slot].io;
        if !io.has_spare() {
            self.free.push(slot);
        } else if self.warm.len() < self.spares {
            self.warm.push(slot);
        } else {
            io.close_spare();
            self.free.push(slot);
        }
        Polled::Ended(Report {
            session,
            tag,
            span,
            attempt: id,
            outcome,
            sent,
            local_port: io.port(),
            checker,
        })
    }
}

fn slot_of(id: AttemptId) -> usize {
    (id.0 & ((1 << SLOT_BITS) - 1)) as usize
}

/// Calls or drops what a checker or a sink gave, and survives its panic.
pub(super) fn guard<T>(f: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(panic) => {
            report(&*panic);
            // What it panicked with may panic in its turn, and so may what that panics with.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
                std::mem::forget(again);
            }
            None
        }
    }
}

fn report(panic: &(dyn Any + Send)) {
    let panic = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("of unknown kind");
    tracing::error!(panic, "checker or event sink panicked");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::HealthCheckerType;
    use crate::host::Host;

    /// Says that it is sent in its poll number `sends_at`, and never ends.
    #[derive(Clone, Copy, Debug)]
    struct Sends {
        sends_at: usize,
    }

    impl Checker for Sends {
        fn health_checker_type(&self) -> HealthCheckerType {
            HealthCheckerType::Udp
        }

        fn for_host(&self, _: Target<'_>) -> Box<dyn HostChecker> {
            Box::new(*self)
        }
    }

    impl HostChecker for Sends {
        fn attempt<'a>(&'a mut self, io: &'a AttemptIo) -> Attempt<'a> {
            let mut polls = 0;
            Box::pin(std::future::poll_fn(move |_| {
                polls += 1;
                if polls == self.sends_at {
                    io.sent();
                }
                Poll::Pending
            }))
        }
    }

    fn begun(sends_at: usize, keeps: bool) -> (Attempts, usize) {
        let poll = mio::Poll::new().unwrap();
        let registry = poll.registry().try_clone().unwrap();
        let mut attempts = Attempts::new(Arc::new(registry), 0);
        let id = attempts.next_id().unwrap();
        let session = SessionId::FIRST;
        let run = |io: AttemptIo| {
            let checker: Arc<dyn Checker> = Arc::new(Sends { sends_at });
            let host = Host::new(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
            let target = Target::new(&host);
            if keeps {
                return Run::keeping(Kept::new(&checker, target), io);
            }
            Run::Once(checker.only_attempt(target, io))
        };
        let named = (session, 0, Span::none());
        let slot = attempts.begin(id, named, false, None, run).unwrap();
        (attempts, slot)
    }

    #[test]
    fn an_attempt_that_is_sent_at_once_is_not_late() {
        let (mut attempts, slot) = begun(1, false);
        assert!(matches!(attempts.poll(slot, Instant::now), Polled::Pending));
        assert!(matches!(attempts.poll(slot, Instant::now), Polled::Pending));
    }

    #[test]
    fn an_attempt_that_had_to_wait_is_told_when_it_is_sent_once() {
        let (mut attempts, slot) = begun(2, true);
        assert!(matches!(attempts.poll(slot, Instant::now), Polled::Pending));
        assert!(matches!(
            attempts.poll(slot, Instant::now),
            Polled::SentLate(..)
        ));
        assert!(matches!(attempts.poll(slot, Instant::now), Polled::Pending));
    }
}
