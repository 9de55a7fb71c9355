//! A bootstrap file that is read again: what changed is applied, what did not goes on untouched, and what
//! cannot change while running is told.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::watch;

use super::Daemon;
use crate::admin::BootstrapDump;
use crate::cli::load::{CLUSTERS, Loaded};
use crate::config::{Bootstrap, ClusterConfig, Discovery};
use crate::engine::Origin;
use crate::proto::envoy::config::bootstrap::v3::Bootstrap as Message;
use crate::registry::Update;

/// What is in force.
pub(super) struct Force {
    /// Its clusters aside, the bootstrap of the start: what of it differs later has no effect.
    fixed: Bootstrap,
    clusters: BTreeMap<Arc<str>, Arc<ClusterConfig>>,
    shown: watch::Sender<BootstrapDump>,
}

/// What came of a file that was read again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct Reloaded {
    /// Clusters that came.
    pub(in crate::cli) added: usize,
    /// Clusters that changed.
    pub(in crate::cli) changed: usize,
    /// Clusters that went.
    pub(in crate::cli) removed: usize,
    /// Clusters that go on as they were.
    pub(in crate::cli) unchanged: usize,
    /// Fields that changed without effect, and why.
    pub(in crate::cli) ignored: Vec<(String, &'static str)>,
}

/// Said of what is read at the start only.
const AT_START: &str = "cannot change while running: restart for it";
const EDS: &str = "whose endpoints are asked for cannot change while running: restart for it";
const TAKEN: &str = "a management server has told of a cluster of this name";

impl Force {
    pub(super) fn new(bootstrap: &Bootstrap, message: &Message, read: SystemTime) -> Self {
        let clusters = bootstrap.clusters.iter();
        let mut fixed = bootstrap.clone();
        fixed.clusters = Vec::new();
        Self {
            clusters: clusters
                .map(|c| (Arc::clone(&c.name), Arc::clone(c)))
                .collect(),
            fixed,
            shown: watch::Sender::new(BootstrapDump::new(message, read)),
        }
    }

    /// The bootstrap that was read last, for who shows it.
    pub(super) fn shown(&self) -> watch::Receiver<BootstrapDump> {
        self.shown.subscribe()
    }

    /// The fields that differ from those of the start and have no effect.
    fn ignored(&self, new: &Bootstrap) -> Vec<(String, &'static str)> {
        let old = &self.fixed;
        // Clusters of the file bring their own; only those that servers tell of are meant.
        let told = old.dynamic_resources.is_some() || old.hds_config.is_some();
        let fields = [
            ("node", old.node != new.node),
            ("admin", old.admin != new.admin),
            (
                "cluster_manager.upstream_bind_config",
                told && old.bind != new.bind,
            ),
            (
                "typed_dns_resolver_config",
                told && old.dns_resolver != new.dns_resolver,
            ),
            (
                "dynamic_resources",
                old.dynamic_resources != new.dynamic_resources,
            ),
            ("hds_config", old.hds_config != new.hds_config),
        ];
        let differ = fields.into_iter().filter(|(_, differs)| *differs);
        let mut ignored: Vec<_> = differ
            .map(|(name, _)| (name.to_owned(), AT_START))
            .collect();
        let planes = old.control_planes.keys().chain(new.control_planes.keys());
        let planes: std::collections::BTreeSet<_> = planes.collect();
        for name in planes {
            if old.control_planes.get(name) != new.control_planes.get(name) {
                ignored.push((format!("{CLUSTERS}: management server {name:?}"), AT_START));
            }
        }
        ignored
    }
}

impl Daemon {
    /// Applies what `loaded` has otherwise than what is in force.
    ///
    /// # Errors
    ///
    /// When the engine has ended.
    pub(in crate::cli) async fn reload(
        &mut self,
        loaded: Loaded,
        read: SystemTime,
    ) -> io::Result<Reloaded> {
        let Loaded {
            bootstrap,
            message,
            clusters,
            ..
        } = loaded;
        let mut reloaded = Reloaded {
            ignored: self.force.ignored(&bootstrap),
            ..Reloaded::default()
        };
        let ended = io::Error::other;
        self.engine
            .set_limits(bootstrap.limits)
            .await
            .map_err(ended)?;
        let mut gone = self.force.clusters.clone();
        for update in clusters {
            let name = Arc::clone(&update.config.name);
            let before = gone.remove(&name);
            if before.as_ref() == Some(&update.config) {
                reloaded.unchanged += 1;
                continue;
            }
            if let Some(why) = self.cannot(before.as_deref(), &update) {
                reloaded
                    .ignored
                    .push((format!("{CLUSTERS}: {name:?}"), why));
                continue;
            }
            match before {
                Some(_) => reloaded.changed += 1,
                None => reloaded.added += 1,
            }
            self.set(update).await?;
        }
        for name in gone.keys() {
            self.engine.remove_cluster(name).await.map_err(ended)?;
            self.resolver.remove_cluster(name).await;
            self.force.clusters.remove(name);
            reloaded.removed += 1;
        }
        self.force
            .shown
            .send_replace(BootstrapDump::new(&message, read));
        Ok(reloaded)
    }

    /// Why a cluster cannot come, or change, in this way.
    fn cannot(&self, before: Option<&ClusterConfig>, update: &Update) -> Option<&'static str> {
        let eds = |config: &ClusterConfig| match &config.discovery {
            Discovery::Eds(eds) => Some(eds.clone()),
            _ => None,
        };
        if before.and_then(eds) != eds(&update.config) {
            return Some(EDS);
        }
        let told = self.engine.cluster(&update.config.name);
        let told = told.is_some_and(|cluster| cluster.origin() != Origin::Static);
        (before.is_none() && told).then_some(TAKEN)
    }

    async fn set(&mut self, update: Update) -> io::Result<()> {
        let config = Arc::clone(&update.config);
        let set = self.engine.set_cluster(update, Origin::Static).await;
        set.map_err(io::Error::other)?;
        self.resolver.set_cluster(&config).await;
        let name = Arc::clone(&config.name);
        self.force.clusters.insert(name, config);
        Ok(())
    }
}
