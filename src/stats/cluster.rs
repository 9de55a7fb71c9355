//! The stats of a cluster and of its health checks.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::sample::{Labels, Reading, Section};
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
    fn envoy(&self, prefix: &str, labels: &Labels, to: &mut Vec<Sample>) {
        for (stat, family, counter) in [
            ("attempt", "cluster_health_check_attempt", &self.attempt),
            ("success", "cluster_health_check_success", &self.success),
            ("failure", "cluster_health_check_failure", &self.failure),
            (
                "network_failure",
                "cluster_health_check_network_failure",
                &self.network_failure,
            ),
            (
                "passive_failure",
                "cluster_health_check_passive_failure",
                &self.passive_failure,
            ),
            (
                "verify_cluster",
                "cluster_health_check_verify_cluster",
                &self.verify_cluster,
            ),
        ] {
            let name = format!("{prefix}.{stat}");
            to.push(Sample::new(name, family, Arc::clone(labels), counter));
        }
        gauges(prefix, labels, &self.healthy, &self.degraded, to);
    }

    fn own(&self, prefix: &str, labels: &Labels, to: &mut Vec<Sample>) {
        let name = format!("{prefix}.cancelled");
        let family = "xds_health_cluster_health_check_cancelled";
        to.push(Sample::new(
            name,
            family,
            Arc::clone(labels),
            &self.cancelled,
        ));
        let with = |label, value: &str| -> Labels {
            labels
                .iter()
                .cloned()
                .chain([(label, value.into())])
                .collect()
        };
        let family = "xds_health_cluster_health_check_failure_reason";
        for (reason, counter) in Reason::LABELS.iter().zip(&self.reasons) {
            let name = format!("{prefix}.failure_reason.{reason}");
            to.push(Sample::new(name, family, with("reason", reason), counter));
        }
        let family = "xds_health_cluster_health_check_waited_for";
        for (what, counter) in Shortage::ALL.iter().zip(&self.shortages) {
            let what = what.name();
            let name = format!("{prefix}.waited_for.{what}");
            to.push(Sample::new(name, family, with("resource", what), counter));
        }
    }
}

fn gauges(prefix: &str, labels: &Labels, healthy: &Gauge, degraded: &Gauge, to: &mut Vec<Sample>) {
    for (stat, family, gauge) in [
        ("healthy", "cluster_health_check_healthy", healthy),
        ("degraded", "cluster_health_check_degraded", degraded),
    ] {
        let name = format!("{prefix}.{stat}");
        to.push(Sample::new(name, family, Arc::clone(labels), gauge));
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

/// Under which name stats of clusters stand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// `cluster.`
    Envoy,
    /// `xds_health.cluster.`
    Own,
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

    /// The stats of one part.
    pub(super) fn samples(&self, part: Part, section: Section, to: &mut Vec<Sample>) {
        let labels: Labels = Arc::new([("envoy_cluster_name", Arc::clone(&self.name))]);
        match part {
            Part::Envoy => self.envoy(section, &labels, to),
            Part::Own if section == Section::Numbers => {
                let prefix = format!("xds_health.cluster.{}.health_check", self.name);
                self.of_checks(&prefix, &labels, |stats, prefix, labels| {
                    stats.own(prefix, labels, to);
                });
            }
            Part::Own => (),
        }
    }

    fn envoy(&self, section: Section, labels: &Labels, to: &mut Vec<Sample>) {
        let name = &self.name;
        let mut push = |stat, family, reading: Reading| {
            if reading.section() == section {
                let name = format!("cluster.{name}.{stat}");
                to.push(Sample::new(name, family, Arc::clone(labels), reading));
            }
        };
        self.updates.read(true, &mut push);
        if section != Section::Numbers {
            return;
        }
        let of = &self.membership;
        push(
            "membership_change",
            "cluster_membership_change",
            (&of.change).into(),
        );
        for (stat, family, gauge) in [
            ("membership_total", "cluster_membership_total", &of.total),
            (
                "membership_healthy",
                "cluster_membership_healthy",
                &of.healthy,
            ),
            (
                "membership_degraded",
                "cluster_membership_degraded",
                &of.degraded,
            ),
            (
                "membership_excluded",
                "cluster_membership_excluded",
                &of.excluded,
            ),
        ] {
            push(stat, family, gauge.into());
        }
        let prefix = format!("cluster.{name}.health_check");
        if self.checks().len() > 1 {
            gauges(&prefix, labels, &self.healthy, &self.degraded, to);
        }
        self.of_checks(&prefix, labels, |stats, prefix, labels| {
            stats.envoy(prefix, labels, to);
        });
    }

    /// Gives the stats of each check with what their names begin with and their labels. A check with a name has it
    /// in both.
    fn of_checks(
        &self,
        prefix: &str,
        labels: &Labels,
        mut tell: impl FnMut(&CheckStats, &str, &Labels),
    ) {
        for (check, stats) in self.checks().iter() {
            if check.is_empty() {
                tell(stats, prefix, labels);
                continue;
            }
            let named = [("envoy_health_check_name", Arc::clone(check))];
            let labels: Labels = named.into_iter().chain(labels.iter().cloned()).collect();
            tell(stats, &format!("{prefix}.name.{check}"), &labels);
        }
    }

    fn checks(&self) -> RwLockReadGuard<'_, BTreeMap<Arc<str>, Arc<CheckStats>>> {
        self.checks.read().unwrap_or_else(PoisonError::into_inner)
    }
}
