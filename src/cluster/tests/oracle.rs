//! The rules once more, told as plainly as can be: lists, no wheel, no sharing, everything counted anew.
//!
//! An [`Oracle`] is told what [`Clusters`] was told, and of each attempt that begins or ends. What may differ by
//! chance (jitter, ticks) is held to its bounds; all else has to be the same.

use std::collections::BTreeMap;

use super::*;

/// What is counted under a check's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) attempt: u64,
    pub(super) success: u64,
    pub(super) failure: u64,
    pub(super) network: u64,
    pub(super) passive: u64,
    pub(super) cancelled: u64,
    pub(super) reasons: [u64; Reason::LABELS.len()],
}

/// When a session is due, at the earliest and at the latest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window(pub(super) Instant, pub(super) Instant);

#[derive(Clone, Debug)]
pub(super) enum Phase {
    Waiting(Window),
    Queued,
    Attempting(AttemptId, Instant),
}

#[derive(Clone, Debug)]
pub(super) struct OneSession {
    pub(super) phase: Phase,
    pub(super) successes: u32,
    pub(super) failures: u32,
    pub(super) failed: bool,
    pub(super) degraded: bool,
    pub(super) timed_out: bool,
    pub(super) first: bool,
    pub(super) known: bool,
    /// It waits as though the cluster had no traffic.
    idle: bool,
    /// By the last completion.
    passed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct OneHost {
    pub(super) host: Arc<Host>,
    pub(super) sessions: Vec<OneSession>,
    pub(super) pending_removal: bool,
    pub(super) pending_first: bool,
    pub(super) excluded: bool,
    pub(super) reason: Option<Reason>,
}

#[derive(Debug)]
pub(super) struct OneCluster {
    pub(super) config: Arc<ClusterConfig>,
    /// By slot; slots of hosts that went are used again, the last one first.
    pub(super) hosts: Vec<Option<OneHost>>,
    free: Vec<usize>,
    pub(super) initialized: bool,
    hosts_known: bool,
    traffic: bool,
    pub(super) counts: BTreeMap<Arc<str>, Counts>,
    /// `membership_change`, as far as it follows from checks.
    pub(super) change: u64,
}

/// An event that has to be told: cluster, check, port and what.
pub(super) type Told = (Arc<str>, usize, u16, EventKind);

#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) clusters: BTreeMap<Arc<str>, OneCluster>,
    pub(super) events: Vec<Told>,
}

/// What is known of a reset that is done in steps.
#[derive(Debug)]
pub(super) struct Steps {
    cluster: Arc<str>,
    hosts: Vec<Arc<Host>>,
    stays: Vec<bool>,
    placed: usize,
    retired: usize,
    changed: bool,
}

impl OneHost {
    pub(super) fn failed(&self) -> bool {
        self.sessions.iter().any(|s| s.failed)
    }

    pub(super) fn degraded(&self) -> bool {
        self.sessions.iter().any(|s| s.degraded)
    }

    pub(super) fn flags(&self) -> HealthFlags {
        let timed_out = self.sessions.iter().any(|s| s.timed_out);
        self.host
            .eds_health
            .flag()
            .with(HealthFlags::FAILED_ACTIVE_HC, self.failed())
            .with(HealthFlags::DEGRADED_ACTIVE_HC, self.degraded())
            .with(HealthFlags::ACTIVE_HC_TIMEOUT, timed_out)
            .with(HealthFlags::PENDING_DYNAMIC_REMOVAL, self.pending_removal)
            .with(HealthFlags::PENDING_ACTIVE_HC, self.pending_first)
            .with(HealthFlags::EXCLUDED_VIA_IMMEDIATE_HC_FAIL, self.excluded)
    }

    /// What holds of every host, whatever happened to it last.
    fn tidy(&mut self) {
        self.pending_first &= !self.sessions.is_empty();
        self.excluded &= self.failed();
        if !self.failed() {
            self.reason = None;
        }
    }
}

