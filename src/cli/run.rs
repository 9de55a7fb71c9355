//! `xds-health run`: the daemon.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;

use super::console::Console;
use super::control::Controls;
use super::daemon::{Daemon, Reloaded};
use super::load::{self, Loaded, Source};
use super::log::Logs;
use super::notify::Notify;
#[cfg(feature = "otlp")]
use super::otlp;
use super::{LOCAL, RunArgs, TrafficArg, USAGE, clock, complain, log, memory};
use crate::admin::Control;
use crate::config::{ConfigError, Warnings};
use crate::engine::{Options, Traffic, raise_descriptor_limit};
use crate::feed::FileSinkFactory;
use crate::registry::Registry;
use crate::stats::Stats;

/// The last attempts that each shard notes, of 32 bytes each.
pub(super) const JOURNAL: usize = 65_536;

/// More pairs of descriptors than tokio opens.
const TOKIOS: usize = 6;
/// Threads beside those of shards: for input and output, the log, an event log, name servers and files.
const THREADS: usize = 6;

pub(super) fn run(args: &RunArgs, console: &mut Console<'_>) -> u8 {
    raise_descriptor_limit();
    let runtime = match room(shards(args)).and_then(|()| runtime()) {
        Ok(runtime) => runtime,
        Err(error) => {
            console.complain(&format_args!("cannot start: {error}"));
            return LOCAL;
        }
    };
    let (logs, flush) = match log::install(&args.log) {
        Ok(logs) => logs,
        Err(reason) => {
            console.complain(&reason);
            return USAGE;
        }
    };
    let ended = runtime.block_on(load_and_serve(args, logs));
    // A file that is still being read is of no use any more.
    runtime.shutdown_background();
    drop(flush);
    match ended {
        Ok(()) => 0,
        Err(Ended::Refused(error)) => complain(console, &load::name(&args.config.config), &error),
        Err(Ended::Local(error)) => {
            console.complain(&error);
            LOCAL
        }
    }
}

/// Why the daemon did not end as it was told to.
enum Ended {
    /// The file cannot be used.
    Refused(ConfigError),
    /// This machine does not give what it takes.
    Local(io::Error),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Local(error)
    }
}

fn runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread()
        .enable_all()
        // Files are read there, and a nested one takes as much as on the main thread.
        .thread_stack_size(8 << 20)
        .build()
}

/// Whether there are descriptors and threads to start with: tokio and the logger panic where they find none.
fn room(shards: usize) -> io::Result<()> {
    let told =
        |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let descriptors: io::Result<Vec<_>> = (0..TOKIOS).map(|_| UnixStream::pair()).collect();
    drop(descriptors.map_err(|error| told("too few descriptors", error))?);
    let hold = Arc::new(Mutex::new(()));
    let held = hold.lock();
    let mut threads = Vec::new();
    let mut result = Ok(());
    for _ in 0..shards.saturating_add(THREADS) {
        let hold = Arc::clone(&hold);
        match thread::Builder::new().spawn(move || drop(hold.lock())) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                result = Err(told("too few threads", error));
                break;
            }
        }
    }
    drop(held);
    for thread in threads {
        // It did nothing that could fail.
        let _ = thread.join();
    }
    result
}

/// Signals are heeded from the first moment: the end at once, what else they ask for when the file is in force.
async fn load_and_serve(args: &RunArgs, logs: Logs) -> Result<(), Ended> {
    let mut signals = Signals::new()?;
    let stats = Arc::new(Stats::default());
    let registry = Registry::default().with_sink(FileSinkFactory::new(Arc::clone(&stats)));
    let load = {
        let (path, registry) = (args.config.config.clone(), registry.clone());
        let stats = Arc::clone(&stats);
        move || Source::read(&path)?.load(&registry, &stats)
    };
    let loaded = tokio::select! {
        loaded = spawn_blocking(load) => loaded.map_err(io::Error::other)?,
        () = signals.stop() => return Ok(()),
    };
    let loaded = loaded.map_err(Ended::Refused)?;
    warn_of(&load::name(&args.config.config), &loaded.warnings);
    let controls = Arc::new(Controls::new(logs, registry.clone()));
    Ok(serve(args, loaded, registry, stats, controls, signals).await?)
}

fn warn_of(file: &str, warnings: &Warnings) {
    for (warning, place) in warnings.located() {
        let place = place.map(tracing::field::display);
        tracing::warn!(%file, place, path = %warning.path, reason = %warning.reason, "odd configuration");
    }
}

