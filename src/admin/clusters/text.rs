//! `/clusters` as lines of `cluster::host::what::value`.

use std::fmt::Write as _;

use super::Viewed;
use crate::engine::Origin;
use crate::snapshot::HostView;

/// Numbers of connections and requests. No request ever goes to a host from here, so they are 0.
const NUMBERS: [&str; 9] = [
    "cx_active",
    "cx_connect_fail",
    "cx_total",
    "rq_active",
    "rq_error",
    "rq_pending_active",
    "rq_success",
    "rq_timeout",
    "rq_total",
];

/// Writes lines.
#[derive(Debug, Default)]
pub(super) struct Form {
    /// What all lines of the host begin with.
    start: String,
}

impl super::Form for Form {
    fn begin(&mut self, _: &mut String) {}

    fn cluster(&mut self, to: &mut String, cluster: &Viewed) {
        let name = &cluster.config.name;
        let mut line = |what: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(to, "{name}::{what}::{value}");
        };
        line("observability_name", cluster.config.stat_name());
        let priorities = ["default_priority", "high_priority"];
        for (priority, limits) in priorities.into_iter().zip(&cluster.config.thresholds) {
            for (what, value) in [
                ("max_connections", limits.max_connections),
                ("max_pending_requests", limits.max_pending_requests),
                ("max_requests", limits.max_requests),
                ("max_retries", limits.max_retries),
            ] {
                line(&format!("{priority}::{what}"), &value);
            }
        }
        line("added_via_api", &(cluster.origin != Origin::Static));
    }

    fn host(&mut self, to: &mut String, cluster: &Viewed, view: &HostView) {
        let host = &*view.host;
        self.start.clear();
        let _ = write!(self.start, "{}::{}::", cluster.config.name, host.address);
        for name in NUMBERS {
            to.push_str(&self.start);
            to.push_str(name);
            to.push_str("::0\n");
        }
        let mut line = |what: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(to, "{}{what}::{value}", self.start);
        };
        line("hostname", &host.hostname().map_or("", |name| name));
        line("health_flags", &view.flags);
        line("weight", &host.weight);
        line("region", &host.locality().region);
        line("zone", &host.locality().zone);
        line("sub_zone", &host.locality().sub_zone);
        line("canary", &host.canary);
        line("priority", &host.priority);
        // -1 is what stands there without outlier detection.
        line("success_rate", &-1);
        line("local_origin_success_rate", &-1);
    }

    fn cluster_end(&mut self, _: &mut String, _: &Viewed) {}

    fn end(&mut self, _: &mut String) {}
}
