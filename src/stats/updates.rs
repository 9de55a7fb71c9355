//! How subscriptions to a control plane fare.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use super::sample::Reading;
use super::{Counter, Gauge, Sample};

/// The stats of one subscription: `cluster_manager.cds.` or, of a cluster, the `update_` ones.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct UpdateStats {
    /// `update_attempt`: answers, failures and the first request.
    pub attempt: Counter,
    /// `update_success`: answers that were taken.
    pub success: Counter,
    /// `update_failure`: streams that failed.
    pub failure: Counter,
    /// `update_rejected`: answers that were refused, in part at least.
    pub rejected: Counter,
    /// `update_empty`: the control plane has no such assignment. Of clusters only.
    pub empty: Counter,
    /// `update_no_rebuild`: answers that changed nothing. Of clusters only.
    pub no_rebuild: Counter,
    /// `assignment_timeout_received`: assignments that are to be given again within a time. Of clusters only.
    pub assignment_timeout_received: Counter,
    /// `assignment_stale`: assignments that were not, so their endpoints went. Of clusters only.
    pub assignment_stale: Counter,
    /// `init_fetch_timeout`: nothing came in time at first.
    pub init_fetch_timeout: Counter,
    /// `update_time`: when the last answer was taken, in milliseconds of the Unix epoch.
    pub time: Gauge,
    /// `version`: a hash of the version that was taken last.
    pub version: Gauge,
    /// `version_text`: the version that was taken last.
    pub version_text: Text,
    subscribed: AtomicBool,
}

impl UpdateStats {
    /// There is a subscription, so all of its stats are to be listed.
    pub fn use_them(&self) {
        self.subscribed.store(true, Relaxed);
    }

    /// Something was asked for.
    pub fn attempt(&self) {
        self.use_them();
        self.attempt.inc();
    }

    /// An answer of `version` was taken at `wall`.
    pub fn success(&self, wall: SystemTime, version: &str) {
        self.attempt();
        self.success.inc();
        let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.time
            .set(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        self.version.set(xxh64(version.as_bytes()));
        self.version_text.set(version);
    }

    /// An answer was refused.
    pub fn rejected(&self) {
        self.attempt();
        self.rejected.inc();
    }

    /// The stream has failed.
    pub fn failure(&self) {
        self.attempt();
        self.failure.inc();
    }

    /// Nothing came in time at first.
    pub fn timed_out(&self) {
        self.use_them();
        self.init_fetch_timeout.inc();
    }

    /// As Envoy lists them: of clusters whose endpoints are not asked for, only the first few; without a
    /// subscription to clusters, none of it.
    ///
    /// `push` is told each stat's last part, the family that it has as one of a cluster, and what it reads.
    pub(super) fn read(
        &self,
        of_cluster: bool,
        push: &mut dyn FnMut(&'static str, &'static str, Reading),
    ) {
        let subscribed = self.subscribed.load(Relaxed);
        if !of_cluster && !subscribed {
            return;
        }
        let mut counters = |counters: &[(&'static str, &'static str, &Counter)]| {
            for (stat, family, counter) in counters {
                push(stat, family, (*counter).into());
            }
        };
        counters(&[
            ("update_attempt", "cluster_update_attempt", &self.attempt),
            ("update_success", "cluster_update_success", &self.success),
            ("update_failure", "cluster_update_failure", &self.failure),
        ]);
        if of_cluster {
            counters(&[
                ("update_empty", "cluster_update_empty", &self.empty),
                (
                    "update_no_rebuild",
                    "cluster_update_no_rebuild",
                    &self.no_rebuild,
                ),
                (
                    "assignment_timeout_received",
                    "cluster_assignment_timeout_received",
                    &self.assignment_timeout_received,
                ),
                (
                    "assignment_stale",
                    "cluster_assignment_stale",
                    &self.assignment_stale,
                ),
            ]);
        }
        if subscribed {
            counters(&[
                ("update_rejected", "cluster_update_rejected", &self.rejected),
                (
                    "init_fetch_timeout",
                    "cluster_init_fetch_timeout",
                    &self.init_fetch_timeout,
                ),
            ]);
            push("update_time", "cluster_update_time", (&self.time).into());
            let version = (&self.version_text).into();
            push("version_text", "cluster_version_text", version);
        }
        push("version", "cluster_version", (&self.version).into());
    }
}

/// The stats of streams to control planes.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ControlPlaneStats {
    /// `control_plane.connected_state`: 1 while the aggregated stream is open.
    pub connected_state: Gauge,
    /// `control_plane.pending_requests`: requests that wait for the rate limit or for room.
    pub pending_requests: Gauge,
    /// `control_plane.rate_limit_enforced`: how often a request had to wait for the rate limit.
    pub rate_limit_enforced: Counter,
    /// `control_plane.identifier`: what the server calls itself.
    pub identifier: Text,
    /// `xds_health.config_age_seconds`: since an answer was last taken; 0 before the first.
    pub config_age: Gauge,
    /// `xds_health.control_plane_disconnected_seconds`: for how long no aggregated stream has been open.
    pub disconnected: Gauge,
    in_use: AtomicBool,
}