impl OneSession {
    fn new(now: Instant, before: Option<&Self>, check: &HealthCheck) -> Self {
        let before = before.filter(|session| session.known);
        let jitter = check.initial_jitter;
        let phase = if jitter.is_zero() {
            Phase::Queued
        } else {
            Phase::Waiting(Window(now, now + jitter.max(MS)))
        };
        Self {
            phase,
            successes: 0,
            failures: 0,
            failed: before.is_none_or(|session| session.failed),
            degraded: before.is_some_and(|session| session.degraded),
            timed_out: before.is_some_and(|session| session.timed_out),
            first: true,
            known: before.is_some(),
            idle: false,
            passed: false,
        }
    }

    /// The verdict after an outcome, the events that it is told by, and whether more are needed for a change.
    fn judge(&mut self, outcome: &Outcome, check: &HealthCheck) -> (bool, Vec<EventKind>) {
        let first_check = std::mem::replace(&mut self.first, false);
        self.known = true;
        self.passed = matches!(outcome, Outcome::Success { .. });
        let mut events = Vec::new();
        let mut pending = false;
        match outcome {
            Outcome::Success { degraded } => {
                self.failures = 0;
                let changes = *degraded != self.degraded;
                if first_check {
                    events.push(EventKind::AddHealthy { first_check });
                    self.successes = 0;
                    (self.failed, self.timed_out) = (false, false);
                } else if self.failed {
                    self.successes += 1;
                    if self.successes == check.healthy_threshold {
                        self.successes = 0;
                        (self.failed, self.timed_out) = (false, false);
                        events.push(EventKind::AddHealthy { first_check });
                    } else {
                        pending = true;
                    }
                }
                let told = !events.is_empty();
                if changes {
                    self.degraded = *degraded;
                    events.push(if *degraded {
                        EventKind::Degraded
                    } else {
                        EventKind::NoLongerDegraded
                    });
                }
                if check.always_log_success && !told {
                    events.push(EventKind::Success);
                }
            }
            Outcome::Failure(failure) => {
                self.successes = 0;
                let (failure_type, http_status_code) =
                    (failure.failure_type, failure.http_status_code);
                let counts = match failure_type {
                    FailureType::Network | FailureType::NetworkTimeout => true,
                    FailureType::Active | FailureType::Passive => failure.retriable,
                };
                if !self.failed {
                    self.failures += 1;
                    if first_check || !counts || self.failures == check.unhealthy_threshold {
                        self.failed = true;
                        self.failures = 0;
                        if !first_check {
                            events.push(EventKind::EjectUnhealthy {
                                failure_type,
                                http_status_code,
                            });
                        }
                    } else {
                        pending = true;
                    }
                }
                self.timed_out = self.failed && failure_type == FailureType::NetworkTimeout;
                if first_check || check.always_log_failures {
                    events.push(EventKind::Failure {
                        failure_type,
                        first_check,
                        http_status_code,
                    });
                }
            }
        }
        (pending, events)
    }
}

/// The wait after a completion, and whether it is one for clusters without traffic.
fn wait(success: bool, pending: bool, traffic: Traffic, check: &HealthCheck) -> (Duration, bool) {
    let none = match (success, pending) {
        (true, false) => check.no_traffic_healthy_interval,
        _ => check.no_traffic_interval,
    };
    let some = match (success, pending) {
        (true, false) => check.interval,
        (true, true) => check.healthy_edge_interval,
        (false, false) => check.unhealthy_interval,
        (false, true) => check.unhealthy_edge_interval,
    };
    match traffic {
        Traffic::None => (none, true),
        Traffic::Expected => (none.min(some), none < some),
        Traffic::Had => (some, false),
    }
}

/// When a wait of `base` ends, with its jitter.
fn window(now: Instant, base: Duration, check: &HealthCheck) -> Window {
    let jitter = check.interval_jitter + base * check.interval_jitter_percent / 100;
    Window(now + base, now + base + jitter)
}

/// Which earlier check each check follows, and whether it is the same one.
fn follows(checks: &[Arc<HealthCheck>], before: &[Arc<HealthCheck>]) -> Vec<Option<(usize, bool)>> {
    let mut found: Vec<Option<(usize, bool)>> = vec![None; checks.len()];
    let mut left: Vec<usize> = (0..before.len()).collect();
    for same in [true, false] {
        for (position, check) in checks.iter().enumerate() {
            if found[position].is_some() {
                continue;
            }
            let fits = |old: &&usize| {
                let old = &before[**old];
                old.name == check.name && (!same || old == check)
            };
            let here = left.iter().find(|old| **old == position && fits(old));
            if let Some(old) = here.or_else(|| left.iter().find(fits)).copied() {
                left.retain(|other| *other != old);
                found[position] = Some((old, same));
            }
        }
    }
    found
}

