//! What the demo shows.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::{Cluster, Daemon, Verdict};
use crate::cli::clock;
use crate::cli::console::{Console, Paint, Style};
use crate::cli::table::{Cell, Table};
use crate::cli::time::{millis, span};
use crate::host::Address;
use crate::snapshot::HostView;

/// What it runs, and where to look.
pub(super) fn head(console: &mut Console<'_>, config: &str, admin: Option<SocketAddr>) {
    let paint = console.out.paint();
    let strong = |text: &str| paint.apply(Style::Strong, text);
    let config: String = config.lines().map(|line| format!("    {line}\n")).collect();
    let page = admin
        .map(|admin| format!("http://{admin}/"))
        .unwrap_or_default();
    console.out.say(format_args!(
        "{}\n\n{config}\n{}\n{}\n\n",
        strong("The configuration. While the demo runs, `xds-health run -c FILE` with it checks the same upstreams:"),
        strong(&format!("The admin page: {page}")),
        paint.apply(
            Style::Faint,
            "Upstreams behave as their names say; a management server in this process tells of them."
        ),
    ));
}

fn name(view: &HostView) -> String {
    let name = view.host.hostname();
    name.map(|name| name.to_string()).unwrap_or_default()
}

pub(in crate::cli) fn style(verdict: Verdict) -> Style {
    match verdict {
        Verdict::Healthy => Style::Good,
        Verdict::Degraded => Style::Odd,
        Verdict::Unhealthy => Style::Bad,
        Verdict::Unknown => Style::Faint,
    }
}

/// Hosts, and a line of counts below them. Cut to the terminal, if it is one.
pub(super) async fn table(
    daemon: &Daemon,
    cluster: &Cluster,
    paint: Paint,
    width: Option<usize>,
) -> Vec<String> {
    let columns = [
        "UPSTREAM",
        "ADDRESS",
        "STATE",
        "SINCE>",
        "ROUND TRIP>",
        "REASON",
    ];
    let mut table = Table::new(&columns);
    let mut hosts: Vec<_> = cluster.snapshot().hosts().cloned().collect();
    hosts.sort_by_key(|view| {
        let name = name(view);
        super::Manner::ALL
            .iter()
            .position(|manner| manner.name() == name)
    });
    let now = clock::now();
    for view in &hosts {
        let explained = cluster.explain(&view.host.address).await;
        let sessions = explained
            .into_iter()
            .flatten()
            .flat_map(|host| host.sessions);
        let trip = sessions.filter_map(|session| session.round_trip).next();
        let since = now.saturating_duration_since(view.since);
        let verdict = view.verdict();
        let reason = view.reason.as_ref().map(ToString::to_string);
        table.row(vec![
            name(view).into(),
            view.host.address.to_string().into(),
            Cell::new(style(verdict), verdict.name()),
            span(since).into(),
            trip.map_or_else(|| "-".to_owned(), millis).into(),
            reason.unwrap_or_default().into(),
        ]);
    }
    let width = width.unwrap_or(usize::MAX);
    let mut lines = table.lines(paint, width);
    let stats = daemon.engine().stats();
    let config = cluster.config();
    let stats = stats.cluster(cluster.key(), config.stat_name());
    let checks = config
        .health_checks
        .iter()
        .map(|check| stats.check(&check.name));
    let (mut attempts, mut passed, mut failed) = (0, 0, 0);
    for check in checks {
        attempts += check.attempt.value();
        passed += check.success.value();
        failed += check.failure.value();
    }
    let counts = format!("{attempts} attempts, {passed} passed, {failed} failed");
    lines.push(paint.apply(
        Style::Faint,
        &counts.chars().take(width).collect::<String>(),
    ));
    lines
}

/// A line for each host whose state is another than before.
pub(super) fn changes(
    daemon: &Daemon,
    cluster: &Cluster,
    before: &mut HashMap<Address, Verdict>,
    console: &mut Console<'_>,
) {
    for view in cluster.snapshot().hosts() {
        let verdict = view.verdict();
        let was = before.insert(view.host.address.clone(), verdict);
        if was == Some(verdict) || verdict == Verdict::Unknown {
            continue;
        }
        let at = daemon.engine().uptime().as_secs_f64();
        let state = console.out.paint().apply(style(verdict), verdict.name());
        let reason = view.reason.as_ref().map(|reason| format!(": {reason}"));
        console.out.say(format_args!(
            "{at:7.3}s  {:8}  {}  {state}{}\n",
            name(view),
            view.host.address,
            reason.unwrap_or_default()
        ));
    }
}
