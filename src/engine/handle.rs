//! What a [`Cluster`] handle tells the shards, and asks of them.
//!
//! What all shards are told is sent once there is room at each of them, so a call that is dropped while it
//! waits has done nothing, and under a lock that is never held while waiting, so that each shard gets all
//! changes in one order.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;

use super::door::{Door, Room};
use super::entry::Entry;
use super::shard::{Input, MembershipChange};
use super::{Cluster, Ended, Explanation, Inner, PastAttempt, Snapshot};
use crate::cluster::{Share, Update};
use crate::feed::Events;
use crate::host::{Address, Host};

/// Of its last attempts, how many a host is explained with at most.
const EXPLAINED: usize = 100;

impl Cluster {
    /// Waits until every host has completed its first check, or was failed from outside before, and gives the
    /// snapshot that shows it: the hosts of all calls that ended before this one, and those that come while it waits.
    /// To be called after each
    /// [`reset`](Cluster::reset) or [`upsert`](Cluster::upsert) whose hosts are to be waited for. A cluster of
    /// [`Discovery::Dynamic`](crate::config::Discovery::Dynamic) that was told of none yet is waited for: one that is to
    /// have none is told so by an empty `reset`.
    ///
    /// # Errors
    ///
    /// When the engine has ended or the cluster was removed, before or meanwhile.
    pub async fn initialized(&self) -> Result<Snapshot, Ended> {
        let mut changes = self.changes();
        self.published().await?;
        loop {
            let snapshot = self.snapshot();
            if self.ended() {
                return Err(Ended);
            }
            if snapshot.initialized() && snapshot.unchecked() == 0 {
                return Ok(snapshot);
            }
            changes.changed().await.map_err(|_| Ended)?;
        }
    }

    /// Waits until all shards have done what they were told of it before, and have shown it.
    async fn published(&self) -> Result<(), Ended> {
        let key = &self.entry.key;
        let doors = self.doors()?;
        let question = |reply| Input::Published(Arc::clone(key), reply);
        ask(&doors, question).await.map(drop)
    }

    /// What its checks do from now on: verdicts that change, first failures, and each attempt where the check is
    /// configured to log it. An event may come a few milliseconds before the snapshot shows what it tells.
    ///
    /// That a host came, went or was changed by a control plane is no event: [`Cluster::changes`] tells of it.
    pub fn events(&self) -> Events {
        match self.entry.live.upgrade() {
            Some(live) => live.events.follow(),
            None => Events::ended(),
        }
    }

    /// The hosts are these, and no others. Hosts that are there already keep their verdict and schedule.
    ///
    /// **One that is not told any longer stays, and is eligible, as long as it passes its checks**: Envoy's rule. For
    /// it to go at once, as one that fails does, the cluster is to be configured
    /// [`with_ignore_health_on_host_removal`](crate::config::ClusterConfig::with_ignore_health_on_host_removal).
    ///
    /// For clusters of [`Discovery::Dynamic`](crate::config::Discovery::Dynamic): the hosts of a static one are
    /// those of its configuration again with the next [`set_cluster`](super::Engine::set_cluster), and those that leave
    /// it go at once. A host is its
    /// address: of several at one address the first counts, as with Envoy.
    ///
    /// The last word counts: changes of the cluster's hosts that were told before and not begun are left out.
    ///
    /// # Errors
    ///
    /// When the engine has ended or the cluster was removed.
    pub async fn reset(
        &self,
        hosts: impl IntoIterator<Item = impl Into<Arc<Host>>>,
    ) -> Result<(), Ended> {
        let hosts: Arc<[Arc<Host>]> = hosts.into_iter().map(Into::into).collect();
        let cluster = self.key();
        self.change(|| Update::Reset {
            cluster: Arc::clone(cluster),
            hosts: Arc::clone(&hosts),
        })
        .await
    }

