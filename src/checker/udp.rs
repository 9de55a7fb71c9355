//! The UDP checker: one datagram out, one that equals `receive` back.
//!
//! Source: `envoy.extensions.health_checkers.udp.v3.UdpHealthCheck`. The matcher, [`UdpConfig::matches`], is
//! a comparison of whole datagrams; all else here is about the socket. Each attempt has a socket of its own,
//! closed when it ends, and another port than the one before it, so that an answer to an earlier attempt finds
//! nobody: to the same end Envoy keeps the old socket open until the next attempt, one for each host. Only with
//! a fixed local port (`upstream_bind_config.source_address` with a port) attempts share an address, and a late
//! answer counts.
//! If the driver is asked to keep sockets, a success leaves its socket to a later attempt, at another port.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Attempt, AttemptIo, Checker, CheckerFactory, HostChecker, Target};
use crate::config::{BindConfig, ConfigError, UdpConfig};
use crate::event::{HealthCheckerType, Mismatch, Outcome, Reason, Shortage};
use crate::host::Address;

mod socket;

use socket::{Trouble, UdpSocket};

/// Datagrams taken in one poll, so that a flood for one host does not hold up others.
const READS: usize = 16;
/// Datagrams taken when the attempt's time is up: more than a socket's buffer usually holds.
const LAST_READS: usize = 1024;
/// Answers that are shorter are taken without asking for the buffer that attempts share.
const SMALL: usize = 128;

/// Makes UDP checkers.
#[derive(Clone, Copy, Debug, Default)]
pub struct UdpFactory;

impl CheckerFactory for UdpFactory {
    fn message_name(&self) -> &str {
        "envoy.extensions.health_checkers.udp.v3.UdpHealthCheck"
    }

    fn create(&self, value: &[u8]) -> Result<Arc<dyn Checker>, ConfigError> {
        Ok(Arc::new(UdpChecker::new(UdpConfig::from_bytes(value)?)))
    }
}

/// Checks hosts by one datagram and its answer.
#[derive(Debug)]
pub struct UdpChecker {
    config: Arc<UdpConfig>,
    sample: usize,
}

impl UdpChecker {
    /// A checker that sends and awaits what `config` says.
    pub fn new(config: UdpConfig) -> Self {
        Self {
            config: Arc::new(config),
            sample: Mismatch::SAMPLE,
        }
    }

    /// The same, but a [`Mismatch`] keeps up to so many bytes of a datagram; default [`Mismatch::SAMPLE`].
    pub fn with_sample(mut self, bytes: usize) -> Self {
        self.sample = bytes;
        self
    }
}

impl Checker for UdpChecker {
    fn health_checker_type(&self) -> HealthCheckerType {
        HealthCheckerType::Udp
    }

    fn for_host(&self, target: Target<'_>) -> Box<dyn HostChecker> {
        Box::new(UdpHostChecker {
            config: Arc::clone(&self.config),
            sample: self.sample,
            target: target.host.checked_at().clone(),
            bind: target.bind.cloned(),
        })
    }

    fn only_attempt(&self, target: Target<'_>, io: AttemptIo) -> Attempt<'static> {
        let host = UdpHostChecker {
            config: Arc::clone(&self.config),
            sample: self.sample,
            target: target.host.checked_at().clone(),
            bind: target.bind.cloned(),
        };
        Box::pin(UdpAttempt::new(host, io))
    }
}

#[derive(Clone)]
struct UdpHostChecker {
    config: Arc<UdpConfig>,
    sample: usize,
    target: Address,
    bind: Option<Arc<BindConfig>>,
}

impl HostChecker for UdpHostChecker {
    fn attempt<'a>(&'a mut self, io: &'a AttemptIo) -> Attempt<'a> {
        Box::pin(UdpAttempt::new(self.clone(), io.clone()))
    }
}

enum State {
    /// No socket yet.
    Opening,
    /// A connected socket from which nothing has left.
    Sending { socket: UdpSocket, watched: bool },
    /// The datagram is out.
    Receiving { socket: UdpSocket, watched: bool },
}

struct UdpAttempt {
    host: UdpHostChecker,
    io: AttemptIo,
    state: State,
    mismatch: Option<Mismatch>,
}

impl Future for UdpAttempt {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let this = self.get_mut();
        loop {
            let step = match &this.state {
                State::Opening => this.open(),
                State::Sending { .. } => this.send(),
                State::Receiving { .. } => match this.receive(cx) {
                    Ok(polled) => return polled,
                    Err(trouble) => Err(trouble),
                },
            };
            match step {
                Ok(()) => (),
                Err(Trouble::Wait) => return Poll::Pending,
                Err(Trouble::Short(what)) => {
                    this.io.wait_for(what);
                    return Poll::Pending;
                }
                Err(Trouble::Taken) => {
                    this.io.wait_alone_for(Shortage::Ports);
                    return Poll::Pending;
                }
                Err(Trouble::Failed(reason)) => return Poll::Ready(Outcome::network(reason)),
            }
        }
    }
}

