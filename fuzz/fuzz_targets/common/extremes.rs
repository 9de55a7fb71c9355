//! Durations at the ends of what can be sent, which bytes at random hardly ever are.

use xds_health::proto::prost_types::Duration;

/// One of them by number, if there is one.
pub fn duration(number: u8) -> Option<Duration> {
    let seconds = [i64::MIN, i64::MIN + 1, -1, 0, 1, 9_223_372_036, 315_576_000_001, i64::MAX];
    let nanos = [i32::MIN, -1, 0, 1, 999_999_999, 1_000_000_000, i32::MAX];
    Some(Duration {
        seconds: *seconds.get(usize::from(number) % 8)?,
        nanos: *nanos.get(usize::from(number) / 8)?,
    })
}
