//! Reports: from snapshots to the bytes that are sent.
//!
//! A report is put together from parts that are kept: an endpoint's address is encoded once, with its layout,
//! and a cluster anew only when its snapshot has changed. So a report of a hundred thousand endpoints of which
//! nothing changed is a copy of bytes, and one that has changes a walk over the endpoints of the clusters
//! that have them. Pure; meant to be called off the runtime.

use std::sync::Arc;

use hashbrown::HashMap;
use prost::bytes::Bytes;

use super::layout::{Layout, Reported};
use crate::engine::Snapshot;
use crate::host::{Address, HealthFlags, Host};
use crate::proto::envoy::config::core::v3::HealthStatus;
use crate::snapshot::HostView;

#[cfg(test)]
mod tests;

/// Field numbers of `envoy.service.health.v3`.
mod field {
    pub(super) const RESPONSE: u8 = 2;
    pub(super) const FLAT_ENDPOINTS: u8 = 1;
    pub(super) const CLUSTERS: u8 = 2;
    pub(super) const CLUSTER_NAME: u8 = 1;
    pub(super) const LOCALITIES: u8 = 2;
    pub(super) const LOCALITY: u8 = 1;
    pub(super) const ENDPOINTS: u8 = 2;
    pub(super) const ENDPOINT: u8 = 1;
    pub(super) const STATUS: u8 = 2;
}

/// What is reported of a host.
///
/// Before the first completion it is unhealthy, as in Envoy; below a threshold nothing changes.
pub(super) fn status(view: &HostView) -> HealthStatus {
    let flags = view.flags;
    match (view.failed(), view.degraded()) {
        // Its sessions are yet to begin.
        _ if view.host.check_disabled => HealthStatus::Unhealthy,
        (true, _) if flags.intersects(HealthFlags::ACTIVE_HC_TIMEOUT) => HealthStatus::Timeout,
        (true, _) => HealthStatus::Unhealthy,
        (false, true) => HealthStatus::Degraded,
        (false, false) => HealthStatus::Healthy,
    }
}

/// Makes reports.
#[derive(Debug)]
pub(super) struct Reporter {
    /// Whether the deprecated list of all endpoints is written too.
    flat: bool,
    /// It is left out where a report would be longer with it.
    flat_bytes: usize,
    clusters: HashMap<Arc<str>, Written>,
}

/// A cluster as it was last written.
#[derive(Debug, Default)]
struct Written {
    layout: Option<Arc<Layout>>,
    versions: Vec<u64>,
    /// A `ClusterEndpointsHealth` as a field of the report.
    cluster: Vec<u8>,
    /// Its endpoints as fields of the report.
    flat: Vec<u8>,
    /// What was known of endpoints when their checks were taken away, until a check says more.
    remembered: HashMap<(Address, Option<Address>), HealthStatus>,
}

impl Reporter {
    pub(super) fn new(flat: bool, flat_bytes: usize) -> Self {
        Self {
            flat,
            flat_bytes,
            clusters: HashMap::new(),
        }
    }

    /// Notes what is known of the endpoints of a cluster.
    pub(super) fn remember(&mut self, layout: &Layout, snapshot: &Snapshot) {
        let written = self.clusters.entry(Arc::clone(&layout.key)).or_default();
        let known = statuses(layout, snapshot, &written.remembered);
        let hosts = layout.endpoints().map(|endpoint| owned(&endpoint.host));
        written.remembered = hosts.zip(known).collect();
    }

    /// Forgets a cluster.
    pub(super) fn forget(&mut self, key: &str) {
        self.clusters.remove(key);
    }

    /// An encoded `HealthCheckRequestOrEndpointHealthResponse` that tells how the endpoints of `clusters` are;
    /// those of a cluster without a snapshot are not known.
    pub(super) fn report(&mut self, clusters: &[(Arc<Layout>, Option<Snapshot>)]) -> Bytes {
        let (mut length, mut flat_length) = (0, 0);
        for (layout, snapshot) in clusters {
            let written = self.clusters.entry(Arc::clone(&layout.key)).or_default();
            written.write(layout, snapshot.as_ref(), self.flat);
            length += written.cluster.len();
            flat_length += written.flat.len();
        }
        let flat = self.flat && length + flat_length <= self.flat_bytes;
        let written = clusters
            .iter()
            .filter_map(|(layout, _)| self.clusters.get(&layout.key));
        let length = length + if flat { flat_length } else { 0 };
        let mut report = Vec::with_capacity(length + 16);
        begin(&mut report, field::RESPONSE, length);
        if flat {
            written
                .clone()
                .for_each(|written| report.extend_from_slice(&written.flat));
        }
        written.for_each(|written| report.extend_from_slice(&written.cluster));
        report.into()
    }
}

