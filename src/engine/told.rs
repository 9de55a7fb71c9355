//! What a shard tells whoever asks: why a host is as it is, and what the last attempts came to.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::clock;
use super::journal::{Entry, Journal, PastAttempt};
use super::shard::{Runtime, Shard, runtime_of};
use crate::cluster::SessionView;
use crate::host::Address;
use crate::snapshot::HostView;

/// A host with all that is known of its checks.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The host, its flags, since when and why.
    pub view: HostView,
    /// What each of its checks is up to, in the order of the cluster's checks; none if it is not checked.
    pub sessions: Vec<SessionView>,
    /// Its last attempts, the newest first, if the engine notes them: see
    /// [`Options::with_journal`](super::Options::with_journal).
    pub attempts: Vec<PastAttempt>,
}

impl Runtime {
    /// What the journal knows the host at `address` of this cluster by.
    pub(super) fn tag(&self, address: &Address) -> u32 {
        let mixed = address.hash64() ^ self.entry.tag;
        // Either half of a hash is as good as the other.
        u32::try_from(mixed >> 32).unwrap_or_default()
    }

    /// What the journal knows the check at a position by.
    pub(super) fn check_tag(&self, position: usize) -> u16 {
        let check = self.config.health_checks.get(position);
        // A check without a name is the only one of its cluster, most often.
        check
            .filter(|check| !check.name.is_empty())
            .map_or(0, |check| name_tag(&check.name))
    }

    fn check_name(&self, tag: u16) -> Arc<str> {
        let checks = &self.config.health_checks;
        let found = (0..checks.len()).find(|position| self.check_tag(*position) == tag);
        found
            .and_then(|position| checks.get(position))
            .map_or_else(Arc::default, |check| Arc::clone(&check.name))
    }
}

impl Shard {
    pub(super) fn explain(
        &self,
        cluster: &str,
        address: &Address,
        attempts: usize,
    ) -> Vec<Explanation> {
        let Some(id) = self.clusters.id(cluster) else {
            return Vec::new();
        };
        let past = match (&self.journal, runtime_of(&self.runtimes, id)) {
            (Some(journal), Some(runtime)) => {
                let tag = runtime.tag(address);
                let of_host = |entry: &&Entry| entry.cluster == id && entry.tag == tag;
                self.tell(journal, of_host, attempts)
            }
            _ => Vec::new(),
        };
        let hosts = self.clusters.explain_hosts(id, address).into_iter();
        hosts
            .map(|(view, sessions)| Explanation {
                attempts: past
                    .iter()
                    .filter(|past| past.host.as_ref().is_some_and(|host| **host == *view.host))
                    .cloned()
                    .collect(),
                view,
                sessions,
            })
            .collect()
    }

    pub(super) fn past_attempts(&self, cluster: Option<&str>, most: usize) -> Vec<PastAttempt> {
        let Some(journal) = &self.journal else {
            return Vec::new();
        };
        let Some(name) = cluster else {
            return self.tell(journal, |_| true, most);
        };
        match self.clusters.id(name) {
            Some(id) => self.tell(journal, |entry| entry.cluster == id, most),
            None => Vec::new(),
        }
    }

    fn tell(
        &self,
        journal: &Journal,
        wanted: impl Fn(&&Entry) -> bool,
        most: usize,
    ) -> Vec<PastAttempt> {
        let (now, wall) = (clock::now(), clock::wall());
        let entries = journal.newest_first().filter(wanted);
        entries
            .filter_map(|entry| {
                let runtime = runtime_of(&self.runtimes, entry.cluster)?;
                let host = self.clusters.host(entry.cluster, entry.slot);
                let host = host.map(|view| &view.host);
                let host = host.filter(|host| runtime.tag(&host.address) == entry.tag);
                let at = journal.at(entry);
                // An earlier one was of a cluster that had the same name in this shard.
                runtime.since.filter(|since| *since <= at)?;
                Some(PastAttempt {
                    at,
                    timestamp: wall_of(at, now, wall),
                    cluster: Arc::clone(&runtime.entry.name),
                    host: host.cloned(),
                    check: runtime.check_name(entry.check),
                    outcome: entry.outcome(),
                    took: entry.took(),
                })
            })
            .take(most)
            .collect()
    }
}

/// What the wall clock, which says `wall` at `now`, said or will say at an instant.
pub(super) fn wall_of(at: Instant, now: Instant, wall: SystemTime) -> SystemTime {
    let then = match at.checked_duration_since(now) {
        Some(later) => wall.checked_add(later),
        None => wall.checked_sub(now.saturating_duration_since(at)),
    };
    then.unwrap_or(wall)
}

/// Tells clusters apart in the tags of their hosts.
pub(super) fn key_tag(key: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key)
}

fn name_tag(name: &str) -> u16 {
    u16::try_from(key_tag(name) >> 48).unwrap_or_default()
}
