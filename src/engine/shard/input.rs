//! What a shard is told, and how it takes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::{mpsc, oneshot};

use super::lines::{Going, Work};
use super::{Runtime, Shard};
use crate::cluster::{Begun, ClusterId, Update};
use crate::engine::door::Told;
use crate::engine::journal::PastAttempt;
use crate::engine::told::Explanation;
use crate::engine::{clock, running};
use crate::host::Address;
use crate::session::IntervalLimits;
use crate::stats::ClusterStats;

/// Changes taken in one turn.
const INPUTS: usize = 16;
/// What is heard at once.
const HEARD: usize = 256;
/// Hosts of changes looked at in one turn, in a few milliseconds at most.
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
    /// To be told once readers see all that a cluster was told before.
    Published(Arc<str>, oneshot::Sender<()>),
    /// There is nothing more to do; what was told before is left undone too.
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

impl Input {
    /// The cluster that it is about, if it is about one.
    pub(super) fn cluster(&self) -> Option<&Arc<str>> {
        match self {
            Self::Update(update, ..) => Some(match update {
                Update::Cluster { config, .. } => config.key(),
                Update::RemoveCluster(cluster) | Update::HostsUnavailable(cluster) => cluster,
                Update::Reset { cluster, .. }
                | Update::Upsert { cluster, .. }
                | Update::Remove { cluster, .. } => cluster,
            }),
            Self::Traffic(cluster)
            | Self::SetUnhealthy(cluster, ..)
            | Self::Explain(cluster, ..)
            | Self::Published(cluster, _) => Some(cluster),
            Self::Attempts(cluster, ..) => cluster.as_ref(),
            Self::Limits(_) | Self::Stop => None,
        }
    }
}

impl Shard {
    /// Does some of what it was told; false when there is nothing more to do for it. It listens between all that it
    /// does, so its end waits for no more than a piece of a change, and questions neither.
    pub(super) fn take_inputs(&mut self) -> bool {
        let mut hosts = HOSTS;
        for _ in 0..INPUTS {
            if !self.listen() {
                return false;
            }
            let Some((cluster, work)) = self.lines.next() else {
                return true;
            };
            let going = match work {
                Work::Begin(told) => self.take(told),
                Work::GoOn(going) => self.go_on(going, &mut hosts),
            };
            self.lines.end_turn(cluster, going);
            if hosts == 0 {
                return true;
            }
        }
        true
    }

    /// Hears all that it was told since.
    fn listen(&mut self) -> bool {
        for _ in 0..HEARD {
            let open = match self.inputs.try_recv() {
                Ok(told) => self.hear(told),
                Err(mpsc::error::TryRecvError::Empty) => return true,
                Err(mpsc::error::TryRecvError::Disconnected) => false,
            };
            if !open {
                return false;
            }
        }
        true
    }

    /// Does what need not wait; false if there is nothing more to do.
    pub(super) fn hear(&mut self, told: Told) -> bool {
        if matches!(told.input, Input::Stop) {
            return false;
        }
        if let Some(told) = self.lines.push(told) {
            self.take(told);
        }
        true
    }

    /// Makes a change of hosts go on, by up to so many of them.
    fn go_on(&mut self, mut going: Going, hosts: &mut usize) -> Option<Going> {
        let now = clock::now();
        let before = going.reset.looked_at();
        let done = self.clusters.continue_reset(now, &mut going.reset, *hosts);
        *hosts = hosts.saturating_sub(going.reset.looked_at() - before);
        self.act(now);
        let Some(changed) = done else {
            return Some(going);
        };
        if changed {
            going.membership.count();
        }
        None
    }

    /// Does what it was told, or begins it.
    fn take(&mut self, told: Told) -> Option<Going> {
        let now = clock::now();
        let mut going = None;
        match told.input {
            Input::Update(update, runtime, membership) => {
                let name = runtime
                    .as_ref()
                    .map(|runtime| Arc::clone(&runtime.entry.key));
                let removed = match &update {
                    Update::RemoveCluster(name) => self.clusters.id(name),
                    _ => None,
                };
                match self.clusters.begin_update(now, update) {
                    Begun::Done(true) => membership.count(),
                    Begun::Done(false) => (),
                    Begun::Goes(reset) => {
                        going = Some(Going {
                            reset,
                            membership,
                            _room: told.room,
                        });
                    }
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
            Input::Published(name, reply) => self.to_show.push((name, reply)),
            Input::Stop => (),
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
        going
    }

    fn set_runtime(&mut self, id: ClusterId, runtime: Option<Runtime>) {
        if self.runtimes.len() <= id.index() {
            self.runtimes.resize_with(id.index() + 1, || None);
        }
        let place = &mut self.runtimes[id.index()];
        let since = place.as_ref().and_then(|before| before.since);
        let runtime = runtime.map(|runtime| Runtime {
            since: since.or_else(|| Some(clock::now())),
            ..runtime
        });
        let before = std::mem::replace(place, runtime);
        // Its checkers and sinks may go with it.
        running::guard(|| drop(before));
    }
}
