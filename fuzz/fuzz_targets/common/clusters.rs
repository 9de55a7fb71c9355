//! The clusters that follow from changes, with a driver that has every attempt end.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use xds_health::cluster::{Action, ClusterId, Clusters, Share, Update};
use xds_health::event::{Outcome, Reason};
use xds_health::registry::Change;
use xds_health::session::AttemptId;
use xds_health::snapshot::Part;
use xds_health::stats::Stats;

pub struct Bed {
    clusters: Clusters,
    stats: Stats,
    now: Instant,
    attempts: u32,
    keys: BTreeSet<Arc<str>>,
    parts: HashMap<ClusterId, Part>,
}

impl Bed {
    pub fn new(now: Instant) -> Self {
        Self {
            clusters: Clusters::new(now, Share::ALL, 1),
            stats: Stats::default(),
            now,
            attempts: 0,
            keys: BTreeSet::new(),
            parts: HashMap::new(),
        }
    }

    pub fn names(&self) -> &BTreeSet<Arc<str>> {
        &self.keys
    }

    #[allow(dead_code, reason = "not every target reads it")]
    pub fn part(&self, key: &str) -> Option<Part> {
        let id = self.clusters.id(key)?;
        self.parts.get(&id).cloned()
    }

    pub fn apply(&mut self, change: Change) {
        let update = match change {
            Change::Cluster(update) => {
                let config = update.config;
                self.keys.insert(Arc::clone(config.key()));
                Update::Cluster {
                    stats: self.stats.cluster(config.key(), config.stat_name()),
                    config,
                    traffic: true,
                }
            }
            Change::RemoveCluster(name) => {
                assert!(self.keys.remove(&name), "what goes was there");
                self.stats.remove_cluster(&name);
                Update::RemoveCluster(name)
            }
            Change::Hosts { cluster, hosts } => Update::Reset { cluster, hosts },
            Change::HostsUnavailable(cluster) => Update::HostsUnavailable(cluster),
            Change::ClustersTold => return,
            other => panic!("{other:?}"),
        };
        self.clusters.handle_update(self.now, update);
        self.act();
    }

    /// Time passes, and what is due then is done.
    pub fn pass(&mut self, by: Duration) {
        self.now += by;
        self.clusters.handle_timeout(self.now);
        self.act();
    }

    /// Every attempt ends at once, each third by a failure.
    fn act(&mut self) {
        let mut steps = 0;
        while let Some(action) = self.clusters.poll_action() {
            steps += 1;
            assert!(steps < 1_000_000, "there is no end");
            if let Action::Start(session) = action {
                self.attempts += 1;
                let id = AttemptId(self.attempts);
                if self.clusters.start(self.now, session, id).is_some() {
                    let outcome = match self.attempts % 3 {
                        0 => Outcome::timeout(Reason::Silent),
                        _ => Outcome::SUCCESS,
                    };
                    self.clusters
                        .handle_outcome(self.now, session, id, outcome, None);
                }
            }
        }
        while let Some((id, part)) = self.clusters.poll_part() {
            self.parts.insert(id, part);
        }
    }
}
