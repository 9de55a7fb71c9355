//! `xds-health explain`: why a host is as it is, and what comes next, from the admin port of a daemon that runs.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::ask::{self, NoAnswer, escaped};
use super::check::hex;
use super::console::{Console, Paint, Style, harmless};
use super::status::{ago, label, locality, since, style, unanswered};
use super::table::{Cell, Table};
use super::time::{millis, span};
use super::{ExplainArgs, LOCAL, StatusFormat};

/// Attempts that are listed.
const ATTEMPTS: usize = 10;

pub(super) fn explain(args: &ExplainArgs, console: &mut Console<'_>) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let hosts = match runtime {
        Ok(runtime) => runtime.block_on(hosts(args)),
        Err(error) => {
            console.complain(&error);
            return LOCAL;
        }
    };
    let hosts = match hosts {
        Ok(hosts) => hosts,
        Err(no) => return unanswered(no, console),
    };
    if args.admin.format == StatusFormat::Json {
        console.out.say(format_args!("{}\n", Value::from(hosts)));
        return 0;
    }
    let paint = console.out.paint();
    let text: Vec<_> = hosts.iter().map(|host| explained(host, paint)).collect();
    console.out.say(format_args!("{}", text.join("\n")));
    0
}

/// All that is known of the hosts that are meant, one most often.
async fn hosts(args: &ExplainArgs) -> Result<Vec<Value>, NoAnswer> {
    let path = format!("/hosts?cluster={}", escaped(&args.cluster));
    let mut addresses = vec![args.host.clone()];
    if args.host.parse::<std::net::SocketAddr>().is_err() {
        addresses.clear();
        ask::hosts(&args.admin.admin, &path, |host| {
            let address = host["address"].as_str().unwrap_or_default();
            let ip = address.rsplit_once(':').map_or(address, |(ip, _)| ip);
            let meant = [address, ip, ip.trim_matches(['[', ']'])].contains(&&*args.host);
            let named = host["hostname"].as_str() == Some(&*args.host);
            if (meant || named) && !addresses.iter().any(|of| of == address) {
                addresses.push(address.to_owned());
            }
        })
        .await?;
    }
    let mut hosts = Vec::new();
    for address in addresses {
        let path = format!("{path}&address={}", escaped(&address));
        hosts.extend(ask::details(&args.admin.admin, &path).await?);
    }
    if hosts.is_empty() {
        let reason = format!("cluster {:?} has no host {:?}", args.cluster, args.host);
        return Err(NoAnswer::NotFound(reason));
    }
    Ok(hosts)
}

fn explained(host: &Value, paint: Paint) -> String {
    let text = |value: &Value| harmless(value.as_str().unwrap_or_default()).into_owned();
    let state = text(&host["state"]);
    let mut told = String::new();
    let _ = writeln!(
        told,
        "{} of cluster {}: {} for {}",
        paint.apply(Style::Strong, &harmless(&label(host))),
        text(&host["cluster"]),
        paint.apply(style(&state), &state),
        since(host).map(span).unwrap_or_default(),
    );
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(told, "  {name:11} {value}");
        }
    };
    let flags = host["flags"].as_array().into_iter().flatten();
    line("flags", &flags.map(text).collect::<Vec<_>>().join(", "));
    line("locality", &harmless(&locality(host)));
    line("checked at", &text(&host["check_address"]));
    if host["check_disabled"] == true {
        line("checks", "none: disable_active_health_check");
    }
    line("reason", &text(&host["reason"]["text"]));
    told.push_str(&bytes(&host["reason"], paint));
    for check in host["checks"].as_array().into_iter().flatten() {
        told.push_str(&of_check(check, paint));
    }
    let attempts = host["attempts"].as_array().map(Vec::as_slice);
    told.push_str(&of_attempts(attempts.unwrap_or_default(), paint));
    told
}

