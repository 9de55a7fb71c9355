//! Where the admin port listens.

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};

use tokio::net::{TcpListener, UnixListener};

use super::LAST_ANSWERS;
use crate::admin;
use crate::host::Address;

pub(super) enum AdminPort {
    Tcp(TcpListener),
    Pipe(UnixListener),
}

impl AdminPort {
    /// A socket in the file system has the permissions of `mode`, if it is given.
    pub(super) async fn bind(address: &Address, mode: Option<u32>) -> io::Result<Self> {
        let bound = match address {
            Address::Ip(address) => TcpListener::bind(address).await.map(Self::Tcp),
            Address::Pipe(path) => bind_pipe(path, mode).map(Self::Pipe),
            Address::Internal(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        match bound {
            Ok(Self::Tcp(listener)) => {
                let address = listener.local_addr()?;
                tracing::info!(%address, "admin port open");
                Ok(Self::Tcp(listener))
            }
            Ok(pipe) => Ok(pipe),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("admin port {address}: {error}"),
            )),
        }
    }

    /// Its address, if it is one of TCP.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Pipe(_) => None,
        }
    }

    /// Whether no other machine, and no other browser, reaches it.
    pub(super) fn is_loopback(&self) -> bool {
        self.address().is_some_and(|at| at.ip().is_loopback())
    }

    pub(super) async fn serve(
        self,
        router: axum::Router,
        connections: usize,
        stop: impl Future<Output = ()> + Send,
    ) {
        let limits = admin::Limits::default()
            .with_connections(connections)
            .with_drain_timeout(LAST_ANSWERS);
        match self {
            Self::Tcp(listener) => admin::serve(listener, router, limits, stop).await,
            Self::Pipe(listener) => admin::serve(listener, router, limits, stop).await,
        }
    }
}

/// Listens at a path, or, after an `@`, at an abstract name. A socket that nobody listens at any more, as a
/// daemon leaves it, makes room.
fn bind_pipe(path: &str, mode: Option<u32>) -> io::Result<UnixListener> {
    if let Some(name) = path.strip_prefix('@') {
        return UnixListener::bind(format!("\0{name}"));
    }
    let left = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if left && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    if let Some(mode) = mode {
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(listener)
}
