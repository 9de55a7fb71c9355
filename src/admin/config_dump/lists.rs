//! What there is to be shown: the resources of each kind, and what was refused of them.

use std::sync::Arc;
use std::time::SystemTime;

use prost::{Message, Name};
use prost_types::Any;

use super::mask::Mask;
use super::{Admin, Asked, BootstrapDump, CLUSTERS, ENDPOINTS, HDS};
use crate::proto::envoy::config::bootstrap::v3::Bootstrap;
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::type_url;

/// Resources of one kind, as they are shown together.
pub(super) struct List {
    /// The field that they are in, within which message.
    pub(super) field: &'static str,
    pub(super) of: &'static str,
    /// The name of their own message, after that of `of`.
    pub(super) message: &'static str,
    /// The field that holds each.
    pub(super) inner: &'static str,
    pub(super) entries: Vec<Entry>,
}

impl List {
    /// Whether `mask` names only what these resources have. What they hold is a message of its own, of which as by
    /// Envoy some fields have to be named.
    pub(super) fn takes(&self, mask: &Mask) -> bool {
        mask.named().all(|(name, within)| match name {
            _ if name == self.inner => {
                let mut held = self
                    .entries
                    .iter()
                    .filter_map(|entry| entry.resource.as_ref());
                !within.is_whole()
                    && held
                        .next()
                        .is_none_or(|any| within.fits_type(&any.type_url))
            }
            "last_updated" => within.is_leaf(),
            "version_info" | "client_status" => within.is_leaf() && !self.is_static(),
            "error_state" => {
                !self.is_static()
                    && within.named().all(|(name, within)| {
                        let has = [
                            "failed_configuration",
                            "last_update_attempt",
                            "details",
                            "version_info",
                        ];
                        has.contains(&name) && within.is_leaf()
                    })
            }
            _ => false,
        })
    }

    fn is_static(&self) -> bool {
        self.message.starts_with("Static")
    }
}

/// One resource.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) name: Arc<str>,
    pub(super) version: Arc<str>,
    pub(super) resource: Option<Any>,
    pub(super) updated: Option<SystemTime>,
    pub(super) error: Option<Failure>,
}

/// `envoy.admin.v3.UpdateFailureState`.
pub(super) struct Failure {
    pub(super) configuration: Any,
    pub(super) at: SystemTime,
    pub(super) details: Arc<str>,
    pub(super) version: Arc<str>,
}

/// The version of the clusters, and all that is asked for by name.
pub(super) fn gather(admin: &Admin, asked: &Asked) -> (Arc<str>, [List; 6]) {
    let (mut of_file, mut assigned) = (Vec::new(), Vec::new());
    if let Some(BootstrapDump { message, loaded }) = admin.bootstrap() {
        // It was serialized here, so it can be read.
        let bootstrap = Bootstrap::decode(&*message).unwrap_or_default();
        let clusters = bootstrap.static_resources.into_iter();
        for cluster in clusters.flat_map(|resources| resources.clusters) {
            of_file.push(of_cluster(&cluster, &cluster, loaded));
            let assignment = cluster.load_assignment.as_ref();
            assigned.extend(assignment.map(|a| of_cluster(&cluster, a, loaded)));
        }
    }
    let (version, told, endpoints) = told(admin);
    let (active, warming) = told.into_iter().partition(|entry| {
        let cluster = admin.engine.cluster(&entry.name);
        entry.resource.is_some() && cluster.is_some_and(|c| c.snapshot().initialized())
    });
    let list = |field, of, message, inner, mut entries: Vec<Entry>| {
        entries.retain(|entry| asked.names.finds(&entry.name));
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        List {
            field,
            of,
            message,
            inner,
            entries,
        }
    };
    let cluster = |field, message, entries| list(field, CLUSTERS, message, "cluster", entries);
    let assignment =
        |field, message, entries| list(field, ENDPOINTS, message, "endpoint_config", entries);
    let lists = [
        cluster("static_clusters", "StaticCluster", of_file),
        cluster("dynamic_active_clusters", "DynamicCluster", active),
        cluster("dynamic_warming_clusters", "DynamicCluster", warming),
        assignment("static_endpoint_configs", "StaticEndpointConfig", assigned),
        assignment(
            "dynamic_endpoint_configs",
            "DynamicEndpointConfig",
            endpoints,
        ),
        list(
            "cluster_health_checks",
            HDS,
            "ClusterHealthCheck",
            "cluster_health_check",
            told_by_hds(admin),
        ),
    ];
    (version, lists)
}

/// What the file tells of a cluster.
fn of_cluster<M: Message + Name>(cluster: &Cluster, message: &M, loaded: SystemTime) -> Entry {
    Entry {
        name: cluster.name.as_str().into(),
        resource: Some(Any {
            type_url: type_url::<M>(),
            value: message.encode_to_vec(),
        }),
        updated: Some(loaded),
        ..Entry::default()
    }
}

/// What control planes told: the version of the clusters, these, and assignments.
#[cfg(feature = "xds")]
fn told(admin: &Admin) -> (Arc<str>, Vec<Entry>, Vec<Entry>) {
    let Some(dump) = &admin.dump else {
        return Default::default();
    };
    let entries = |records: Vec<crate::xds::Record>| records.into_iter().map(Entry::from);
    (
        dump.clusters_version(),
        entries(dump.clusters()).collect(),
        entries(dump.endpoints()).collect(),
    )
}

#[cfg(not(feature = "xds"))]
fn told(_: &Admin) -> (Arc<str>, Vec<Entry>, Vec<Entry>) {
    Default::default()
}

/// What a health discovery service told.
#[cfg(feature = "hds")]
fn told_by_hds(admin: &Admin) -> Vec<Entry> {
    let dump = admin.hds_dump.as_ref();
    let records = dump.map(|dump| dump.clusters()).unwrap_or_default();
    records.into_iter().map(Entry::from).collect()
}

#[cfg(not(feature = "hds"))]
fn told_by_hds(_: &Admin) -> Vec<Entry> {
    Vec::new()
}

#[cfg(feature = "xds")]
impl From<crate::xds::Record> for Entry {
    fn from(record: crate::xds::Record) -> Self {
        Self {
            name: record.name,
            version: record.version_info.unwrap_or_default(),
            resource: record.resource,
            updated: record.last_updated,
            error: record.error_state.map(|error| Failure {
                configuration: error.failed_configuration,
                at: error.last_update_attempt,
                details: error.details,
                version: error.version_info,
            }),
        }
    }
}
