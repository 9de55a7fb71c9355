//! What a control plane may send at most.

use crate::config::{ConfigError, printable};

/// What a control plane may send at most. An answer that goes beyond is refused, and told so; a message of more
/// than twice the length that is taken ends its stream before it has all come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one message; default 64 MiB. `max_receive_message_length` of a gRPC service comes before it.
    pub message_bytes: usize,
    /// Clusters, of all answers together; default 100,000.
    pub clusters: usize,
    /// Endpoints of all assignments and static clusters together; default 2,000,000.
    pub hosts: usize,
    /// Bytes of the name or the version of a resource; default 4096.
    pub name_bytes: usize,
    /// Bytes of all resources that are kept as they came, the good ones and the refused; default 1 GiB.
    pub kept_bytes: usize,
    /// Streams and files that clusters ask for their endpoints at once, beside the aggregated stream; default 1024.
    pub sources: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 64 << 20,
            clusters: 100_000,
            hosts: 2_000_000,
            name_bytes: 4096,
            kept_bytes: 1 << 30,
            sources: 1024,
        }
    }
}

impl Limits {
    pub(crate) fn hosts(&self, count: usize) -> Result<(), ConfigError> {
        if count <= self.hosts {
            return Ok(());
        }
        let reason = format!(
            "{count} endpoints in all, but at most {} are taken",
            self.hosts
        );
        Err(ConfigError::new("endpoints", reason))
    }

    /// Whether so many bytes may be kept in all.
    pub(crate) fn kept(&self, bytes: usize) -> Result<(), ConfigError> {
        if bytes <= self.kept_bytes {
            return Ok(());
        }
        let most = self.kept_bytes;
        let reason = format!("{bytes} bytes of resources in all, but at most {most} are kept");
        Err(ConfigError::new("", reason))
    }

    /// Whether a version can be kept.
    pub(crate) fn version(&self, version: &str) -> Result<(), ConfigError> {
        if version.len() <= self.name_bytes {
            return Ok(());
        }
        let (length, most) = (version.len(), self.name_bytes);
        let reason = format!("the version is {length} bytes long, but at most {most} are taken");
        Err(ConfigError::new("", reason))
    }

    /// Whether a name can be taken: it is not too long, and has no line of its own in what is printed.
    pub(crate) fn name(&self, name: &str) -> Result<(), ConfigError> {
        printable(name).map_err(|reason| ConfigError::new("", reason))?;
        if name.len() <= self.name_bytes {
            return Ok(());
        }
        let reason = format!(
            "is {} bytes long, but at most {} are taken",
            name.len(),
            self.name_bytes
        );
        Err(ConfigError::new("", reason))
    }
}
