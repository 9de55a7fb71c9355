//! `/hosts`: hosts and why they are as they are, as JSON, a host a line.
//!
//! The form is this program's own. As with `/clusters`, hosts are written while the answer is sent. Of the hosts
//! at one address of one cluster the checks and the last attempts are told too.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::Extensions;
use axum::response::Response;

use super::Shared;
use super::answer::{self, Refused};
use super::clusters::{Form, Viewed, Walk};
use super::query::Query;
use super::serve::Terms;
use crate::config::json::write_string;
use crate::engine::Cluster;
use crate::host::Locality;
use crate::snapshot::{HostView, Verdict};

mod detail;
mod json;
mod watch;

pub(super) use detail::millis;
pub(super) use json::{Times, string, write_host, write_locality, write_reason};

/// What can be asked after the `?`.
const PARAMETERS: [&str; 6] = ["address", "cluster", "limit", "locality", "state", "watch"];

const VERDICTS: [Verdict; 4] = [
    Verdict::Healthy,
    Verdict::Degraded,
    Verdict::Unhealthy,
    Verdict::Unknown,
];

pub(super) async fn page(
    State(shared): State<Arc<Shared>>,
    extensions: Extensions,
    query: Query,
) -> Result<Response, Refused> {
    let mut names = query.pairs().iter().map(|(name, _)| &**name);
    if let Some(name) = names.find(|name| !PARAMETERS.contains(name)) {
        let known = PARAMETERS.join(", ");
        let message = format!("There is no parameter {name:?}: known are {known}.\n");
        return Err(Refused::bad_request(message));
    }
    let selection = Selection::new(&query)?;
    let engine = &shared.admin.engine;
    if query.has("watch") && !matches!(query.get("watch"), Some("0" | "false")) {
        if !selection.is_whole() {
            let message = "Of what is watched only the cluster can be chosen.\n";
            return Err(Refused::bad_request(message));
        }
        let (engine, cluster) = (engine.clone(), selection.cluster);
        let tell = |lines| watch::watch(engine, cluster, lines);
        return shared.streams.open(Terms::of(&extensions), tell);
    }
    if let (Some(_), Some(address)) = (&selection.cluster, &selection.address) {
        let clusters = selection.clusters(engine.clusters())?;
        let list = detail::list(&clusters, address, Times::of(engine)).await;
        return Ok(answer::json(list));
    }
    let mut list = List {
        left: selection.limit,
        times: Times::of(engine),
        comma: "",
        empty: String::new(),
        more: false,
        selection,
    };
    let clusters = list.selection.clusters(engine.clusters())?;
    let mut walk = Walk::new(clusters);
    let body = answer::streamed(move |to| walk.write(&mut list, to));
    Ok(answer::json(body))
}

/// Which hosts are asked for.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    pub(super) cluster: Option<String>,
    states: Vec<Verdict>,
    locality: Vec<String>,
    address: Option<String>,
    limit: Option<usize>,
}

impl Selection {
    /// # Errors
    ///
    /// There is no such state, or the limit is no number.
    pub(super) fn new(query: &Query) -> Result<Self, Refused> {
        let words = query.get("state").unwrap_or_default().split(',');
        let states = words.filter(|word| !word.is_empty()).map(|word| {
            let mut all = VERDICTS.into_iter();
            all.find(|verdict| verdict.name() == word).ok_or_else(|| {
                let usage = "usage: /hosts?state=(healthy|degraded|unhealthy|unknown),...\n";
                Refused::bad_request(usage)
            })
        });
        let limit = query.get("limit").map(str::parse).transpose();
        let parts = query.get("locality").map(|parts| parts.split('/'));
        Ok(Self {
            cluster: query.get("cluster").map(str::to_owned),
            states: states.collect::<Result<_, _>>()?,
            locality: parts.into_iter().flatten().map(str::to_owned).collect(),
            address: query.get("address").map(str::to_owned),
            limit: limit.map_err(|_| Refused::bad_request("usage: /hosts?limit=NUMBER\n"))?,
        })
    }