impl OneCluster {
    fn traffic(&self) -> Traffic {
        match (self.traffic, self.initialized) {
            (false, _) => Traffic::None,
            (true, false) => Traffic::Expected,
            (true, true) => Traffic::Had,
        }
    }

    fn unchecked(&self) -> usize {
        let sessions = self.hosts.iter().flatten().flat_map(|h| &h.sessions);
        sessions.filter(|session| session.first).count()
    }

    fn settle(&mut self) {
        self.initialized |= self.hosts_known && self.unchecked() == 0;
    }

    fn cancel(&mut self, name: &Arc<str>, session: &OneSession) {
        if let Phase::Attempting(..) = session.phase {
            self.counts.entry(Arc::clone(name)).or_default().cancelled += 1;
        }
    }

    fn remove(&mut self, slot: usize) {
        let Some(gone) = self.hosts[slot].take() else {
            return;
        };
        let checks = self.config.health_checks.clone();
        for (check, session) in checks.iter().zip(&gone.sessions) {
            self.cancel(&check.name, session);
        }
        self.free.push(slot);
    }

    /// A host that is told no longer: stays while its checks pass, if it was told while running.
    fn retire(&mut self, slot: usize) -> bool {
        let ignore = self.config.ignore_health_on_host_removal
            || matches!(self.config.discovery, Discovery::Static(_));
        let Some(host) = &mut self.hosts[slot] else {
            return false;
        };
        let eds = host.host.eds_health == EdsHealth::Unhealthy;
        if !host.sessions.is_empty() && !host.failed() && !eds && !ignore {
            host.pending_removal = true;
            return false;
        }
        self.remove(slot);
        self.settle();
        true
    }

    fn begin_all(&self, now: Instant) -> Vec<OneSession> {
        let checks = self.config.health_checks.iter();
        checks.map(|c| OneSession::new(now, None, c)).collect()
    }

