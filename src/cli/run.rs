//! `xds-health run`: the daemon.

use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::control::Daemon;
use super::load::{self, Loaded};
use super::{LOCAL, RunArgs, TrafficArg, USAGE, complain, log, say};
use crate::admin::{self, Admin};
use crate::dns;
use crate::engine::{Engine, Options, Origin, Traffic, raise_descriptor_limit};
use crate::feed::FileSinkFactory;
use crate::host::Address;
use crate::registry::{Change, Registry};
use crate::stats::Stats;
use crate::xds::Client;

/// How long answers of the admin port may still go on when the daemon stops.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Changes that may wait for the engine; when there are more, the control planes' streams wait. Names are
/// looked up all the same.
const CHANGES: usize = 64;
/// The last attempts that each shard notes, of 32 bytes each.
const JOURNAL: usize = 65_536;

pub(super) fn run(args: &RunArgs, err: &mut dyn Write) -> u8 {
    let logs = match log::install(&args.log) {
        Ok(logs) => logs,
        Err(reason) => {
            say(err, format_args!("error: {reason}\n"));
            return USAGE;
        }
    };
    let stats = Arc::new(Stats::default());
    let registry = Registry::default().with_sink(FileSinkFactory::new(Arc::clone(&stats)));
    let name = load::name(&args.config.config);
    let loaded = match load::load(&args.config.config, &registry, &stats) {
        Ok(loaded) => loaded,
        Err(error) => return complain(err, &name, &error),
    };
    for (warning, place) in loaded.warnings.located() {
        let place = place.map(tracing::field::display);
        tracing::warn!(file = %name, place, path = %warning.path, reason = %warning.reason, "odd configuration");
    }
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let daemon = Arc::new(Daemon::new(logs, registry.clone()));
    let served = serve(args, loaded, registry, stats, daemon);
    let ended = runtime.and_then(|runtime| runtime.block_on(served));
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
    daemon: Arc<Daemon>,
) -> io::Result<()> {
    let mut signals = Signals::new()?;
    let shards = args.concurrency.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        usize::from,
    );
    let mut options = Options::default()
        .with_shards(shards)
        .with_journal(JOURNAL)
        .with_traffic(match args.traffic {
            TrafficArg::Always => Traffic::Always,
            TrafficArg::Never => Traffic::WhenNoted,
        });
    if let Some(attempts) = args.max_in_flight {
        options = options.with_max_in_flight(usize::try_from(attempts).unwrap_or(usize::MAX));
    }
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
    let listener = match bootstrap.admin.and_then(|admin| admin.address) {
        Some(address) => Some(AdminPort::bind(&address).await?),
        None => None,
    };
    engine
        .set_limits(bootstrap.limits)
        .await
        .map_err(io::Error::other)?;
    let (changes, from_dns) = mpsc::channel(CHANGES);
    let resolver = dns::Resolver::start(Arc::clone(engine.stats()), changes);
    for cluster in clusters {
        let config = Arc::clone(&cluster.config);
        engine
            .set_cluster(cluster, Origin::Static)
            .await
            .map_err(io::Error::other)?;
        resolver.set_cluster(&config).await;
    }
    let dump = client.dump();
    tokio::spawn(follow(client, resolver, from_dns, engine.clone()));
    let hds_dump = hds.as_ref().map(crate::hds::Client::dump);
    if let Some(hds) = hds {
        tokio::spawn(hds.run(engine.clone()));
    }
    let (stop, mut stopping) = watch::channel(());
    let served = listener.map(|listener| {
        let mut admin = Admin::new(engine.clone())
            .with_node(bootstrap.node)
            .with_control(Arc::clone(&daemon) as Arc<dyn admin::Control>)
            .with_bootstrap(message, now())
            .with_dump(dump);
        if let Some(dump) = hds_dump {
            admin = admin.with_hds_dump(dump);
        }
        if listener.is_loopback() {
            admin = admin.with_own_names_only();
        }
        tokio::spawn(listener.serve(admin::router(admin), async move {
            // The sender goes when the daemon stops.
            while stopping.changed().await.is_ok() {}
        }))
    });
    tokio::select! {
        () = signals.until_told_to_stop(&registry) => (),
        () = daemon.told_to_quit() => (),
    }
    tracing::info!("stopping");
    drop(stop);
    let answered = async {
        match served {
            Some(served) => served.await.map_err(io::Error::other),
            None => Ok(()),
        }
    };
    // Event logs have their last lines when the engine has ended.
    let (answered, ()) = tokio::join!(answered, engine.stop());
    answered
}

/// For whoever reads when the bootstrap was loaded.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing is scheduled by it: it is only shown"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Does what control planes and name servers tell.
async fn follow(
    client: Client,
    resolver: dns::Resolver,
    mut from_dns: mpsc::Receiver<Change>,
    engine: Engine,
) {
    let (changes, mut told) = mpsc::channel(CHANGES);
    tokio::spawn(client.run(changes));
    loop {
        let done = tokio::select! {
            Some(change) = told.recv() => {
                let done = engine.apply(change.clone()).await;
                resolver.apply(&change).await;
                done
            }
            Some(change) = from_dns.recv() => engine.apply(change).await,
            else => return,
        };
        if done.is_err() {
            return;
        }
    }
}

/// Where the admin port listens.
enum AdminPort {
    Tcp(TcpListener),
    Pipe(UnixListener),
}

impl AdminPort {
    async fn bind(address: &Address) -> io::Result<Self> {
        let bound = match address {
            Address::Ip(address) => TcpListener::bind(address).await.map(Self::Tcp),
            Address::Pipe(path) => bind_pipe(path).map(Self::Pipe),
            Address::Internal(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        match bound {
            Ok(Self::Tcp(listener)) => {
                let address = listener.local_addr()?;
                tracing::info!(%address, "admin port open");
                Ok(Self::Tcp(listener))
            }
            Ok(pipe) => Ok(pipe),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("admin port {address}: {error}"),
            )),
        }
    }

    /// Whether no other machine, and no other browser, reaches it.
    fn is_loopback(&self) -> bool {
        match self {
            Self::Tcp(listener) => listener.local_addr().is_ok_and(|at| at.ip().is_loopback()),
            Self::Pipe(_) => false,
        }
    }

    async fn serve(self, router: axum::Router, stop: impl Future<Output = ()> + Send) {
        let limits = admin::Limits::default().with_drain_timeout(LAST_ANSWERS);
        match self {
            Self::Tcp(listener) => admin::serve(listener, router, limits, stop).await,
            Self::Pipe(listener) => admin::serve(listener, router, limits, stop).await,
        }
    }
}

/// Listens at a path, or, after an `@`, at an abstract name. A socket that nobody listens at any more, as a
/// daemon leaves it, makes room.
fn bind_pipe(path: &str) -> io::Result<UnixListener> {
    if let Some(name) = path.strip_prefix('@') {
        return UnixListener::bind(format!("\0{name}"));
    }
    let left = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if left && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

/// What the daemon is told by signals.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    reopen: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
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
