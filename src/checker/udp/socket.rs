//! The socket of a UDP attempt, and what its errors mean.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketAddrAny};
use socket2::{Domain, SockAddr, Socket, Type};

use super::super::io::Spare;
use crate::config::BindConfig;
use crate::event::{Reason, Shortage};
use crate::host::Address;

/// How often an interrupted call is made again at once.
const INTERRUPTIONS: usize = 16;

/// Why a step of an attempt did not succeed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The socket is not ready.
    Wait,
    /// This process is short of something.
    Short(Shortage),
    /// The local port that the configuration names is taken, perhaps by another attempt.
    Taken,
    /// The attempt has failed.
    Failed(Reason),
}

/// A connected socket.
pub(super) struct UdpSocket {
    socket: Socket,
    /// For a socket that other attempts had before or may have after: only what comes from here counts.
    peer: Option<SocketAddr>,
    /// Its local port is what the configuration says.
    has_fixed_port: bool,
}

impl UdpSocket {
    /// A socket connected to `target`, bound as `bind` says. If sockets are kept for later attempts, `spare` may
    /// have one. Tells too whether it is watched already.
    pub(super) fn connect(
        target: &Address,
        bind: Option<&BindConfig>,
        spare: Option<impl FnOnce() -> Option<Spare>>,
    ) -> Result<(Self, bool), Trouble> {
        if let (Address::Ip(peer), None) = (target, bind) {
            let renews = spare.is_some() && renews(*peer);
            let spare = spare.filter(|_| renews).and_then(|spare| spare());
            let spare = spare.filter(|spare| spare.v6 == peer.is_ipv6());
            let watched = spare.is_some();
            let socket = match spare {
                Some(spare) => spare.socket,
                None => open(Domain::for_address(*peer)).map_err(|e| trouble("socket", &e))?,
            };
            net::connect(&socket, peer).map_err(|errno| trouble("connect", &errno.into()))?;
            let peer = renews.then_some(*peer);
            let socket = Self {
                socket,
                peer,
                has_fixed_port: false,
            };
            return Ok((socket, watched));
        }
        let (socket, has_fixed_port) = connect(target, bind)?;
        let socket = Self {
            socket,
            peer: None,
            has_fixed_port,
        };
        Ok((socket, false))
    }

    /// The local port, if the system chose one.
    pub(super) fn chosen_port(&self) -> Option<NonZeroU16> {
        if self.has_fixed_port {
            return None;
        }
        let name = net::getsockname(&self.socket).ok()?;
        NonZeroU16::new(SocketAddr::try_from(name).ok()?.port())
    }

    /// Sends `payload` as one datagram.
    pub(super) fn send(&self, payload: &[u8]) -> Result<(), Trouble> {
        for _ in 0..INTERRUPTIONS {
            match net::send(&self.socket, payload, SendFlags::NOSIGNAL) {
                Ok(sent) if sent == payload.len() => return Ok(()),
                Ok(_) => {
                    return Err(Trouble::Failed(Reason::Local {
                        call: "send",
                        errno: Errno::MSGSIZE.raw_os_error(),
                    }));
                }
                Err(Errno::INTR) => (),
                Err(errno) => return Err(trouble("send", &errno.into())),
            }
        }
        Err(Trouble::Wait)
    }