    /// These hosts came, or changed. Others stay. For clusters of the kind that [`Cluster::reset`] is for. Of several at
    /// one address the first counts.
    ///
    /// # Errors
    ///
    /// When the engine has ended or the cluster was removed.
    pub async fn upsert(
        &self,
        hosts: impl IntoIterator<Item = impl Into<Arc<Host>>>,
    ) -> Result<(), Ended> {
        let hosts: Arc<[Arc<Host>]> = hosts.into_iter().map(Into::into).collect();
        let cluster = self.key();
        self.change(|| Update::Upsert {
            cluster: Arc::clone(cluster),
            hosts: Arc::clone(&hosts),
        })
        .await
    }

    /// The hosts at these addresses went: at once if they fail. **One that passes its checks stays, and is eligible,
    /// until it fails them**, unless the cluster was configured to have it go, as [`Cluster::reset`] says.
    ///
    /// # Errors
    ///
    /// When the engine has ended or the cluster was removed.
    pub async fn remove(
        &self,
        addresses: impl IntoIterator<Item = impl Into<Address>>,
    ) -> Result<(), Ended> {
        let addresses: Arc<[Address]> = addresses.into_iter().map(Into::into).collect();
        let cluster = self.key();
        self.change(|| Update::Remove {
            cluster: Arc::clone(cluster),
            addresses: Arc::clone(&addresses),
        })
        .await
    }

    /// The cluster has had traffic: the no-traffic intervals no longer rule, and waits by them are cut short.
    /// Envoy lets those finish.
    ///
    /// To be called as often as is convenient: after the first call it is a look at a flag.
    ///
    /// # Errors
    ///
    /// When the engine has ended or the cluster was removed, if it is the first call.
    pub async fn note_traffic(&self) -> Result<(), Ended> {
        if self.entry.traffic.load(Relaxed) {
            return Ok(());
        }
        for room in room_to_ask(&self.doors()?).await? {
            room.tell(Input::Traffic(Arc::clone(&self.entry.key)));
        }
        self.entry.traffic.store(true, Relaxed);
        Ok(())
    }

    /// The same for those who cannot wait, as in a per-packet path: false when the shards have too much to do to
    /// be told now. The next packet's call tries again.
    ///
    /// # Errors
    ///
    /// As [`Cluster::note_traffic`].
    pub fn try_note_traffic(&self) -> Result<bool, Ended> {
        if self.entry.traffic.load(Relaxed) {
            return Ok(true);
        }
        for door in &*self.doors()? {
            // Shards that have been told before do nothing when they are told again.
            match door.room_now()? {
                Some(room) => room.tell(Input::Traffic(Arc::clone(&self.entry.key))),
                None => return Ok(false),
            }
        }
        self.entry.traffic.store(true, Relaxed);
        Ok(true)
    }

    /// Fails the hosts at `address` from outside, until checks pass them again: for a proxy that saw them fail.
    /// Tells whether it did: not if there is no host at this address, nor if it is not checked, since nothing would
    /// bring it back. When it returns, readers see it.
    ///
    /// If this is dropped while it waits for the answer, it may have been done all the same.
    ///
    /// # Errors
    ///
    /// When the engine has ended or the cluster was removed.
    pub async fn set_unhealthy(&self, address: &Address) -> Result<bool, Ended> {
        let key = || Arc::clone(&self.entry.key);
        let question = |reply| Input::SetUnhealthy(key(), address.clone(), reply);
        let failed = self.ask_shard_of(address, question).await?;
        if failed {
            let shown = |reply| Input::Published(key(), reply);
            self.ask_shard_of(address, shown).await?;
        }
        Ok(failed)
    }

    /// All that is known of the hosts at `address`; empty if there is none. The shard that checks them is asked,
    /// so it costs hosts nothing.
    ///
    /// # Errors
    ///
    /// When the engine has ended or the cluster was removed.
    pub async fn explain(&self, address: &Address) -> Result<Vec<Explanation>, Ended> {
        let key = &self.entry.key;
        let question = |reply| Input::Explain(Arc::clone(key), address.clone(), EXPLAINED, reply);
        self.ask_shard_of(address, question).await
    }

    /// So many of its last attempts, the newest first; none unless they are noted: see
    /// [`Options::with_journal`](super::Options::with_journal).
    ///
    /// # Errors
    ///
    /// When the engine has ended or the cluster was removed.
    pub async fn attempts(&self, most: usize) -> Result<Vec<PastAttempt>, Ended> {
        past_attempts(&self.doors()?, Some(self.key()), most).await
    }

