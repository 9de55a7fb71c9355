//! What readers of a shard's hosts and of its stats are shown.

use std::time::Duration;

use super::{Shard, runtime_of};
use crate::engine::clock;
use crate::stats::{EngineStats, LocalHistogram};

/// The shortest time between two views of a shard.
pub(super) const PUBLISH_EVERY: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(super) struct Tally {
    pub(super) lag: LocalHistogram,
    pub(super) round_trip: LocalHistogram,
    /// What it has told of its gauges.
    in_flight: u64,
    queued: u64,
}

impl Tally {
    pub(super) fn tell(&mut self, stats: &EngineStats, in_flight: usize, queued: usize) {
        let [in_flight, queued] = [in_flight, queued].map(|n| n as u64);
        stats.attempts_in_flight.change(self.in_flight, in_flight);
        stats.attempts_queued.change(self.queued, queued);
        (self.in_flight, self.queued) = (in_flight, queued);
        stats.schedule_lag.take(&mut self.lag);
        stats.round_trip.take(&mut self.round_trip);
    }
}

impl Shard {
    pub(super) fn count(&mut self) {
        let (in_flight, queued) = (self.attempts.len(), self.queue.len());
        self.tally.tell(&self.stats.engine, in_flight, queued);
    }

    /// Shows readers what has changed, at most every [`PUBLISH_EVERY`]. A cluster whose hosts are being changed is shown
    /// once they are.
    pub(super) fn publish(&mut self) {
        if !self.clusters.has_changed() {
            self.tell_shown();
            return;
        }
        let now = clock::now();
        if self.published.is_some_and(|at| now < at + PUBLISH_EVERY) {
            return;
        }
        let changing = self.lines.changing();
        while let Some((id, part)) = self.clusters.poll_part_but(&changing) {
            self.published = Some(now);
            if let Some(runtime) = runtime_of(&self.runtimes, id) {
                runtime.entry.publish(self.index, part);
                runtime.live.changed.send_modify(|version| *version += 1);
            }
        }
        self.tell_shown();
    }

    fn tell_shown(&mut self) {
        let lines = &self.lines;
        for (_, reply) in self
            .to_show
            .extract_if(.., |(name, _)| !lines.changes(name))
        {
            // Whoever asked may have gone.
            let _ = reply.send(());
        }
    }
}
