//! `/config_dump`: the configuration that is in force, and what was refused of it.
//!
//! `envoy.admin.v3.ConfigDump` by the protobuf JSON mapping, under proto names and without default values.
//! What only Envoy has, such as listeners, is left out. What a health discovery service told, which Envoy does not
//! show, stands last, in a form of our own. Where else it differs: refused clusters are shown with
//! their `error_state`, those without a good form among the warming ones; assignments are shown as they came,
//! with version and time, and not as the hosts that they became; fields that are not known here are not shown,
//! nor is any message of an unknown type, since it may hold secrets.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::response::Response;
use prost::{Message as _, Name as _};
use prost_types::{Any, Timestamp};

use super::answer::{self, Refused};
use super::query::{Filter, Query};
use super::{Admin, Shared};
use crate::proto::envoy::config::bootstrap::v3::Bootstrap;
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use crate::proto::{TYPE_URL_PREFIX, descriptor_pool, strip_type_url, type_url};

mod mask;
mod message;

use mask::Mask;
use message::Text;

const BOOTSTRAP: &str = "envoy.admin.v3.BootstrapConfigDump";
const CLUSTERS: &str = "envoy.admin.v3.ClustersConfigDump";
const ENDPOINTS: &str = "envoy.admin.v3.EndpointsConfigDump";
/// What Envoy does not show: clusters that a health discovery service told.
const HDS: &str = "xds_health.HdsConfigDump";

pub(super) async fn page(
    State(shared): State<Arc<Shared>>,
    query: Query,
) -> Result<Response, Refused> {
    let asked = Asked {
        resource: query.get("resource").map(str::to_owned),
        endpoints: query.has("include_eds"),
        names: query.whole("name_regex")?,
        mask: Mask::parse(query.get("mask").unwrap_or_default()),
        mask_text: query.get("mask").unwrap_or_default().to_owned(),
    };
    let of = Arc::clone(&shared);
    let text = answer::off_runtime(&shared, move || dump(&of.admin, &asked)).await??;
    Ok(answer::json(text))
}

/// A bootstrap as it was read, and when, for `/config_dump`.
///
/// It is kept serialized, which takes a twentieth of the memory: it is not often asked for.
#[derive(Clone, Debug)]
pub struct BootstrapDump {
    message: Arc<[u8]>,
    loaded: SystemTime,
}

impl BootstrapDump {
    /// Of a bootstrap that was read at `loaded`.
    pub fn new(bootstrap: &Bootstrap, loaded: SystemTime) -> Self {
        Self {
            message: bootstrap.encode_to_vec().into(),
            loaded,
        }
    }
}

/// What of the configuration is asked for.
struct Asked {
    resource: Option<String>,
    endpoints: bool,
    names: Filter,
    /// Of each message, or of each resource if one kind is asked for.
    mask: Mask,
    mask_text: String,
}

impl Asked {
    fn mask_is_no_good(&self, why: &str) -> Refused {
        Refused::bad_request(format!("FieldMask {} {why}\n", self.mask_text))
    }
}

/// Resources of one kind, as they are shown together.
struct List {
    /// The field that they are in, within which message.
    field: &'static str,
    of: &'static str,
    /// The name of their own message, after that of `of`.
    message: &'static str,
    /// The field that holds each.
    inner: &'static str,
    entries: Vec<Entry>,
}