/// What came instead of the awaited answer.
fn bytes(reason: &Value, paint: Paint) -> String {
    let (Some(digits), Some(at)) = (
        reason["bytes"].as_str(),
        reason["first_difference"].as_u64(),
    ) else {
        return String::new();
    };
    let pairs = digits.as_bytes().chunks_exact(2);
    let bytes =
        pairs.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let bytes: Vec<u8> = bytes.collect();
    let mark = usize::try_from(at).unwrap_or(usize::MAX);
    // Of a long datagram only the beginning is kept.
    let length = reason["length"].as_u64().unwrap_or_default();
    if mark > bytes.len() || bytes.is_empty() && length > 0 {
        return String::new();
    }
    let lines = hex::dump(&bytes, mark, paint).into_iter();
    lines
        .map(|line| format!("              {line}\n"))
        .collect()
}

fn of_check(check: &Value, paint: Paint) -> String {
    let number = |name: &str| check[name].as_u64().unwrap_or_default();
    let time = |name: &str| check[name].as_f64().map(from_millis);
    let mut told = String::from("\n");
    let name = harmless(check["check"].as_str().unwrap_or_default()).into_owned();
    let title = match &*name {
        "" => "check".to_owned(),
        name => format!("check {name}"),
    };
    let _ = writeln!(told, "{}", paint.apply(Style::Strong, &title));
    let mut line = |name: &str, value: String| {
        let _ = writeln!(told, "  {name:11} {value}");
    };
    let due = time("due_in_ms").map(seconds).unwrap_or_default();
    line(
        "now",
        match check["state"].as_str() {
            Some("waiting") => format!("waiting, the next attempt in {due}"),
            Some("attempting") => format!("attempting, for at most {due} more"),
            _ => "an attempt is due and waits for its turn".to_owned(),
        },
    );
    let jitter = time("jitter_ms").filter(|jitter| !jitter.is_zero());
    let jitter = jitter.map(|jitter| format!(" and up to {} of jitter", seconds(jitter)));
    let why = check["why"].as_str().unwrap_or_default();
    line(
        "waits by",
        format!(
            "{}: {}{} ({why})",
            check["interval"].as_str().unwrap_or_default(),
            time("interval_ms").map(seconds).unwrap_or_default(),
            jitter.unwrap_or_default(),
        ),
    );
    line(
        "timeout",
        time("timeout_ms").map(seconds).unwrap_or_default(),
    );
    let so_far = match (check["first_check"] == true, check["failed"] == true) {
        (true, _) => "no attempt has been completed".to_owned(),
        (_, true) => format!(
            "{} of {} successes in a row that bring the host back",
            number("successes"),
            number("healthy_threshold")
        ),
        (_, false) => format!(
            "{} of {} failures in a row that eject the host",
            number("failures"),
            number("unhealthy_threshold")
        ),
    };
    line("so far", so_far);
    let last = &check["last"];
    let failure = harmless(last["reason"]["text"].as_str().unwrap_or("failed")).into_owned();
    match last["passed"].as_bool() {
        Some(true) => line("last", "passed".to_owned()),
        Some(false) => line("last", failure),
        None => (),
    }
    if let Some(trip) = time("round_trip_ms") {
        line(
            "round trip",
            format!("{} at the last success", millis(trip)),
        );
    }
    told
}

fn of_attempts(attempts: &[Value], paint: Paint) -> String {
    if attempts.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["ATTEMPT", "CHECK", "RESULT", "TOOK>", "REASON"]);
    for attempt in attempts.iter().take(ATTEMPTS) {
        let at = attempt["at"].as_str().and_then(ago);
        let passed = attempt["passed"] == true;
        let (style, result) = match passed {
            true => (Style::Good, "passed"),
            false => (Style::Bad, "failed"),
        };
        let reason = match passed {
            true => "",
            false => attempt["text"].as_str().unwrap_or_default(),
        };
        let took = attempt["took_ms"].as_f64().map(from_millis);
        table.row(vec![
            at.map(|at| format!("{} ago", seconds(at)))
                .unwrap_or_default()
                .into(),
            attempt["check"].as_str().unwrap_or_default().into(),
            Cell::new(style, result),
            took.map(millis).unwrap_or_default().into(),
            reason.into(),
        ]);
    }
    format!("\n{}", table.text(paint))
}

fn from_millis(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis / 1e3).unwrap_or_default()
}

/// A time with as much of it as matters.
fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds @ ..60.0 => format!("{}s", (seconds * 100.0).round() / 100.0),
        _ => span(time),
    }
}
