//! A small health discovery server: it shares endpoints among checkers and gathers their reports.
//!
//! Each endpoint belongs to the checker with the highest hash of both (rendezvous hashing), so when a checker is
//! lost only its endpoints move. Started without arguments, it runs two checkers and twenty endpoints in its own
//! process, stops one checker, and asserts that the other has reported the whole share of the lost one by the
//! end of the next reporting interval.
//!
//! ```text
//! cargo run --example hds_aggregator
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "an example that cannot go on ends"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use xds_health::config::text::Document;
use xds_health::engine::{Engine, Options, Traffic};
use xds_health::hds::Client;
use xds_health::proto::envoy::config::core::v3::address::Address as Any;
use xds_health::proto::envoy::config::core::v3::api_config_source::ApiType;
use xds_health::proto::envoy::config::core::v3::grpc_service::{GoogleGrpc, TargetSpecifier};
use xds_health::proto::envoy::config::core::v3::socket_address::PortSpecifier;
use xds_health::proto::envoy::config::core::v3::{ApiConfigSource, GrpcService, HealthStatus, Node};
use xds_health::proto::envoy::service::health::v3::health_check_request_or_endpoint_health_response::RequestType;
use xds_health::proto::envoy::service::health::v3::health_discovery_service_server::{
    HealthDiscoveryService, HealthDiscoveryServiceServer,
};
use xds_health::proto::envoy::service::health::v3::{
    EndpointHealthResponse, HealthCheckRequestOrEndpointHealthResponse as Message,
    HealthCheckSpecifier,
};
use xds_health::registry::Registry;
use xds_health::stats::Stats;

/// How often checkers report.
const INTERVAL: Duration = Duration::from_secs(1);

/// What the server knows.
#[derive(Debug)]
struct Aggregator {
    endpoints: Vec<u16>,
    checkers: watch::Sender<BTreeSet<String>>,
    /// By endpoint: who reported it last, and how it is.
    health: Mutex<BTreeMap<u16, (String, HealthStatus)>>,
}

impl Aggregator {
    /// The endpoints of one checker.
    fn share(&self, checker: &str, checkers: &BTreeSet<String>) -> Vec<u16> {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let of = |port: &u16| {
            checkers
                .iter()
                .max_by_key(|name| hasher.hash_one((name, port)))
        };
        let mut ports = self.endpoints.clone();
        ports.retain(|port| of(port).is_some_and(|name| name == checker));
        ports
    }

    fn take(&self, checker: &str, report: EndpointHealthResponse) {
        let mut health = self.health.lock().unwrap();
        let clusters = report.cluster_endpoints_health.into_iter();
        let localities = clusters.flat_map(|cluster| cluster.locality_endpoints_health);
        for entry in localities.flat_map(|locality| locality.endpoints_health) {
            let status = entry.health_status();
            let address = entry
                .endpoint
                .and_then(|endpoint| endpoint.address?.address);
            if let Some(Any::SocketAddress(socket)) = address
                && let Some(PortSpecifier::PortValue(port)) = socket.port_specifier
            {
                health.insert(u16::try_from(port).unwrap(), (checker.to_owned(), status));
            }
        }
    }

    /// How many endpoints each checker was the last to report healthy.
    fn healthy(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (checker, status) in self.health.lock().unwrap().values() {
            if *status == HealthStatus::Healthy {
                *counts.entry(checker.clone()).or_default() += 1;
            }
        }
        counts
    }
}

fn specifier(ports: &[u16]) -> HealthCheckSpecifier {
    let endpoint = |port| {
        format!("{{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}")
    };
    let endpoints: Vec<_> = ports.iter().map(endpoint).collect();
    let text = format!(
        "interval: {}s
cluster_health_checks:
- cluster_name: all
  locality_endpoints: [{{endpoints: [{}]}}]
  health_checks:
  - timeout: 0.5s
    interval: 1s
    unhealthy_threshold: 2
    healthy_threshold: 2
    custom_health_check:
      name: udp
      typed_config:
        '@type': type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck
        send: {{text: '70696e67'}}
        receive: {{text: '706f6e67'}}
",
        INTERVAL.as_secs(),
        endpoints.join(", ")
    );
    Document::from_yaml(&text)
        .unwrap()
        .read::<HealthCheckSpecifier>()
        .message
}

#[derive(Clone, Debug)]
struct Service(Arc<Aggregator>);

#[tonic::async_trait]
impl HealthDiscoveryService for Service {
    type StreamHealthCheckStream = ReceiverStream<Result<HealthCheckSpecifier, Status>>;

