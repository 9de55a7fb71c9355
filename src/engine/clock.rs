//! The only readers of clocks.

use std::time::{Instant, SystemTime};

/// The time by which everything is scheduled. It is tokio's, so that a paused clock drives all.
#[expect(
    clippy::disallowed_methods,
    reason = "the driver's one reading of the clock"
)]
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The wall clock, for events.
#[expect(
    clippy::disallowed_methods,
    reason = "the driver's one reading of the wall clock"
)]
pub(super) fn wall() -> SystemTime {
    SystemTime::now()
}

/// A clock that is never paused, to notice when this process did not run.
#[expect(
    clippy::disallowed_methods,
    reason = "the driver's one reading of the real clock"
)]
pub(super) fn real() -> Instant {
    Instant::now()
}