    /// Whether all hosts of its clusters are asked for.
    fn is_whole(&self) -> bool {
        self.address.is_none()
            && self.states.is_empty()
            && self.locality.is_empty()
            && self.limit.is_none()
    }

    /// Those of `clusters` that are asked for.
    ///
    /// # Errors
    ///
    /// There is none of that name.
    pub(super) fn clusters(&self, mut clusters: Vec<Cluster>) -> Result<Vec<Cluster>, Refused> {
        let Some(name) = self.cluster.as_deref() else {
            return Ok(clusters);
        };
        clusters.retain(|cluster| **cluster.name() == *name || **cluster.key() == *name);
        if clusters.is_empty() {
            return Err(Refused::not_found("There is no cluster of that name.\n"));
        }
        Ok(clusters)
    }

    pub(super) fn admits(&self, view: &HostView) -> bool {
        (self.states.is_empty() || self.states.contains(&view.verdict()))
            && self.is_within(view.host.locality())
            && self
                .address
                .as_ref()
                .is_none_or(|address| view.host.address.to_string() == *address)
    }

    /// Parts that are not given may be any.
    fn is_within(&self, locality: &Locality) -> bool {
        let parts = [&locality.region, &locality.zone, &locality.sub_zone];
        let mut wanted = self.locality.iter();
        parts
            .into_iter()
            .zip(wanted.by_ref())
            .all(|(part, wanted)| **part == **wanted)
            && wanted.next().is_none()
    }
}

/// Writes the hosts of a selection.
struct List {
    selection: Selection,
    left: Option<usize>,
    times: Times,
    comma: &'static str,
    /// Names of clusters that have no host at all, as members of a JSON array.
    empty: String,
    /// There are more than the limit allows.
    more: bool,
}

impl Form for List {
    fn begin(&mut self, to: &mut String) {
        to.push_str("{\"hosts\":[\n");
    }

    fn cluster(&mut self, _: &mut String, cluster: &Viewed) {
        if cluster.snapshot.is_empty() {
            if !self.empty.is_empty() {
                self.empty.push(',');
            }
            write_string(&mut self.empty, &cluster.config.name);
        }
    }

    fn host(&mut self, to: &mut String, cluster: &Viewed, host: &HostView) {
        if !self.selection.admits(host) {
            return;
        }
        if let Some(left) = &mut self.left {
            let Some(fewer) = left.checked_sub(1) else {
                self.more = true;
                return;
            };
            *left = fewer;
        }
        to.push_str(std::mem::replace(&mut self.comma, ",\n"));
        to.push('{');
        write_host(to, &cluster.config, host, self.times);
        to.push('}');
    }

    fn cluster_end(&mut self, _: &mut String, _: &Viewed) {}

    fn end(&mut self, to: &mut String) {
        let (empty, more) = (&self.empty, self.more);
        let _ = writeln!(to, "\n],\"empty\":[{empty}],\"more\":{more}}}");
    }

    fn done(&self) -> bool {
        self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locality_is_asked_for_by_its_first_parts() {
        let of = |text: &str| Locality {
            region: text.split('/').next().unwrap_or_default().into(),
            zone: text.split('/').nth(1).unwrap_or_default().into(),
            sub_zone: text.split('/').nth(2).unwrap_or_default().into(),
        };
        for (wanted, there, found) in [
            ("", "a/b/c", true),
            ("a", "a/b/c", true),
            ("a/b", "a/b/c", true),
            ("a/b/c", "a/b/c", true),
            ("a/b/c/d", "a/b/c", false),
            ("a/c", "a/b/c", false),
            ("b", "a/b/c", false),
            ("a/b", "a", false),
            ("a", "ab", false),
        ] {
            let parts = wanted.split('/').filter(|_| !wanted.is_empty());
            let selection = Selection {
                cluster: None,
                states: Vec::new(),
                locality: parts.map(str::to_owned).collect(),
                address: None,
                limit: None,
            };
            assert_eq!(selection.is_within(&of(there)), found, "{wanted} {there}");
        }
    }
}
