//! `/hosts?watch`: all hosts, and then what changes, as server-sent events.
//!
//! A watcher holds the parts that it was told of. A few times a second they are compared with those there are:
//! only leaves that are not shared are looked into, so it costs what changed. What changes back in between is
//! not told; a slow client gets fewer and larger steps, and nothing is kept for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::json::{Times, string, write_host};
use crate::admin::stream::{Gone, Lines};
use crate::config::ClusterConfig;
use crate::config::json::write_string;
use crate::engine::{Cluster, Engine};
use crate::snapshot::{HostList, Part};

/// How often parts are compared.
const TURN: Duration = Duration::from_millis(200);
/// About as much is sent in one event.
const CHUNK: usize = 16 * 1024;

/// Tells of hosts until the client is gone.
pub(super) async fn watch(
    engine: Engine,
    cluster: Option<String>,
    mut lines: Lines,
) -> Result<(), Gone> {
    let mut known: BTreeMap<Arc<str>, Known> = BTreeMap::new();
    let wanted = |of: &Cluster| {
        let named = |name: &String| **of.name() == **name || **of.key() == **name;
        cluster.as_ref().is_none_or(named)
    };
    let mut told_all = false;
    loop {
        let mut clusters = engine.clusters();
        clusters.retain(&wanted);
        let here: BTreeSet<_> = clusters.iter().map(Cluster::key).collect();
        let gone: Vec<_> = known
            .keys()
            .filter(|key| !here.contains(key))
            .cloned()
            .collect();
        for key in gone {
            known.remove(&key);
            let mut data = String::new();
            string(&mut data, "{\"cluster\":", &key);
            data.push('}');
            lines.send("cluster_gone", &data).await?;
        }
        for cluster in clusters {
            let before = known.entry(Arc::clone(cluster.key())).or_default();
            let times = Times::of(&engine);
            before.follow(&cluster, times, &mut lines).await?;
        }
        if !std::mem::replace(&mut told_all, true) {
            lines.send("all", "{}").await?;
        }
        lines.until(tokio::time::sleep(TURN)).await?;
    }
}

/// A cluster as it was last told.
#[derive(Default)]
struct Known {
    config: Option<Arc<ClusterConfig>>,
    initialized: bool,
    parts: Vec<Arc<Part>>,
}

impl Known {
    async fn follow(
        &mut self,
        cluster: &Cluster,
        times: Times,
        lines: &mut Lines,
    ) -> Result<(), Gone> {
        let (snapshot, config) = (cluster.snapshot(), cluster.config());
        let same = self
            .config
            .as_ref()
            .is_some_and(|c| Arc::ptr_eq(c, &config));
        if !same || self.initialized != snapshot.initialized() {
            self.initialized = snapshot.initialized();
            let mut data = String::new();
            string(&mut data, "{\"cluster\":", &config.name);
            string(&mut data, ",\"key\":", config.key());
            data.push_str(",\"checks\":[");
            for (at, check) in config.health_checks.iter().enumerate() {
                string(&mut data, if at == 0 { "" } else { "," }, &check.name);
            }
            data.push_str(match self.initialized {
                true => "],\"initialized\":true}",
                false => "],\"initialized\":false}",
            });
            lines.send("cluster", &data).await?;
            self.config = Some(Arc::clone(&config));
        }
        let empty = HostList::default();
        for (at, part) in snapshot.parts().iter().enumerate() {
            let before = self.parts.get(at);
            if before.is_some_and(|before| Arc::ptr_eq(before, part)) {
                continue;
            }
            let before = before.map_or(&empty, |part| &part.hosts);
            self.tell(&config, before, &part.hosts, times, lines)
                .await?;
        }
        self.parts = snapshot.parts().to_vec();
        Ok(())
    }

    async fn tell(
        &self,
        config: &ClusterConfig,
        before: &HostList,
        now: &HostList,
        times: Times,
        lines: &mut Lines,
    ) -> Result<(), Gone> {
        // First those that went: a host may have moved to another slot.
        let mut gone = Batch::new("gone", config.key());
        for slot in now.changed_slots(before) {
            let address = |list: &HostList| Some(list.get(slot)?.host.address.clone());
            if let Some(was) = address(before)
                && address(now).as_ref() != Some(&was)
            {
                gone.next();
                write_string(&mut gone.data, &was.to_string());
                gone.send_if_long(lines).await?;
            }
        }
        gone.send(lines).await?;
        let mut hosts = Batch::new("hosts", config.key());
        for slot in now.changed_slots(before) {
            if let Some(view) = now.get(slot) {
                hosts.next();
                hosts.data.push('{');
                write_host(&mut hosts.data, config, view, times);
                hosts.data.push('}');
                hosts.send_if_long(lines).await?;
            }
        }
        hosts.send(lines).await
    }
}

/// A list that is sent piece by piece.
struct Batch<'a> {
    event: &'static str,
    cluster: &'a str,
    data: String,
}

impl<'a> Batch<'a> {
    fn new(event: &'static str, cluster: &'a str) -> Self {
        Self {
            event,
            cluster,
            data: String::new(),
        }
    }

    /// Begins an item.
    fn next(&mut self) {
        if self.data.is_empty() {
            string(&mut self.data, "{\"cluster\":", self.cluster);
            self.data.push_str(",\"list\":[");
        } else {
            self.data.push(',');
        }
    }

    async fn send_if_long(&mut self, lines: &mut Lines) -> Result<(), Gone> {
        if self.data.len() < CHUNK {
            return Ok(());
        }
        self.send(lines).await
    }

    async fn send(&mut self, lines: &mut Lines) -> Result<(), Gone> {
        if self.data.is_empty() {
            return Ok(());
        }
        self.data.push_str("]}");
        lines.send(self.event, &self.data).await?;
        self.data.clear();
        Ok(())
    }
}
