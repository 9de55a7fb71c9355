//! `/clusters`: clusters and their hosts, written one host at a time while the answer is sent.
//!
//! A cluster's snapshot is taken when its turn comes and let go when its last host is written, so a slow
//! client holds one old snapshot, and never the text.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::Shared;
use super::answer::{self, More, Refused};
use super::query::Query;
use crate::config::ClusterConfig;
use crate::engine::{Cluster, Origin, Snapshot};
use crate::snapshot::HostView;

mod json;
mod text;

pub(super) async fn page(
    State(shared): State<Arc<Shared>>,
    query: Query,
) -> Result<Response, Refused> {
    let filter = query.filter()?;
    let engine = shared.admin.engine.clone();
    let named = move || {
        let mut clusters = engine.clusters();
        clusters.retain(|cluster| filter.finds(cluster.name()));
        clusters
    };
    let mut walk = Walk::new(answer::off_runtime(&shared, named).await?);
    if query.get("format") == Some("json") {
        let mut form = json::Form::default();
        let body = answer::streamed(move |to| walk.write(&mut form, to));
        return Ok(answer::json(body));
    }
    let mut form = text::Form::default();
    let body = answer::streamed(move |to| walk.write(&mut form, to));
    Ok(answer::text(StatusCode::OK, body))
}

/// Writes clusters in one form. All is handed to it in order.
pub(super) trait Form {
    /// Before the first cluster.
    fn begin(&mut self, to: &mut String);
    /// A cluster, before its hosts.
    fn cluster(&mut self, to: &mut String, cluster: &Viewed);
    /// A host of it.
    fn host(&mut self, to: &mut String, cluster: &Viewed, host: &HostView);
    /// The cluster again, after its hosts.
    fn cluster_end(&mut self, to: &mut String, cluster: &Viewed);
    /// After the last cluster.
    fn end(&mut self, to: &mut String);
    /// Whether nothing more is to be handed to it, but the end.
    fn done(&self) -> bool {
        false
    }
}

/// A cluster as it was when its turn came.
pub(super) struct Viewed {
    pub(super) config: Arc<ClusterConfig>,
    pub(super) origin: Origin,
    pub(super) snapshot: Snapshot,
}

/// Goes over the hosts of clusters, step by step.
pub(super) struct Walk {
    clusters: std::vec::IntoIter<Cluster>,
    at: At,
}

enum At {
    Begin,
    Between,
    /// In a cluster: at a slot of a shard's part.
    Slot(Box<Viewed>, usize, usize),
    End,
}

impl Walk {
    pub(super) fn new(clusters: Vec<Cluster>) -> Self {
        Self {
            clusters: clusters.into_iter(),
            at: At::Begin,
        }
    }

    /// Writes the next piece, at most one host.
    pub(super) fn write(&mut self, form: &mut impl Form, to: &mut String) -> More {
        self.at = match std::mem::replace(&mut self.at, At::End) {
            At::Begin => {
                form.begin(to);
                At::Between
            }
            At::Between => match self.clusters.next() {
                Some(cluster) => {
                    let viewed = Viewed {
                        config: cluster.config(),
                        origin: cluster.origin(),
                        snapshot: cluster.snapshot(),
                    };
                    form.cluster(to, &viewed);
                    At::Slot(Box::new(viewed), 0, 0)
                }
                None => {
                    form.end(to);
                    At::End
                }
            },
            At::Slot(..) if form.done() => {
                form.end(to);
                At::End
            }
            At::Slot(cluster, part, slot) => match cluster.snapshot.parts().get(part) {
                Some(hosts) if slot < hosts.hosts.slots() => {
                    if let Some(host) = hosts.hosts.get(slot) {
                        form.host(to, &cluster, host);
                    }
                    At::Slot(cluster, part, slot + 1)
                }
                Some(_) => At::Slot(cluster, part + 1, 0),
                None => {
                    form.cluster_end(to, &cluster);
                    At::Between
                }
            },
            At::End => At::End,
        };
        match self.at {
            At::End => More::No,
            _ => More::Yes,
        }
    }
}
