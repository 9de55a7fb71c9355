//! Pingora's load balancing over the hosts of an xds-health cluster.
//!
//! [`Discovery`] is where Pingora gets its backends from, [`Health`] is whether they pass. Both only read what the
//! engine knows: checks run in the engine, by its schedule and thresholds, whatever Pingora's frequency is.
//!
//! A host that was never checked is withheld: Pingora would take it as healthy until told otherwise.
//!
//! ```no_run
//! use pingora_load_balancing::selection::RoundRobin;
//! use pingora_load_balancing::{Backends, LoadBalancer};
//! use xds_health_pingora::{Discovery, Health};
//!
//! fn balancer(cluster: &xds_health::engine::Cluster) -> LoadBalancer<RoundRobin> {
//!     let mut backends = Backends::new(Box::new(Discovery::new(cluster)));
//!     backends.set_health_check(Box::new(Health::new(cluster)));
//!     let mut balancer = LoadBalancer::from_backends(backends);
//!     // Both only look: often costs little.
//!     let often = std::time::Duration::from_millis(100);
//!     balancer.update_frequency = Some(often);
//!     balancer.health_check_frequency = Some(often);
//!     balancer
//! }
//! ```

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use async_trait::async_trait;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::{Error, ErrorType, Result};
use pingora_load_balancing::Backend;
use pingora_load_balancing::discovery::ServiceDiscovery;
use pingora_load_balancing::health_check::HealthCheck;
use xds_health::engine::Cluster;
use xds_health::snapshot::Verdict;

/// The hosts of a cluster as backends, with their weights. Those that fail their checks are there but not enabled,
/// those that were never checked are not there.
#[derive(Clone, Debug)]
pub struct Discovery(Cluster);

impl Discovery {
    /// Of this cluster.
    pub fn new(cluster: &Cluster) -> Self {
        Self(cluster.clone())
    }
}

#[async_trait]
impl ServiceDiscovery for Discovery {
    async fn discover(&self) -> Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let (mut backends, mut enabled) = (BTreeSet::new(), HashMap::new());
        for view in self.0.snapshot().hosts() {
            let Some(address) = view.host.address.socket_addr() else {
                continue;
            };
            if view.verdict() == Verdict::Unknown {
                continue;
            }
            let weight = usize::try_from(view.host.weight).unwrap_or(usize::MAX);
            let backend = Backend::new_with_weight(&address.to_string(), weight)?;
            let mut hasher = DefaultHasher::new();
            backend.hash(&mut hasher);
            enabled.insert(hasher.finish(), view.eligible());
            backends.insert(backend);
        }
        Ok((backends, enabled))
    }
}

/// Whether backends pass, by the verdicts of a cluster. Nothing is sent: the engine has done that.
#[derive(Clone, Debug)]
pub struct Health(Cluster);

impl Health {
    /// By this cluster.
    pub fn new(cluster: &Cluster) -> Self {
        Self(cluster.clone())
    }
}

#[async_trait]
impl HealthCheck for Health {
    async fn check(&self, target: &Backend) -> Result<()> {
        let verdict = match &target.addr {
            SocketAddr::Inet(address) => self.0.verdict(*address),
            _ => None,
        };
        match verdict {
            Some(Verdict::Healthy | Verdict::Degraded) => Ok(()),
            Some(verdict) => fail(verdict.name()),
            None => fail("not a host of the cluster"),
        }
    }

    /// The cluster's thresholds have been applied already.
    fn health_threshold(&self, _success: bool) -> usize {
        1
    }
}

fn fail(why: &'static str) -> Result<()> {
    Error::e_explain(ErrorType::Custom("unhealthy"), why)
}