fn shards(args: &RunArgs) -> usize {
    args.concurrency.map_or_else(
        || thread::available_parallelism().map_or(1, usize::from),
        usize::from,
    )
}

fn options(args: &RunArgs) -> Options {
    let options = Options::default()
        .with_shards(shards(args))
        .with_journal(JOURNAL)
        .with_spare_sockets(args.spare_sockets.into())
        .with_traffic(match args.traffic {
            TrafficArg::Always => Traffic::Always,
            TrafficArg::Never => Traffic::WhenNoted,
        });
    match args.max_in_flight {
        Some(most) => options.with_max_in_flight(usize::try_from(most).unwrap_or(usize::MAX)),
        None => options,
    }
}

async fn serve(
    args: &RunArgs,
    loaded: Loaded,
    registry: Registry,
    stats: Arc<Stats>,
    controls: Arc<Controls>,
    mut signals: Signals,
) -> io::Result<()> {
    let notify = Notify::from_env();
    let control = Arc::clone(&controls) as Arc<dyn Control>;
    #[cfg(feature = "otlp")]
    let node = loaded.bootstrap.node.clone();
    let mut daemon = Daemon::start(loaded, options(args), stats, control).await?;
    memory::give_back();
    notify.ready();
    let engine = daemon.engine().clone();
    #[cfg(feature = "otlp")]
    let pushing = otlp::Pushing::start(&args.otlp, &engine, node);
    loop {
        let told = tokio::select! {
            told = signals.next() => told,
            () = engine.broken() => return Err(io::Error::other("a shard has panicked")),
            error = daemon.broken() => return Err(error),
            () = controls.told_to_quit() => Told::Stop,
        };
        match told {
            Told::Stop => break,
            Told::Reopen => registry.reopen(),
            Told::Reload => {
                notify.reloading();
                tokio::select! {
                    done = reload(&args.config.config, &registry, &mut daemon) => done?,
                    () = signals.stop() => break,
                }
                notify.ready();
            }
        }
    }
    tracing::info!("stopping");
    notify.stopping();
    #[cfg(feature = "otlp")]
    pushing.stop().await;
    daemon.stop().await
}

/// Reads the file again, and applies it if it can be used.
async fn reload(file: &Path, registry: &Registry, daemon: &mut Daemon) -> io::Result<()> {
    let name = load::name(file);
    if file == Path::new("-") {
        tracing::error!(file = %name, "cannot be read again: the old configuration stays in force");
        return Ok(());
    }
    let (path, registry, read) = (file.to_owned(), registry.clone(), clock::time());
    // What a client counts when it is made was counted at the start.
    let load = move || Source::read_again(&path)?.load(&registry, &Arc::default());
    let loaded = spawn_blocking(load).await;
    match loaded.map_err(io::Error::other)? {
        Ok(loaded) => {
            warn_of(&name, &loaded.warnings);
            let reloaded = daemon.reload(loaded, read).await?;
            memory::give_back();
            tell(&name, &reloaded);
        }
        Err(error) => refuse(&name, &error),
    }
    Ok(())
}

fn tell(file: &str, reloaded: &Reloaded) {
    for (path, reason) in &reloaded.ignored {
        tracing::warn!(%file, path, reason, "change without effect");
    }
    let Reloaded {
        added,
        changed,
        removed,
        unchanged,
        ..
    } = reloaded;
    tracing::info!(
        %file,
        added,
        changed,
        removed,
        unchanged,
        "configuration read again"
    );
}

fn refuse(file: &str, error: &ConfigError) {
    for (fault, place) in error.located() {
        let place = place.map(tracing::field::display);
        tracing::error!(%file, place, path = %fault.path, reason = %fault.reason, "bad configuration");
    }
    tracing::error!(%file, "refused: the old configuration stays in force");
}

/// What the daemon is told.
enum Told {
    Stop,
    Reload,
    Reopen,
}

/// By signals.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    reopen: Signal,
    /// Of a file that may grow no more. Heard and passed over, so that the write fails instead of the process.
    _too_long: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            _too_long: signal(SignalKind::from_raw(libc::SIGXFSZ))?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => (),
            _ = self.interrupt.recv() => (),
        }
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.hangup.recv() => Told::Reload,
            _ = self.reopen.recv() => Told::Reopen,
        }
    }
}