    fn place(&mut self, now: Instant, told: &Arc<Host>, stays: &mut Vec<bool>, once: bool) -> bool {
        let here = |slot: &usize| {
            let host = self.hosts[*slot].as_ref();
            host.is_some_and(|host| host.host.address == told.address)
        };
        let at: Vec<usize> = (0..self.hosts.len()).filter(here).collect();
        let taken = |slot: usize| stays.get(slot).copied().unwrap_or(true);
        if once && at.iter().any(|slot| taken(*slot)) {
            return false;
        }
        let free: Vec<usize> = at.into_iter().filter(|slot| !taken(*slot)).collect();
        let same_check = |slot: &&usize| {
            let host = self.hosts[**slot].as_ref();
            host.is_some_and(|host| host.host.check_address() == told.check_address())
        };
        if let Some(slot) = free
            .iter()
            .find(same_check)
            .or_else(|| free.first())
            .copied()
        {
            stays[slot] = true;
            self.change(now, slot, told);
            return false;
        }
        let checked = self.config.checks(told);
        let host = OneHost {
            host: Arc::clone(told),
            sessions: if checked {
                self.begin_all(now)
            } else {
                Vec::new()
            },
            pending_removal: false,
            pending_first: checked
                && self.config.ignore_new_hosts_until_first_hc
                && self.initialized,
            excluded: false,
            reason: None,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.hosts.push(None);
            self.hosts.len() - 1
        });
        self.hosts[slot] = Some(host);
        if stays.len() <= slot {
            stays.resize(slot + 1, true);
        }
        stays[slot] = true;
        true
    }

    fn change(&mut self, now: Instant, slot: usize, told: &Arc<Host>) {
        let checks = self.config.health_checks.clone();
        let Some(mut host) = self.hosts[slot].take() else {
            return;
        };
        let old = std::mem::replace(&mut host.host, Arc::clone(told));
        host.pending_removal = false;
        if old.checked_at() != told.checked_at() || old.check_disabled != told.check_disabled {
            for (check, session) in checks.iter().zip(&host.sessions) {
                self.cancel(&check.name, session);
            }
            let before = std::mem::take(&mut host.sessions);
            if !told.check_disabled {
                let anew = checks.iter().enumerate();
                let anew = anew.map(|(at, c)| OneSession::new(now, before.get(at), c));
                host.sessions = anew.collect();
            }
        }
        host.tidy();
        self.hosts[slot] = Some(host);
        self.settle();
    }

    fn change_checks(&mut self, now: Instant, config: Arc<ClusterConfig>, anew: bool) {
        let before = self.config.health_checks.clone();
        let checks = config.health_checks.clone();
        self.config = config;
        let follows = follows(&checks, &before);
        for slot in 0..self.hosts.len() {
            let Some(mut host) = self.hosts[slot].take() else {
                continue;
            };
            if !host.host.check_disabled {
                let old = std::mem::take(&mut host.sessions);
                let all = old.iter().find(|s| s.failed).or_else(|| old.last());
                let mut kept = vec![false; old.len()];
                for (check, follows) in checks.iter().zip(&follows) {
                    let earlier = follows.and_then(|(at, same)| Some((at, same, old.get(at)?)));
                    host.sessions.push(match earlier {
                        Some((at, true, session)) if !anew => {
                            kept[at] = true;
                            session.clone()
                        }
                        Some((_, _, session)) => OneSession::new(now, Some(session), check),
                        None => OneSession::new(now, all, check),
                    });
                }
                for ((check, session), kept) in before.iter().zip(&old).zip(kept) {
                    if !kept && !anew {
                        self.cancel(&check.name, session);
                    }
                }
            }
            host.tidy();
            self.hosts[slot] = Some(host);
        }
        let names: Vec<_> = checks.iter().map(|c| &c.name).collect();
        self.counts.retain(|name, _| names.contains(&name));
        if anew {
            self.counts.clear();
            self.change = 0;
        }
        self.settle();
    }
}

impl Oracle {
    /// Whether hosts came or went.
    pub(super) fn set(&mut self, now: Instant, config: &Arc<ClusterConfig>) -> bool {
        let key = Arc::clone(config.key());
        let mut changed = false;
        if let Some(cluster) = self.clusters.get_mut(&key) {
            let anew = cluster.config.stat_name() != config.stat_name();
            cluster.change_checks(now, Arc::clone(config), anew);
            if config.health_checks.is_empty() || config.ignore_health_on_host_removal {
                for slot in 0..cluster.hosts.len() {
                    let host = cluster.hosts[slot].as_ref();
                    if host.is_some_and(|host| host.pending_removal) {
                        changed |= cluster.retire(slot);
                    }
                }
            }
        } else {
            let cluster = OneCluster {
                config: Arc::clone(config),
                hosts: Vec::new(),
                free: Vec::new(),
                initialized: false,
                hosts_known: false,
                traffic: false,
                counts: BTreeMap::new(),
                change: 0,
            };
            self.clusters.insert(Arc::clone(&key), cluster);
        }
        if let Discovery::Static(hosts) = &config.discovery {
            changed |= self.reset(now, &key, hosts);
        }
        changed
    }

    pub(super) fn reset(&mut self, now: Instant, name: &str, hosts: &[Arc<Host>]) -> bool {
        let Some(mut steps) = self.begin(name, hosts) else {
            return false;
        };
        loop {
            if let Some(changed) = self.step(now, &mut steps, usize::MAX, |_| true) {
                return changed;
            }
        }
    }

    pub(super) fn begin(&self, name: &str, hosts: &[Arc<Host>]) -> Option<Steps> {
        let (key, cluster) = self.clusters.get_key_value(name)?;
        Some(Steps {
            cluster: Arc::clone(key),
            hosts: hosts.to_vec(),
            stays: vec![false; cluster.hosts.len()],
            placed: 0,
            retired: 0,
            changed: false,
        })
    }

