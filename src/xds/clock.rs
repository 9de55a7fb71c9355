//! The only readers of clocks.

use std::time::{Instant, SystemTime};

use super::state::Time;

/// The time by which everything is scheduled. It is tokio's, so that a paused clock drives all.
#[expect(
    clippy::disallowed_methods,
    reason = "the driver's one reading of the clock"
)]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Both clocks.
#[expect(
    clippy::disallowed_methods,
    reason = "the driver's one reading of the wall clock"
)]
pub(crate) fn time() -> Time {
    Time {
        now: now(),
        wall: SystemTime::now(),
    }
}
