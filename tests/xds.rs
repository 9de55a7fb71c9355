//! The client of control planes against a real server, with a real engine behind it.
#![cfg(feature = "xds")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/control_plane.rs"]
mod control_plane;
#[path = "xds/endpoints.rs"]
mod endpoints;
#[path = "xds/files.rs"]
mod files;
#[path = "xds/protocol.rs"]
mod protocol;
#[path = "xds/streams.rs"]
mod streams;
#[path = "xds/tls.rs"]
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use common::{Scripted, Step};
use control_plane::{any, within};
use prost_types::Any;
use tokio::sync::mpsc;
use xds_health::checker::{Checker, CheckerFactory};
use xds_health::config::text::Document;
use xds_health::config::{Bootstrap, ConfigError, Warnings};
use xds_health::engine::{Engine, Options, Snapshot};
use xds_health::host::HealthFlags;
use xds_health::proto::envoy::config::cluster::v3::Cluster;
use xds_health::proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use xds_health::registry::Registry;
use xds_health::stats::{Stats, Value};
use xds_health::xds::{self, Client, Dump};

/// A payload at which the factory panics.
const PANICS: &str = "dead";

/// Makes one scripted checker of whatever is configured; a text that is not hex is refused.
struct Factory(Scripted);

impl CheckerFactory for Factory {
    fn message_name(&self) -> &str {
        "envoy.extensions.health_checkers.udp.v3.UdpHealthCheck"
    }

    fn create(&self, value: &[u8]) -> Result<Arc<dyn Checker>, ConfigError> {
        xds_health::checker::udp::UdpFactory.create(value)?;
        let panics = value
            .windows(PANICS.len())
            .any(|part| part == PANICS.as_bytes());
        assert!(!panics, "as the test says");
        Ok(Arc::new(self.0.clone()))
    }
}

/// A client and its engine.
struct Daemon {
    engine: Engine,
    stats: Arc<Stats>,
    dump: Dump,
    checker: Scripted,
    tasks: tokio::task::JoinSet<()>,
}

impl Daemon {
    fn start(bootstrap: &str) -> Self {
        Self::with_options(bootstrap, xds::Options::default().with_seed(1))
    }

    fn with_options(bootstrap: &str, options: xds::Options) -> Self {
        let stats = Arc::new(Stats::default());
        let checker = Scripted::default();
        checker.script(
            FAILING,
            [Step::After(
                std::time::Duration::ZERO,
                xds_health::event::Outcome::network(xds_health::event::Reason::Refused),
            )],
        );
        let registry = Registry::empty().with_checker(Factory(checker.clone()));
        let mut warnings = Warnings::default();
        let bootstrap = Bootstrap::from_yaml(bootstrap, &mut warnings).unwrap();
        let client =
            Client::with_options(&bootstrap, registry.clone(), Arc::clone(&stats), options);
        let client = client.unwrap();
        let dump = client.dump();
        let engine = Engine::start(Options::default(), Arc::clone(&stats)).unwrap();
        let (changes, mut told) = mpsc::channel(4);
        let mut tasks = tokio::task::JoinSet::new();
        let of = engine.clone();
        tasks.spawn(async move {
            for cluster in bootstrap.clusters {
                let update = registry.build(cluster).unwrap();
                let origin = xds_health::engine::Origin::Static;
                of.set_cluster(update, origin).await.unwrap();
            }
            while let Some(change) = told.recv().await {
                of.apply(change).await.unwrap();
            }
        });
        tasks.spawn(client.run(changes));
        Self {
            engine,
            stats,
            dump,
            checker,
            tasks,
        }
    }

    /// Waits until a cluster is there and as wanted.
    async fn until(&self, cluster: &str, wanted: impl Fn(&Snapshot) -> bool) {
        within(async {
            loop {
                if let Some(cluster) = self.engine.cluster(cluster)
                    && wanted(&cluster.snapshot())
                {
                    return;
                }
                tokio::time::sleep(POLL).await;
            }
        })
        .await;
    }

