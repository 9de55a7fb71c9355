//! `xds-health status`: a fleet at a glance, from the admin port of a daemon that runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::signal::ctrl_c;
use tokio::time::{MissedTickBehavior, interval};

use super::ask::{self, NoAnswer, escaped};
use super::console::{Console, Paint, Style};
use super::live::{self, Live};
use super::table::{Cell, Table};
use super::time::span;
use super::{LOCAL, StatusArgs, StatusFormat, USAGE, clock};

/// The states that are counted, each with how it is painted.
const STATES: [(&str, Style); 4] = [
    ("healthy", Style::Good),
    ("degraded", Style::Odd),
    ("unhealthy", Style::Bad),
    ("unknown", Style::Faint),
];
/// What is listed when nothing else is asked for: all but those that are well.
const NOT_WELL: [&str; 3] = ["degraded", "unhealthy", "unknown"];
/// Lines of a table that are none of its hosts.
const AROUND: usize = 5;

pub(super) fn status(args: &StatusArgs, console: &mut Console<'_>) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(show(args, console)),
        Err(error) => {
            console.complain(&error);
            LOCAL
        }
    }
}

/// Tells why there is no answer.
pub(super) fn unanswered(no: NoAnswer, console: &mut Console<'_>) -> u8 {
    let (code, reason) = match no {
        NoAnswer::NotFound(reason) | NoAnswer::Refused(reason) => (USAGE, reason),
        NoAnswer::Unreachable(reason) => (LOCAL, reason),
    };
    console.complain(&reason);
    code
}

async fn show(args: &StatusArgs, console: &mut Console<'_>) -> u8 {
    let mut turns = interval(args.interval);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut live = Live::default();
    let mut answered = false;
    loop {
        tokio::select! {
            _ = turns.tick() => (),
            _ = ctrl_c() => return 0,
        }
        let seen = match Seen::ask(args).await {
            Ok(seen) => seen,
            // A daemon that is started anew is back soon.
            Err(NoAnswer::Unreachable(reason)) if answered => {
                if console.out.moves() {
                    live.show(&mut console.out, &[reason]);
                } else {
                    console.complain(&reason);
                }
                continue;
            }
            Err(no) => return unanswered(no, console),
        };
        answered = true;
        if args.admin.format == StatusFormat::Json {
            console.out.say(format_args!("{}\n", seen.json()));
        } else if args.watch && console.out.moves() {
            let (columns, rows) = live::size();
            let most = rows.saturating_sub(AROUND + seen.clusters.len()).max(1);
            let most = args.limit.min(most);
            let lines = seen.lines(console.out.paint(), columns, most);
            live.show(&mut console.out, &cut(lines, rows.saturating_sub(1)));
        } else {
            let lines = seen.lines(console.out.paint(), usize::MAX, args.limit);
            console.out.say(format_args!("{}\n", lines.join("\n")));
        }
        if !args.watch || console.out.closed() {
            return 0;
        }
        if !console.out.moves() && args.admin.format == StatusFormat::Table {
            console.out.say(format_args!("\n"));
        }
    }
}

/// As many lines as there is room for, the last of which tells of those that are left out.
fn cut(mut lines: Vec<String>, room: usize) -> Vec<String> {
    if lines.len() > room {
        let kept = room.saturating_sub(1);
        let more = lines.len() - kept;
        lines.truncate(kept);
        lines.push(format!("... {more} more lines: see --cluster and --limit"));
    }
    lines
}

/// What the admin port told.
struct Seen {
    /// How many hosts each cluster has in each of [`STATES`].
    clusters: BTreeMap<String, [usize; 4]>,
    /// Those that are listed.
    hosts: Vec<Value>,
}

impl Seen {
    async fn ask(args: &StatusArgs) -> Result<Self, NoAnswer> {
        let mut path = "/hosts".to_owned();
        if let Some(cluster) = &args.cluster {
            path = format!("{path}?cluster={}", escaped(cluster));
        }
        let mut seen = Self {
            clusters: BTreeMap::new(),
            hosts: Vec::new(),
        };
        let listed = |state: &str| match &*args.state {
            [] => args.all || NOT_WELL.contains(&state),
            asked => asked.iter().any(|of| of.name() == state),
        };
        let empty = ask::hosts(&args.admin.admin, &path, |host| {
            let (Some(cluster), Some(state)) = (host["cluster"].as_str(), host["state"].as_str())
            else {
                return;
            };
            let counts = seen.clusters.entry(cluster.to_owned()).or_default();
            if let Some(place) = STATES.iter().position(|(name, _)| *name == state) {
                counts[place] += 1;
            }
            if listed(state) {
                seen.hosts.push(host);
            }
        })
        .await?;
        for cluster in empty {
            seen.clusters.entry(cluster).or_default();
        }
        // The daemon's own order is by chance.
        seen.hosts.sort_by_cached_key(order);
        Ok(seen)
    }

