//! The tables of the page, as they are without JavaScript.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::SystemTime;

use super::html::{encode, escape};
use super::{Asked, VERDICTS, ago};
use crate::admin::control_planes::Plane;
use crate::admin::events::name;
use crate::config::ClusterConfig;
use crate::engine::Engine;
use crate::event::{EventKind, HealthCheckEvent, Reason};
use crate::feed::json::write_timestamp;
use crate::host::Locality;
use crate::snapshot::HostView;

/// Hosts that are listed at once.
const ROWS: usize = 200;

/// Clusters and hosts as they are asked for.
pub(super) struct Found {
    pub(super) clusters: String,
    pub(super) hosts: String,
    /// How many hosts are asked for.
    pub(super) count: usize,
}

impl Found {
    pub(super) fn new(engine: &Engine, asked: &Asked, now: SystemTime) -> Self {
        let mut found = Self {
            clusters: String::new(),
            hosts: String::new(),
            count: 0,
        };
        for cluster in engine.clusters() {
            let config = cluster.config();
            if !config.name.contains(&asked.cluster) {
                continue;
            }
            let snapshot = cluster.snapshot();
            let mut counts = [0_usize; VERDICTS.len()];
            for view in snapshot.hosts() {
                let verdict = view.verdict();
                let place = VERDICTS.iter().position(|of| *of == verdict);
                if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
                    *count += 1;
                }
                if asked.state.is_some_and(|state| state != verdict)
                    || !place_contains(view.host.locality(), &asked.locality)
                {
                    continue;
                }
                if (asked.from..asked.from.saturating_add(ROWS)).contains(&found.count) {
                    let since = engine.wall_clock(view.since);
                    host(&mut found.hosts, &config, view, since, now);
                }
                found.count += 1;
            }
            found.cluster(&config, counts, snapshot.initialized());
        }
        found
    }

    fn cluster(&mut self, config: &ClusterConfig, counts: [usize; 4], initialized: bool) {
        let to = &mut self.clusters;
        to.push_str("<tr><td class=\"name\">");
        escape(to, &config.name);
        let all: usize = counts.iter().sum();
        let _ = write!(to, "</td><td class=\"n\">{all}</td>");
        for (verdict, count) in VERDICTS.iter().zip(counts) {
            let class = match (verdict.name(), count) {
                ("healthy", _) | (_, 0) => "",
                (name, _) => name,
            };
            let _ = write!(to, "<td class=\"n {class}\">{count}</td>");
        }
        to.push_str("<td>");
        bar(to, counts);
        to.push_str("</td><td class=\"dim\">");
        if !initialized {
            to.push_str("first checks run");
        }
        to.push_str("</td></tr>\n");
    }

    /// How to come to the hosts that are not listed.
    pub(super) fn more(&self, to: &mut String, asked: &Asked) {
        let after = asked.from.saturating_add(ROWS);
        let before = asked.from.saturating_sub(ROWS);
        let mut link = |from: usize, text: &str| {
            to.push_str("<a href=\"?cluster=");
            encode(to, &asked.cluster);
            to.push_str("&amp;locality=");
            encode(to, &asked.locality);
            let state = asked.state.map_or("", |state| state.name());
            let _ = write!(to, "&amp;state={state}&amp;from={from}\">{text}</a> ");
        };
        if asked.from > 0 {
            link(before, "earlier ones");
        }
        if after < self.count {
            link(after, &format!("{} more", self.count - after));
        }
    }
}

/// Appends the shares of the states as a bar; a share is seen, however small.
fn bar(to: &mut String, counts: [usize; 4]) {
    const WIDTH: usize = 160;

    let all = counts.iter().sum::<usize>().max(1);
    to.push_str("<svg class=\"bar\" viewBox=\"0 0 160 8\" aria-hidden=\"true\">");
    let mut before = 0;
    for (verdict, count) in VERDICTS.iter().zip(counts) {
        if count > 0 {
            let (x, width) = (WIDTH * before / all, (WIDTH * count / all).max(2));
            let name = verdict.name();
            let _ = write!(
                to,
                "<rect class=\"fill-{name}\" x=\"{x}\" y=\"0\" width=\"{width}\" height=\"8\"/>"
            );
        }
        before += count;
    }
    to.push_str("</svg>");
}

fn place_contains(locality: &Locality, part: &str) -> bool {
    part.is_empty() || place(locality).contains(part)
}

fn place(locality: &Locality) -> String {
    let Locality {
        region,
        zone,
        sub_zone,
    } = locality;
    let whole = format!("{region}/{zone}/{sub_zone}");
    whole.trim_end_matches('/').to_owned()
}

fn host(
    to: &mut String,
    config: &ClusterConfig,
    view: &HostView,
    since: SystemTime,
    now: SystemTime,
) {
    let host = &*view.host;
    let state = view.verdict().name();
    let _ = write!(
        to,
        "<tr><td><span class=\"state {state}\">{state}</span></td>"
    );
    cell(to, "name", &config.name);
    to.push_str("<td><a class=\"a name\" href=\"hosts?cluster=");
    let address = host.address.to_string();
    encode(to, config.key());
    to.push_str("&amp;address=");
    encode(to, &address);
    to.push_str("\">");
    escape(to, &address);
    to.push_str("</a></td>");
    cell(to, "name", &place(host.locality()));
    let _ = write!(
        to,
        "<td class=\"n\">{}</td><td class=\"n\">{}</td><td>",
        host.priority, host.weight
    );
    time(to, since, now);
    to.push_str("</td>");
    cell(to, "why name", &why(view.reason.as_deref()));
    to.push_str("</tr>\n");
}