    async fn stream_health_check(
        &self,
        call: Request<Streaming<Message>>,
    ) -> Result<Response<Self::StreamHealthCheckStream>, Status> {
        let mut messages = call.into_inner();
        let first = messages
            .message()
            .await?
            .and_then(|message| message.request_type);
        let Some(RequestType::HealthCheckRequest(request)) = first else {
            return Err(Status::invalid_argument(
                "the first message is a HealthCheckRequest",
            ));
        };
        let name = request.node.unwrap_or_default().id;
        let (specifiers, queue) = mpsc::channel(4);
        let aggregator = Arc::clone(&self.0);
        let mut checkers = aggregator.checkers.subscribe();
        checkers.mark_changed();
        aggregator
            .checkers
            .send_if_modified(|checkers| checkers.insert(name.clone()));
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    changed = checkers.changed() => {
                        let share = aggregator.share(&name, &checkers.borrow_and_update());
                        if changed.is_err() || specifiers.send(Ok(specifier(&share))).await.is_err() {
                            break;
                        }
                    }
                    message = messages.message() => match message {
                        Ok(Some(Message { request_type: Some(RequestType::EndpointHealthResponse(report)) })) => {
                            aggregator.take(&name, report);
                        }
                        Ok(Some(_)) => (),
                        Ok(None) | Err(_) => break,
                    },
                }
            }
            aggregator
                .checkers
                .send_if_modified(|checkers| checkers.remove(&name));
        });
        Ok(Response::new(ReceiverStream::new(queue)))
    }

    async fn fetch_health_check(
        &self,
        _: Request<Message>,
    ) -> Result<Response<HealthCheckSpecifier>, Status> {
        Err(Status::unimplemented("give a stream"))
    }
}

/// A checker of its own, as `xds-health run` would be on another machine.
fn checker(name: &str, server: SocketAddr) -> tokio::task::JoinHandle<()> {
    let target = GoogleGrpc {
        target_uri: server.to_string(),
        ..GoogleGrpc::default()
    };
    let service = GrpcService {
        target_specifier: Some(TargetSpecifier::GoogleGrpc(target)),
        ..GrpcService::default()
    };
    let source = ApiConfigSource {
        api_type: ApiType::Grpc.into(),
        grpc_services: vec![service],
        ..ApiConfigSource::default()
    };
    let node = Node {
        id: name.to_owned(),
        ..Node::default()
    };
    let client = Client::new(&source, &BTreeMap::new(), node, Registry::default()).unwrap();
    let options = Options::default().with_traffic(Traffic::Always);
    let engine = Engine::start(options, Arc::new(Stats::default())).unwrap();
    tokio::spawn(client.run(engine))
}

async fn until(aggregator: &Aggregator, wanted: &BTreeMap<String, usize>) {
    while aggregator.healthy() != *wanted {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut endpoints = Vec::new();
    for _ in 0..20 {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        endpoints.push(socket.local_addr().unwrap().port());
        tokio::spawn(async move {
            let mut buffer = [0; 64];
            while let Ok((_, from)) = socket.recv_from(&mut buffer).await {
                socket.send_to(b"pong", from).await.unwrap();
            }
        });
    }
    let aggregator = Arc::new(Aggregator {
        endpoints,
        checkers: watch::Sender::new(BTreeSet::new()),
        health: Mutex::default(),
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = HealthDiscoveryServiceServer::new(Service(Arc::clone(&aggregator)));
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let _first = checker("first", address);
    let second = checker("second", address);
    let names = BTreeSet::from(["first", "second"].map(str::to_owned));
    let shares = names
        .iter()
        .map(|name| (name.clone(), aggregator.share(name, &names).len()));
    let shares: BTreeMap<_, _> = shares.filter(|(_, count)| *count > 0).collect();
    let patience = Duration::from_secs(20);
    tokio::time::timeout(patience, until(&aggregator, &shares))
        .await
        .unwrap();
    println!("healthy endpoints by checker: {shares:?}");

    second.abort();
    let lost = Instant::now();
    let all = BTreeMap::from([("first".to_owned(), 20)]);
    tokio::time::timeout(patience, until(&aggregator, &all))
        .await
        .unwrap();
    let took = lost.elapsed();
    println!("the first checker has reported all of them {took:?} after the second was lost");
    // Half an interval more for what is on its way on a busy machine.
    assert!(took < INTERVAL * 3 / 2, "{took:?}");
}
