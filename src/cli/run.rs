//! `xds-health run`: the daemon.

use std::io::Write;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::load::{self, Loaded};
use super::{LOCAL, RunArgs, TrafficArg, USAGE, complain, log, say};
use crate::admin::{self, Admin};
use crate::engine::{Engine, Options, Origin, Traffic, raise_descriptor_limit};
use crate::feed::FileSinkFactory;
use crate::registry::Registry;
use crate::stats::Stats;

pub(super) fn run(args: &RunArgs, err: &mut dyn Write) -> u8 {
    if let Err(reason) = log::install(&args.log) {
        say(err, format_args!("error: {reason}\n"));
        return USAGE;
    }
    let stats = Arc::new(Stats::default());
    let registry = Registry::default().with_sink(FileSinkFactory::new(Arc::clone(&stats)));
    let name = load::name(&args.config.config);
    let loaded = match load::load(&args.config.config, &registry) {
        Ok(loaded) => loaded,
        Err(error) => return complain(err, &name, &error),
    };
    for warning in &loaded.warnings {
        tracing::warn!(file = %name, path = %warning.path, "{}", warning.reason);
    }
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = runtime.and_then(|runtime| runtime.block_on(serve(args, loaded, registry, stats)));
    match ended {
        Ok(()) => 0,
        Err(error) => {
            say(err, format_args!("error: {error}\n"));
            LOCAL
        }
    }
}

async fn serve(
    args: &RunArgs,
    loaded: Loaded,
    registry: Registry,
    stats: Arc<Stats>,
) -> std::io::Result<()> {
    let mut signals = Signals::new()?;
    let shards = args.concurrency.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        usize::from,
    );
    let mut options = Options::default()
        .with_shards(shards)
        .with_traffic(match args.traffic {
            TrafficArg::Always => Traffic::Always,
            TrafficArg::Never => Traffic::WhenNoted,
        });
    if let Some(attempts) = args.max_in_flight {
        options = options.with_max_in_flight(usize::try_from(attempts).unwrap_or(usize::MAX));
    }
    let engine = Engine::start_threads(options, stats)?;
    let Loaded {
        bootstrap,
        clusters,
        ..
    } = loaded;
    let listener = match bootstrap.admin.as_ref().and_then(|admin| admin.address.as_ref()) {
        Some(address) => Some(admin::Listener::bind(address).await?),
        None => None,
    };
    let ended = std::io::Error::other;
    engine.set_limits(bootstrap.limits).await.map_err(ended)?;
    for cluster in clusters {
        engine
            .set_cluster(cluster, Origin::Static)
            .await
            .map_err(ended)?;
    }
    let admin = Admin::new(engine.clone()).with_node(bootstrap.node);
    let served = async {
        match listener {
            Some(listener) => listener.serve(admin).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = signals.until_told_to_stop(&registry) => (),
        result = served => result?,
    }
    tracing::info!("stopping");
    Ok(())
}

/// What the daemon is told by signals.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    reopen: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            reopen: signal(SignalKind::user_defined1())?,
        })
    }

    async fn until_told_to_stop(&mut self, registry: &Registry) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.reopen.recv() => registry.reopen(),
            }
        }
    }
}
