//! The socket of a UDP attempt, and what its errors mean.

use std::io::{self, Read};
use std::net::SocketAddr;

use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

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
    /// The attempt has failed.
    Failed(Reason),
}

/// A socket connected to `target`, bound as `bind` says.
pub(super) fn connect(target: &Address, bind: Option<&BindConfig>) -> Result<Socket, Trouble> {
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
    if let (Some(bind), Address::Ip(address)) = (bind, target) {
        options(&socket, bind, *address, false)?;
        if let Some(source) = bind.source_for(*address) {
            if source.port() == 0 {
                postpone_port(&socket).map_err(|error| trouble("setsockopt", &error))?;
            }
            socket
                .bind(&source.into())
                .map_err(|error| trouble("bind", &error))?;
        }
        options(&socket, bind, *address, true)?;
    }
    socket
        .connect(&peer)
        .map_err(|error| trouble("connect", &error))?;
    Ok(socket)
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

/// Sends `payload` as one datagram.
pub(super) fn send(socket: &Socket, payload: &[u8]) -> Result<(), Trouble> {
    let mut interruptions = 0;
    loop {
        match socket.send(payload) {
            Ok(sent) if sent == payload.len() => return Ok(()),
            Ok(_) => {
                return Err(Trouble::Failed(Reason::Local {
                    call: "send",
                    errno: Errno::MSGSIZE.raw_os_error(),
                }));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                interruptions += 1;
                if interruptions == INTERRUPTIONS {
                    return Err(Trouble::Wait);
                }
            }
            Err(error) => return Err(trouble("send", &error)),
        }
    }
}

/// Takes one datagram; what does not fit into `buffer` is cut off.
pub(super) fn receive(mut socket: &Socket, buffer: &mut [u8]) -> io::Result<usize> {
    for _ in 0..INTERRUPTIONS {
        match socket.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            other => return other,
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
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
            Trouble::Wait | Trouble::Failed(_) => None,
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
            Trouble::Wait | Trouble::Short(_) => "none",
        };
        assert_eq!(failed(Errno::CONNREFUSED), "refused");
        assert_eq!(failed(Errno::NETUNREACH), "unreachable");
        assert_eq!(failed(Errno::HOSTUNREACH), "unreachable");
        assert_eq!(failed(Errno::PERM), "local");
    }
}
