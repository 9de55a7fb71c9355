//! `/clusters?format=json`: `envoy.admin.v3.Clusters` by the protobuf JSON mapping, under proto names and
//! without default values.

use super::Viewed;
use crate::admin::json::Layout;
use crate::config::Thresholds;
use crate::engine::Origin;
use crate::host::{Address, EdsHealth, HealthFlags, Locality};
use crate::snapshot::HostView;

/// Counters of connections and requests; all are 0, as in the text.
const COUNTERS: [&str; 6] = [
    "cx_connect_fail",
    "cx_total",
    "rq_error",
    "rq_success",
    "rq_timeout",
    "rq_total",
];
const GAUGES: [&str; 3] = ["cx_active", "rq_active", "rq_pending_active"];

/// Writes one document.
#[derive(Debug, Default)]
pub(super) struct Form {
    layout: Layout,
    clusters: bool,
    /// Whether the cluster has hosts.
    hosts: bool,
}

impl super::Form for Form {
    fn begin(&mut self, to: &mut String) {
        self.layout.open(to, '{');
    }

    fn cluster(&mut self, to: &mut String, cluster: &Viewed) {
        let layout = &mut self.layout;
        if !self.clusters {
            layout.open_key(to, "cluster_statuses", '[');
            self.clusters = true;
        }
        self.hosts = false;
        layout.item(to);
        layout.open(to, '{');
        layout.string_if_any(to, "name", &cluster.config.name);
        layout.flag_if_set(to, "added_via_api", cluster.origin != Origin::Static);
    }

    fn host(&mut self, to: &mut String, _: &Viewed, view: &HostView) {
        let host = &*view.host;
        let layout = &mut self.layout;
        if !self.hosts {
            layout.open_key(to, "host_statuses", '[');
            self.hosts = true;
        }
        layout.item(to);
        layout.open(to, '{');
        address(layout, to, &host.address);
        numbers(layout, to);
        health(layout, to, view);
        layout.number_if_any(to, "weight", host.weight);
        layout.string_if_any(to, "hostname", host.hostname().map_or("", |name| name));
        layout.number_if_any(to, "priority", host.priority.into());
        locality(layout, to, host.locality());
        layout.close(to, '}');
    }

    fn cluster_end(&mut self, to: &mut String, cluster: &Viewed) {
        let layout = &mut self.layout;
        if self.hosts {
            layout.close(to, ']');
        }
        circuit_breakers(layout, to, &cluster.config.thresholds);
        layout.string_if_any(to, "observability_name", cluster.config.stat_name());
        layout.close(to, '}');
    }

    fn end(&mut self, to: &mut String) {
        if self.clusters {
            self.layout.close(to, ']');
        }
        self.layout.close(to, '}');
        to.push('\n');
    }
}

fn address(layout: &mut Layout, to: &mut String, address: &Address) {
    layout.open_key(to, "address", '{');
    match address {
        Address::Ip(address) => {
            layout.open_key(to, "socket_address", '{');
            // A scope belongs to the address, brackets do not.
            let text = address.to_string();
            let text = text.rsplit_once(':').map_or(&*text, |(ip, _)| ip);
            layout.string(to, "address", text.trim_matches(['[', ']']));
            layout.number(to, "port_value", address.port().into());
        }
        Address::Pipe(path) => {
            layout.open_key(to, "pipe", '{');
            layout.string_if_any(to, "path", path);
        }
        Address::Internal(internal) => {
            layout.open_key(to, "envoy_internal_address", '{');
            layout.string(to, "server_listener_name", &internal.listener);
            layout.string_if_any(to, "endpoint_id", &internal.endpoint_id);
        }
    }
    layout.close(to, '}');
    layout.close(to, '}');
}

fn numbers(layout: &mut Layout, to: &mut String) {
    layout.open_key(to, "stats", '[');
    let counters = COUNTERS.into_iter().map(|name| (None, name));
    let gauges = GAUGES.into_iter().map(|name| (Some("GAUGE"), name));
    for (kind, name) in counters.chain(gauges) {
        layout.item(to);
        layout.open(to, '{');
        layout.string_if_any(to, "type", kind.unwrap_or_default());
        layout.string(to, "name", name);
        layout.close(to, '}');
    }
    layout.close(to, ']');
}

fn health(layout: &mut Layout, to: &mut String, view: &HostView) {
    layout.open_key(to, "health_status", '{');
    let before = [
        ("failed_active_health_check", HealthFlags::FAILED_ACTIVE_HC),
        ("failed_outlier_check", HealthFlags::FAILED_OUTLIER_CHECK),
    ];
    let after = [
        (
            "failed_active_degraded_check",
            HealthFlags::DEGRADED_ACTIVE_HC,
        ),
        (
            "pending_dynamic_removal",
            HealthFlags::PENDING_DYNAMIC_REMOVAL,
        ),
        ("pending_active_hc", HealthFlags::PENDING_ACTIVE_HC),
        (
            "excluded_via_immediate_hc_fail",
            HealthFlags::EXCLUDED_VIA_IMMEDIATE_HC_FAIL,
        ),
        ("active_hc_timeout", HealthFlags::ACTIVE_HC_TIMEOUT),
        (
            "failed_degraded_outlier_detection",
            HealthFlags::DEGRADED_OUTLIER_DETECTION,
        ),
    ];
    for (name, flag) in before {
        layout.flag_if_set(to, name, view.flags.intersects(flag));
    }
    // As told by the flags, of which a timeout has none of its own.
    let told = match view.host.eds_health {
        EdsHealth::Timeout => EdsHealth::Unhealthy,
        other => other,
    };
    layout.string(to, "eds_health_status", told.name());
    for (name, flag) in after {
        layout.flag_if_set(to, name, view.flags.intersects(flag));
    }
    layout.close(to, '}');
}

fn locality(layout: &mut Layout, to: &mut String, locality: &Locality) {
    layout.open_key(to, "locality", '{');
    layout.string_if_any(to, "region", &locality.region);
    layout.string_if_any(to, "zone", &locality.zone);
    layout.string_if_any(to, "sub_zone", &locality.sub_zone);
    layout.close(to, '}');
}

fn circuit_breakers(layout: &mut Layout, to: &mut String, thresholds: &[Thresholds; 2]) {
    layout.open_key(to, "circuit_breakers", '{');
    layout.open_key(to, "thresholds", '[');
    for (priority, limits) in ["", "HIGH"].into_iter().zip(thresholds) {
        layout.item(to);
        layout.open(to, '{');
        layout.string_if_any(to, "priority", priority);
        // Wrapped numbers: 0 is a value of its own.
        layout.number(to, "max_connections", limits.max_connections);
        layout.number(to, "max_pending_requests", limits.max_pending_requests);
        layout.number(to, "max_requests", limits.max_requests);
        layout.number(to, "max_retries", limits.max_retries);
        layout.close(to, '}');
    }
    layout.close(to, ']');
    layout.close(to, '}');
}