    async fn change(&self, update: impl Fn() -> Update) -> Result<(), Ended> {
        let doors = self.doors()?;
        let room = room(&doors).await?;
        let engine = self.engine()?;
        let _order = engine.order.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have been removed just now.
        if !engine.has(&self.entry) {
            return Err(Ended);
        }
        change(room, &self.entry, update);
        Ok(())
    }

    /// Asks the shard that has the hosts at `address`. Its door is not held while the answer is waited for.
    async fn ask_shard_of<T>(
        &self,
        address: &Address,
        question: impl FnOnce(oneshot::Sender<T>) -> Input,
    ) -> Result<T, Ended> {
        let (reply, answer) = oneshot::channel();
        {
            let doors = self.doors()?;
            let door = doors.get(Share::of(address, doors.len())).ok_or(Ended)?;
            door.room_to_ask().await?.tell(question(reply));
        }
        answer.await.map_err(|_| Ended)
    }

    /// The ways in to the shards: who waits there does not keep the engine.
    fn doors(&self) -> Result<Arc<[Door]>, Ended> {
        Ok(Arc::clone(&self.engine()?.shards))
    }

    /// The engine, if it goes on and still has the cluster.
    fn engine(&self) -> Result<Arc<Inner>, Ended> {
        let engine = self.engine.upgrade().ok_or(Ended)?;
        if engine.has(&self.entry) {
            Ok(engine)
        } else {
            Err(Ended)
        }
    }
}

impl Inner {
    /// Whether this is the cluster that it has under the name.
    fn has(&self, entry: &Arc<Entry>) -> bool {
        let clusters = self.clusters.read().unwrap_or_else(PoisonError::into_inner);
        let known = clusters.get(&entry.key);
        known.is_some_and(|known| Arc::ptr_eq(known, entry))
    }
}

/// Room for one change at each shard.
pub(super) async fn room(shards: &[Door]) -> Result<Vec<Room<'_>>, Ended> {
    let mut room = Vec::with_capacity(shards.len());
    // All wait for them in the same order, so nobody holds what another waits for in turn.
    for shard in shards {
        room.push(shard.room().await?);
    }
    Ok(room)
}

/// The same for what is done at once.
pub(super) async fn room_to_ask(shards: &[Door]) -> Result<Vec<Room<'_>>, Ended> {
    let mut room = Vec::with_capacity(shards.len());
    for shard in shards {
        room.push(shard.room_to_ask().await?);
    }
    Ok(room)
}

/// Tells all shards of a change of a cluster's hosts.
pub(super) fn change(room: Vec<Room<'_>>, entry: &Entry, update: impl Fn() -> Update) {
    let stats = entry.cluster_stats();
    let membership = MembershipChange::new(Some(stats));
    for shard in room {
        shard.tell(Input::Update(update(), None, membership.clone()));
    }
}

pub(super) async fn past_attempts(
    shards: &[Door],
    cluster: Option<&Arc<str>>,
    most: usize,
) -> Result<Vec<PastAttempt>, Ended> {
    let question = |reply| Input::Attempts(cluster.cloned(), most, reply);
    let answers = ask(shards, question).await?;
    let mut past: Vec<_> = answers.into_iter().flatten().collect();
    past.sort_by_key(|attempt| std::cmp::Reverse(attempt.at));
    past.truncate(most);
    Ok(past)
}

/// Puts a question to each of some shards, and waits for all answers.
async fn ask<T>(
    shards: &[Door],
    question: impl Fn(oneshot::Sender<T>) -> Input,
) -> Result<Vec<T>, Ended> {
    let mut waiting = Vec::with_capacity(shards.len());
    for shard in shards {
        let (reply, answer) = oneshot::channel();
        shard.room_to_ask().await?.tell(question(reply));
        waiting.push(answer);
    }
    let mut answers = Vec::with_capacity(waiting.len());
    for answer in waiting {
        answers.push(answer.await.map_err(|_| Ended)?);
    }
    Ok(answers)
}