    /// Takes one datagram, and tells its length. What does not fit into `buffer` is cut off, and only on Linux
    /// part of the length then.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        for _ in 0..INTERRUPTIONS {
            let taken = match self.peer {
                None => net::recv(&self.socket, &mut *buffer, LENGTH).map(|(_, length)| length),
                // The kernel may have been about to add one more to what was there for the attempt before.
                Some(peer) => match net::recvfrom(&self.socket, &mut *buffer, LENGTH) {
                    Ok((_, length, from)) => {
                        if !from.is_some_and(|from| is(from, peer)) {
                            continue;
                        }
                        Ok(length)
                    }
                    Err(errno) => Err(errno),
                },
            };
            match taken {
                Err(Errno::INTR) => (),
                other => return Ok(other?),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// It is watched in another way than a spare one is.
    pub(super) fn is_not_to_be_renewed(&mut self) {
        self.peer = None;
    }

    /// The socket without its peer, its port and whatever was about to be read; none if it cannot be had so.
    /// The next one that it is connected to sees another port: all that another socket would be.
    pub(super) fn renew(self) -> Option<Spare> {
        let v6 = self.peer?.is_ipv6();
        part(&self.socket).ok()?;
        let left = net::recv(&self.socket, &mut [0; 1], RecvFlags::empty());
        (left == Err(Errno::AGAIN)).then_some(Spare {
            socket: self.socket,
            v6,
        })
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Asks for the length of a datagram, also of one that is cut.
const LENGTH: RecvFlags = if cfg!(target_os = "linux") {
    RecvFlags::TRUNC
} else {
    RecvFlags::empty()
};

/// Whether a socket connected to `peer` can be renewed, which takes half of what closing it and opening another
/// does. Not if the kernel may take `peer` for another address than it is.
fn renews(peer: SocketAddr) -> bool {
    let other = match peer.ip() {
        IpAddr::V4(ip) => ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_unspecified() || ip.to_ipv4_mapped().is_some(),
    };
    cfg!(target_os = "linux") && !other
}

#[cfg(target_os = "linux")]
fn part(socket: &Socket) -> rustix::io::Result<()> {
    net::connect_unspec(socket)
}

#[cfg(not(target_os = "linux"))]
fn part(_socket: &Socket) -> rustix::io::Result<()> {
    Err(Errno::NOTSUP)
}

/// Whether a datagram came from `peer`. The kernel may have filled in a scope that the peer was told without.
fn is(from: SocketAddrAny, peer: SocketAddr) -> bool {
    SocketAddr::try_from(from)
        .is_ok_and(|from| (from.ip(), from.port()) == (peer.ip(), peer.port()))
}

/// A connected socket, and whether its local port is what `bind` says.
fn connect(target: &Address, bind: Option<&BindConfig>) -> Result<(Socket, bool), Trouble> {
    let (domain, peer) = match target {
        Address::Ip(address) => (Domain::for_address(*address), SockAddr::from(*address)),
        Address::Pipe(path) => {
            let path = path.strip_prefix('@').map_or_else(
                || path.to_string(),
                |abstract_name| format!("\0{abstract_name}"),
            );
            let peer = SockAddr::unix(path).map_err(|error| trouble("connect", &error))?;
            (Domain::UNIX, peer)
        }
        Address::Internal(_) => {
            let reason = "a listener inside an Envoy cannot be checked";
            return Err(Trouble::Failed(Reason::Other(reason.into())));
        }
    };
    let socket = open(domain).map_err(|error| trouble("socket", &error))?;
    let mut has_fixed_port = false;
    if let (Some(bind), Address::Ip(address)) = (bind, target) {
        options(&socket, bind, *address, false)?;
        if let Some(source) = bind.source_for(*address) {
            has_fixed_port = source.port() != 0;
            if !has_fixed_port {
                postpone_port(&socket).map_err(|error| trouble("setsockopt", &error))?;
            }
            socket.bind(&source.into()).map_err(|error| {
                match trouble("bind", &error) {
                    // That attempts without a port of their own go on is not changed by it.
                    Trouble::Short(Shortage::Ports) if has_fixed_port => Trouble::Taken,
                    trouble => trouble,
                }
            })?;
        }
        options(&socket, bind, *address, true)?;
    }
    socket
        .connect(&peer)
        .map_err(|error| trouble("connect", &error))?;
    Ok((socket, has_fixed_port))
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn open(domain: Domain) -> io::Result<Socket> {
    Socket::new(domain, Type::DGRAM.nonblocking(), None)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn open(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Has the port chosen by `connect`, when the peer is known, not by `bind`.
#[cfg(target_os = "linux")]
fn postpone_port(socket: &Socket) -> io::Result<()> {
    let yes = 1_i32.to_ne_bytes();
    crate::sockopt::set(
        socket,
        libc::IPPROTO_IP,
        libc::IP_BIND_ADDRESS_NO_PORT,
        &yes,
    )
}

#[cfg(not(target_os = "linux"))]
fn postpone_port(_socket: &Socket) -> io::Result<()> {
    Ok(())
}

fn options(
    socket: &Socket,
    bind: &BindConfig,
    target: SocketAddr,
    after_bind: bool,
) -> Result<(), Trouble> {
    for option in bind.options_for(target) {
        if option.after_bind == after_bind {
            crate::sockopt::set(socket, option.level, option.name, &option.value)
                .map_err(|error| trouble("setsockopt", &error))?;
        }
    }
    Ok(())
}

/// What the error of a system call means for an attempt.
pub(super) fn trouble(call: &'static str, error: &io::Error) -> Trouble {
    let Some(errno) = error.raw_os_error() else {
        return Trouble::Failed(Reason::Other(error.to_string().into()));
    };
    match Errno::from_raw_os_error(errno) {
        Errno::MFILE | Errno::NFILE => Trouble::Short(Shortage::Descriptors),
        Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC => Trouble::Short(Shortage::Buffers),
        Errno::ADDRINUSE => Trouble::Short(Shortage::Ports),
        // Without a local port to be had, connect() says EAGAIN.
        Errno::AGAIN if call == "connect" => Trouble::Short(Shortage::Ports),
        Errno::AGAIN => Trouble::Wait,
        Errno::CONNREFUSED => Trouble::Failed(Reason::Refused),
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::HOSTDOWN => {
            Trouble::Failed(Reason::Unreachable(errno))
        }
        _ => Trouble::Failed(Reason::Local { call, errno }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(call: &'static str, errno: Errno) -> Option<Shortage> {
        match trouble(call, &errno.into()) {
            Trouble::Short(what) => Some(what),
            Trouble::Wait | Trouble::Taken | Trouble::Failed(_) => None,
        }
    }

    #[test]
    fn what_we_run_out_of_is_not_the_hosts_fault() {
        assert_eq!(short("socket", Errno::MFILE), Some(Shortage::Descriptors));
        assert_eq!(short("socket", Errno::NFILE), Some(Shortage::Descriptors));
        assert_eq!(short("connect", Errno::AGAIN), Some(Shortage::Ports));
        assert_eq!(short("bind", Errno::ADDRINUSE), Some(Shortage::Ports));
        assert_eq!(short("send", Errno::NOBUFS), Some(Shortage::Buffers));
        assert_eq!(short("socket", Errno::NOMEM), Some(Shortage::Buffers));
        assert_eq!(short("bind", Errno::ADDRNOTAVAIL), None);
        assert_eq!(short("send", Errno::PERM), None);
    }

    #[test]
    fn the_networks_answers_are_told_apart() {
        let failed = |errno: Errno| match trouble("recv", &errno.into()) {
            Trouble::Failed(reason) => reason.label(),
            Trouble::Wait | Trouble::Taken | Trouble::Short(_) => "none",
        };
        assert_eq!(failed(Errno::CONNREFUSED), "refused");
        assert_eq!(failed(Errno::NETUNREACH), "unreachable");
        assert_eq!(failed(Errno::HOSTUNREACH), "unreachable");
        assert_eq!(failed(Errno::PERM), "local");
    }
}