impl UdpAttempt {
    fn new(host: UdpHostChecker, io: AttemptIo) -> Self {
        Self {
            host,
            io,
            state: State::Opening,
            mismatch: None,
        }
    }

    fn open(&mut self) -> Result<(), Trouble> {
        let (target, bind) = (&self.host.target, self.host.bind.as_deref());
        let keeps = self.io.keeps_spares();
        let (mut socket, mut watched) =
            UdpSocket::connect(target, bind, keeps.then_some(|| self.io.take_spare()))?;
        let before = self.io.port();
        let mut port = None;
        if before.is_some() || !self.io.is_one_of_many() {
            port = socket.chosen_port();
            if port.is_some()
                && port == before
                // While this one has the port, another one has another, if there is one.
                && let Ok(other) = UdpSocket::connect(target, bind, keeps.then_some(|| None))
            {
                (socket, watched) = other;
                port = socket.chosen_port();
            }
        }
        self.io.has_port(port);
        self.state = State::Sending { socket, watched };
        Ok(())
    }

    /// Has the next attempt avoid this one's port. To ask for it costs a thirtieth of an attempt: of many that begin
    /// at once only those do that are not answered, since an answer may still come to them.
    fn tell_port(&self, answered: bool) {
        if answered {
            if self.io.is_one_of_many() {
                self.io.has_port(None);
            }
        } else if let State::Sending { socket, .. } | State::Receiving { socket, .. } = &self.state
            && self.io.port().is_none()
        {
            self.io.has_port(socket.chosen_port());
        }
    }

    fn send(&mut self) -> Result<(), Trouble> {
        let State::Sending { socket, watched } = &mut self.state else {
            return Ok(());
        };
        let sent = socket.send(self.host.config.send());
        if matches!(sent, Err(Trouble::Wait)) {
            // The kernel says when there is room again. Of other buffers it does not: the driver's pace does.
            watch(&self.io, socket, true)?;
            *watched = true;
            socket.is_not_to_be_renewed();
        }
        sent?;
        self.io.sent();
        let watched = *watched;
        if let State::Sending { socket, .. } = std::mem::replace(&mut self.state, State::Opening) {
            self.state = State::Receiving { socket, watched };
        }
        if self.io.last_look() {
            return Ok(());
        }
        if !watched && self.io.looks_later() {
            self.io.look_again();
        } else {
            self.watch()?;
        }
        // An answer that is there already is told of too: a look for it would be in vain mostly.
        Err(Trouble::Wait)
    }

    /// Has the socket watched for an answer, if it is not yet.
    fn watch(&mut self) -> Result<(), Trouble> {
        if let State::Receiving { socket, watched } = &mut self.state
            && !*watched
        {
            watch(&self.io, socket, false)?;
            *watched = true;
            // There is room for it, if there was none before.
            self.io.sent();
        }
        Ok(())
    }

