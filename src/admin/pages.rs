//! The table of paths, the list of them, and what is said where no page is.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::{
    Shared, answer, clusters, config_dump, control, control_planes, events, guard, hosts,
    init_dump, page, server, stats,
};

/// One path. What is to be asked for by another path is one more line in [`PAGES`].
struct Page {
    path: &'static str,
    method: Verb,
    help: &'static str,
    /// Query parameters, each with what it does.
    parameters: &'static [(&'static str, &'static str)],
    handler: fn(MethodFilter) -> MethodRouter<Arc<Shared>>,
}

/// The one method that a path takes; who takes `GET` takes `HEAD` too.
#[derive(Clone, Copy)]
enum Verb {
    Get,
    Post,
}

impl Verb {
    fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Post => Method::POST,
        }
    }
}

const CLUSTER_FILTER: (&str, &str) = (
    "filter",
    "Only clusters in whose name this regular expression is found",
);
const STATS_FILTER: [(&str, &str); 4] = [
    (
        "filter",
        "Only stats in whose name this regular expression is found",
    ),
    ("invert_filter", "Only stats where the filter is not found"),
    ("usedonly", "Only stats that were ever counted or set"),
    (
        "type",
        "Only stats of this type; One of (All, Counters, Histograms, Gauges, TextReadouts)",
    ),
];

static PAGES: [Page; 17] = [
    Page {
        path: "/",
        method: Verb::Get,
        help: "clusters, hosts, events and management servers at a glance",
        parameters: &[
            ("cluster", "Only clusters with this in their names"),
            (
                "locality",
                "Only hosts with this in their region/zone/sub_zone",
            ),
            (
                "state",
                "Only hosts in this state; One of (healthy, degraded, unhealthy, unknown)",
            ),
        ],
        handler: |of| on(of, page::page),
    },
    Page {
        path: "/clusters",
        method: Verb::Get,
        help: "clusters, their hosts and the health of these",
        parameters: &[CLUSTER_FILTER, ("format", "One of (text, json)")],
        handler: |of| on(of, clusters::page),
    },
    Page {
        path: "/config_dump",
        method: Verb::Get,
        help: "the configuration in force, and what was refused of it, without secrets",
        parameters: &[
            (
                "resource",
                "Only the resources in this list, such as dynamic_active_clusters",
            ),
            (
                "name_regex",
                "Only resources whose whole name this regular expression matches",
            ),
            (
                "mask",
                "Only these fields of each config, or of each resource: paths with commas between",
            ),
            ("include_eds", "Endpoints too"),
        ],
        handler: |of| on(of, config_dump::page),
    },
    Page {
        path: "/control_planes",
        method: Verb::Get,
        help: "streams to management servers and files in their place, as JSON",
        parameters: &[],
        handler: |of| on(of, control_planes::page),
    },
    Page {
        path: "/events",
        method: Verb::Get,
        help: "what checks do to hosts, as server-sent events",
        parameters: &[
            ("cluster", "Only events of the cluster of this name"),
            ("last", "So many of the last ones instead, as JSON"),
        ],
        handler: |of| on(of, events::page),
    },
    Page {
        path: "/healthcheck/fail",
        method: Verb::Post,
        help: "have /ready fail, as if the process were to end",
        parameters: &[],
        handler: |of| on(of, control::fail),
    },
    Page {
        path: "/healthcheck/ok",
        method: Verb::Post,
        help: "have /ready succeed again",
        parameters: &[],
        handler: |of| on(of, control::pass),
    },
    Page {
        path: "/help",
        method: Verb::Get,
        help: "this list",
        parameters: &[],
        handler: |of| on(of, help),
    },
    Page {
        path: "/hosts",
        method: Verb::Get,
        help: "hosts with their states, since when and why, as JSON",
        parameters: &[
            ("cluster", "Only hosts of the cluster of this name"),
            (
                "state",
                "Only hosts in these states, as healthy,degraded; Of (healthy, degraded, unhealthy, unknown)",
            ),
            (
                "locality",
                "Only hosts of this region, or region/zone, or region/zone/sub_zone",
            ),
            ("address", "Only the host at this address"),
            ("limit", "At most so many"),
            (
                "watch",
                "All of them, and then what changes, as server-sent events",
            ),
        ],
        handler: |of| on(of, hosts::page),
    },
    Page {
        path: "/init_dump",
        method: Verb::Get,
        help: "clusters that are not yet initialized",
        parameters: &[],
        handler: |of| on(of, init_dump::page),
    },
    Page {
        path: "/logging",
        method: Verb::Post,
        help: "loggers and their levels, which can be changed",
        parameters: &[
            (
                "level",
                "Level of all; One of (, trace, debug, info, warning, error, critical, off)",
            ),
            ("paths", "Levels of some, as name1:level1,name2:level2"),
        ],
        handler: |of| on(of, control::logging),
    },
    Page {
        path: "/quitquitquit",
        method: Verb::Post,
        help: "end the process",
        parameters: &[],
        handler: |of| on(of, control::quit),
    },
    Page {
        path: "/ready",
        method: Verb::Get,
        help: "the server's state, with 200 if it is LIVE, else 503",
        parameters: &[],
        handler: |of| on(of, server::ready),
    },
    Page {
        path: "/reopen_logs",
        method: Verb::Post,
        help: "open event logs anew",
        parameters: &[],
        handler: |of| on(of, control::reopen_logs),
    },
    Page {
        path: "/server_info",
        method: Verb::Get,
        help: "the server's version, state and uptime",
        parameters: &[],
        handler: |of| on(of, server::info),
    },
    Page {
        path: "/stats",
        method: Verb::Get,
        help: "counters, gauges and histograms",
        parameters: &[
            STATS_FILTER[0],
            STATS_FILTER[1],
            STATS_FILTER[2],
            STATS_FILTER[3],
            ("format", "One of (text, json, prometheus)"),
        ],
        handler: |of| on(of, stats::page),
    },
    Page {
        path: "/stats/prometheus",
        method: Verb::Get,
        help: "counters, gauges and histograms for Prometheus",
        parameters: &STATS_FILTER,
        handler: |of| on(of, stats::prometheus_page),
    },
];

