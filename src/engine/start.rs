//! How an engine begins: its shards as tasks, or as threads.

use std::io;
use std::sync::{Arc, Mutex, RwLock};

use tokio::sync::{mpsc, watch};

use super::door::{Door, door};
use super::options::MOST_SHARDS;
use super::reactor::Reactor;
use super::shard::{Shard, Shared};
use super::{Engine, Inner, Options, capacity, clock, running};
use crate::cluster::Share;
use crate::feed::Broadcast;
use crate::stats::Stats;

impl Engine {
    /// An engine whose shards are tasks of the current tokio runtime. Time is the runtime's, so tests may pause it, but
    /// not where checkers use real sockets: a paused clock jumps to the next timeout before an answer can come.
    ///
    /// Shards run when the runtime does: on one of a current thread that nobody drives, nothing is checked, and
    /// [`Engine::stop`] waits until somebody does, or the runtime is shut down.
    ///
    /// Each engine is to have `stats` of its own: two on the same add up in its gauges and counters.
    ///
    /// # Errors
    ///
    /// When a poller cannot be made, or the options ask for too many shards.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, and on one without I/O or time enabled.
    pub fn start(options: Options, stats: Arc<Stats>) -> io::Result<Self> {
        let (engine, shards) = Self::shards(&options, stats)?;
        // Panics where there is no time, rather than the shards later.
        drop(tokio::time::sleep(std::time::Duration::ZERO));
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
    /// When a poller, the runtime or a thread cannot be made, or the options ask for too many shards.
    pub fn start_threads(options: Options, stats: Arc<Stats>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        match Self::spawn(&options, stats, runtime.handle()) {
            Ok((engine, ended, io)) => {
                // The thread waits for nothing else.
                let _ = io.send((runtime, ended));
                Ok(engine)
            }
            Err(error) => {
                // Dropping it would block, which a caller within a runtime may not.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// The engine, what ends when its last shard has ended, and where both it and the runtime are to be given to the
    /// thread of the runtime. Threads that were begun end if one cannot be.
    #[expect(clippy::type_complexity, reason = "told above")]
    fn spawn(
        options: &Options,
        stats: Arc<Stats>,
        runtime: &tokio::runtime::Handle,
    ) -> io::Result<(
        Self,
        mpsc::Receiver<()>,
        std::sync::mpsc::Sender<(tokio::runtime::Runtime, mpsc::Receiver<()>)>,
    )> {
        let (engine, shards) = Self::shards(options, stats)?;
        let (io, given) = std::sync::mpsc::channel();
        std::thread::Builder::new()
            .name("shard-io".into())
            .spawn(move || {
                let given: Result<(tokio::runtime::Runtime, mpsc::Receiver<()>), _> = given.recv();
                if let Ok((runtime, mut ended)) = given {
                    runtime.block_on(ended.recv());
                }
            })?;
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
        Ok((engine, ended, io))
    }

    fn shards(
        options: &Options,
        stats: Arc<Stats>,
    ) -> io::Result<(Self, impl Iterator<Item = impl FnOnce(Reactor) -> Shard>)> {
        let count = options.shards.max(1);
        if count > MOST_SHARDS {
            let why = format!("at most {MOST_SHARDS} shards");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let in_flight = capacity::in_flight(options, count).min(running::MOST * count);
        let per_shard = in_flight.div_ceil(count).max(1);
        let limit = u64::try_from(per_shard * count).unwrap_or(u64::MAX);
        stats.engine.attempts_in_flight_limit.set(limit);
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
        let (doors, inboxes): (Vec<_>, Vec<_>) = (0..count).map(|_| door()).unzip();
        let (alive, running) = watch::channel(false);
        let shared = Shared {
            spares: options.spare_sockets.div_ceil(count),
            journal: options.journal,
            events: Arc::new(Broadcast::new(options.events)),
            stats: Arc::clone(&stats),
            alive,
            all: doors.iter().map(Door::stopper).collect(),
        };
        let events = Arc::downgrade(&shared.events);
        let shards = inboxes.into_iter().enumerate().map(move |(index, inputs)| {
            let shared = shared.clone();
            move |reactor| {
                let seed = seed.wrapping_add(index as u64);
                let share = Share::new(index, count);
                Shard::new(share, seed, per_shard, inputs, shared, reactor)
            }
        });
        let engine = Self(Arc::new(Inner {
            shards: doors.into(),
            order: Mutex::default(),
            clusters: RwLock::default(),
            traffic: options.traffic,
            events_kept: options.events,
            events,
            stats,
            started: clock::now(),
            running,
        }));
        Ok((engine, shards))
    }
}