    /// Does more of a reset, of which `mine` tells the hosts that are this driver's.
    pub(super) fn step(
        &mut self,
        now: Instant,
        steps: &mut Steps,
        limit: usize,
        mine: impl Fn(&Host) -> bool,
    ) -> Option<bool> {
        let cluster = self.clusters.get_mut(&steps.cluster)?;
        let once = !matches!(cluster.config.discovery, Discovery::Static(_));
        let rest = &steps.hosts[steps.placed..];
        if !rest.is_empty() {
            for host in rest.iter().take(limit) {
                if mine(host) {
                    steps.changed |= cluster.place(now, host, &mut steps.stays, once);
                }
                steps.placed += 1;
            }
            return None;
        }
        let end = steps.stays.len().min(steps.retired.saturating_add(limit));
        for slot in steps.retired..end {
            if !steps.stays[slot] {
                steps.changed |= cluster.retire(slot);
            }
        }
        steps.retired = end;
        if end < steps.stays.len() {
            return None;
        }
        cluster.hosts_known = true;
        cluster.settle();
        Some(steps.changed)
    }

    pub(super) fn upsert(&mut self, now: Instant, name: &str, hosts: &[Arc<Host>]) -> bool {
        let Some(cluster) = self.clusters.get_mut(name) else {
            return false;
        };
        let mut stays = vec![false; cluster.hosts.len()];
        let mut changed = false;
        for host in hosts {
            changed |= cluster.place(now, host, &mut stays, true);
        }
        cluster.hosts_known = true;
        cluster.settle();
        changed
    }

    pub(super) fn remove(&mut self, name: &str, addresses: &[Address]) -> bool {
        let Some(cluster) = self.clusters.get_mut(name) else {
            return false;
        };
        let mut changed = false;
        for address in addresses {
            for slot in 0..cluster.hosts.len() {
                let host = cluster.hosts[slot].as_ref();
                if host.is_some_and(|host| host.host.address == *address) {
                    changed |= cluster.retire(slot);
                }
            }
        }
        cluster.settle();
        changed
    }

    pub(super) fn unavailable(&mut self, name: &str) {
        if let Some(cluster) = self.clusters.get_mut(name) {
            cluster.hosts_known = true;
            cluster.settle();
        }
    }

    /// What waits as though there were no traffic waits no longer than with it.
    pub(super) fn traffic(&mut self, now: Instant, name: &str) {
        let Some(cluster) = self.clusters.get_mut(name) else {
            return;
        };
        if std::mem::replace(&mut cluster.traffic, true) {
            return;
        }
        let checks = &cluster.config.health_checks;
        for host in cluster.hosts.iter_mut().flatten() {
            for (check, session) in checks.iter().zip(&mut host.sessions) {
                let pending = (session.successes, session.failures) != (0, 0);
                let (base, _) = wait(session.passed, pending, Traffic::Had, check);
                let Window(sooner, later) = window(now, base, check);
                if let (Phase::Waiting(Window(earliest, latest)), true) =
                    (&mut session.phase, session.idle)
                {
                    *earliest = sooner.min(*earliest);
                    *latest = later.min(*latest);
                }
            }
        }
    }

    /// A session's attempt is due; it must have been time.
    pub(super) fn due(&mut self, now: Instant, at: Place<'_>) {
        let session = self.session(at);
        match session.phase {
            Phase::Queued => (),
            Phase::Waiting(Window(earliest, _)) if earliest <= now => session.phase = Phase::Queued,
            _ => panic!("not due: {session:?}"),
        }
    }

    pub(super) fn started(&mut self, now: Instant, at: Place<'_>, id: AttemptId) {
        let timeout = self.check(at).timeout;
        let session = self.session(at);
        assert!(matches!(session.phase, Phase::Queued), "{session:?}");
        session.phase = Phase::Attempting(id, now + timeout);
        self.counts(at).attempt += 1;
    }

    pub(super) fn sent(&mut self, now: Instant, at: Place<'_>, id: AttemptId) {
        let timeout = self.check(at).timeout;
        if let Phase::Attempting(runs, deadline) = &mut self.session(at).phase
            && *runs == id
        {
            *deadline = now + timeout;
        }
    }