/// The last events, the newest first.
pub(super) fn events(to: &mut String, events: &[(u64, Arc<HealthCheckEvent>)], now: SystemTime) {
    for (_, event) in events.iter().rev() {
        let class = match event.kind {
            EventKind::EjectUnhealthy { .. } | EventKind::Failure { .. } => "unhealthy",
            EventKind::AddHealthy { .. } | EventKind::Success => "healthy",
            _ => "degraded",
        };
        to.push_str("<tr><td>");
        time(to, event.timestamp, now);
        to.push_str("</td>");
        cell(to, class, &name(event.kind).replace('_', " "));
        cell(to, "name", &event.cluster);
        cell(to, "a name", &event.host.address.to_string());
        cell(to, "why name", &why(event.reason.as_ref()));
        to.push_str("</tr>\n");
    }
}

/// How it goes with management servers.
pub(super) fn planes(to: &mut String, planes: &[Plane], now: SystemTime) {
    if planes.is_empty() {
        to.push_str("<tr><td class=\"dim\">none is configured</td></tr>\n");
    }
    for plane in planes {
        to.push_str("<tr><td><span class=\"name\">");
        escape(to, &plane.server);
        let (class, word) = match plane.open {
            true => ("healthy", "open"),
            false => ("unhealthy", "closed"),
        };
        let _ = write!(
            to,
            "</span> <span class=\"dim\">{}, {}</span></td><td class=\"{class}\">{word} since ",
            plane.service, plane.mode
        );
        match plane.since {
            Some(since) => time(to, since, now),
            None => to.push_str("ever"),
        }
        to.push_str("</td><td class=\"why\">");
        match plane.last_answer {
            Some(at) => {
                to.push_str("last answer ");
                time(to, at, now);
            }
            None => to.push_str("<span class=\"dim\">no answer yet</span>"),
        }
        if let Some(nack) = &plane.last_nack {
            to.push_str("<div class=\"unhealthy\">refused ");
            time(to, nack.at, now);
            to.push(' ');
            escape(to, nack.type_url.rsplit('/').next().unwrap_or_default());
            to.push_str("<pre class=\"name\">");
            escape(to, &nack.details);
            to.push_str("</pre></div>");
        }
        // What has been overcome is told by `/control_planes`.
        if let Some((at, reason)) = &plane.last_failure
            && (!plane.open || plane.last_answer.is_none_or(|answer| answer < *at))
        {
            to.push_str("<div class=\"unhealthy\">failed ");
            time(to, *at, now);
            to.push_str("<pre class=\"name\">");
            escape(to, reason);
            to.push_str("</pre></div>");
        }
        to.push_str("</td></tr>\n");
    }
}

/// A reason in words, with the bytes that were heard.
fn why(reason: Option<&Reason>) -> String {
    let Some(reason) = reason else {
        return String::new();
    };
    let mut text = reason.to_string();
    if let Reason::Mismatch(mismatch) = reason {
        text.push(':');
        for byte in &mismatch.sample {
            let _ = write!(text, " {byte:02x}");
        }
        if mismatch.sample.is_empty() {
            text.push_str(" nothing");
        }
    }
    text
}

fn cell(to: &mut String, class: &str, text: &str) {
    let _ = write!(to, "<td class=\"{class}\">");
    escape(to, text);
    to.push_str("</td>");
}

/// Appends when something was.
pub(super) fn time(to: &mut String, at: SystemTime, now: SystemTime) {
    let mut exact = String::new();
    write_timestamp(&mut exact, at);
    let ago = ago(at, now);
    let _ = write!(
        to,
        "<time datetime=\"{exact}\" title=\"{exact}\">{ago}</time>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::control_planes::Nack;
    use std::time::Duration;

    #[test]
    fn a_server_is_told_with_its_age_and_what_was_refused() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let before = |seconds| now - Duration::from_secs(seconds);
        let mut plane = Plane {
            server: "xds <1>".into(),
            service: "ADS",
            mode: "delta",
            open: true,
            since: Some(before(7_200)),
            last_answer: Some(before(5)),
            last_nack: Some(Nack {
                at: before(60),
                type_url: "type.googleapis.com/a.b.Cluster".into(),
                version: "7".into(),
                details: "c1: <wrong>".into(),
            }),
            last_failure: Some((before(90), "<refused>".into())),
        };
        let mut told = String::new();
        planes(&mut told, std::slice::from_ref(&plane), now);
        for wanted in [
            "xds &lt;1&gt;",
            "ADS, delta",
            ">open since <time",
            ">2 h ago<",
            "last answer <time",
            ">5 s ago<",
            "refused <time",
            ">60 s ago<",
            "a.b.Cluster",
            "c1: &lt;wrong&gt;",
        ] {
            assert!(told.contains(wanted), "{wanted}: {told}");
        }
        assert!(!told.contains("failed"), "{told}");
        plane.open = false;
        told.clear();
        planes(&mut told, &[plane], now);
        for wanted in ["failed <time", ">90 s ago<", "&lt;refused&gt;"] {
            assert!(told.contains(wanted), "{wanted}: {told}");
        }
        let mut none = String::new();
        planes(&mut none, &[], now);
        assert!(none.contains("none is configured"));
    }
}
