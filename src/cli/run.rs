//! `xds-health run`: the daemon.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::console::Console;
use super::control::Controls;
use super::daemon::{Daemon, Reloaded};
use super::load::{self, Loaded, Source};
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

pub(super) fn run(args: &RunArgs, console: &mut Console<'_>) -> u8 {
    let (logs, flush) = match log::install(&args.log) {
        Ok(logs) => logs,
        Err(reason) => {
            console.complain(&reason);
            return USAGE;
        }
    };
    let stats = Arc::new(Stats::default());
    let registry = Registry::default().with_sink(FileSinkFactory::new(Arc::clone(&stats)));
    let name = load::name(&args.config.config);
    let source = Source::read(&args.config.config);
    let loaded = match source.and_then(|source| source.load(&registry, &stats)) {
        Ok(loaded) => loaded,
        Err(error) => {
            drop(flush);
            return complain(console, &name, &error);
        }
    };
    warn_of(&name, &loaded.warnings);
    raise_descriptor_limit();
    // Tokio panics where it finds no descriptors for what it does with signals.
    let enough: io::Result<Vec<_>> = (0..TOKIOS).map(|_| UnixStream::pair()).collect();
    let runtime = enough.and_then(|pairs| {
        drop(pairs);
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    });
    let controls = Arc::new(Controls::new(logs, registry.clone()));
    let served = serve(args, loaded, registry, stats, controls);
    let ended = runtime.and_then(|runtime| {
        let ended = runtime.block_on(served);
        // A file that is still being read is of no use any more.
        runtime.shutdown_background();
        ended
    });
    drop(flush);
    match ended {
        Ok(()) => 0,
        Err(error) => {
            console.complain(&error);
            LOCAL
        }
    }
}

fn warn_of(file: &str, warnings: &Warnings) {
    for (warning, place) in warnings.located() {
        let place = place.map(tracing::field::display);
        tracing::warn!(%file, place, path = %warning.path, reason = %warning.reason, "odd configuration");
    }
}

fn options(args: &RunArgs) -> Options {
    let shards = args.concurrency.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        usize::from,
    );
    let options = Options::default()
        .with_shards(shards)
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
) -> io::Result<()> {
    let mut signals = Signals::new()?;
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
    let loaded = tokio::task::spawn_blocking(load).await;
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
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
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