    /// An attempt ended; nothing if it is not the one that runs.
    pub(super) fn ended(&mut self, now: Instant, at: Place<'_>, id: AttemptId, outcome: &Outcome) {
        let check = Arc::clone(self.check(at));
        let traffic = self.clusters[at.0].traffic();
        let session = self.session(at);
        if !matches!(session.phase, Phase::Attempting(runs, _) if runs == id) {
            return;
        }
        let (pending, events) = session.judge(outcome, &check);
        let success = matches!(outcome, Outcome::Success { .. });
        let (base, idle) = wait(success, pending, traffic, &check);
        session.phase = Phase::Waiting(window(now, base, &check));
        session.idle = idle;
        let counts = self.counts(at);
        match outcome {
            Outcome::Success { .. } => counts.success += 1,
            Outcome::Failure(failure) => {
                counts.failure += 1;
                counts.reasons[failure.reason.index()] += 1;
                counts.network += u64::from(matches!(
                    failure.failure_type,
                    FailureType::Network | FailureType::NetworkTimeout
                ));
            }
        }
        self.complete(at, outcome, events);
    }

    pub(super) fn set_unhealthy(&mut self, name: &str, address: &Address) {
        let Some((key, cluster)) = self.clusters.get_key_value(name) else {
            return;
        };
        let key = Arc::clone(key);
        let slots = 0..cluster.hosts.len();
        for slot in slots {
            let mut check = 0;
            // It may go with the first of its sessions.
            while let Some(host) = &self.clusters[&key].hosts[slot]
                && host.host.address == *address
                && check < host.sessions.len()
            {
                let at = (&*key, slot, check);
                let config = Arc::clone(self.check(at));
                let outcome = Outcome::Failure(Failure::new(FailureType::Passive, Reason::Passive));
                let (_, events) = self.session(at).judge(&outcome, &config);
                self.counts(at).passive += 1;
                self.complete(at, &outcome, events);
                check += 1;
            }
        }
    }

    pub(super) fn postpone(&mut self, by: Duration) {
        let hosts = self.clusters.values_mut().flat_map(|c| &mut c.hosts);
        for session in hosts.flatten().flat_map(|host| &mut host.sessions) {
            match &mut session.phase {
                Phase::Waiting(Window(earliest, latest)) => {
                    *earliest += by;
                    *latest += by;
                }
                Phase::Queued => (),
                Phase::Attempting(_, deadline) => *deadline += by,
            }
        }
    }

    /// What follows for the host from a completion of one of its sessions.
    fn complete(&mut self, at: Place<'_>, outcome: &Outcome, events: Vec<EventKind>) {
        let fails = self.session(at).failed;
        let (key, slot, check) = at;
        let Some((name, cluster)) = self.clusters.get_key_value(key) else {
            return;
        };
        let Some(host) = &cluster.hosts[slot] else {
            return;
        };
        let port = host.host.address.socket_addr().unwrap().port();
        let (name, cluster_name) = (Arc::clone(name), Arc::clone(&cluster.config.name));
        let told = events.into_iter();
        self.events
            .extend(told.map(|kind| (Arc::clone(&cluster_name), check, port, kind)));
        let Some(cluster) = self.clusters.get_mut(&name) else {
            return;
        };
        let Some(host) = &mut cluster.hosts[slot] else {
            return;
        };
        host.pending_first = false;
        if let Outcome::Failure(failure) = outcome {
            host.excluded |= failure.immediate;
            if fails {
                host.reason = Some(failure.reason.clone());
            }
        }
        host.tidy();
        if host.failed() && host.pending_removal {
            cluster.remove(slot);
            cluster.change += 1;
        }
        cluster.settle();
    }

    fn check(&self, (name, _, check): Place<'_>) -> &Arc<HealthCheck> {
        &self.clusters[name].config.health_checks[check]
    }

    pub(super) fn session(&mut self, (name, slot, check): Place<'_>) -> &mut OneSession {
        let cluster = self.clusters.get_mut(name).unwrap();
        let host = cluster.hosts[slot].as_mut().unwrap();
        &mut host.sessions[check]
    }

    fn counts(&mut self, at: Place<'_>) -> &mut Counts {
        let name = Arc::clone(&self.check(at).name);
        let cluster = self.clusters.get_mut(at.0).unwrap();
        cluster.counts.entry(name).or_default()
    }
}

/// A session, by cluster, slot and check.
pub(super) type Place<'a> = (&'a str, usize, usize);
