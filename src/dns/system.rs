//! What the system knows of names: `/etc/hosts` and `/etc/resolv.conf`, read anew when they change.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use hickory_resolver::Hosts;
use hickory_resolver::config::{ResolverConfig, ResolverOpts};
use hickory_resolver::system_conf::parse_resolv_conf;

/// The system's name servers, search list and options.
#[derive(Debug, Default)]
pub(super) struct SystemServers {
    pub(super) config: ResolverConfig,
    pub(super) options: ResolverOpts,
}

/// A file that is read anew when it has changed.
#[derive(Debug)]
struct Watched<T> {
    path: PathBuf,
    seen: Option<(SystemTime, u64)>,
    value: Arc<T>,
}

impl<T: Default> Watched<T> {
    fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            seen: None,
            value: Arc::default(),
        }
    }

    /// Reads the file if it is not as it was when last seen; one that cannot be read is as good as empty.
    /// Tells whether it did.
    fn refresh(&mut self, read: impl FnOnce(&mut File) -> io::Result<T>) -> bool {
        let seen = fs::metadata(&self.path).ok();
        let seen = seen.and_then(|file| Some((file.modified().ok()?, file.len())));
        if seen == self.seen {
            return false;
        }
        self.seen = seen;
        let value = File::open(&self.path).and_then(|mut file| read(&mut file));
        self.value = Arc::new(value.unwrap_or_else(|error| {
            tracing::warn!(path = %self.path.display(), %error, "cannot be read");
            T::default()
        }));
        true
    }
}

/// What the system knows of names.
#[derive(Debug)]
pub(super) struct System {
    hosts: Watched<Hosts>,
    servers: Watched<SystemServers>,
}

impl System {
    /// By these files.
    pub(super) fn new(hosts: impl Into<PathBuf>, resolv_conf: impl Into<PathBuf>) -> Self {
        Self {
            hosts: Watched::new(hosts),
            servers: Watched::new(resolv_conf),
        }
    }

    /// The hosts file, as it is now.
    pub(super) fn hosts(&mut self) -> Arc<Hosts> {
        self.hosts.refresh(|file| {
            let mut hosts = Hosts::default();
            hosts.read_hosts_conf(file)?;
            Ok(hosts)
        });
        Arc::clone(&self.hosts.value)
    }

    /// The name servers, as they are now, and whether they have changed.
    pub(super) fn servers(&mut self) -> (Arc<SystemServers>, bool) {
        let changed = self.servers.refresh(|file| {
            let mut text = Vec::new();
            io::Read::read_to_end(file, &mut text)?;
            let (config, options) = parse_resolv_conf(text).map_err(io::Error::other)?;
            Ok(SystemServers { config, options })
        });
        (Arc::clone(&self.servers.value), changed)
    }
}

impl Default for System {
    fn default() -> Self {
        Self::new("/etc/hosts", "/etc/resolv.conf")
    }
}
