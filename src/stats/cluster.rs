//! The stats of a cluster and of its health checks.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::{Counter, Gauge, Sample, UpdateStats};
use crate::event::{Reason, Shortage};
use crate::host::{Health, HealthFlags};

/// The `health_check.` stats of one check of a cluster.
///
/// At all times `attempt = success + failure + cancelled + running`.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CheckStats {
    /// Attempts that were begun.
    pub attempt: Counter,
    /// Attempts that succeeded.
    pub success: Counter,
    /// Attempts that failed.
    pub failure: Counter,
    /// Failed attempts of type `NETWORK` or `NETWORK_TIMEOUT`.
    pub network_failure: Counter,
    /// Verdicts from outside. Envoy adds them to `failure` too; here only attempts count there.
    pub passive_failure: Counter,
    /// Attempts that found the host to belong to another cluster; 0 for UDP.
    pub verify_cluster: Counter,
    /// Hosts that the check passes.
    pub healthy: Gauge,
    /// Hosts that the check finds degraded.
    pub degraded: Gauge,
    /// `xds_health.`: attempts ended because their host or check went away.
    pub cancelled: Counter,
    /// `xds_health.`: failures by reason, in the order of [`Reason::LABELS`].
    pub reasons: [Counter; Reason::LABELS.len()],
    /// `xds_health.`: attempts that had to wait for something this process was short of, in the order of
    /// [`Shortage::ALL`].
    pub shortages: [Counter; Shortage::ALL.len()],
}

impl CheckStats {
    fn envoy(&self, prefix: &str, family: &str, labels: &Labels, to: &mut Vec<Sample>) {
        for (name, counter) in [
            ("attempt", &self.attempt),
            ("success", &self.success),
            ("failure", &self.failure),
            ("network_failure", &self.network_failure),
            ("passive_failure", &self.passive_failure),
            ("verify_cluster", &self.verify_cluster),
        ] {
            let sample = Sample::counter(format!("{prefix}.{name}"), counter);
            to.push(sample.with_labels(format!("{family}_{name}"), labels.clone()));
        }
        gauges(prefix, family, labels, &self.healthy, &self.degraded, to);
    }

    fn own(&self, cluster: &str, check: &str, labels: &Labels, to: &mut Vec<Sample>) {
        let prefix = if check.is_empty() {
            format!("xds_health.cluster.{cluster}.health_check")
        } else {
            format!("xds_health.cluster.{cluster}.health_check.name.{check}")
        };
        let mut push = |name: &str, label: Option<(&'static str, &str)>, counter: &Counter| {
            let mut labels = labels.clone();
            let dotted = label.map_or_else(
                || format!("{prefix}.{name}"),
                |(_, value)| format!("{prefix}.{name}.{value}"),
            );
            labels.extend(label.map(|(label, value)| (label, value.to_owned())));
            let family = format!("xds_health_cluster_health_check_{name}");
            to.push(Sample::counter(dotted, counter).with_labels(family, labels));
        };
        push("cancelled", None, &self.cancelled);
        for (label, counter) in Reason::LABELS.iter().zip(&self.reasons) {
            push("failure_reason", Some(("reason", label)), counter);
        }
        for (what, counter) in Shortage::ALL.iter().zip(&self.shortages) {
            push("waited_for", Some(("resource", what.name())), counter);
        }
    }
}

type Labels = Vec<(&'static str, String)>;

fn gauges(
    prefix: &str,
    family: &str,
    labels: &Labels,
    healthy: &Gauge,
    degraded: &Gauge,
    to: &mut Vec<Sample>,
) {
    for (name, gauge) in [("healthy", healthy), ("degraded", degraded)] {
        let sample = Sample::gauge(format!("{prefix}.{name}"), gauge);
        to.push(sample.with_labels(format!("{family}_{name}"), labels.clone()));
    }
}

/// The `membership_` stats of a cluster.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Membership {
    /// Updates that added or removed hosts.
    pub change: Counter,
    /// Hosts.
    pub total: Gauge,
    /// Hosts to be used.
    pub healthy: Gauge,
    /// Hosts to be used when healthy ones do not suffice.
    pub degraded: Gauge,
    /// Hosts left out of panic calculations.
    pub excluded: Gauge,
}

