//! Which hosts became eligible and which ceased to be, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Cluster, Snapshot};
use crate::host::Host;
use crate::snapshot::HostView;

/// A host became eligible, or is no longer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EligibleChange {
    /// Load may be sent to it: it passed its first check, or came back, or came and is not checked at all.
    Enters(Arc<Host>),
    /// No load is to be sent to it: its checks ejected it, or a control plane did, or it went.
    Leaves(Arc<Host>),
}

/// The changes of a cluster's eligible hosts: see [`Cluster::eligible_changes`].
#[derive(Debug)]
pub struct EligibleChanges {
    cluster: Cluster,
    changes: watch::Receiver<u64>,
    /// What was compared last.
    seen: Snapshot,
    /// Changes that are still to be told.
    told: VecDeque<EligibleChange>,
}

impl Cluster {
    /// Follows the hosts that load may be sent to: first tells those that there are, then what changes.
    ///
    /// A host enters with its first healthy (or degraded) verdict, never before it was checked, and leaves when
    /// it is ejected. A reader that lags is told the net difference; nothing is kept for it but the snapshot it
    /// saw last. That only the weight, priority or metadata of a host change is not told: see
    /// [`Cluster::changes`]. When the cluster or the engine has ended, all that entered leave, since nobody checks
    /// them.
    pub fn eligible_changes(&self) -> EligibleChanges {
        let mut changes = self.changes();
        // So that the first look is not waited for.
        changes.mark_changed();
        EligibleChanges {
            cluster: self.clone(),
            changes,
            seen: Snapshot::default(),
            told: VecDeque::new(),
        }
    }
}

impl EligibleChanges {
    /// Waits for the next change; none when the cluster was removed or the engine has ended, and all hosts have
    /// left. No change is lost if this is dropped while it waits.
    pub async fn next(&mut self) -> Option<EligibleChange> {
        loop {
            if let Some(change) = self.told.pop_front() {
                return Some(change);
            }
            let goes_on = self.changes.changed().await.is_ok() && !self.cluster.ended();
            let snapshot = if goes_on {
                self.changes.mark_unchanged();
                self.cluster.snapshot()
            } else {
                self.seen.emptied()
            };
            compare(&self.seen, &snapshot, &mut self.told);
            self.seen = snapshot;
            if !goes_on && self.told.is_empty() {
                return None;
            }
        }
    }
}

/// Tells what has changed from `before` to `now`: who leaves first, since one that enters may have moved. Costs
/// a look at what changed.
fn compare(before: &Snapshot, now: &Snapshot, told: &mut VecDeque<EligibleChange>) {
    let mut enters = Vec::new();
    let nothing = Default::default();
    for (index, part) in now.parts().iter().enumerate() {
        let was = before.parts().get(index).unwrap_or(&nothing);
        for slot in part.hosts.changed_slots(&was.hosts) {
            let was = was.hosts.get(slot).filter(|view| view.eligible());
            let is = part.hosts.get(slot).filter(|view| view.eligible());
            match (was, is) {
                (Some(was), Some(is)) if was.host.address == is.host.address => continue,
                _ => (),
            }
            // Several hosts of a static cluster may share an address: it is eligible while one of them is.
            if let Some(view) = was.filter(|view| is_first(before, view) && !has(now, view)) {
                told.push_back(EligibleChange::Leaves(Arc::clone(&view.host)));
            }
            if let Some(view) = is.filter(|view| is_first(now, view) && !has(before, view)) {
                enters.push(EligibleChange::Enters(Arc::clone(&view.host)));
            }
        }
    }
    told.extend(enters);
}

/// The eligible hosts at the address of `view`.
fn eligible_at<'a>(
    snapshot: &'a Snapshot,
    view: &'a HostView,
) -> impl Iterator<Item = &'a HostView> {
    let parts = snapshot.parts().iter();
    let at = parts.flat_map(|part| part.hosts.at(&view.host.address));
    at.filter(|view| view.eligible())
}

fn has(snapshot: &Snapshot, view: &HostView) -> bool {
    eligible_at(snapshot, view).next().is_some()
}

/// Whether `view`, a part of `snapshot`, is the one that speaks for its address.
fn is_first(snapshot: &Snapshot, view: &HostView) -> bool {
    eligible_at(snapshot, view)
        .next()
        .is_some_and(|first| std::ptr::eq(first, view))
}
