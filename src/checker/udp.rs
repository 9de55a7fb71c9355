//! The UDP checker: one datagram out, one that equals `receive` back.
//!
//! Source: `envoy.extensions.health_checkers.udp.v3.UdpHealthCheck`. The matcher, [`UdpConfig::matches`], is
//! a comparison of whole datagrams; all else here is about the socket. Each attempt has a socket of its own,
//! closed when it ends, so that an answer to an earlier attempt finds nobody: Envoy keeps the old socket
//! open until the next attempt, one for each host. Only with a fixed local port
//! (`upstream_bind_config.source_address` with a port) attempts share an address, and a late answer counts.

use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use socket2::Socket;

use super::{Attempt, AttemptIo, Checker, CheckerFactory, HostChecker, Target};
use crate::config::{BindConfig, ConfigError, UdpConfig};
use crate::event::{HealthCheckerType, Mismatch, Outcome, Reason};
use crate::host::Address;

mod socket;

use socket::Trouble;

/// Datagrams taken in one poll, so that a flood for one host does not hold up others.
const READS: usize = 16;
/// Datagrams taken when the attempt's time is up: more than a socket's buffer usually holds.
const LAST_READS: usize = 1024;

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
}

impl UdpChecker {
    /// A checker that sends and awaits what `config` says.
    pub fn new(config: UdpConfig) -> Self {
        Self {
            config: Arc::new(config),
        }
    }
}

impl Checker for UdpChecker {
    fn health_checker_type(&self) -> HealthCheckerType {
        HealthCheckerType::Udp
    }

    fn for_host(&self, target: Target<'_>) -> Box<dyn HostChecker> {
        Box::new(UdpHostChecker {
            config: Arc::clone(&self.config),
            target: target.host.checked_at().clone(),
            bind: target.bind.cloned(),
        })
    }
}

struct UdpHostChecker {
    config: Arc<UdpConfig>,
    target: Address,
    bind: Option<Arc<BindConfig>>,
}

impl HostChecker for UdpHostChecker {
    fn attempt<'a>(&'a mut self, io: &'a AttemptIo) -> Attempt<'a> {
        Box::pin(UdpAttempt::new(&*self, io.clone()))
    }

    fn only_attempt(self: Box<Self>, io: AttemptIo) -> Attempt<'static> {
        Box::pin(UdpAttempt::new(self, io))
    }
}

enum State {
    /// No socket yet.
    Opening,
    /// A connected socket from which nothing has left.
    Sending { socket: Socket, watched: bool },
    /// The datagram is out.
    Receiving(Socket),
}

struct UdpAttempt<H> {
    host: H,
    io: AttemptIo,
    state: State,
    mismatch: Option<Mismatch>,
}

impl<H: Deref<Target = UdpHostChecker> + Unpin> Future for UdpAttempt<H> {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let this = self.get_mut();
        loop {
            let step = match &this.state {
                State::Opening => this.open(),
                State::Sending { .. } => this.send(),
                State::Receiving(_) => return this.receive(cx),
            };
            match step {
                Ok(()) => (),
                Err(Trouble::Wait) => return Poll::Pending,
                Err(Trouble::Short(what)) => {
                    this.io.wait_for(what);
                    return Poll::Pending;
                }
                Err(Trouble::Failed(reason)) => return Poll::Ready(Outcome::network(reason)),
            }
        }
    }
}

impl<H: Deref<Target = UdpHostChecker>> UdpAttempt<H> {
    fn new(host: H, io: AttemptIo) -> Self {
        Self {
            host,
            io,
            state: State::Opening,
            mismatch: None,
        }
    }

    fn open(&mut self) -> Result<(), Trouble> {
        let socket = socket::connect(&self.host.target, self.host.bind.as_deref())?;
        self.state = State::Sending {
            socket,
            watched: false,
        };
        Ok(())
    }

    fn send(&mut self) -> Result<(), Trouble> {
        let State::Sending { socket, watched } = &mut self.state else {
            return Ok(());
        };
        let sent = socket::send(socket, self.host.config.send());
        let retry = match &sent {
            Err(Trouble::Wait) => true,
            // The kernel's buffers: it says when there is room, or the driver's pace does.
            Err(Trouble::Short(_)) | Err(Trouble::Failed(_)) | Ok(()) => false,
        };
        let told_anew = !*watched && sent.is_ok();
        if !*watched && (retry || sent.is_ok()) {
            self.io
                .watch(socket, retry)
                .map_err(|error| socket::trouble("epoll_ctl", &error))?;
            *watched = true;
        }
        sent?;
        self.io.sent();
        if let State::Sending { socket, .. } = std::mem::replace(&mut self.state, State::Opening) {
            self.state = State::Receiving(socket);
        }
        if told_anew && !self.io.last_look() {
            // An answer that is there already is told of too: a look for it would be in vain mostly.
            return Err(Trouble::Wait);
        }
        Ok(())
    }

    fn receive(&mut self, cx: &Context<'_>) -> Poll<Outcome> {
        let State::Receiving(socket) = &self.state else {
            return Poll::Pending;
        };
        let last = self.io.last_look();
        for _ in 0..if last { LAST_READS } else { READS } {
            // One byte more than the payload, so a longer datagram that begins with it does not match.
            let wanted = self.host.config.receive();
            let taken = self.io.with_buffer(wanted.len() + 1, |buffer| {
                let got = socket::receive(socket, buffer)?;
                let got = &buffer[..got];
                if self.host.config.matches(got) {
                    return io::Result::Ok(true);
                }
                self.mismatch = Some(Mismatch::note(self.mismatch.take(), wanted, got));
                Ok(false)
            });
            match taken {
                Ok(true) => return Poll::Ready(Outcome::SUCCESS),
                Ok(false) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.tell_mismatch();
                    return Poll::Pending;
                }
                Err(error) => match socket::trouble("recv", &error) {
                    Trouble::Failed(reason) => return Poll::Ready(Outcome::network(reason)),
                    Trouble::Short(_) | Trouble::Wait => break,
                },
            }
        }
        self.tell_mismatch();
        if !last {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// What has been passed over so far is what the attempt fails by.
    fn tell_mismatch(&self) {
        if let Some(mismatch) = &self.mismatch {
            self.io.saw(Reason::Mismatch(Arc::new(mismatch.clone())));
        }
    }
}
