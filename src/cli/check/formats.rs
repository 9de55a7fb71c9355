//! The forms of the answer.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::hex;
use super::probe::Row;
use super::report::{Report, RoundTrips, Verdict};
use crate::cli::console::{Paint, Style, harmless};
use crate::cli::table::{Cell, Table};
use crate::cli::time::millis;
use crate::event::Reason;

/// For people.
pub(super) fn table(report: &Report, paint: Paint) -> String {
    let columns = [
        "HOST", "CHECK", "VERDICT", "PASSED>", "MIN>", "MEDIAN>", "P99>", "REASON",
    ];
    let mut table = Table::new(&columns);
    for row in &report.rows {
        let verdict = row.verdict();
        let style = match verdict {
            Verdict::Passed => Style::Good,
            Verdict::Flaky => Style::Odd,
            Verdict::Failed => Style::Bad,
            Verdict::Unchecked => Style::Faint,
        };
        let trips = row.round_trips();
        let trip = |of: fn(RoundTrips) -> Duration| match trips {
            Some(trips) => millis(of(trips)),
            None => "-".to_owned(),
        };
        table.row(vec![
            row.label().into(),
            (*row.check).into(),
            Cell::new(style, verdict.name()),
            format!("{}/{}", row.passed(), row.attempts.len()).into(),
            trip(|trips| trips.min).into(),
            trip(|trips| trips.median).into(),
            trip(|trips| trips.p99).into(),
            row.reason()
                .map(ToString::to_string)
                .unwrap_or_default()
                .into(),
        ]);
    }
    let mut text = table.text(paint);
    for row in &report.rows {
        text.push_str(&difference(row, paint));
    }
    let (sent, matched) = (report.total(sent), report.total(Row::passed));
    let others = report.total(others);
    let _ = writeln!(
        text,
        "\n{}, {} and {}",
        counted(sent, "datagram sent", "datagrams sent"),
        counted(matched, "answer matched", "answers matched"),
        counted(others, "other came", "others came"),
    );
    if report.disabled > 0 {
        let hosts = counted(report.disabled, "host is", "hosts are");
        let _ = writeln!(
            text,
            "{hosts} not to be checked: disable_active_health_check"
        );
    }
    text
}

fn counted(count: usize, one: &str, several: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {several}"),
    }
}

fn sent(row: &Row) -> usize {
    row.sent.try_into().unwrap_or(usize::MAX)
}

fn others(row: &Row) -> usize {
    row.others.try_into().unwrap_or(usize::MAX)
}