    /// Waits until `wanted`.
    async fn when(&self, wanted: impl Fn(&Self) -> bool) {
        within(async {
            while !wanted(self) {
                tokio::time::sleep(POLL).await;
            }
        })
        .await;
    }

    /// Why the first server that is followed was not reached, once it was not.
    async fn failure(&self) -> String {
        let last = || self.dump.connections().first()?.last_failure.clone();
        self.when(|_| last().is_some()).await;
        last().unwrap().reason.to_string()
    }

    fn stat(&self, name: &str) -> u64 {
        let samples = self.stats.samples();
        match samples
            .iter()
            .find(|sample| sample.name == name)
            .map(|sample| &sample.value)
        {
            Some(Value::Counter(n) | Value::Gauge(n)) => *n,
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// How often conditions that nobody tells of are looked at.
const POLL: std::time::Duration = std::time::Duration::from_millis(5);
/// Attempts at this port fail.
const FAILING: u16 = 9;

fn read<M: prost::Message + prost::Name + Default>(yaml: &str) -> M {
    let read = Document::from_yaml(yaml).unwrap().read::<M>();
    assert_eq!(read.faults, []);
    read.message
}

/// A cluster of type EDS with a check that sends `send`, and `source` to ask for endpoints.
fn eds_from(name: &str, send: &str, source: &str) -> Any {
    any(&read::<Cluster>(&format!(
        "
name: {name}
type: EDS
eds_cluster_config: {{eds_config: {{{source}}}}}
health_checks:
- timeout: 1s
  interval: 1s
  no_traffic_interval: 1s
  unhealthy_threshold: 2
  healthy_threshold: 2
  custom_health_check:
    name: x
    typed_config:
      \"@type\": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck
      send: {{text: \"{send}\"}}
      receive: {{text: \"00\"}}
"
    )))
}

fn eds(name: &str) -> Any {
    eds_from(name, "00", "ads: {}")
}

fn assignment(name: &str, ports: &[u16]) -> Any {
    let endpoints: Vec<_> = ports
        .iter()
        .map(|port| {
            format!(
                "{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}"
            )
        })
        .collect();
    any(&read::<ClusterLoadAssignment>(&format!(
        "{{cluster_name: {name}, endpoints: [{{lb_endpoints: [{}]}}]}}",
        endpoints.join(",")
    )))
}

/// A bootstrap whose cluster `plane` is at `address`, with more fields for it.
fn bootstrap(resources: &str, address: SocketAddr, fields: &str) -> String {
    let address = format!(
        "{{address: {}, port_value: {}}}",
        address.ip(),
        address.port()
    );
    bootstrap_at(resources, &format!("socket_address: {address}"), fields)
}

fn bootstrap_at(resources: &str, address: &str, fields: &str) -> String {
    format!(
        "
node: {{id: n1, cluster: checkers}}
dynamic_resources: {{{resources}}}
static_resources:
  clusters:
  - name: plane
    type: STATIC
    connect_timeout: 5s
    load_assignment:
      cluster_name: plane
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{{address}}}}}}}]}}]
    {fields}
"
    )
}

/// HTTP/2, as a cluster says it.
const H2: &str = "http2_protocol_options: {}";

/// The aggregated stream of a variant, for clusters too.
fn ads(api_type: &str) -> String {
    format!(
        "cds_config: {{ads: {{}}}}, ads_config: {{api_type: {api_type}, \
         grpc_services: [{{envoy_grpc: {{cluster_name: plane}}}}]}}"
    )
}

/// The ports of a cluster's hosts, each with whether it is healthy.
fn health(snapshot: &Snapshot) -> Vec<(u16, bool)> {
    let mut hosts: Vec<_> = snapshot
        .hosts()
        .map(|view| {
            let port = view.host.address.socket_addr().unwrap().port();
            (port, view.flags == HealthFlags::NONE)
        })
        .collect();
    hosts.sort_unstable();
    hosts
}
