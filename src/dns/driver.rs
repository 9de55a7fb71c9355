//! The task around [`Names`]: clock, lookups that run, and the channels.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::sleep_until;

use super::answer::Answer;
use super::lookup::{LookupError, Sources};
use super::servers::Servers;
use super::state::{Lookup, Names, Noted};
use super::system::System;
use crate::config::{ClusterConfig, DnsResolverConfig};
use crate::registry::Change;
use crate::stats::Stats;

/// Lookups that run at once. Others that are due wait for one to end.
const LOOKUPS: usize = 256;
/// Clusters that may wait to be taken in; who tells more of them waits.
const COMMANDS: usize = 64;
/// No lookup takes longer, however slow its servers are.
const LONGEST: Duration = Duration::from_secs(120);
/// Sets of servers that are kept at hand.
const SERVERS: usize = 64;

/// Finds the hosts of clusters by name. Cheap to clone; ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Resolver(mpsc::Sender<Command>);

#[derive(Debug)]
enum Command {
    Set(Arc<ClusterConfig>),
    Remove(Arc<str>),
}

impl Resolver {
    /// A resolver that is a task of the current tokio runtime, which must have I/O and time enabled.
    ///
    /// It counts in `stats`, and sends what it finds out to `changes`: [`Change::Hosts`] when a cluster has
    /// other hosts than before, and [`Change::HostsUnavailable`] when none of its names could be resolved at
    /// first. While `changes` is full, lookups go on, and what becomes of them is told at once when there is
    /// room. The resolver ends when the receiver of `changes` is gone. Should it panic, `changes` is closed
    /// while there still is a handle of it.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(stats: Arc<Stats>, changes: mpsc::Sender<Change>) -> Self {
        let (sender, commands) = mpsc::channel(COMMANDS);
        let driver = Driver {
            names: Names::new(now(), fastrand::u64(..)),
            stats,
            commands,
            changes,
            system: System::default(),
            servers: HashMap::new(),
            lookups: HashMap::new(),
            running: JoinSet::new(),
        };
        tokio::spawn(driver.run());
        Self(sender)
    }

    /// Takes note of a change that an engine, or whoever runs the clusters, has applied already: clusters
    /// that come, change and go. Hosts are no concern of it.
    pub async fn apply(&self, change: &Change) {
        match change {
            Change::Cluster(update) => self.set_cluster(&update.config).await,
            Change::RemoveCluster(name) => self.remove_cluster(name).await,
            Change::Hosts { .. } | Change::HostsUnavailable(_) | Change::ClustersTold => (),
        }
    }

    /// A cluster came, or changed. One whose hosts are not found by name is forgotten.
    pub async fn set_cluster(&self, config: &Arc<ClusterConfig>) {
        self.tell(Command::Set(Arc::clone(config))).await;
    }

    /// A cluster went.
    pub async fn remove_cluster(&self, name: &Arc<str>) {
        self.tell(Command::Remove(Arc::clone(name))).await;
    }

    async fn tell(&self, command: Command) {
        // Fails only when nobody takes changes any more.
        let _ = self.0.send(command).await;
    }
}

struct Driver {
    names: Names,
    stats: Arc<Stats>,
    commands: mpsc::Receiver<Command>,
    changes: mpsc::Sender<Change>,
    system: System,
    servers: HashMap<Option<Arc<DnsResolverConfig>>, Arc<Servers>>,
    lookups: HashMap<task::Id, Lookup>,
    running: JoinSet<Result<Answer, LookupError>>,
}

type Ended = Result<(task::Id, Result<Answer, LookupError>), JoinError>;

impl Driver {
    async fn run(mut self) {
        let changes = self.changes.clone();
        loop {
            while self.running.len() < LOOKUPS
                && let Some(lookup) = self.names.poll_lookup()
            {
                self.begin(lookup);
            }
            let timeout = self.names.poll_timeout();
            let timer = async {
                match timeout {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Set(config)) => {
                        let stats = self.stats.cluster(&config.name, config.stat_name());
                        self.names.set_cluster(&config, &stats);
                    }
                    Some(Command::Remove(name)) => self.names.remove_cluster(&name),
                    None => return,
                },
                room = changes.reserve(), if self.names.has_change() => {
                    let Ok(room) = room else { return };
                    if let Some(change) = self.names.poll_change() {
                        room.send(change);
                    }
                }
                () = changes.closed() => return,
                Some(ended) = self.running.join_next_with_id() => self.end(ended),
                () = timer => self.names.handle_timeout(now()),
            }
        }
    }

    fn begin(&mut self, lookup: Lookup) {
        let sources = self.sources(lookup.resolver.as_ref());
        let (name, family) = (Arc::clone(&lookup.name), lookup.family);
        let task = self.running.spawn(async move {
            let sources = sources?;
            let answer = tokio::time::timeout(LONGEST, sources.look_up(&name, family)).await;
            answer.unwrap_or(Err(LookupError::Late))
        });
        self.lookups.insert(task.id(), lookup);
    }

    fn sources(&mut self, config: Option<&Arc<DnsResolverConfig>>) -> Result<Sources, LookupError> {
        let (system, changed) = self.system.servers();
        if changed || self.servers.len() > SERVERS {
            self.servers.clear();
        }
        let key = config.cloned();
        let servers = match self.servers.get(&key) {
            Some(servers) => Arc::clone(servers),
            None => {
                let config = key.clone().unwrap_or_default();
                let servers = Arc::new(Servers::new(&config, &system)?);
                self.servers.insert(key, Arc::clone(&servers));
                servers
            }
        };
        Ok(Sources {
            hosts: self.system.hosts(),
            servers,
        })
    }

    fn end(&mut self, ended: Ended) {
        let (task, result) = match ended {
            Ok(ended) => ended,
            Err(lost) => (lost.id(), Err(LookupError::Lost)),
        };
        let Some(lookup) = self.lookups.remove(&task) else {
            return;
        };
        let Lookup { cluster, name, .. } = &lookup;
        let (answer, error) = match result {
            Ok(answer) => (Some(answer), LookupError::Empty),
            Err(error) => (None, error),
        };
        match self.names.handle_answer(now(), lookup.id, answer) {
            Noted::Stale => (),
            Noted::Resolved { count, changed } => {
                if changed {
                    tracing::info!(%cluster, %name, addresses = count, "resolved");
                } else {
                    tracing::debug!(%cluster, %name, addresses = count, "resolved as before");
                }
            }
            Noted::Failed { first } => {
                if first {
                    tracing::warn!(%cluster, %name, %error, "cannot be resolved");
                } else {
                    tracing::debug!(%cluster, %name, %error, "still cannot be resolved");
                }
            }
        }
    }
}

/// The time by which lookups are due.
#[expect(
    clippy::disallowed_methods,
    reason = "the driver's one reading of the clock"
)]
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
