//! Attempts at hosts by the engine itself, as many as are asked for, and what came of each.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::checker::{Attempt, AttemptIo, Checker, HostChecker, Target};
use crate::config::{BindConfig, ClusterConfig, Discovery, HealthCheck};
use crate::engine::{Engine, Options, Origin, Traffic};
use crate::event::{EventKind, HealthCheckEvent, HealthCheckerType, Outcome, Reason};
use crate::feed::EventSink;
use crate::host::{Address, Host};
use crate::registry::Update;

/// What is to be done.
#[derive(Debug)]
pub(super) struct Plan {
    /// Each address once.
    pub(super) hosts: Vec<Arc<Host>>,
    pub(super) checks: Vec<Planned>,
    pub(super) bind: Option<Arc<BindConfig>>,
    /// Attempts at each host by each check.
    pub(super) count: u32,
}

/// One check.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) config: HealthCheck,
    pub(super) checker: Arc<dyn Checker>,
    /// What is awaited, if that can be told.
    pub(super) receive: Option<Arc<[u8]>>,
}

/// What came of the attempts at one host by one check.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) host: Arc<Host>,
    pub(super) check: Arc<str>,
    pub(super) receive: Option<Arc<[u8]>>,
    /// Round trips, or why there was none, in their order.
    pub(super) attempts: Vec<Result<Duration, Reason>>,
    /// Datagrams that left.
    pub(super) sent: u32,
    /// Datagrams that came and did not match.
    pub(super) others: u32,
}

/// An attempt that has ended: of which check, at which host, and how.
type Told = (usize, Address, Result<Duration, Reason>);

/// Does it, until all attempts have ended or `stop` comes.
pub(super) async fn run(
    plan: Plan,
    mut progress: impl FnMut(usize, usize),
    stop: impl Future<Output = ()>,
) -> io::Result<Vec<Row>> {
    let (tell, mut told) = mpsc::unbounded_channel();
    let Plan {
        hosts,
        checks,
        bind,
        count,
    } = plan;
    let mut config = ClusterConfig::new("check", Discovery::Static(hosts.clone()));
    config.bind = bind;
    let (mut checkers, mut sinks, mut tallies) = (Vec::new(), Vec::new(), Vec::new());
    for (index, check) in checks.iter().enumerate() {
        let tally = hosts
            .iter()
            .map(|host| (host.address.clone(), Tally::default()));
        let tally: Arc<HashMap<_, _>> = Arc::new(tally.collect());
        config = config.with_health_check(check.config.clone());
        checkers.push(Arc::new(Counted {
            inner: Arc::clone(&check.checker),
            tallies: Arc::clone(&tally),
            count,
        }) as Arc<dyn Checker>);
        let tell = tell.clone();
        sinks.push(vec![
            Arc::new(Telling { check: index, tell }) as Arc<dyn EventSink>
        ]);
        tallies.push(tally);
    }
    drop(tell);
    let options = Options::default().with_traffic(Traffic::Always);
    let engine = Engine::start(options, Arc::default())?;
    let update = Update::new(Arc::new(config), checkers, sinks);
    let set = engine.set_cluster(update, Origin::Static).await;
    set.map_err(io::Error::other)?;

    let mut attempts: HashMap<(usize, Address), Vec<_>> = HashMap::new();
    let all = hosts.len() * checks.len() * usize::try_from(count).unwrap_or(usize::MAX);
    let mut done = 0;
    tokio::pin!(stop);
    while done < all {
        let (check, address, result) = tokio::select! {
            Some(told) = told.recv() => told,
            () = &mut stop => break,
            else => break,
        };
        let attempts = attempts.entry((check, address)).or_default();
        if attempts.len() < usize::try_from(count).unwrap_or(usize::MAX) {
            attempts.push(result);
            done += 1;
            progress(done, all);
        }
    }
    engine.stop().await;
    let mut rows = Vec::new();
    for host in &hosts {
        for (index, check) in checks.iter().enumerate() {
            let attempts = attempts.remove(&(index, host.address.clone()));
            let attempts = attempts.unwrap_or_default();
            let passed_over = attempts.iter().map(|result| match result {
                Err(Reason::Mismatch(mismatch)) => mismatch.datagrams,
                _ => 0,
            });
            let tally = tallies[index].get(&host.address);
            let (sent, before) = tally.map_or((0, 0), |tally| {
                (tally.sent.load(Relaxed), tally.others.load(Relaxed))
            });
            rows.push(Row {
                host: Arc::clone(host),
                check: Arc::clone(&check.config.name),
                receive: check.receive.clone(),
                sent,
                others: before + passed_over.sum::<u32>(),
                attempts,
            });
        }
    }
    Ok(rows)
}

/// What is counted of one host beside the outcomes.
#[derive(Debug, Default)]
struct Tally {
    begun: AtomicU32,
    sent: AtomicU32,
    /// Datagrams passed over before one that matched.
    others: AtomicU32,
}

/// A checker that makes a number of attempts at each host and no more.
#[derive(Debug)]
struct Counted {
    inner: Arc<dyn Checker>,
    tallies: Arc<HashMap<Address, Tally>>,
    count: u32,
}

struct CountedHost {
    inner: Box<dyn HostChecker>,
    tallies: Arc<HashMap<Address, Tally>>,
    address: Address,
    count: u32,
}

impl Checker for Counted {
    fn health_checker_type(&self) -> HealthCheckerType {
        self.inner.health_checker_type()
    }

    fn for_host(&self, target: Target<'_>) -> Box<dyn HostChecker> {
        Box::new(CountedHost {
            inner: self.inner.for_host(target),
            tallies: Arc::clone(&self.tallies),
            address: target.host.address.clone(),
            count: self.count,
        })
    }

    fn keeps_connections(&self) -> bool {
        self.inner.keeps_connections()
    }
}

impl HostChecker for CountedHost {
    fn attempt<'a>(&'a mut self, io: &'a AttemptIo) -> Attempt<'a> {
        Box::pin(async move {
            let Some(tally) = self.tallies.get(&self.address) else {
                return pending().await;
            };
            if tally.begun.fetch_add(1, Relaxed) >= self.count {
                // Enough: the rest of the process is about to end.
                return pending().await;
            }
            let _counts = CountSent { io, tally };
            let outcome = self.inner.attempt(io).await;
            if let Outcome::Success { .. } = outcome
                && let Some(Reason::Mismatch(mismatch)) = io.seen()
            {
                tally.others.fetch_add(mismatch.datagrams, Relaxed);
            }
            outcome
        })
    }
}

/// Counts what was sent when an attempt ends, be it by its timeout.
struct CountSent<'a> {
    io: &'a AttemptIo,
    tally: &'a Tally,
}

impl Drop for CountSent<'_> {
    fn drop(&mut self) {
        let sent = u32::from(self.io.was_sent());
        self.tally.sent.fetch_add(sent, Relaxed);
    }
}

/// Tells of each attempt: every check here logs both successes and failures.
#[derive(Debug)]
struct Telling {
    check: usize,
    tell: mpsc::UnboundedSender<Told>,
}

impl EventSink for Telling {
    fn record(&self, event: &HealthCheckEvent) {
        let result = match event.kind {
            EventKind::AddHealthy { .. } | EventKind::Success => {
                Ok(event.round_trip.unwrap_or_default())
            }
            EventKind::Failure { .. } => {
                let reason = event.reason.clone();
                Err(reason.unwrap_or(Reason::Silent))
            }
            _ => return,
        };
        // Nobody listens once all have been told.
        let _ = self
            .tell
            .send((self.check, event.host.address.clone(), result));
    }
}
