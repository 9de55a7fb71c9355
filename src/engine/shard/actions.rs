//! What the clusters want done.

use std::sync::Arc;
use std::time::Instant;

use super::{Shard, runtime_of};
use crate::cluster::Action;
use crate::engine::{clock, running};
use crate::event::{EventKind, HealthCheckEvent};

impl Shard {
    /// Does what the clusters want.
    pub(super) fn act(&mut self, now: Instant) {
        while let Some(action) = self.clusters.poll_action() {
            match action {
                Action::Start(session) => {
                    // One that is gone by now has nothing to begin.
                    if let Some((cluster, _)) = self.clusters.check_of(session) {
                        let first = self.clusters.first_check(session);
                        self.queue.push(cluster, session, first);
                    }
                }
                Action::Expire(_, attempt) => self.expire(now, attempt),
                Action::Cancel(_, attempt) => {
                    self.attempts.cancel(attempt);
                }
                Action::Forget(session) => {
                    let kept = self.kept.remove(&session);
                    running::guard(|| drop(kept));
                }
                Action::Event(notice) => {
                    let Some(runtime) = runtime_of(&self.runtimes, notice.cluster) else {
                        continue;
                    };
                    let Some(checker) = runtime.checkers.get(notice.check) else {
                        continue;
                    };
                    let check = notice.check;
                    // One that cannot say what it is makes no event.
                    let Some(kind) = running::guard(|| checker.health_checker_type()) else {
                        continue;
                    };
                    let event = notice.at(kind, clock::wall());
                    trace(&event);
                    for sink in runtime.sinks.get(check).into_iter().flatten() {
                        running::guard(|| sink.record(&event));
                    }
                    let here = runtime.live.events.followed();
                    if here || self.events.followed() {
                        let event = Arc::new(event);
                        runtime.live.events.send(&event);
                        self.events.send(&event);
                    }
                }
            }
        }
    }
}

fn trace(event: &HealthCheckEvent) {
    let (cluster, host) = (&*event.cluster, &event.host.address);
    let check = Some(&*event.check).filter(|name| !name.is_empty());
    let reason = event.reason.as_ref().map(tracing::field::display);
    match event.kind {
        EventKind::EjectUnhealthy { failure_type, .. } => {
            let failure_type = failure_type.name();
            tracing::info!(cluster, %host, check, failure_type, reason, "host unhealthy");
        }
        EventKind::Failure {
            failure_type,
            first_check: true,
            ..
        } => {
            let failure_type = failure_type.name();
            tracing::info!(cluster, %host, check, failure_type, reason, "first check failed");
        }
        EventKind::AddHealthy { first_check } => {
            tracing::info!(cluster, %host, check, first_check, "host healthy");
        }
        _ => (),
    }
}