pub(super) fn router(shared: Arc<Shared>) -> Router {
    let mut router = Router::new();
    for page in &PAGES {
        router = router.route(page.path, (page.handler)(page.method.filter()));
    }
    router
        .method_not_allowed_fallback(wrong_method)
        .fallback(wrong_path)
        .layer(from_fn_with_state(Arc::clone(&shared), guard::guard))
        .with_state(shared)
}

async fn help() -> Response {
    answer::text(StatusCode::OK, list("admin commands are:\n"))
}

async fn wrong_path() -> Response {
    answer::text(
        StatusCode::NOT_FOUND,
        list("invalid path. admin commands are:\n"),
    )
}

async fn wrong_method(request: Request) -> Response {
    let wanted = PAGES.iter().find(|page| page.path == request.uri().path());
    let wanted = wanted.map_or(Method::GET, |page| page.method.method());
    let message = format!(
        "Method {} not allowed, {wanted} required.",
        request.method()
    );
    answer::text(StatusCode::METHOD_NOT_ALLOWED, message)
}

/// Appends the list of paths as items of HTML. All of it is written here, so that nothing needs escapes.
pub(super) fn links(to: &mut String) {
    for page in &PAGES {
        let (path, help) = (page.path, page.help);
        let relative = path.trim_start_matches('/');
        let _ = match page.method {
            Verb::Get => write!(to, "<li><a href=\".{path}\">{path}</a> {help}"),
            Verb::Post => write!(
                to,
                "<li><form method=\"post\" action=\"{relative}\"{}>{}<button>{path}</button></form> {help}",
                match path {
                    "/quitquitquit" => " data-ask=\"End the process?\"",
                    _ => "",
                },
                match path {
                    "/logging" => LEVELS,
                    _ => "",
                }
            ),
        };
        to.push_str("</li>\n");
    }
}

const LEVELS: &str = "<select name=\"level\"><option value=\"\">show</option><option>trace</option>\
    <option>debug</option><option>info</option><option>warning</option><option>error</option>\
    <option>critical</option><option>off</option></select> ";

fn list(title: &str) -> String {
    let mut list = String::from(title);
    for page in &PAGES {
        let post = match page.method {
            Verb::Get => "",
            Verb::Post => " (POST)",
        };
        let _ = writeln!(list, "  {}{post}: {}", page.path, page.help);
        for (name, help) in page.parameters {
            let _ = writeln!(list, "      {name}: {help}");
        }
    }
    list
}
