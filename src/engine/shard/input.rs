//! What a shard is told, and how it takes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::{mpsc, oneshot};

use super::{Runtime, Shard};
use crate::cluster::{ClusterId, Update};
use crate::engine::clock;
use crate::engine::journal::PastAttempt;
use crate::engine::told::Explanation;
use crate::host::Address;
use crate::session::IntervalLimits;
use crate::stats::ClusterStats;

/// Changes taken in one turn.
const INPUTS: usize = 16;
/// Hosts of one change looked at in one turn, in a few milliseconds at most.
const HOSTS: usize = 2048;

/// What a driver is told.
pub(in crate::engine) enum Input {
    /// A change of a cluster or its hosts, with what the cluster is run by if that has changed too.
    Update(Update, Option<Runtime>, MembershipChange),
    /// Bounds of all waits set from now on.
    Limits(IntervalLimits),
    /// A cluster has had traffic.
    Traffic(Arc<str>),
    /// A host is unhealthy; whether there is one that is checked.
    SetUnhealthy(Arc<str>, Address, oneshot::Sender<bool>),
    /// What the hosts at an address are up to, with so many of their last attempts.
    Explain(Arc<str>, Address, usize, oneshot::Sender<Vec<Explanation>>),
    /// So many of the last attempts, of one cluster or of all.
    Attempts(Option<Arc<str>>, usize, oneshot::Sender<Vec<PastAttempt>>),
    /// To be told once readers see all that came before.
    Published(oneshot::Sender<()>),
    /// There is nothing more to do.
    Stop,
}

/// A change that several shards are told counts once in `membership_change`, if it changed hosts at all.
#[derive(Clone)]
pub(in crate::engine) struct MembershipChange(Arc<(AtomicBool, Option<Arc<ClusterStats>>)>);

impl MembershipChange {
    pub(in crate::engine) fn new(stats: Option<Arc<ClusterStats>>) -> Self {
        Self(Arc::new((AtomicBool::new(false), stats)))
    }

    fn count(&self) {
        let (counted, stats) = &*self.0;
        if let Some(stats) = stats
            && !counted.swap(true, Relaxed)
        {
            stats.membership.change.inc();
        }
    }
}

impl Shard {
    /// Takes changes that wait; false when there will be no more.
    pub(super) fn take_inputs(&mut self) -> bool {
        for _ in 0..INPUTS {
            if self.reset.is_some() {
                self.continue_reset();
                return true;
            }
            match self.inputs.try_recv() {
                Ok(input) => self.take(input),
                Err(mpsc::error::TryRecvError::Empty) => return true,
                Err(mpsc::error::TryRecvError::Disconnected) => return false,
            }
        }
        true
    }

    fn continue_reset(&mut self) {
        let now = clock::now();
        let Some((reset, membership)) = &mut self.reset else {
            return;
        };
        if let Some(changed) = self.clusters.continue_reset(now, reset, HOSTS) {
            if changed {
                membership.count();
            }
            self.reset = None;
        }
        self.act(now);
    }

    pub(super) fn take(&mut self, input: Input) {
        let now = clock::now();
        match input {
            Input::Update(Update::Reset { cluster, hosts }, _, membership) => {
                let reset = self.clusters.begin_reset(&cluster, hosts);
                self.reset = reset.map(|reset| (reset, membership));
            }
            Input::Update(update, runtime, membership) => {
                let name = runtime
                    .as_ref()
                    .map(|runtime| Arc::clone(&runtime.entry.key));
                let removed = match &update {
                    Update::RemoveCluster(name) => self.clusters.id(name),
                    _ => None,
                };
                if self.clusters.handle_update(now, update) {
                    membership.count();
                }
                if let Some(id) = removed {
                    self.set_runtime(id, None);
                }
                if let (Some(id), Some(runtime)) =
                    (name.and_then(|name| self.clusters.id(&name)), runtime)
                {
                    self.set_runtime(id, Some(runtime));
                }
            }
            Input::Limits(limits) => self.clusters.set_limits(limits),
            Input::Published(reply) => self.to_show.push(reply),
            // What was told before is still taken, then there will be no more.
            Input::Stop => self.inputs.close(),
            Input::Traffic(name) => {
                if let Some(id) = self.clusters.id(&name) {
                    self.clusters.note_traffic(now, id);
                }
            }
            Input::SetUnhealthy(name, address, reply) => {
                let id = self.clusters.id(&name);
                let failed = id.is_some_and(|id| self.clusters.set_unhealthy(now, id, &address));
                // Whoever told may have gone.
                let _ = reply.send(failed);
            }
            Input::Explain(name, address, attempts, reply) => {
                let _ = reply.send(self.explain(&name, &address, attempts));
            }
            Input::Attempts(name, attempts, reply) => {
                let _ = reply.send(self.past_attempts(name.as_deref(), attempts));
            }
        }
        self.act(now);
    }

    fn set_runtime(&mut self, id: ClusterId, runtime: Option<Runtime>) {
        if self.runtimes.len() <= id.index() {
            self.runtimes.resize_with(id.index() + 1, || None);
        }
        let place = &mut self.runtimes[id.index()];
        let since = place.as_ref().and_then(|before| before.since);
        *place = runtime.map(|runtime| Runtime {
            since: since.or_else(|| Some(clock::now())),
            ..runtime
        });
    }
}
