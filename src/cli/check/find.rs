//! The endpoints of a cluster of a bootstrap file, wherever they are told.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

use crate::checker::{Checker, CheckerFactory, udp::UdpChecker};
use crate::cli::load::Loaded;
use crate::config::{ConfigError, Discovery, Payload, UdpConfig};
use crate::dns::Resolver;
use crate::event::HealthCheckEvent;
use crate::feed::{EventSink, EventSinkFactory, FileSinkFactory};
use crate::host::Host;
use crate::registry::{Change, Registry, Update};
use crate::stats::Stats;
use crate::xds::Dump;

/// Changes that may wait.
const CHANGES: usize = 64;

/// Why there are none.
#[derive(Debug)]
pub(super) enum NotFound {
    /// The file has no such cluster.
    NoCluster(String),
    /// They were not told in time.
    NotTold(String),
}

/// A registry for looking only: its UDP checker keeps datagrams whole, and no event log is opened.
pub(super) fn registry() -> Registry {
    Registry::default()
        .with_checker(WholeSample)
        .with_sink(NoLog)
}

/// The cluster of this name with its hosts.
pub(super) async fn find(
    loaded: Loaded,
    name: &str,
    wait: Duration,
    stats: Arc<Stats>,
) -> Result<(Update, Vec<Arc<Host>>), NotFound> {
    let Loaded {
        bootstrap,
        clusters,
        client,
        ..
    } = loaded;
    let known: Vec<_> = clusters
        .iter()
        .map(|c| Arc::clone(&c.config.name))
        .collect();
    let mut found = clusters.into_iter().find(|c| *c.config.name == *name);
    if let Some(update) = &found
        && let Discovery::Static(hosts) = &update.config.discovery
    {
        return Ok((update.clone(), hosts.clone()));
    }
    let asks = bootstrap.dynamic_resources.as_ref();
    let asks = asks.is_some_and(|resources| resources.cds_config.is_some());
    if found.is_none() && !asks {
        let reason = format!(
            "there is no cluster {name:?}: known are {}",
            known.join(", ")
        );
        return Err(NotFound::NoCluster(reason));
    }
    let (changes, mut from_dns) = mpsc::channel(CHANGES);
    let resolver = Resolver::start(stats, changes);
    if let Some(update) = &found {
        resolver.set_cluster(&update.config).await;
    }
    let dump = client.dump();
    let (changes, mut told) = mpsc::channel(CHANGES);
    let following = tokio::spawn(client.run(changes));
    let hosts = tokio::time::timeout(wait, async {
        loop {
            let change = tokio::select! {
                Some(change) = told.recv() => change,
                Some(change) = from_dns.recv() => change,
                else => return None,
            };
            match change {
                Change::Cluster(update) if *update.config.name == *name => {
                    resolver.set_cluster(&update.config).await;
                    let hosts = match &update.config.discovery {
                        Discovery::Static(hosts) => Some(hosts.clone()),
                        _ => None,
                    };
                    found = Some(update);
                    if hosts.is_some() {
                        return hosts;
                    }
                }
                Change::Hosts { cluster, hosts } if *cluster == *name => {
                    return Some(hosts.to_vec());
                }
                _ => (),
            }
        }
    });
    let hosts = hosts.await;
    following.abort();
    match (found, hosts) {
        (Some(update), Ok(Some(hosts))) => Ok((update, hosts)),
        (None, _) => Err(NotFound::NotTold(format!(
            "no cluster {name:?} was told of within {wait:?}{}",
            why(&dump)
        ))),
        (Some(_), _) => Err(NotFound::NotTold(format!(
            "the endpoints of {name:?} were not told within {wait:?}{}",
            why(&dump)
        ))),
    }
}

/// How it went with each management server and file, a line each.
fn why(dump: &Dump) -> String {
    let lines = dump.connections().into_iter().map(|of| {
        let since = |at: SystemTime| of.last_answer.is_none_or(|answer| answer <= at);
        let what = match (&of.last_failure, &of.last_nack) {
            (Some(failure), _) if since(failure.at) => failure.reason.to_string(),
            (_, Some(nack)) if since(nack.at) => format!("refused: {}", nack.details),
            _ if of.last_answer.is_some() => "answered without them".to_owned(),
            _ if of.open => "has not answered".to_owned(),
            _ => "was not reached".to_owned(),
        };
        format!("\n{} ({}): {what}", of.server, of.service)
    });
    lines.collect()
}

/// Makes UDP checkers that keep the whole of a datagram that does not match.
struct WholeSample;

impl CheckerFactory for WholeSample {
    fn message_name(&self) -> &str {
        "envoy.extensions.health_checkers.udp.v3.UdpHealthCheck"
    }

    fn create(&self, value: &[u8]) -> Result<Arc<dyn Checker>, ConfigError> {
        Ok(Arc::new(checker(UdpConfig::from_bytes(value)?)))
    }
}

/// A checker that keeps the whole of a datagram that does not match.
pub(super) fn checker(config: UdpConfig) -> UdpChecker {
    UdpChecker::new(config).with_sample(Payload::MAX)
}

/// Takes the place of the file sink, and writes nothing.
#[derive(Debug)]
struct NoLog;

impl EventSinkFactory for NoLog {
    fn message_name(&self) -> &str {
        FileSinkFactory::MESSAGE_NAME
    }

    fn create(&self, _: &[u8]) -> Result<Arc<dyn EventSink>, ConfigError> {
        Ok(Arc::new(Self))
    }
}

impl EventSink for NoLog {
    fn record(&self, _: &HealthCheckEvent) {}
}