impl Written {
    /// Writes the cluster anew if anything of it has changed.
    fn write(&mut self, layout: &Arc<Layout>, snapshot: Option<&Snapshot>, flat: bool) {
        let parts = snapshot.map_or(&[][..], Snapshot::parts);
        let same_layout = self
            .layout
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, layout));
        let versions = parts.iter().map(|part| part.version);
        if same_layout && versions.clone().eq(self.versions.iter().copied()) {
            return;
        }
        self.versions = versions.collect();
        self.layout = Some(Arc::clone(layout));

        let empty = Snapshot::default();
        let found = statuses(layout, snapshot.unwrap_or(&empty), &self.remembered);
        let mut found = found.into_iter();
        self.flat.clear();
        let mut cluster = Vec::new();
        if !layout.name.is_empty() {
            put(&mut cluster, field::CLUSTER_NAME, layout.name.as_bytes());
        }
        let (mut group, mut entry) = (Vec::new(), Vec::new());
        for members in &layout.groups {
            group.clear();
            put(&mut group, field::LOCALITY, &members.locality);
            for (endpoint, status) in members.endpoints.iter().zip(&mut found) {
                entry.clear();
                put(&mut entry, field::ENDPOINT, &endpoint.endpoint);
                // All values of the enumeration fit in one byte, and none that is written is 0.
                entry.extend([
                    field::STATUS << 3,
                    u8::try_from(i32::from(status)).unwrap_or(0),
                ]);
                put(&mut group, field::ENDPOINTS, &entry);
                if flat {
                    put(&mut self.flat, field::FLAT_ENDPOINTS, &entry);
                }
            }
            put(&mut cluster, field::LOCALITIES, &group);
        }
        self.cluster.clear();
        put(&mut self.cluster, field::CLUSTERS, &cluster);
        let waits = |view: &HostView| view.unchecked;
        let told = snapshot.is_some_and(|snapshot| !snapshot.hosts().any(waits));
        if layout.checked && told && !self.remembered.is_empty() {
            self.remembered = HashMap::new();
        }
    }
}

/// How the endpoints of a layout are, in its order. Endpoints are found by their addresses; of several at one
/// address, each is another host.
fn statuses(
    layout: &Layout,
    snapshot: &Snapshot,
    remembered: &HashMap<(Address, Option<Address>), HealthStatus>,
) -> Vec<HealthStatus> {
    let views: Vec<&HostView> = snapshot.hosts().collect();
    let mut first: HashMap<(&Address, Option<&Address>), usize> =
        HashMap::with_capacity(views.len());
    let mut next = vec![None; views.len()];
    for (index, view) in views.iter().enumerate().rev() {
        next[index] = first.insert(place(&view.host), index);
    }
    let mut found = Vec::new();
    for Reported { host, .. } in layout.endpoints() {
        let view = first.get_mut(&place(host)).and_then(|index| {
            let view = views.get(*index)?;
            *index = next[*index].unwrap_or(usize::MAX);
            Some(view)
        });
        let view = view.filter(|view| layout.checked && !view.unchecked);
        found.push(match view {
            Some(view) => status(view),
            None if remembered.is_empty() => HealthStatus::Unhealthy,
            None => *remembered
                .get(&owned(host))
                .unwrap_or(&HealthStatus::Unhealthy),
        });
    }
    found
}

/// By what a host is told from others of its cluster.
fn place(host: &Host) -> (&Address, Option<&Address>) {
    (&host.address, host.check_address())
}

fn owned(host: &Host) -> (Address, Option<Address>) {
    (host.address.clone(), host.check_address().cloned())
}

/// Appends a field of bytes.
fn put(to: &mut Vec<u8>, field: u8, value: &[u8]) {
    begin(to, field, value.len());
    to.extend_from_slice(value);
}

/// Appends what comes before a field of so many bytes.
fn begin(to: &mut Vec<u8>, field: u8, length: usize) {
    to.push(field << 3 | 2);
    // A Vec has room for whatever is written to it.
    let _ = prost::encode_length_delimiter(length, to);
}
