//! The sessions of a host, as its checks come, change and go.

use std::time::Instant;

use slab::Slab;

use super::{Action, Check, ClusterId, Clusters, SessionId, Slot};
use crate::session::Session;

impl Clusters {
    /// Gives a host the sessions that `origins` tell, one for each check of its cluster, or none. Sessions
    /// under the checks `before` that none of them keeps are ended. The caller refreshes the host.
    pub(super) fn rebuild(
        &mut self,
        now: Instant,
        id: ClusterId,
        host: u32,
        before: &[Check],
        origins: &[Origin],
    ) {
        let cluster = &mut self.clusters[id.index()];
        let old = chain(&self.sessions, cluster.members.session(host));
        let all = old
            .iter()
            .map(|(_, _, session)| session)
            .reduce(|a, b| if a.failed() { a } else { b });
        cluster
            .stats
            .healthy
            .shift(all.is_some_and(|all| !all.failed()), false);
        let degraded = old.iter().any(|(_, _, session)| session.degraded());
        cluster.stats.degraded.shift(degraded, false);

        let mut first: Option<SessionId> = None;
        for (position, origin) in origins.iter().enumerate().rev() {
            let Some(check) = cluster.checks.get(position) else {
                continue;
            };
            let follows = origin.follows().and_then(|position| {
                let mut old = old.iter();
                old.find(|(check, _, _)| *check == position)
            });
            if let (Origin::Same(_), Some((_, session, _))) = (origin, follows) {
                let slot = &mut self.sessions[session.index()];
                slot.check = u8::try_from(position).unwrap_or(u8::MAX);
                slot.next = first;
                first = Some(*session);
                continue;
            }
            let mut random = || self.random.u64(..);
            let mut cx = cluster.context(check, self.limits, &mut random);
            let verdict = follows.map(|(_, _, session)| session).or(all);
            let mut session = Session::new(now, verdict, &mut cx);
            if cluster.config.takes_new_as_healthy() {
                session = session.taken_as_healthy();
            }
            check.stats.healthy.shift(false, !session.failed());
            check.stats.degraded.shift(false, session.degraded());
            cluster.unchecked += 1;
            let at_once = session.handle_timeout(now).is_some();
            let due = session.poll_timeout();
            let key = self.sessions.insert(Slot {
                session,
                cluster: id,
                host,
                next: first,
                round_trip_micros: 0,
                local_port: None,
                check: u8::try_from(position).unwrap_or(u8::MAX),
            });
            let Some(session) = SessionId::new(key) else {
                self.sessions.remove(key);
                continue;
            };
            first = Some(session);
            if at_once {
                self.begun.push(session);
            } else if let Some(due) = due {
                self.wheel.set(session.key(), due);
            }
        }
        cluster.members.set_session(host, first);

        let now_there = chain(&self.sessions, first);
        for (check, session, _) in &old {
            if now_there.iter().any(|(_, kept, _)| kept == session) {
                continue;
            }
            let slot = self.sessions.remove(session.index());
            self.wheel.clear(session.key());
            if !self.failures.is_empty() {
                self.failures.remove(session);
            }
            cluster.unchecked -= usize::from(slot.session.first_check());
            let Some(check) = before.get(*check) else {
                continue;
            };
            check.stats.healthy.shift(!slot.session.failed(), false);
            check.stats.degraded.shift(slot.session.degraded(), false);
            if let Some(attempt) = slot.session.attempting() {
                check.stats.cancelled.inc();
                self.actions.push_back(Action::Cancel(*session, attempt));
            }
            self.actions.push_back(Action::Forget(*session));
        }
        if !now_there.is_empty() {
            let failed = now_there.iter().any(|(_, _, session)| session.failed());
            let degraded = now_there.iter().any(|(_, _, session)| session.degraded());
            cluster.stats.healthy.shift(false, !failed);
            cluster.stats.degraded.shift(false, degraded);
        }
    }
}

/// What a host's session under a check comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The session under the earlier check at this position goes on.
    Same(usize),
    /// A new session with the verdict of the one under the earlier check at this position.
    After(usize),
    /// A new session with the verdict that the host's sessions had together, if it had any.
    New,
}

impl Origin {
    /// What sessions under `checks` come from, where there were sessions under the checks `before`. Checks
    /// are told apart by their names; of checks without names several may be alike, so each of `before` is
    /// followed by one at most.
    pub(super) fn all(checks: &[Check], before: &[Check]) -> Vec<Self> {
        let mut origins = vec![Self::New; checks.len()];
        let mut followed = vec![false; before.len()];
        for same in [true, false] {
            for (position, check) in checks.iter().enumerate() {
                let fits = |old: &usize| {
                    let config = &before[*old].config;
                    !followed[*old]
                        && config.name == check.config.name
                        && (!same || *config == check.config)
                };
                if origins[position] != Self::New {
                    continue;
                }
                let in_place = Some(position).filter(|old| *old < before.len() && fits(old));
                let Some(old) = in_place.or_else(|| (0..before.len()).find(fits)) else {
                    continue;
                };
                followed[old] = true;
                origins[position] = if same {
                    Self::Same(old)
                } else {
                    Self::After(old)
                };
            }
        }
        origins
    }

    pub(super) fn follows(self) -> Option<usize> {
        match self {
            Self::Same(position) | Self::After(position) => Some(position),
            Self::New => None,
        }
    }
}

/// A host's sessions by the position of their checks.
fn chain(sessions: &Slab<Slot>, first: Option<SessionId>) -> Vec<(usize, SessionId, Session)> {
    let mut all = Vec::new();
    let mut next = first;
    while let Some((id, slot)) = next.and_then(|id| Some((id, sessions.get(id.index())?))) {
        all.push((usize::from(slot.check), id, slot.session.clone()));
        next = slot.next;
    }
    all
}
