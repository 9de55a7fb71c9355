//! What the service manager is told of the daemon's life: the protocol of `sd_notify`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixDatagram;

use rustix::time::{ClockId, clock_gettime};

/// Tells the service manager, if there is one: it names a socket in `NOTIFY_SOCKET`.
#[derive(Debug)]
pub(super) struct Notify(Option<UnixDatagram>);

impl Notify {
    pub(super) fn from_env() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self(None);
        };
        match connect(&name) {
            Ok(socket) => Self(Some(socket)),
            Err(error) => {
                tracing::warn!(?name, %error, "the service manager cannot be told anything");
                Self(None)
            }
        }
    }

    /// Checks go on, by the configuration as it is.
    pub(super) fn ready(&self) {
        self.tell("READY=1");
    }

    /// The configuration is read again; [`Notify::ready`] follows.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The daemon ends.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, state: &str) {
        if let Some(socket) = &self.0
            && let Err(error) = socket.send(state.as_bytes())
        {
            tracing::warn!(state, %error, "the service manager was not told");
        }
    }
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not stop the checks.
    socket.set_nonblocking(true)?;
    #[cfg(target_os = "linux")]
    if let Some(name) = name.as_encoded_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt as _;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        socket.connect_addr(&address)?;
        return Ok(socket);
    }
    socket.connect(name)?;
    Ok(socket)
}
