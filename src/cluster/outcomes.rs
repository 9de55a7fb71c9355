//! What follows when an attempt ends, or a host is failed from outside.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::members::slots_at;
use super::{Action, ClusterId, Clusters, Notice, SessionId, check_of};
use crate::event::{Failure, FailureType, Outcome, Reason};
use crate::host::{Address, HealthFlags};
use crate::session::{AttemptId, Completion, Session};

impl Clusters {
    /// Reports how an attempt ended; one that does not run is ignored.
    pub fn handle_outcome(
        &mut self,
        now: Instant,
        id: SessionId,
        attempt: AttemptId,
        outcome: Outcome,
        round_trip: Option<Duration>,
    ) {
        let Some(slot) = self.sessions.get_mut(id.index()) else {
            return;
        };
        let Some(cluster) = self.clusters.get(slot.cluster.index()) else {
            return;
        };
        let Some(check) = cluster.checks.get(usize::from(slot.check)) else {
            return;
        };
        let mut random = || self.random.u64(..);
        let mut cx = cluster.context(check, self.limits, &mut random);
        let was = Was::of(&slot.session);
        let had_failed = slot.session.last_passed() == Some(false);
        let Some(completion) = slot.session.handle_outcome(now, attempt, &outcome, &mut cx) else {
            return;
        };
        match &outcome {
            Outcome::Success { .. } => {
                check.stats.success.inc();
                if let Some(rtt) = round_trip {
                    let micros = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX);
                    slot.round_trip_micros = micros.max(1);
                }
            }
            Outcome::Failure(failure) => {
                check.stats.failure.inc();
                check.stats.reasons[failure.reason.index()].inc();
                if matches!(
                    failure.failure_type,
                    FailureType::Network | FailureType::NetworkTimeout
                ) {
                    check.stats.network_failure.inc();
                }
            }
        }
        match slot.session.poll_timeout() {
            Some(at) => self.wheel.set(id.key(), at),
            None => self.wheel.clear(id.key()),
        }
        let failure = match outcome {
            Outcome::Success { .. } => None,
            Outcome::Failure(failure) => Some(failure),
        };
        let several = cluster.checks.len() > 1;
        match &failure {
            Some(failure) if several || !slot.session.failed() => {
                self.failures.insert(id, failure.reason.clone());
            }
            _ if had_failed && !self.failures.is_empty() => {
                self.failures.remove(&id);
            }
            _ => (),
        }
        self.complete(now, id, was, &completion, failure, round_trip);
    }

    /// Fails a host from outside under every check of it, whatever the thresholds: Envoy's passive failure. Tells
    /// whether there is such a host that is checked; others are not failed.
    pub fn set_unhealthy(&mut self, now: Instant, cluster: ClusterId, address: &Address) -> bool {
        let Some(at) = self.clusters.get(cluster.index()) else {
            return false;
        };
        let mut failed = false;
        let hosts = slots_at(&at.part.hosts, address);
        for host in hosts {
            let mut next = self.clusters[cluster.index()].members.session(host);
            while let Some(id) = next {
                // A host pending removal goes with the first of its sessions that fails it.
                let Some(slot) = self.sessions.get_mut(id.index()) else {
                    break;
                };
                next = slot.next;
                let Some(check) = check_of(&self.clusters, slot) else {
                    continue;
                };
                self.failures.remove(&id);
                let failure = Failure::new(FailureType::Passive, Reason::Passive);
                let was = Was::of(&slot.session);
                let completion = slot.session.set_unhealthy(&failure, &check.config);
                check.stats.passive_failure.inc();
                self.complete(now, id, was, &completion, Some(failure), None);
                failed = true;
            }
        }
        failed
    }

    /// What follows from a completion: gauges, flags, events, removal.
    fn complete(
        &mut self,
        now: Instant,
        id: SessionId,
        was: Was,
        completion: &Completion,
        failure: Option<Failure>,
        round_trip: Option<Duration>,
    ) {
        let slot = &self.sessions[id.index()];
        let (cluster_id, host) = (slot.cluster, slot.host);
        let cluster = &mut self.clusters[cluster_id.index()];
        let check = &cluster.checks[usize::from(slot.check)];
        let is = Was::of(&slot.session);
        check.stats.healthy.shift(!was.failed, !is.failed);
        check.stats.degraded.shift(was.degraded, is.degraded);
        if was == is && failure.is_none() && completion.events == [None; 3] {
            // One more success of many: the host's view says so already, and need not be fetched.
            return;
        }
        if was.first_check {
            cluster.unchecked -= 1;
        }
        let Some(view) = cluster.part.hosts.get(host as usize) else {
            return;
        };
        let before = view.flags;
        let position = usize::from(slot.check);
        let mut flags = view.flags.with(HealthFlags::PENDING_ACTIVE_HC, false);
        if let Some(failure) = &failure
            && failure.immediate
        {
            flags = flags.with(HealthFlags::EXCLUDED_VIA_IMMEDIATE_HC_FAIL, true);
        }
        let (failed, degraded) = (view.failed(), view.degraded());
        let reason = failure.as_ref().filter(|_| is.failed);
        let reason = reason.map(|failure| failure.reason.clone());
        self.refresh(now, cluster_id, host, flags, reason);
        let cluster = &self.clusters[cluster_id.index()];
        let Some(view) = cluster.part.hosts.get(host as usize) else {
            return;
        };
        let check = &cluster.checks[position];
        for kind in completion.events.into_iter().flatten() {
            self.actions.push_back(Action::Event(Notice {
                cluster: cluster_id,
                check: position,
                name: Arc::clone(&cluster.config.name),
                check_name: Arc::clone(&check.config.name),
                host: Arc::clone(&view.host),
                kind,
                transition: completion.transition,
                before,
                after: view.flags,
                reason: failure.as_ref().map(|f| f.reason.clone()),
                round_trip,
            }));
        }
        cluster.stats.healthy.shift(!failed, !view.failed());
        cluster.stats.degraded.shift(degraded, view.degraded());
        if view.failed() && view.flags.intersects(HealthFlags::PENDING_DYNAMIC_REMOVAL) {
            self.remove_host(now, cluster_id, host);
            let cluster = &self.clusters[cluster_id.index()];
            cluster.stats.membership.change.inc();
        }
        self.settle(cluster_id);
    }

    /// Makes a host's view and the membership equal what its sessions and `flags`, the rest, say.
    pub(super) fn refresh(
        &mut self,
        now: Instant,
        id: ClusterId,
        host: u32,
        flags: HealthFlags,
        reason: Option<Reason>,
    ) {
        let Some(cluster) = self.clusters.get_mut(id.index()) else {
            return;
        };
        let (mut failed, mut degraded, mut timed_out, mut unknown) = (false, false, false, false);
        let mut next = cluster.members.session(host);
        let checked = next.is_some();
        while let Some(slot) = next.and_then(|id| self.sessions.get(id.index())) {
            failed |= slot.session.failed();
            degraded |= slot.session.degraded();
            timed_out |= slot.session.timed_out();
            unknown |= !slot.session.known();
            next = slot.next;
        }
        let Some(view) = cluster.part.hosts.get(host as usize) else {
            return;
        };
        let flags = flags
            .with(HealthFlags::FAILED_ACTIVE_HC, failed)
            .with(HealthFlags::DEGRADED_ACTIVE_HC, degraded)
            .with(HealthFlags::ACTIVE_HC_TIMEOUT, timed_out)
            .with(
                HealthFlags::PENDING_ACTIVE_HC,
                checked && flags.intersects(HealthFlags::PENDING_ACTIVE_HC),
            )
            .with(
                HealthFlags::EXCLUDED_VIA_IMMEDIATE_HC_FAIL,
                failed && flags.intersects(HealthFlags::EXCLUDED_VIA_IMMEDIATE_HC_FAIL),
            );
        let was = view.flags;
        let new_reason = match (failed, reason) {
            (false, _) => view.reason.is_some().then_some(None),
            (true, Some(reason)) if view.reason.as_deref() != Some(&reason) => {
                Some(Some(Arc::new(reason)))
            }
            (true, _) => None,
        };
        if was == flags && view.unchecked == unknown && new_reason.is_none() {
            return;
        }
        cluster.stats.membership.shift(was, flags);
        if let Some(view) = cluster.part.hosts.get_mut(host as usize) {
            if was != flags {
                view.flags = flags;
                view.since = now;
            }
            view.unchecked = unknown;
            if let Some(reason) = new_reason {
                view.reason = reason;
            }
        }
        self.touch(id);
    }

    /// Marks a cluster's view as changed.
    pub(super) fn touch(&mut self, id: ClusterId) {
        if let Some(cluster) = self.clusters.get_mut(id.index())
            && !std::mem::replace(&mut cluster.dirty, true)
        {
            self.dirty.push(id);
        }
    }

    /// A cluster whose hosts are known and all checked once is initialized, and stays so. How many are unchecked is
    /// shown in any case.
    pub(super) fn settle(&mut self, id: ClusterId) {
        let Some(cluster) = self.clusters.get_mut(id.index()) else {
            return;
        };
        let all = cluster.hosts_known && cluster.unchecked == 0;
        let first = all && !cluster.part.initialized;
        cluster.part.initialized |= all;
        if first || cluster.part.unchecked != cluster.unchecked {
            self.touch(id);
        }
    }
}

/// What a session's verdict was before a completion.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Was {
    failed: bool,
    degraded: bool,
    first_check: bool,
}

impl Was {
    fn of(session: &Session) -> Self {
        Self {
            failed: session.failed(),
            degraded: session.degraded(),
            first_check: session.first_check(),
        }
    }
}
