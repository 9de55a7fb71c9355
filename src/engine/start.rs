//! How an engine begins: its shards as tasks, or as threads.

use std::sync::{Arc, Mutex, RwLock};

use tokio::sync::{mpsc, watch};

use super::reactor::Reactor;
use super::shard::{Shard, Shared};
use super::{Engine, Inner, Options, capacity, clock, running};
use crate::cluster::Share;
use crate::feed::Broadcast;
use crate::stats::Stats;

/// Changes that may wait for a shard; who tells it more waits for it.
const CHANGES: usize = 64;

impl Engine {
    /// An engine whose shards are tasks of the current tokio runtime, which must have I/O and time enabled. Time is the
    /// runtime's, so tests may pause it.
    ///
    /// Each engine is to have `stats` of its own: two on the same add up in its gauges and counters.
    ///
    /// # Errors
    ///
    /// When a poller cannot be made.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(options: Options, stats: Arc<Stats>) -> std::io::Result<Self> {
        let (engine, shards) = Self::shards(&options, stats);
        for shard in shards {
            tokio::spawn(shard(Reactor::watched()?).run());
        }
        Ok(engine)
    }

    /// An engine whose shards are threads. One more thread has a runtime for checkers that need one. Time passes
    /// for it even where a test has paused tokio's. For `stats` see [`Engine::start`].
    ///
    /// # Errors
    ///
    /// When a poller, the runtime or a thread cannot be made.
    pub fn start_threads(options: Options, stats: Arc<Stats>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (engine, ended) = match Self::spawn_shards(&options, stats, runtime.handle()) {
            Ok(spawned) => spawned,
            Err(error) => {
                // Dropping it would block, which a caller within a runtime may not.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        std::thread::Builder::new()
            .name("shard-io".into())
            .spawn(move || {
                let mut ended = ended;
                runtime.block_on(ended.recv())
            })?;
        Ok(engine)
    }

    /// The engine, and what ends when its last shard has ended.
    fn spawn_shards(
        options: &Options,
        stats: Arc<Stats>,
        runtime: &tokio::runtime::Handle,
    ) -> std::io::Result<(Self, mpsc::Receiver<()>)> {
        let (engine, shards) = Self::shards(options, stats);
        // Nothing is sent: the runtime goes on until the last shard has dropped its end.
        let (runs, ended) = mpsc::channel::<()>(1);
        for (index, shard) in shards.enumerate() {
            let (reactor, unpark) = Reactor::waited_for()?;
            let shard = shard(reactor);
            let (handle, runs) = (runtime.clone(), runs.clone());
            std::thread::Builder::new()
                .name(format!("shard-{index}"))
                .spawn(move || {
                    let _runs = runs;
                    let _guard = handle.enter();
                    shard.run_here(&unpark);
                })?;
        }
        Ok((engine, ended))
    }

    fn shards(
        options: &Options,
        stats: Arc<Stats>,
    ) -> (Self, impl Iterator<Item = impl FnOnce(Reactor) -> Shard>) {
        let count = options.shards.max(1);
        let in_flight =
            capacity::in_flight(options.max_in_flight, count).min(running::MOST * count);
        let per_shard = in_flight.div_ceil(count).max(1);
        let limit = u64::try_from(per_shard * count).unwrap_or(u64::MAX);
        stats.engine.attempts_in_flight_limit.set(limit);
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..count).map(|_| mpsc::channel(CHANGES)).unzip();
        let (alive, running) = watch::channel(false);
        let shared = Shared {
            spares: options.spare_sockets.div_ceil(count),
            journal: options.journal,
            events: Arc::new(Broadcast::new(options.events)),
            stats: Arc::clone(&stats),
            alive,
        };
        let events = Arc::downgrade(&shared.events);
        let shards = receivers
            .into_iter()
            .enumerate()
            .map(move |(index, inputs)| {
                let shared = shared.clone();
                move |reactor| {
                    let seed = seed.wrapping_add(index as u64);
                    let share = Share::new(index, count);
                    Shard::new(share, seed, per_shard, inputs, shared, reactor)
                }
            });
        let engine = Self(Arc::new(Inner {
            shards: senders,
            order: Mutex::default(),
            clusters: RwLock::default(),
            traffic: options.traffic,
            events_kept: options.events,
            events,
            stats,
            started: clock::now(),
            running,
        }));
        (engine, shards)
    }
}