    fn receive(&mut self, cx: &Context<'_>) -> Result<Poll<Outcome>, Trouble> {
        if self.io.last_look() {
            self.tell_port(false);
        }
        let State::Receiving { socket, .. } = &self.state else {
            return Ok(Poll::Pending);
        };
        let last = self.io.last_look();
        let mut small = [0; SMALL];
        // One byte more than the payload, so a longer datagram that begins with it does not match.
        let wanted = self.host.config.receive();
        let length = wanted.len() + 1;
        for _ in 0..if last { LAST_READS } else { READS } {
            let mut take = |buffer: &mut [u8]| {
                let came = socket.receive(buffer)?;
                let got = &buffer[..came.min(buffer.len())];
                if self.host.config.matches(got) {
                    return io::Result::Ok(true);
                }
                let (earlier, sample) = (self.mismatch.take(), self.host.sample);
                let mismatch = Mismatch::note_sample(earlier, wanted, got, sample);
                self.mismatch = Some(mismatch.of_length(came));
                Ok(false)
            };
            let taken = if length <= SMALL {
                take(&mut small)
            } else {
                self.io.with_buffer(length, take)
            };
            match taken {
                Ok(true) => {
                    self.tell_mismatch();
                    self.tell_port(true);
                    self.leave_socket();
                    return Ok(Poll::Ready(Outcome::SUCCESS));
                }
                Ok(false) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.tell_mismatch();
                    if !last {
                        self.watch()?;
                    }
                    return Ok(Poll::Pending);
                }
                Err(error) => match socket::trouble("recv", &error) {
                    Trouble::Short(_) | Trouble::Taken | Trouble::Wait => break,
                    failed => return Err(failed),
                },
            }
        }
        self.tell_mismatch();
        if !last {
            cx.waker().wake_by_ref();
        }
        Ok(Poll::Pending)
    }

    /// Lets a later attempt have the socket, as good as new, if sockets are kept at all. Only after a success:
    /// what is still to come after a failure is not known.
    fn leave_socket(&mut self) {
        if self.io.keeps_spares()
            && self.watch().is_ok()
            && let State::Receiving { socket, .. } =
                std::mem::replace(&mut self.state, State::Opening)
            && let Some(spare) = socket.renew()
        {
            self.io.leave_spare(spare);
        }
    }

    /// What has been passed over so far is what the attempt fails by.
    fn tell_mismatch(&self) {
        if let Some(mismatch) = &self.mismatch {
            self.io.saw(Reason::Mismatch(Arc::new(mismatch.clone())));
        }
    }
}

fn watch(io: &AttemptIo, socket: &UdpSocket, writable: bool) -> Result<(), Trouble> {
    let watched = io.watch(socket, writable);
    watched.map_err(|error| socket::trouble("epoll_ctl", &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Payload;
    use crate::host::Host;

    struct Bed {
        peer: std::net::UdpSocket,
        io: AttemptIo,
        checker: UdpChecker,
    }

    impl Bed {
        fn new() -> Self {
            let poll = mio::Poll::new().unwrap();
            let registry = Arc::new(poll.registry().try_clone().unwrap());
            let payload = |bytes: &[u8]| Payload::new(bytes).unwrap();
            let config = UdpConfig::new(payload(b"ping"), payload(b"pong"));
            Self {
                peer: std::net::UdpSocket::bind("127.0.0.1:0").unwrap(),
                io: AttemptIo::new(registry, mio::Token(0), Arc::default(), false),
                checker: UdpChecker::new(config),
            }
        }

        /// An attempt, one of many or not, that is answered or not. Tells its port, and what was made of that.
        fn attempt(&mut self, of_many: bool, answered: bool) -> (u16, Option<u16>) {
            let before = self.io.port();
            self.io.begin(of_many, before);
            let host = Host::new(self.peer.local_addr().unwrap());
            let attempt = self
                .checker
                .only_attempt(Target::new(&host), self.io.clone());
            let mut attempt = std::pin::pin!(attempt);
            let mut cx = Context::from_waker(std::task::Waker::noop());
            assert!(attempt.as_mut().poll(&mut cx).is_pending());
            let (_, from) = self.peer.recv_from(&mut [0; 8]).unwrap();
            if answered {
                self.peer.send_to(b"pong", from).unwrap();
            }
            self.io.look_for_the_last_time();
            assert_eq!(attempt.as_mut().poll(&mut cx).is_ready(), answered);
            assert_ne!(Some(from.port()), before.map(u16::from));
            (from.port(), self.io.port().map(u16::from))
        }
    }

    #[test]
    fn the_port_of_an_attempt_that_an_answer_may_still_come_to_is_told() {
        let mut bed = Bed::new();
        for (of_many, answered) in [(true, false), (false, false), (false, true)] {
            let (port, told) = bed.attempt(of_many, answered);
            assert_eq!(told, Some(port), "{of_many}, {answered}");
        }
    }

    #[test]
    fn ports_of_many_attempts_are_not_asked_for_once_they_are_answered() {
        let mut bed = Bed::new();
        bed.attempt(true, false);
        for _ in 0..2 {
            let (_, told) = bed.attempt(true, true);
            assert_eq!(told, None);
        }
    }
}
