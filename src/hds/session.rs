//! One client at work: messages, and when to report.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tonic::Status;

use super::state::{Action, Verdict};
use super::wire::Wire;
use super::{Client, Core, lock};
use crate::config::ConfigError;
use crate::engine::{Ended, Engine, Origin};
use crate::proto::envoy::service::health::v3::HealthCheckSpecifier;
use crate::registry::Change;
use crate::stats::HdsStats;
use crate::xds::clock;

/// Messages that may wait for the server. When there are more, reports are left out.
const QUEUE: usize = 2;
/// What the server tells.
const SPECIFIER: &str = "type.googleapis.com/envoy.service.health.v3.HealthCheckSpecifier";
/// How long the engine may take until what it was told shows in snapshots.
const SETTLE: Duration = Duration::from_millis(50);
/// Faults of a specifier that are logged.
const LOGGED: usize = 16;
/// The longest wait for a report.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// One client at work.
pub(super) struct Session<'a> {
    pub(super) client: &'a Client,
    pub(super) engine: &'a Engine,
    pub(super) stats: &'a HdsStats,
    /// The server has sent a specifier.
    pub(super) answered: bool,
}

impl Session<'_> {
    /// Exchanges messages on a stream until it ends.
    pub(super) async fn exchange(&mut self, mut wire: Wire<'_>) -> Result<Status, Ended> {
        let (queue, messages) = mpsc::channel(QUEUE);
        // The queue is empty, so there is room.
        let _ = queue.try_send(self.client.hello.clone());
        self.stats.responses.inc();
        let mut specifiers = match wire.stream(messages).await {
            Ok(specifiers) => specifiers,
            Err(status) => return Ok(status),
        };
        let mut timer = Timer::default();
        loop {
            tokio::select! {
                specifier = specifiers.message() => match specifier {
                    Ok(Some(specifier)) => self.take(specifier, &mut timer).await?,
                    Ok(None) => return Ok(Status::ok("")),
                    Err(status) => return Ok(status),
                },
                () = timer.elapsed() => match queue.try_reserve() {
                    Ok(place) => {
                        let report = self.report().await;
                        self.stats.responses.inc();
                        place.send(report);
                    }
                    Err(_) => self.stats.skipped.inc(),
                },
            }
        }
    }

    /// Makes calls until one fails.
    pub(super) async fn poll(
        &mut self,
        mut wire: Wire<'_>,
        delay: Duration,
    ) -> Result<Status, Ended> {
        let mut timer = Timer::default();
        let mut message = self.client.hello.clone();
        loop {
            self.stats.responses.inc();
            let mut specifier = match wire.fetch(message).await {
                Ok(specifier) => specifier,
                Err(status) => return Ok(status),
            };
            if specifier.interval.is_none() {
                specifier.interval = prost_types::Duration::try_from(delay).ok();
            }
            self.take(specifier, &mut timer).await?;
            if timer.due.is_none() {
                // Nothing that was said could be applied: it is asked again.
                tokio::time::sleep(delay).await;
                message = self.client.hello.clone();
                continue;
            }
            timer.elapsed().await;
            message = self.report().await;
        }
    }

    async fn take(
        &mut self,
        specifier: HealthCheckSpecifier,
        timer: &mut Timer,
    ) -> Result<(), Ended> {
        self.answered = true;
        self.stats.requests.inc();
        self.stats.connected.set(1);
        let time = clock::time();
        let wall = time.wall;
        let (verdict, interval, actions) = self
            .off_runtime(move |core| {
                let verdict = core.state.handle_specifier(time, &specifier);
                let actions: Vec<_> = std::iter::from_fn(|| core.state.poll_action()).collect();
                (verdict, core.state.interval(), actions)
            })
            .await;
        let refused = match &verdict {
            Verdict::Applied(Some(error)) | Verdict::Refused(error) => Some(error.to_string()),
            Verdict::Applied(None) | Verdict::Same => None,
        };
        {
            let connection = &mut lock(&self.client.core).connection;
            connection.set_open(true, wall);
            connection.answered(wall, SPECIFIER, "", refused.as_deref());
        }
        let error = match verdict {
            Verdict::Same => None,
            Verdict::Applied(error) => {
                self.stats.updates.inc();
                error
            }
            Verdict::Refused(error) => {
                self.refused(&error);
                return Ok(());
            }
        };
        if let Some(error) = error {
            self.refused(&error);
        }
        let changed = !actions.is_empty();
        for action in actions {
            self.act(action).await?;
        }
        timer.set(clock::now(), interval, changed);
        Ok(())
    }

    fn refused(&self, error: &ConfigError) {
        self.stats.errors.inc();
        let (state, now) = (&mut lock(&self.client.core).state, clock::now());
        for fault in error.faults().take(LOGGED) {
            if state.may_log(now) {
                tracing::warn!(path = %fault.path, reason = %fault.reason, "specifier refused in part");
            }
        }
        let more = error.faults().count().saturating_sub(LOGGED);
        if more > 0 && state.may_log(now) {
            tracing::warn!(more, "more of the specifier is wrong");
        }
    }

    async fn act(&self, action: Action) -> Result<(), Ended> {
        match action {
            Action::Remember(layout) => {
                if let Some(cluster) = self.engine.cluster(&layout.key) {
                    let snapshot = cluster.snapshot();
                    let remember =
                        move |core: &mut Core| core.reporter.remember(&layout, &snapshot);
                    self.off_runtime(remember).await;
                }
                Ok(())
            }
            Action::Apply(Change::Cluster(update)) => {
                let set = self.engine.set_cluster(update, Origin::Hds);
                set.await.map(drop)
            }
            Action::Apply(change) => {
                if let Change::RemoveCluster(key) = &change {
                    lock(&self.client.core).reporter.forget(key);
                }
                self.engine.apply(change).await
            }
        }
    }

    async fn report(&self) -> Bytes {
        let engine = self.engine.clone();
        let make = move |core: &mut Core| {
            let layouts = core.state.layouts().into_iter();
            let with_snapshots = layouts.map(|layout| {
                let cluster = engine.cluster(&layout.key);
                (layout, cluster.map(|cluster| cluster.snapshot()))
            });
            core.reporter.report(&with_snapshots.collect::<Vec<_>>())
        };
        let report = self.off_runtime(make).await;
        let bytes = u64::try_from(report.len()).unwrap_or(u64::MAX);
        self.stats.report_bytes.set(bytes);
        report
    }

    /// Does what may take long where it holds up nobody.
    async fn off_runtime<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> T {
        let core = Arc::clone(&self.client.core);
        let done = tokio::task::spawn_blocking(move || work(&mut lock(&core))).await;
        match done {
            Ok(value) => value,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

/// When to report.
#[derive(Debug, Default)]
struct Timer {
    interval: Duration,
    /// None before a specifier was applied on the stream.
    due: Option<Instant>,
    /// The engine has to settle before the report that is due.
    settles: bool,
}

impl Timer {
    /// A specifier was applied. The next report is moved by a shorter interval, and by the first change that the
    /// engine has to settle after: a server that never stops to change what it asks for is told all the same.
    fn set(&mut self, now: Instant, interval: Duration, changed: bool) {
        let interval = interval.min(FOREVER);
        let due = match self.due {
            Some(due) if self.interval == interval => due,
            Some(due) => due.min(now + interval),
            None => now + interval,
        };
        self.interval = interval;
        let settles = changed && !self.settles;
        self.settles |= changed;
        self.due = Some(if settles { due.max(now + SETTLE) } else { due });
    }

    /// Waits until a report is due, and sets the time of the next. Reports that could not be sent in time are
    /// not made up for.
    async fn elapsed(&mut self) {
        let Some(due) = self.due else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(due.into()).await;
        self.settles = false;
        let now = clock::now();
        let next = due + self.interval;
        self.due = Some(if next > now {
            next
        } else {
            now + self.interval
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(10);

    /// How often a timer ends in ten seconds while a specifier comes every 10 ms, of the interval that `interval`
    /// gives.
    async fn reports(changed: bool, interval: impl Fn(u32) -> Duration) -> usize {
        let mut timer = Timer::default();
        let mut reports = 0;
        for turn in 0..1_000 {
            timer.set(clock::now(), interval(turn), changed);
            let until = clock::now() + STEP;
            while tokio::time::timeout_at(until.into(), timer.elapsed())
                .await
                .is_ok()
            {
                reports += 1;
            }
        }
        reports
    }

    #[tokio::test(start_paused = true)]
    async fn reports_are_made_however_often_the_specifier_changes() {
        let second = Duration::from_secs(1);
        for changed in [false, true] {
            let steady = reports(changed, |_| second).await;
            assert!((8..=10).contains(&steady), "{steady}");
            let soon = reports(changed, |_| SETTLE).await;
            assert!((90..=200).contains(&soon), "{soon}");
            let restless = reports(changed, |turn| second * (1 + turn % 2)).await;
            assert!((4..=10).contains(&restless), "{restless}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_has_time_to_settle_before_it_is_reported() {
        let mut timer = Timer::default();
        let start = clock::now();
        timer.set(start, STEP, true);
        timer.elapsed().await;
        assert!(clock::now() - start >= SETTLE);
    }
}