impl List {
    /// Whether `mask` names only what these resources have. What they hold is a message of its own, of which as by
    /// Envoy some fields have to be named.
    fn takes(&self, mask: &Mask) -> bool {
        mask.named().all(|(name, within)| match name {
            _ if name == self.inner => {
                let mut held = self
                    .entries
                    .iter()
                    .filter_map(|entry| entry.resource.as_ref());
                !within.is_whole() && held.next().is_none_or(|any| fits(within, &any.type_url))
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

/// Whether a message of this type has what `mask` names.
fn fits(mask: &Mask, type_url: &str) -> bool {
    let name = strip_type_url(type_url);
    let message = name.and_then(|name| descriptor_pool().get_message_by_name(name));
    message.is_some_and(|message| mask.fits(&message))
}

/// One resource.
#[derive(Default)]
struct Entry {
    name: Arc<str>,
    version: Arc<str>,
    resource: Option<Any>,
    updated: Option<SystemTime>,
    error: Option<Failure>,
}

/// `envoy.admin.v3.UpdateFailureState`.
struct Failure {
    configuration: Any,
    at: SystemTime,
    details: Arc<str>,
    version: Arc<str>,
}

fn dump(admin: &Admin, asked: &Asked) -> Result<String, Refused> {
    let (version, lists) = lists(admin, asked);
    let mut text = Text::default();
    text.layout.open(&mut text.to, '{');
    let mask = &asked.mask;
    match asked.resource.as_deref() {
        None => {
            text.layout.open_key(&mut text.to, "configs", '[');
            let mut shown = bootstrap(&mut text, admin, mask);
            shown |= whole(&mut text, CLUSTERS, Some(&version), &lists[..3], mask);
            if asked.endpoints {
                shown |= whole(&mut text, ENDPOINTS, None, &lists[3..5], mask);
            }
            if !lists[5].entries.is_empty() {
                shown |= whole(&mut text, HDS, None, &lists[5..], mask);
            }
            text.layout.close(&mut text.to, ']');
            if !shown {
                let why = "could not be successfully applied to any configs.";
                return Err(asked.mask_is_no_good(why));
            }
        }
        Some("bootstrap") => {
            let message =
                "bootstrap is not a repeated field. Use ?mask=bootstrap to get only this field\n";
            return Err(Refused::bad_request(message));
        }
        Some(resource) => {
            let list = lists.iter().find(|list| list.field == resource);
            let list = list.filter(|list| asked.endpoints || list.of != ENDPOINTS);
            let Some(list) = list else {
                let message = format!("{resource} not found in config dump\n");
                return Err(Refused::not_found(message));
            };
            if !list.entries.is_empty() {
                if !list.takes(mask) {
                    return Err(asked.mask_is_no_good("could not be successfully used."));
                }
                text.layout.open_key(&mut text.to, "configs", '[');
                let message = format!("{TYPE_URL_PREFIX}{}.{}", list.of, list.message);
                for entry in &list.entries {
                    write_entry(&mut text, Some(&message), list.inner, entry, mask);
                }
                text.layout.close(&mut text.to, ']');
            }
        }
    }
    text.layout.close(&mut text.to, '}');
    text.to.push('\n');
    Ok(text.to)
}

/// The version of the clusters, and all that is asked for by name.
fn lists(admin: &Admin, asked: &Asked) -> (Arc<str>, [List; 6]) {
    let (mut of_file, mut assigned) = (Vec::new(), Vec::new());
    if let Some(BootstrapDump { message, loaded }) = admin.bootstrap() {
        // It was serialized here, so it can be read.
        let bootstrap = Bootstrap::decode(&*message).unwrap_or_default();
        let clusters = bootstrap.static_resources.into_iter();
        for cluster in clusters.flat_map(|resources| resources.clusters) {
            of_file.push(static_cluster(&cluster, loaded));
            let assignment = cluster.load_assignment.as_ref();
            assigned.extend(assignment.map(|a| static_endpoints(&cluster, a, loaded)));
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

fn static_cluster(cluster: &Cluster, loaded: SystemTime) -> Entry {
    Entry {
        name: cluster.name.as_str().into(),
        resource: Some(Any {
            type_url: type_url::<Cluster>(),
            value: cluster.encode_to_vec(),
        }),
        updated: Some(loaded),
        ..Entry::default()
    }
}

fn static_endpoints(
    cluster: &Cluster,
    assignment: &ClusterLoadAssignment,
    loaded: SystemTime,
) -> Entry {
    Entry {
        name: cluster.name.as_str().into(),
        resource: Some(Any {
            type_url: type_url::<ClusterLoadAssignment>(),
            value: assignment.encode_to_vec(),
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

/// The message of the bootstrap; not at all if `mask` names what it has not.
fn bootstrap(text: &mut Text, admin: &Admin, mask: &Mask) -> bool {
    let takes = mask.named().all(|(name, within)| match name {
        "bootstrap" => fits(within, &type_url::<Bootstrap>()),
        "last_updated" => within.is_leaf(),
        _ => false,
    });
    let Some(BootstrapDump { message, loaded }) = admin.bootstrap().filter(|_| takes) else {
        return false;
    };
    begin(text, Some(&format!("{TYPE_URL_PREFIX}{BOOTSTRAP}")));
    if let Some(mask) = mask.of("bootstrap") {
        text.layout.key(&mut text.to, "bootstrap");
        text.bytes_as(&Bootstrap::full_name(), &message, mask);
    }
    let loaded = mask.of("last_updated").map(|_| loaded);
    time(text, "last_updated", loaded);
    text.layout.close(&mut text.to, '}');
    true
}

/// A message of lists; not at all if `mask` names what it has not.
fn whole(
    text: &mut Text,
    message: &str,
    version: Option<&str>,
    lists: &[List],
    mask: &Mask,
) -> bool {
    let has = |name| {
        version.is_some() && name == "version_info" || lists.iter().any(|list| list.field == name)
    };
    if !mask
        .named()
        .all(|(name, within)| has(name) && within.is_leaf())
    {
        return false;
    }
    begin(text, Some(&format!("{TYPE_URL_PREFIX}{message}")));
    let version = version.filter(|_| mask.of("version_info").is_some());
    text.layout
        .string_if_any(&mut text.to, "version_info", version.unwrap_or_default());
    for list in lists.iter().filter(|list| !list.entries.is_empty()) {
        let Some(mask) = mask.of(list.field) else {
            continue;
        };
        text.layout.open_key(&mut text.to, list.field, '[');
        for entry in &list.entries {
            write_entry(text, None, list.inner, entry, mask);
        }
        text.layout.close(&mut text.to, ']');
    }
    text.layout.close(&mut text.to, '}');
    true
}

fn write_entry(text: &mut Text, message: Option<&str>, inner: &str, entry: &Entry, mask: &Mask) {
    begin(text, message);
    if mask.of("version_info").is_some() {
        let Text { layout, to } = text;
        layout.string_if_any(to, "version_info", &entry.version);
    }
    if let Some((resource, mask)) = entry.resource.as_ref().zip(mask.of(inner)) {
        text.layout.key(&mut text.to, inner);
        text.any(resource, mask);
    }
    if mask.of("last_updated").is_some() {
        time(text, "last_updated", entry.updated);
    }
    if let Some((error, mask)) = entry.error.as_ref().zip(mask.of("error_state")) {
        write_failure(text, error, mask);
    }
    text.layout.close(&mut text.to, '}');
}

fn write_failure(text: &mut Text, error: &Failure, mask: &Mask) {
    text.layout.open_key(&mut text.to, "error_state", '{');
    if mask.of("failed_configuration").is_some() {
        text.layout.key(&mut text.to, "failed_configuration");
        text.any(&error.configuration, &Mask::parse(""));
    }
    if mask.of("last_update_attempt").is_some() {
        time(text, "last_update_attempt", Some(error.at));
    }
    let Text { layout, to } = text;
    for (name, value) in [
        ("details", &error.details),
        ("version_info", &error.version),
    ] {
        if mask.of(name).is_some() {
            layout.string_if_any(to, name, value);
        }
    }
    layout.close(to, '}');
}

fn begin(text: &mut Text, message: Option<&str>) {
    let Text { layout, to } = text;
    layout.item(to);
    layout.open(to, '{');
    layout.string_if_any(to, "@type", message.unwrap_or_default());
}

/// In milliseconds, as by Envoy.
fn time(text: &mut Text, name: &str, at: Option<SystemTime>) {
    if let Some(at) = at {
        let mut at = Timestamp::from(at);
        at.nanos -= at.nanos % 1_000_000;
        text.layout.string(&mut text.to, name, &at.to_string());
    }
}
