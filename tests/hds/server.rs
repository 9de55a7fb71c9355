//! A health discovery service that does as its test says, and a client of it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Mutex, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use xds_health::config::text::Document;
use xds_health::engine::{Engine, Options as EngineOptions, Traffic};
use xds_health::hds::{Client, Dump, Options};
use xds_health::proto::envoy::config::core::v3::api_config_source::ApiType;
use xds_health::proto::envoy::config::core::v3::grpc_service::{GoogleGrpc, TargetSpecifier};
use xds_health::proto::envoy::config::core::v3::{ApiConfigSource, GrpcService, Node};
use xds_health::proto::envoy::service::health::v3::health_check_request_or_endpoint_health_response::RequestType;
use xds_health::proto::envoy::service::health::v3::health_discovery_service_server::{
    HealthDiscoveryService, HealthDiscoveryServiceServer,
};
use xds_health::proto::envoy::service::health::v3::{
    EndpointHealthResponse, HealthCheckRequest, HealthCheckRequestOrEndpointHealthResponse,
    HealthCheckSpecifier,
};
use xds_health::registry::Registry;
use xds_health::stats::Stats;

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A stream or a call, in its test's hands.
#[derive(Debug)]
pub(crate) struct Exchange {
    messages: Streaming<HealthCheckRequestOrEndpointHealthResponse>,
    specifiers: mpsc::Sender<Result<HealthCheckSpecifier, Status>>,
}

impl Exchange {
    async fn next(&mut self) -> Option<RequestType> {
        let message = tokio::time::timeout(PATIENCE, self.messages.message()).await;
        message.unwrap().ok()??.request_type
    }

    /// The first message.
    pub(crate) async fn request(&mut self) -> HealthCheckRequest {
        match self.next().await {
            Some(RequestType::HealthCheckRequest(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn report(&mut self) -> EndpointHealthResponse {
        match self.next().await {
            Some(RequestType::EndpointHealthResponse(report)) => report,
            other => panic!("{other:?}"),
        }
    }

    /// Takes reports until one is as wanted.
    pub(crate) async fn until(&mut self, wanted: &[&str]) {
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let report = shown(&self.report().await);
                if report == wanted {
                    return;
                }
            }
        });
        waited.await.unwrap();
    }

    pub(crate) async fn send(&self, yaml: &str) {
        self.specifiers.send(Ok(specifier(yaml))).await.unwrap();
    }

    pub(crate) async fn send_message(&self, specifier: HealthCheckSpecifier) {
        self.specifiers.send(Ok(specifier)).await.unwrap();
    }

    pub(crate) fn end(self, status: Status) {
        // A client that has gone does not need to be told.
        let _ = self.specifiers.try_send(Err(status));
    }
}

type Fetch = (
    HealthCheckRequestOrEndpointHealthResponse,
    tokio::sync::oneshot::Sender<Result<HealthCheckSpecifier, Status>>,
);

#[derive(Debug, Clone)]
struct Service {
    streams: mpsc::Sender<Exchange>,
    fetches: mpsc::Sender<Fetch>,
}

#[tonic::async_trait]
impl HealthDiscoveryService for Service {
    type StreamHealthCheckStream =
        Pin<Box<dyn Stream<Item = Result<HealthCheckSpecifier, Status>> + Send>>;

    async fn stream_health_check(
        &self,
        call: Request<Streaming<HealthCheckRequestOrEndpointHealthResponse>>,
    ) -> Result<Response<Self::StreamHealthCheckStream>, Status> {
        let (specifiers, queue) = mpsc::channel(16);
        let exchange = Exchange {
            messages: call.into_inner(),
            specifiers,
        };
        self.streams
            .send(exchange)
            .await
            .map_err(|_| Status::aborted("no test"))?;
        Ok(Response::new(Box::pin(ReceiverStream::new(queue))))
    }

    async fn fetch_health_check(
        &self,
        call: Request<HealthCheckRequestOrEndpointHealthResponse>,
    ) -> Result<Response<HealthCheckSpecifier>, Status> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let sent = self.fetches.send((call.into_inner(), reply)).await;
        sent.map_err(|_| Status::aborted("no test"))?;
        answer
            .await
            .map_err(|_| Status::aborted("no answer"))?
            .map(Response::new)
    }
}

/// A server and the client that asks it.
#[derive(Debug)]
pub(crate) struct Bed {
    pub(crate) engine: Engine,
    pub(crate) dump: Dump,
    streams: Mutex<mpsc::Receiver<Exchange>>,
    fetches: Mutex<mpsc::Receiver<Fetch>>,
    address: SocketAddr,
    service: Service,
    server: AbortHandle,
    tasks: JoinSet<()>,
}

