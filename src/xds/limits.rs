//! What a control plane may send at most.

use crate::config::ConfigError;

/// What a control plane may send at most. An answer that goes beyond is refused, and told so; a message of more
/// than twice the length that is taken ends its stream before it has all come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one message; default 64 MiB. `max_receive_message_length` of a gRPC service comes before it.
    pub message_bytes: usize,
    /// Clusters, of all answers together; default 100,000.
    pub clusters: usize,
    /// Endpoints of all assignments together, or of one static cluster; default 2,000,000.
    pub hosts: usize,
    /// Bytes of the name of a resource; default 4096.
    pub name_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 64 << 20,
            clusters: 100_000,
            hosts: 2_000_000,
            name_bytes: 4096,
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

    pub(crate) fn name(&self, name: &str) -> Result<(), ConfigError> {
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