impl ControlPlaneStats {
    /// There is a control plane, so the stats are to be listed.
    pub fn use_them(&self) {
        self.in_use.store(true, Relaxed);
        self.connected_state.set(0);
    }

    pub(super) fn in_use(&self) -> bool {
        self.in_use.load(Relaxed)
    }

    pub(super) fn samples(&self, to: &mut Vec<Sample>) {
        let name = |name: &str| format!("control_plane.{name}");
        to.extend([
            Sample::gauge(name("connected_state"), &self.connected_state),
            Sample::gauge(name("pending_requests"), &self.pending_requests),
            Sample::counter(name("rate_limit_enforced"), &self.rate_limit_enforced),
            Sample::text(name("identifier"), &self.identifier),
            Sample::gauge("xds_health.config_age_seconds".into(), &self.config_age),
            Sample::gauge(
                "xds_health.control_plane_disconnected_seconds".into(),
                &self.disconnected,
            ),
        ]);
    }
}

/// A word.
#[derive(Debug, Default)]
pub struct Text(RwLock<Arc<str>>);

impl Text {
    /// Sets the value.
    pub fn set(&self, value: &str) {
        let mut text = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if **text != *value {
            *text = value.into();
        }
    }

    /// The value now.
    pub fn value(&self) -> Arc<str> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// XXH64 with seed 0, by which Envoy makes a number of a version.
fn xxh64(bytes: &[u8]) -> u64 {
    const P: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    fn word(bytes: &[u8]) -> u64 {
        bytes
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    }
    let round = |acc: u64, lane: u64| {
        let acc = acc.wrapping_add(lane.wrapping_mul(P[1]));
        acc.rotate_left(31).wrapping_mul(P[0])
    };
    let mut hash = P[4];
    let mut stripes = bytes.chunks_exact(32);
    if bytes.len() >= 32 {
        let mut lanes = [P[0].wrapping_add(P[1]), P[1], 0, 0_u64.wrapping_sub(P[0])];
        for stripe in &mut stripes {
            for (lane, part) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
                *lane = round(*lane, word(part));
            }
        }
        hash = [1, 7, 12, 18]
            .into_iter()
            .zip(lanes)
            .fold(0, |sum: u64, (by, lane)| {
                sum.wrapping_add(lane.rotate_left(by))
            });
        for lane in lanes {
            hash = (hash ^ round(0, lane))
                .wrapping_mul(P[0])
                .wrapping_add(P[3]);
        }
    }
    hash = hash.wrapping_add(bytes.len() as u64);
    let mut words = stripes.remainder().chunks_exact(8);
    for part in &mut words {
        hash ^= round(0, word(part));
        hash = hash.rotate_left(27).wrapping_mul(P[0]).wrapping_add(P[3]);
    }
    let mut rest = words.remainder();
    if let Some((four, left)) = rest.split_at_checked(4) {
        hash ^= word(four).wrapping_mul(P[0]);
        hash = hash.rotate_left(23).wrapping_mul(P[1]).wrapping_add(P[2]);
        rest = left;
    }
    for byte in rest {
        hash ^= u64::from(*byte).wrapping_mul(P[4]);
        hash = hash.rotate_left(11).wrapping_mul(P[0]);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(P[1]);
    hash = (hash ^ hash >> 29).wrapping_mul(P[2]);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_becomes_the_number_that_it_is_in_envoy() {
        assert_eq!(xxh64(b"1"), 13_237_225_503_670_494_420);
        assert_eq!(xxh64(b""), 0xef46_db37_51d8_e999);
        // Longer than a stripe, with words and bytes left.
        let long = b"Call me Ishmael. Some years ago--never mind how long precisely-";
        assert_eq!(xxh64(long), 0x02a2_e854_70d6_fd96);
    }
}