    fn lines(&self, paint: Paint, width: usize, most: usize) -> Vec<String> {
        let columns = [
            "CLUSTER",
            "HOSTS>",
            "HEALTHY>",
            "DEGRADED>",
            "UNHEALTHY>",
            "UNKNOWN>",
        ];
        let mut table = Table::new(&columns);
        for (name, counts) in &self.clusters {
            let mut cells = vec![
                Cell::from(name.as_str()),
                counts.iter().sum::<usize>().to_string().into(),
            ];
            cells.extend(counts.iter().zip(STATES).map(|(count, (_, style))| {
                let style = if *count == 0 { Style::Faint } else { style };
                Cell::new(style, count.to_string())
            }));
            table.row(cells);
        }
        let mut lines = table.lines(paint, width);
        if self.hosts.is_empty() {
            return lines;
        }
        lines.push(String::new());
        let columns = ["HOST", "CLUSTER", "LOCALITY", "STATE", "SINCE>", "REASON"];
        let mut table = Table::new(&columns);
        for host in self.hosts.iter().take(most) {
            table.row(row(host));
        }
        lines.extend(table.lines(paint, width));
        if let Some(more) = self.hosts.len().checked_sub(most).filter(|more| *more > 0) {
            lines.push(paint.apply(Style::Faint, &format!("and {more} more")));
        }
        lines
    }

    fn json(&self) -> Value {
        let clusters = self.clusters.iter().map(|(name, counts)| {
            let mut of = json!({"cluster": name, "hosts": counts.iter().sum::<usize>()});
            for (count, (state, _)) in counts.iter().zip(STATES) {
                of[state] = (*count).into();
            }
            of
        });
        json!({"clusters": clusters.collect::<Vec<_>>(), "hosts": self.hosts})
    }
}

/// By cluster, then by address.
fn order(host: &Value) -> (String, Option<SocketAddr>, String) {
    let text = |name: &str| host[name].as_str().unwrap_or_default().to_owned();
    let address = text("address");
    (text("cluster"), address.parse().ok(), address)
}

fn row(host: &Value) -> Vec<Cell> {
    let text = |name: &str| host[name].as_str().unwrap_or_default().to_owned();
    let state = text("state");
    vec![
        label(host).into(),
        text("cluster").into(),
        locality(host).into(),
        Cell::new(style(&state), state.as_str()),
        since(host).map(span).unwrap_or_default().into(),
        host["reason"]["text"].as_str().unwrap_or_default().into(),
    ]
}

/// A host's name, if it has one, and its address.
pub(super) fn label(host: &Value) -> String {
    let address = host["address"].as_str().unwrap_or_default();
    match host["hostname"].as_str() {
        Some(name) => format!("{name} ({address})"),
        None => address.to_owned(),
    }
}

pub(super) fn locality(host: &Value) -> String {
    let parts = ["region", "zone", "sub_zone"];
    let parts = parts.map(|part| host["locality"][part].as_str().unwrap_or_default());
    let text = parts.join("/");
    text.trim_end_matches('/').to_owned()
}

pub(super) fn style(state: &str) -> Style {
    let of = STATES.iter().find(|(name, _)| *name == state);
    of.map_or(Style::Plain, |(_, style)| *style)
}

/// For how long a host has been as it is.
pub(super) fn since(host: &Value) -> Option<Duration> {
    ago(host["since"].as_str()?)
}

/// How long ago a time was, by the clock of this machine.
pub(super) fn ago(time: &str) -> Option<Duration> {
    let time: jiff::Timestamp = time.parse().ok()?;
    let now = jiff::Timestamp::try_from(clock::time()).ok()?;
    // Clocks differ: what is to come was just now.
    Some(Duration::try_from(now.duration_since(time)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_has_no_room_for_is_told_of() {
        let lines: Vec<_> = (0..5).map(|n| n.to_string()).collect();
        assert_eq!(cut(lines.clone(), 5), lines);
        let told = "... 3 more lines: see --cluster and --limit".to_owned();
        assert_eq!(cut(lines, 3), ["0".to_owned(), "1".to_owned(), told]);
    }
}
