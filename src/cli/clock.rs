//! The clocks, for what is shown: nothing is scheduled by them.
#![expect(
    clippy::disallowed_methods,
    reason = "only here the command reads a clock"
)]

use std::time::{Instant, SystemTime};

pub(super) fn now() -> Instant {
    Instant::now()
}

pub(super) fn time() -> SystemTime {
    SystemTime::now()
}
