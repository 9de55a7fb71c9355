//! `google.protobuf.Duration`, for all values that one can have on the wire.
//!
//! The conversion and the text of [`prost_types`] go by a normal form, which some values do not have: with checks
//! of arithmetic they panic, and without these they give another duration. Whoever speaks to us can send such
//! values, so neither is used in this crate.

use std::fmt::{self, Display};
use std::time::Duration;

/// The longest that Envoy takes, in whole seconds: it counts nanoseconds in an `i64`, and keeps a second of room.
const MAX_SECONDS: i64 = 9_223_372_035;
const NANOS: i128 = 1_000_000_000;

/// A duration as Envoy takes it: not negative, and not too long; or what is wrong with it, in Envoy's words.
pub(crate) fn read(message: &prost_types::Duration) -> Result<Duration, Wrong> {
    let Length(seconds, nanos) = Length::from(message);
    match (u64::try_from(seconds), u32::try_from(nanos)) {
        (Ok(_), Ok(_)) if seconds > MAX_SECONDS => Err(Wrong::Long(Length(seconds, nanos))),
        (Ok(_), Ok(nanos)) if nanos > 999_999_999 => Err(Wrong::Nanos(nanos)),
        (Ok(seconds), Ok(nanos)) => Ok(Duration::new(seconds, nanos)),
        _ => Err(Wrong::Negative(Length(seconds, nanos))),
    }
}

/// The text of a duration in JSON, in as many digits as a whole number of threes takes.
pub(crate) fn json(message: &prost_types::Duration) -> String {
    let nanos = i128::from(message.seconds) * NANOS + i128::from(message.nanos);
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, nanos) = (nanos.abs() / NANOS, nanos.abs() % NANOS);
    if nanos == 0 {
        format!("{sign}{seconds}s")
    } else if nanos % 1_000_000 == 0 {
        format!("{sign}{seconds}.{:03}s", nanos / 1_000_000)
    } else if nanos % 1_000 == 0 {
        format!("{sign}{seconds}.{:06}s", nanos / 1_000)
    } else {
        format!("{sign}{seconds}.{nanos:09}s")
    }
}

/// Why a duration is none.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Wrong {
    #[error("Invalid duration: Expected positive duration, but is {0}")]
    Negative(Length),
    #[error("Invalid duration: Duration out-of-range: {0}")]
    Long(Length),
    #[error("Invalid duration: Duration out-of-range: {0} nanoseconds")]
    Nanos(u32),
}

/// A duration as it is compared and written: seconds, then nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Length(pub(crate) i64, pub(crate) i32);

impl From<&prost_types::Duration> for Length {
    fn from(message: &prost_types::Duration) -> Self {
        Self(message.seconds, message.nanos)
    }
}

impl Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 || self.1 < 0 {
            f.write_str("-")?;
        }
        write!(f, "{}", self.0.unsigned_abs())?;
        if self.1 != 0 {
            let digits = format!("{:09}", self.1.unsigned_abs());
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str("s")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(seconds: i64, nanos: i32) -> prost_types::Duration {
        prost_types::Duration { seconds, nanos }
    }

    /// What stands at the ends of what can be sent, and of what can be taken.
    const SECONDS: [i64; 13] = [
        i64::MIN,
        i64::MIN + 1,
        -315_576_000_000,
        -MAX_SECONDS,
        -1,
        0,
        1,
        MAX_SECONDS,
        MAX_SECONDS + 1,
        315_576_000_000,
        315_576_000_001,
        i64::MAX - 1,
        i64::MAX,
    ];
    const PARTS: [i32; 9] = [
        i32::MIN,
        -1_000_000_000,
        -999_999_999,
        -1,
        0,
        1,
        999_999_999,
        1_000_000_000,
        i32::MAX,
    ];

    #[test]
    fn every_value_is_a_duration_or_is_refused_and_has_a_text() {
        for seconds in SECONDS {
            for nanos in PARTS {
                let message = message(seconds, nanos);
                let good =
                    (0..=MAX_SECONDS).contains(&seconds) && (0..=999_999_999).contains(&nanos);
                let read = read(&message);
                assert_eq!(read.is_ok(), good, "{message:?}: {read:?}");
                if let Err(wrong) = read {
                    assert!(
                        wrong.to_string().starts_with("Invalid duration: "),
                        "{wrong}"
                    );
                }
                let text = json(&message);
                assert!(text.ends_with('s'), "{text}");
            }
        }
        assert_eq!(json(&message(i64::MIN, 0)), "-9223372036854775808s");
        assert_eq!(
            json(&message(i64::MIN, i32::MIN)),
            "-9223372036854775810.147483648s"
        );
        assert_eq!(json(&message(1, -500_000_000)), "0.500s");
    }

    proptest! {
        #[test]
        fn what_has_a_normal_form_is_read_and_written_by_it(
            seconds in -315_576_000_000_i64..=315_576_000_000,
            nanos in 0..1_000_000_000_i32,
        ) {
            let nanos = if seconds < 0 { -nanos } else { nanos };
            let message = message(seconds, nanos);
            prop_assert_eq!(json(&message), message.to_string());
            if (0..=MAX_SECONDS).contains(&seconds) {
                let known = Duration::try_from(message).ok();
                prop_assert_eq!(read(&message).ok(), known);
            }
        }

        #[test]
        fn every_point_in_time_has_a_text(seconds: i64, nanos: i32) {
            for seconds in SECONDS.into_iter().chain([seconds]) {
                for nanos in PARTS.into_iter().chain([nanos]) {
                    let text = prost_types::Timestamp { seconds, nanos }.to_string();
                    prop_assert!(text.ends_with('Z'), "{}", text);
                }
            }
        }
    }
}
