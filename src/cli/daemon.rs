//! A bootstrap at work: engine, feeds and admin port, from start to end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::clock;
use super::load::Loaded;
use crate::admin::{self, Admin, Control};
use crate::dns;
use crate::engine::{Engine, Options, Origin, descriptors, raise_descriptor_limit};
use crate::registry::Change;
use crate::stats::Stats;
use crate::xds::Client;

mod parts;
mod port;
mod reload;
#[cfg(test)]
mod tests;

use parts::{Lost, Parts};
use port::AdminPort;
pub(super) use reload::Reloaded;

/// How long answers of the admin port may still go on when the daemon stops.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Changes that may wait for the engine; when there are more, the control planes' streams wait. Names are
/// looked up all the same.
const CHANGES: usize = 64;

/// Descriptors for all but attempts and the admin port: logs, streams to management servers. As many as the admin
/// port takes where that is fewer.
const REST: usize = 128;

/// Descriptors that checks, clients of the admin port and streams need at least, beside what is open for good.
const LEAST: u64 = 8;

/// A bootstrap at work. To be stopped by [`Daemon::stop`].
pub(super) struct Daemon {
    engine: Engine,
    resolver: dns::Resolver,
    parts: Parts,
    admin: Option<SocketAddr>,
    /// The admin port, which goes on while the sender is there.
    served: Option<JoinHandle<()>>,
    stop: watch::Sender<()>,
    /// What is in force.
    force: reload::Force,
}

impl Daemon {
    /// Begins to check. Must be called within a tokio runtime; the checks have threads of their own. The admin
    /// port can do what `control` can.
    ///
    /// # Errors
    ///
    /// What this machine does not give: threads, or the admin port's address.
    pub(super) async fn start(
        loaded: Loaded,
        options: Options,
        stats: Arc<Stats>,
        control: Arc<dyn Control>,
    ) -> io::Result<Self> {
        let seats = admin_connections(raise_descriptor_limit());
        let options = options.with_reserved_descriptors(seats + REST.min(seats));
        let shards = options.shards;
        let engine = Engine::start_threads(options, stats).map_err(|error| {
            let what = format!("cannot start {shards} shards: {error}");
            io::Error::new(error.kind(), what)
        })?;
        let Loaded {
            bootstrap,
            message,
            clusters,
            client,
            hds,
            ..
        } = loaded;
        let force = reload::Force::new(&bootstrap, &message, clock::time());
        drop(message);
        has_room().map_err(io::Error::other)?;
        let admin = bootstrap.admin;
        let listener = match admin.and_then(|admin| Some((admin.address?, admin.mode))) {
            Some((address, mode)) => Some(AdminPort::bind(&address, mode).await?),
            None => None,
        };
        let ended = io::Error::other;
        engine.set_limits(bootstrap.limits).await.map_err(ended)?;
        let (changes, from_dns) = mpsc::channel(CHANGES);
        let resolver = dns::Resolver::start(Arc::clone(engine.stats()), changes);
        for cluster in clusters {
            let config = Arc::clone(&cluster.config);
            let set = engine.set_cluster(cluster, Origin::Static).await;
            set.map_err(ended)?;
            resolver.set_cluster(&config).await;
        }
        let dump = client.dump();
        let mut parts = Parts::default();
        let (gate, ready) = watch::channel(!client.awaits_clusters());
        let dns = (resolver.clone(), from_dns);
        parts.spawn(
            "who follows control planes and name servers",
            follow(client, dns, engine.clone(), gate),
        );
        let hds_dump = hds.as_ref().map(crate::hds::Client::dump);
        if let Some(hds) = hds {
            let run = hds.run(engine.clone());
            parts.spawn("the client of the health discovery service", async {
                run.await;
                Ok(())
            });
        }
        let admin = listener.as_ref().and_then(AdminPort::address);
        let (stop, mut stopping) = watch::channel(());
        let served = listener.map(|listener| {
            let mut admin = Admin::new(engine.clone())
                .with_node(bootstrap.node)
                .with_bootstraps(force.shown())
                .with_gate(ready)
                .with_dump(dump)
                .with_control(control);
            if let Some(dump) = hds_dump {
                admin = admin.with_hds_dump(dump);
            }
            if listener.is_loopback() {
                admin = admin.with_own_names_only();
            }
            tokio::spawn(listener.serve(admin::router(admin), seats, async move {
                // The sender goes when the daemon stops.
                while stopping.changed().await.is_ok() {}
            }))
        });
        Ok(Self {
            engine,
            resolver,
            parts,
            admin,
            served,
            stop,
            force,
        })
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Waits until a part of it is lost, without which what is shown would be old and nobody would know.
    pub(super) async fn broken(&mut self) -> io::Error {
        self.parts.lost().await
    }

    /// Where the admin port is, if it is one of TCP.
    pub(super) fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Ends all of it, the feeds first: nobody is answered that a change was taken which is not made any more.
    pub(super) async fn stop(mut self) -> io::Result<()> {
        self.parts.end().await;
        drop(self.stop);
        let answered = async {
            match self.served {
                Some(served) => served.await.map_err(io::Error::other),
                None => Ok(()),
            }
        };
        // Event logs have their last lines when the engine has ended.
        let (answered, ()) = tokio::join!(answered, self.engine.stop());
        answered
    }
}

/// Whether there are descriptors enough for what comes.
fn has_room() -> Result<(), String> {
    let (limit, open) = descriptors();
    if limit.saturating_sub(open) < LEAST {
        return Err(format!(
            "of {limit} descriptors {open} are in use, but checks and the admin port need {LEAST} more"
        ));
    }
    Ok(())
}

/// How many connections the admin port takes: as many as it does where descriptors abound, else an eighth of them,
/// so that clients that only connect take none from attempts.
fn admin_connections(limit: u64) -> usize {
    let eighth = usize::try_from(limit / 8).unwrap_or(usize::MAX);
    eighth.clamp(2, admin::Limits::default().connections)
}

/// Does what control planes and name servers tell. The gate opens when clusters were told and have done their first
/// round.
async fn follow(
    client: Client,
    (resolver, mut from_dns): (dns::Resolver, mpsc::Receiver<Change>),
    engine: Engine,
    gate: watch::Sender<bool>,
) -> Result<(), Lost> {
    let (changes, mut told) = mpsc::channel(CHANGES);
    // It ends with this.
    let mut clients = JoinSet::new();
    clients.spawn(client.run(changes));
    let mut gate = Some(gate);
    loop {
        // As long as its changes are taken, neither ends by itself.
        let done = tokio::select! {
            change = told.recv() => {
                let change = change.ok_or(Lost("the client of the control planes"))?;
                if let Change::ClustersTold = change
                    && let Some(gate) = gate.take()
                {
                    tokio::spawn(open(gate, engine.clone()));
                }
                let done = engine.apply(change.clone()).await;
                resolver.apply(&change).await;
                done
            }
            change = from_dns.recv() => {
                engine.apply(change.ok_or(Lost("the resolver of names"))?).await
            }
        };
        if done.is_err() {
            return Ok(());
        }
    }
}

/// Opens the gate once each cluster that came from a control plane has done its first round, or went.
async fn open(gate: watch::Sender<bool>, engine: Engine) {
    for cluster in engine.clusters() {
        if cluster.origin() != Origin::Dynamic {
            continue;
        }
        let mut changes = cluster.changes();
        // A cluster that went publishes nothing any more.
        while !cluster.snapshot().initialized() && changes.changed().await.is_ok() {}
    }
    gate.send_replace(true);
}
