//! Durations as they are typed and shown.

use std::time::Duration;

/// Reads `250ms`, `1.5s`, `2m` and the like.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "" => return Err("want a number and a unit, as in 250ms or 1.5s".to_owned()),
        unit => return Err(format!("{unit:?} is no unit: want us, ms, s, m or h")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("{number:?} is no number"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

/// As [`parse`], but not below 1 ms.
pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    let parsed = parse(text)?;
    if parsed < Duration::from_millis(1) {
        return Err("want 1ms or more".to_owned());
    }
    Ok(parsed)
}

/// A round trip, in milliseconds.
pub(super) fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    match millis {
        ..10.0 => format!("{millis:.2}ms"),
        ..100.0 => format!("{millis:.1}ms"),
        _ => format!("{millis:.0}ms"),
    }
}

/// How long something has been so, in the one or two largest units.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_understood_or_told() {
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        for (text, told) in [
            ("5", "want a number and a unit, as in 250ms or 1.5s"),
            ("5sec", "\"sec\" is no unit: want us, ms, s, m or h"),
            ("s", "\"\" is no number"),
            ("-1s", "\"-1s\" is no unit: want us, ms, s, m or h"),
            ("1.2.3s", "\"1.2.3\" is no number"),
        ] {
            assert_eq!(parse(text), Err(told.to_owned()), "{text}");
        }
        assert!(parse(&format!("{}s", "9".repeat(30))).is_err());
        assert_eq!(parse_interval("0s"), Err("want 1ms or more".to_owned()));
    }

    #[test]
    fn times_are_short_to_read() {
        let shown = [70, 12_345, 1_234_567].map(|us| millis(Duration::from_micros(us)));
        assert_eq!(shown, ["0.07ms", "12.3ms", "1235ms"]);
        let shown = [59, 61, 7_260, 90_000].map(|s| span(Duration::from_secs(s)));
        assert_eq!(shown, ["59s", "1m 1s", "2h 1m", "1d 1h"]);
    }
}
