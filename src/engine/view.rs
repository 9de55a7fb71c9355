//! What readers see of a cluster at one moment.

use std::sync::Arc;

use crate::snapshot::{HostView, Part};

/// A cluster's hosts and their health, unchanging.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(super) parts: Vec<Arc<Part>>,
}

impl Snapshot {
    #[cfg(any(test, fuzzing))]
    #[cfg_attr(
        not(feature = "hds"),
        expect(dead_code, reason = "for tests of reports")
    )]
    pub(crate) fn of(parts: impl IntoIterator<Item = Part>) -> Self {
        Self {
            parts: parts.into_iter().map(Arc::new).collect(),
        }
    }

    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &HostView> {
        self.parts.iter().flat_map(|part| part.hosts.iter())
    }

    /// The parts that the shards published, for those who read them piece by piece.
    pub fn parts(&self) -> &[Arc<Part>] {
        &self.parts
    }

    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.hosts.len()).sum()
    }

    /// Whether there is no host.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether every host has once completed its first check. It stays so when more hosts come:
    /// [`Snapshot::unchecked`] counts theirs too.
    pub fn initialized(&self) -> bool {
        self.parts.iter().all(|part| part.initialized)
    }

    /// How many first checks are still to be completed, of all hosts that there are.
    pub fn unchecked(&self) -> usize {
        self.parts.iter().map(|part| part.unchecked).sum()
    }

    /// As many parts, without hosts.
    pub(super) fn emptied(&self) -> Self {
        let parts = self.parts.iter().map(|_| Arc::default()).collect();
        Self { parts }
    }
}
