//! The page at the root: clusters, hosts, events and management servers at a glance.
//!
//! It is one document, with its style and script in it, and asks nobody but this port for anything. Without
//! JavaScript it is a table of hosts, a piece at a time; with it, it follows `/hosts?watch` and `/events`. Names
//! and reasons come from other parties: here each is escaped, the script sets them as text, and the policy that
//! goes with the page runs no script but the page's own.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::{RawQuery, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::answer::{self, Refused};
use super::query::Query;
use super::{ServerState, Shared, VERSION, pages};
use crate::feed::json::write_timestamp;
use crate::snapshot::Verdict;

mod html;
mod tables;

use html::escape;

const PAGE: &str = include_str!("page/page.html");
const SCRIPT: &str = include_str!("page/page.js");

/// Verdicts in the order of columns.
const VERDICTS: [Verdict; 4] = [
    Verdict::Healthy,
    Verdict::Degraded,
    Verdict::Unhealthy,
    Verdict::Unknown,
];

pub(super) async fn page(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let asked = Asked::read(&Query::form(&query.unwrap_or_default())?)?;
    let mut random = [0; 16];
    let filled = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    if filled.ok() != Some(random.len()) {
        return Err(Refused::internal("There are no random numbers.\n"));
    }
    let nonce = URL_SAFE_NO_PAD.encode(random);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    );
    let of = Arc::clone(&shared);
    let text = answer::off_runtime(&shared, move || render(&of, &asked, &nonce)).await?;
    let mut page = answer::html(text);
    let headers = page.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, &*policy),
        (header::REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    Ok(page)
}

/// Which hosts are to be shown without JavaScript.
#[derive(Debug, Default)]
struct Asked {
    /// A part of the cluster's name.
    cluster: String,
    /// A part of the locality.
    locality: String,
    state: Option<Verdict>,
    /// So many of them come before.
    from: usize,
}

impl Asked {
    /// # Errors
    ///
    /// There is no such state.
    fn read(query: &Query) -> Result<Self, Refused> {
        let text = |name| query.get(name).unwrap_or_default().to_owned();
        let state = query.get("state").map(|word| {
            let mut all = VERDICTS.into_iter();
            all.find(|verdict| verdict.name() == word).ok_or_else(|| {
                let usage = "usage: /?state=(healthy|degraded|unhealthy|unknown)\n";
                Refused::bad_request(usage)
            })
        });
        let from = query.get("from").and_then(|from| from.parse().ok());
        Ok(Self {
            cluster: text("cluster"),
            locality: text("locality"),
            state: state.transpose()?,
            from: from.unwrap_or_default(),
        })
    }
}

fn render(shared: &Shared, asked: &Asked, nonce: &str) -> String {
    let engine = &shared.admin.engine;
    let now = engine.wall_clock(engine.now());
    let found = tables::Found::new(engine, asked, now);
    let mut to = String::with_capacity(PAGE.len() + SCRIPT.len() + 64 * 1024);
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        to.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        rest = after;
        match name {
            "nonce" => to.push_str(nonce),
            "script" => to.push_str(SCRIPT),
            "version" => escape(&mut to, VERSION.rsplit('/').next().unwrap_or_default()),
            "node" => {
                let id = shared.admin.node.as_ref().map(|node| &*node.id);
                escape(&mut to, id.unwrap_or_default());
            }
            "state" => to.push_str(shared.state().name()),
            "state_class" => to.push_str(match shared.state() {
                ServerState::Live => "healthy",
                ServerState::Draining => "degraded",
                ServerState::PreInitializing => "unknown",
            }),
            "uptime" => {
                let up = engine.uptime();
                let mut since = String::new();
                write_timestamp(&mut since, now.checked_sub(up).unwrap_or(now));
                let up = span(up);
                let _ = write!(to, "<time id=\"up\" datetime=\"{since}\">{up}</time>");
            }
            "now" => tables::time(&mut to, now, now),
            "f_cluster" => escape(&mut to, &asked.cluster),
            "f_locality" => escape(&mut to, &asked.locality),
            "f_states" => states(&mut to, asked.state),
            "count" => {
                let _ = write!(to, "{} hosts", found.count);
            }
            "clusters" => to.push_str(&found.clusters),
            "hosts" => to.push_str(&found.hosts),
            "more" => found.more(&mut to, asked),
            "events" => tables::events(&mut to, &shared.history.last(30), now),
            "planes" => tables::planes(&mut to, &shared.planes(), now),
            "paths" => pages::links(&mut to),
            _ => (),
        }
    }
    to.push_str(rest);
    to
}

fn states(to: &mut String, chosen: Option<Verdict>) {
    to.push_str("<option value=\"\">any</option>");
    for verdict in VERDICTS {
        let name = verdict.name();
        let selected = if chosen == Some(verdict) {
            " selected"
        } else {
            ""
        };
        let _ = write!(to, "<option{selected}>{name}</option>");
    }
}

/// A time span in its largest unit.
fn span(of: Duration) -> String {
    match of.as_secs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7_200 => format!("{} min", s / 60),
        s @ 7_200..172_800 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    }
}

/// How long before `now` it was.
fn ago(at: SystemTime, now: SystemTime) -> String {
    format!("{} ago", span(now.duration_since(at).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_nobody_else_for_anything() {
        for text in [PAGE, SCRIPT] {
            let links = text.replace("http://www.w3.org/2000/svg", "");
            for wrong in ["http:", "https:", "//cdn", "@import", "url("] {
                assert!(!links.contains(wrong), "{wrong}");
            }
        }
        // Nor does it make markup of text, or run any.
        for wrong in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(!SCRIPT.contains(wrong), "{wrong}");
        }
        assert!(!SCRIPT.contains("</script") && !SCRIPT.contains("{{"));
        assert!(!PAGE.contains(" style=") && !PAGE.contains(" onclick="));
    }

    #[test]
    fn spans_are_told_in_their_largest_unit() {
        for (seconds, wanted) in [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7_200, "2 h"),
            (172_800, "2 d"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), wanted);
        }
    }
}