/// What was awaited and what came, if the last failure was by that.
fn difference(row: &Row, paint: Paint) -> String {
    let (Some(Reason::Mismatch(mismatch)), Some(receive)) = (row.reason(), &row.receive) else {
        return String::new();
    };
    let at = mismatch.first_difference;
    let mark = usize::try_from(at).unwrap_or(usize::MAX);
    let length = usize::try_from(mismatch.length).unwrap_or(usize::MAX);
    let longer = match length > mismatch.sample.len() {
        true => format!(" of {length}"),
        false => String::new(),
    };
    let label = row.label();
    let mut text = format!("\n{}: the answer differs at byte {at}\n", harmless(&label));
    let both = [
        ("awaited", &**receive, ""),
        ("came", &*mismatch.sample, longer.as_str()),
    ];
    for (word, bytes, longer) in both {
        let length = counted(bytes.len(), "byte", "bytes");
        let _ = writeln!(text, "  {word}, {length}{longer}");
        for line in hex::dump(bytes, mark, paint) {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

/// One JSON object.
pub(super) fn json(report: &Report) -> String {
    let rows = report.rows.iter().map(|row| {
        let trips = row.round_trips().map(|trips| {
            json!({
                "min_us": micros(trips.min),
                "median_us": micros(trips.median),
                "p99_us": micros(trips.p99),
                "max_us": micros(trips.max),
            })
        });
        json!({
            "host": row.host.address.to_string(),
            "hostname": row.host.hostname().map(|name| &**name),
            "check": &*row.check,
            "verdict": row.verdict().name(),
            "attempts": row.attempts.len(),
            "passed": row.passed(),
            "datagrams": {"sent": row.sent, "matched": row.passed(), "others": row.others},
            "round_trip": trips,
            "reason": row.reason().map(|reason| reason_json(reason, row)),
        })
    });
    let whole = json!({
        "verdict": report.verdict().name(),
        "hosts": rows.collect::<Vec<_>>(),
        "not_checked": report.disabled,
    });
    format!("{whole}\n")
}

fn reason_json(reason: &Reason, row: &Row) -> Value {
    let mut value = json!({"label": reason.label(), "text": reason.to_string()});
    if let Reason::Mismatch(mismatch) = reason {
        value["first_difference"] = mismatch.first_difference.into();
        value["awaited"] = row.receive.as_deref().map(digits).into();
        value["came"] = digits(&mismatch.sample).into();
    }
    value
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Metrics, for a file that a node exporter collects.
pub(super) fn prometheus(report: &Report) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, help: &str, of: &dyn Fn(&Row) -> Vec<(&'static str, String)>| {
        let _ = writeln!(text, "# HELP xds_health_check_{name} {help}");
        let _ = writeln!(text, "# TYPE xds_health_check_{name} gauge");
        for row in &report.rows {
            let host = label(&row.host.address.to_string());
            let check = label(&row.check);
            for (more, value) in of(row) {
                let _ = writeln!(
                    text,
                    "xds_health_check_{name}{{host=\"{host}\",check=\"{check}\"{more}}} {value}"
                );
            }
        }
    };
    metric(
        "passed",
        "1 if all attempts passed; 0 if one did not.",
        &|row| {
            let passed = row.verdict() == Verdict::Passed;
            vec![("", u8::from(passed).to_string())]
        },
    );
    metric("attempts", "Attempts made.", &|row| {
        vec![("", row.attempts.len().to_string())]
    });
    metric("attempts_passed", "Attempts that passed.", &|row| {
        vec![("", row.passed().to_string())]
    });
    metric("datagrams", "Datagrams sent and received.", &|row| {
        vec![
            (",kind=\"sent\"", row.sent.to_string()),
            (",kind=\"matched\"", row.passed().to_string()),
            (",kind=\"other\"", row.others.to_string()),
        ]
    });
    let help = "Round trips of attempts that passed.";
    metric("round_trip_seconds", help, &|row| {
        let Some(trips) = row.round_trips() else {
            return Vec::new();
        };
        let seconds = |time: Duration| time.as_secs_f64().to_string();
        vec![
            (",stat=\"min\"", seconds(trips.min)),
            (",stat=\"median\"", seconds(trips.median)),
            (",stat=\"p99\"", seconds(trips.p99)),
            (",stat=\"max\"", seconds(trips.max)),
        ]
    });
    text
}

fn label(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    escaped.replace('\n', "\\n")
}

/// One line with performance data.
pub(super) fn nagios(report: &Report) -> String {
    let state = match nagios_code(report) {
        0 => "OK",
        1 => "WARNING",
        2 => "CRITICAL",
        _ => "UNKNOWN",
    };
    let hosts = report.rows.len();
    let healthy = report.total(|row| usize::from(row.verdict() == Verdict::Passed));
    let (passed, all) = (
        report.total(Row::passed),
        report.total(|r| r.attempts.len()),
    );
    // The first of the worst.
    let worst = report.rows.iter().rev().max_by_key(|row| row.verdict());
    let why = worst.and_then(|row| Some((row.label(), row.reason()?)));
    let why = why.map(|(host, reason)| format!("; {host}: {reason}"));
    let mut line = format!(
        "UDP {state}: {healthy} of {hosts} passed, {passed} of {all} attempts{}",
        harmless(&why.unwrap_or_default().replace('|', "/"))
    );
    let _ = write!(
        line,
        " | hosts_passed={healthy};;;0;{hosts} attempts_passed={passed};;;0;{all}"
    );
    let trips = report.rows.iter().filter_map(Row::round_trips);
    let seconds = |time: Duration| format!("{:.6}s", time.as_secs_f64());
    if let Some(worst) = trips.clone().map(|trips| trips.max).max() {
        let median = trips.map(|trips| trips.median).max().unwrap_or(worst);
        let _ = write!(
            line,
            " median={};;;0 max={};;;0",
            seconds(median),
            seconds(worst)
        );
    }
    line.push('\n');
    line
}

/// The exit code of a Nagios plugin.
pub(super) fn nagios_code(report: &Report) -> u8 {
    match report.verdict() {
        _ if report.local() => 3,
        Verdict::Passed => 0,
        Verdict::Flaky => 1,
        Verdict::Failed => 2,
        Verdict::Unchecked => 3,
    }
}