impl Bed {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default().with_seed(1), None).await
    }

    pub(crate) async fn with(options: Options, refresh_delay: Option<Duration>) -> Self {
        let (streams, opened) = mpsc::channel(16);
        let (fetches, called) = mpsc::channel(16);
        let service = Service { streams, fetches };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        let server = tasks.spawn(serve(service.clone(), listener));
        let engine = EngineOptions::default()
            .with_seed(1)
            .with_traffic(Traffic::Always);
        let engine = Engine::start(engine, Arc::new(Stats::default())).unwrap();
        let mut source = source(address);
        source.refresh_delay = refresh_delay.map(|delay| delay.try_into().unwrap());
        let node = Node {
            id: "n1".into(),
            ..Node::default()
        };
        let registry = Registry::default();
        let client = Client::with_options(&source, &BTreeMap::new(), node, registry, options);
        let client = client.unwrap();
        let dump = client.dump();
        tasks.spawn(client.run(engine.clone()));
        Self {
            engine,
            dump,
            streams: Mutex::new(opened),
            fetches: Mutex::new(called),
            address,
            service,
            server,
            tasks,
        }
    }

    /// The next stream that the client opens.
    pub(crate) async fn stream(&self) -> Exchange {
        let mut streams = self.streams.lock().await;
        let stream = tokio::time::timeout(PATIENCE, streams.recv()).await;
        stream.unwrap().unwrap()
    }

    /// The next call, which is to be answered.
    pub(crate) async fn fetch(&self) -> Fetch {
        let mut fetches = self.fetches.lock().await;
        let call = tokio::time::timeout(PATIENCE, fetches.recv()).await;
        call.unwrap().unwrap()
    }

    /// Ends the server with all of its connections.
    pub(crate) fn stop(&self) {
        self.server.abort();
    }

    /// Starts a server at the same address.
    pub(crate) async fn start(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.server = self.tasks.spawn(serve(self.service.clone(), listener));
    }

    pub(crate) fn stat(&self, name: &str) -> u64 {
        use xds_health::stats::Value;
        let samples = self.engine.stats().samples();
        match samples
            .iter()
            .find(|sample| sample.name == name)
            .map(|sample| &sample.value)
        {
            Some(Value::Counter(value) | Value::Gauge(value)) => *value,
            other => panic!("{name}: {other:?}"),
        }
    }
}

async fn serve(service: Service, listener: TcpListener) {
    let router = tonic::transport::Server::builder()
        .add_service(HealthDiscoveryServiceServer::new(service))
        .serve_with_incoming(TcpListenerStream::new(listener));
    router.await.unwrap();
}

pub(crate) fn source(address: SocketAddr) -> ApiConfigSource {
    let target = GoogleGrpc {
        target_uri: address.to_string(),
        ..GoogleGrpc::default()
    };
    ApiConfigSource {
        api_type: ApiType::Grpc.into(),
        grpc_services: vec![GrpcService {
            target_specifier: Some(TargetSpecifier::GoogleGrpc(target)),
            ..GrpcService::default()
        }],
        ..ApiConfigSource::default()
    }
}

pub(crate) fn specifier(yaml: &str) -> HealthCheckSpecifier {
    let document = Document::from_yaml(yaml).unwrap();
    let read = document.read::<HealthCheckSpecifier>();
    assert!(read.faults.is_empty(), "{:?}", read.faults);
    read.message
}

/// A UDP check, quick, of thresholds 2.
pub(crate) const CHECK: &str = r#"{timeout: 0.2s, interval: 0.05s, unhealthy_threshold: 2, healthy_threshold: 2, custom_health_check: {name: u, typed_config: {"@type": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck, send: {text: "70"}, receive: {text: "71"}}}}"#;

/// A cluster under `checks`, with peers in one locality.
pub(crate) fn cluster(name: &str, checks: &str, peers: &[&Peer]) -> String {
    let address = |peer: &&Peer| {
        let port = peer.address.port();
        format!("{{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}")
    };
    let endpoints: Vec<_> = peers.iter().map(address).collect();
    let endpoints = endpoints.join(", ");
    format!(
        "{{cluster_name: {name:?}, health_checks: [{checks}], \
         locality_endpoints: [{{locality: {{region: r}}, endpoints: [{endpoints}]}}]}}"
    )
}

/// A specifier with reports every 0.1 s.
pub(crate) fn all(clusters: &[String]) -> String {
    format!(
        "{{interval: 0.1s, cluster_health_checks: [{}]}}",
        clusters.join(", ")
    )
}

/// What a report says: `cluster: statuses`, by cluster.
pub(crate) fn shown(report: &EndpointHealthResponse) -> Vec<String> {
    let clusters = report.cluster_endpoints_health.iter().map(|cluster| {
        let localities = cluster.locality_endpoints_health.iter();
        let endpoints = localities.flat_map(|locality| &locality.endpoints_health);
        let statuses: Vec<_> = endpoints.map(|e| e.health_status().as_str_name()).collect();
        format!("{}: {}", cluster.cluster_name, statuses.join(" "))
    });
    clusters.collect()
}

/// An endpoint on loopback that answers "q" to each datagram, or nothing.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    heard: Arc<std::sync::atomic::AtomicUsize>,
    answers: Arc<std::sync::atomic::AtomicBool>,
    _task: JoinSet<()>,
}

impl Peer {
    pub(crate) async fn new(answers: bool) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        let heard = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let answers = Arc::new(std::sync::atomic::AtomicBool::new(answers));
        let mut task = JoinSet::new();
        let (counted, told) = (Arc::clone(&heard), Arc::clone(&answers));
        task.spawn(async move {
            let mut buffer = [0; 16];
            while let Ok((_, from)) = socket.recv_from(&mut buffer).await {
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if told.load(std::sync::atomic::Ordering::Relaxed) {
                    socket.send_to(b"q", from).await.unwrap();
                }
            }
        });
        Self {
            address,
            heard,
            answers,
            _task: task,
        }
    }

    pub(crate) fn set_answers(&self, answers: bool) {
        self.answers
            .store(answers, std::sync::atomic::Ordering::Relaxed);
    }

    /// How many datagrams came.
    pub(crate) fn heard(&self) -> usize {
        self.heard.load(std::sync::atomic::Ordering::Relaxed)
    }
}