impl Membership {
    /// A host came with `flags`.
    pub fn add(&self, flags: HealthFlags) {
        self.total.inc();
        self.count(flags, Gauge::inc);
    }

    /// A host with `flags` went.
    pub fn remove(&self, flags: HealthFlags) {
        self.total.dec();
        self.count(flags, Gauge::dec);
    }

    /// A host's flags changed.
    pub fn shift(&self, was: HealthFlags, now: HealthFlags) {
        self.count(was, Gauge::dec);
        self.count(now, Gauge::inc);
    }

    fn count(&self, flags: HealthFlags, by: fn(&Gauge)) {
        match flags.health() {
            Health::Healthy => by(&self.healthy),
            Health::Degraded => by(&self.degraded),
            Health::Unhealthy => (),
        }
        if flags.excluded() {
            by(&self.excluded);
        }
    }
}

/// The stats of a cluster.
#[derive(Debug)]
pub struct ClusterStats {
    name: Arc<str>,
    /// `membership_*`.
    pub membership: Membership,
    /// `health_check.healthy` of a cluster with named checks: hosts that all of them pass.
    pub healthy: Gauge,
    /// `health_check.degraded` of a cluster with named checks.
    pub degraded: Gauge,
    /// `update_*`: how the subscription to its endpoints, or the lookups of its names, fare.
    pub updates: Arc<UpdateStats>,
    checks: RwLock<BTreeMap<Arc<str>, Arc<CheckStats>>>,
}

impl ClusterStats {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            membership: Membership::default(),
            healthy: Gauge::default(),
            degraded: Gauge::default(),
            updates: Arc::default(),
            checks: RwLock::default(),
        }
    }

    /// What stands for the cluster in stat names.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The stats of the check of this name; made if there are none.
    pub fn check(&self, name: &Arc<str>) -> Arc<CheckStats> {
        let mut checks = self.checks.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(checks.entry(Arc::clone(name)).or_default())
    }

    /// Forgets the stats of checks that are not named.
    pub fn retain_checks(&self, names: &[&Arc<str>]) {
        let mut checks = self.checks.write().unwrap_or_else(PoisonError::into_inner);
        checks.retain(|name, _| names.contains(&name));
    }

    pub(super) fn samples(&self, to: &mut Vec<Sample>) {
        let name = &self.name;
        let of_cluster: Labels = vec![("envoy_cluster_name", name.to_string())];
        let push = |to: &mut Vec<Sample>, stat: &str, sample: fn(String, &Self) -> Sample| {
            let sample = sample(format!("cluster.{name}.{stat}"), self);
            to.push(sample.with_labels(format!("cluster_{stat}"), of_cluster.clone()));
        };
        push(to, "membership_change", |n, s| {
            Sample::counter(n, &s.membership.change)
        });
        push(to, "membership_total", |n, s| {
            Sample::gauge(n, &s.membership.total)
        });
        push(to, "membership_healthy", |n, s| {
            Sample::gauge(n, &s.membership.healthy)
        });
        push(to, "membership_degraded", |n, s| {
            Sample::gauge(n, &s.membership.degraded)
        });
        push(to, "membership_excluded", |n, s| {
            Sample::gauge(n, &s.membership.excluded)
        });
        let mut push = |stat: &str, sample: Sample| {
            let sample = sample.named(format!("cluster.{name}.{stat}"));
            to.push(sample.with_labels(format!("cluster_{stat}"), of_cluster.clone()));
        };
        self.updates.samples(&mut push, true);
        let family = "cluster_health_check";
        let prefix = format!("cluster.{name}.health_check");
        let checks = self.checks.read().unwrap_or_else(PoisonError::into_inner);
        if checks.len() > 1 {
            gauges(
                &prefix,
                family,
                &of_cluster,
                &self.healthy,
                &self.degraded,
                to,
            );
        }
        for (check, stats) in checks.iter() {
            if check.is_empty() {
                stats.envoy(&prefix, family, &of_cluster, to);
                stats.own(name, check, &of_cluster, to);
                continue;
            }
            let mut labels = vec![("envoy_health_check_name", check.to_string())];
            labels.extend(of_cluster.clone());
            stats.envoy(&format!("{prefix}.name.{check}"), family, &labels, to);
            stats.own(name, check, &labels, to);
        }
    }
}
