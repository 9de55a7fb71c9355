//! A control plane that says what a test has it say, over a real server.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    missing_debug_implementations,
    reason = "each test file uses its part of this"
)]

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use prost::Message;
use prost_types::Any;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic::{Request as Call, Response as Reply, Status, Streaming};
use xds_health::proto::envoy::service::cluster::v3::cluster_discovery_service_server::{
    ClusterDiscoveryService, ClusterDiscoveryServiceServer,
};
use xds_health::proto::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use xds_health::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use xds_health::proto::envoy::service::endpoint::v3::endpoint_discovery_service_server::{
    EndpointDiscoveryService, EndpointDiscoveryServiceServer,
};
use xds_health::xds::subscription::{Request, Response};

/// How long anything may take before a test gives up.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The server, and the streams that clients open.
pub struct ControlPlane {
    streams: mpsc::Receiver<Stream>,
    stop: Option<oneshot::Sender<()>>,
    /// Connections and the server end with it.
    tasks: JoinSet<()>,
}

/// One stream of a client.
pub struct Stream {
    /// Which service it is of: `ads`, `cds` or `eds`.
    pub service: &'static str,
    pub metadata: MetadataMap,
    requests: mpsc::Receiver<Request>,
    responses: mpsc::Sender<Result<Response, Status>>,
}

/// Where a control plane listens.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    pub async fn tcp() -> (Self, SocketAddr) {
        Self::tcp_at(([127, 0, 0, 1], 0).into()).await
    }

    pub async fn tcp_at(address: SocketAddr) -> (Self, SocketAddr) {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        (Self::Tcp(listener), address)
    }

    pub fn unix(path: &Path) -> Self {
        Self::Unix(UnixListener::bind(path).unwrap())
    }
}

impl ControlPlane {
    /// Listens on loopback.
    pub async fn start() -> (Self, SocketAddr) {
        let (listener, address) = Listener::tcp().await;
        (Self::serve(listener, None), address)
    }

    pub fn serve(listener: Listener, tls: Option<TlsAcceptor>) -> Self {
        let (opened, streams) = mpsc::channel(16);
        let (connections, incoming) = mpsc::channel(16);
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, tls, connections));
        let service = Scripted { opened };
        tasks.spawn(async move {
            let served = Server::builder()
                .add_service(AggregatedDiscoveryServiceServer::new(service.clone()))
                .add_service(ClusterDiscoveryServiceServer::new(service.clone()))
                .add_service(EndpointDiscoveryServiceServer::new(service))
                .serve_with_incoming_shutdown(ReceiverStream::new(incoming), async {
                    let _ = stopped.await;
                });
            let _ = served.await;
        });
        Self {
            streams,
            stop: Some(stop),
            tasks,
        }
    }

    /// The next stream that a client opens.
    pub async fn stream(&mut self) -> Stream {
        within(self.streams.recv()).await.unwrap()
    }

    /// Stops listening; the address is free then.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    /// Says GOAWAY; streams that are open may go on.
    pub fn go_away(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

impl Stream {
    /// The next request.
    pub async fn request(&mut self) -> Request {
        within(self.requests.recv()).await.unwrap()
    }

    pub async fn sotw(&mut self) -> DiscoveryRequest {
        match self.request().await {
            Request::Sotw(request) => request,
            other => panic!("{other:?}"),
        }
    }

    pub async fn delta(&mut self) -> DeltaDiscoveryRequest {
        match self.request().await {
            Request::Delta(request) => request,
            other => panic!("{other:?}"),
        }
    }

    /// The client has ended the stream.
    pub async fn ended(&mut self) {
        within(async { while self.requests.recv().await.is_some() {} }).await;
    }

    /// Says all that there is of a type.
    pub async fn say(&self, type_url: &str, version: &str, resources: Vec<Any>) {
        let response = DiscoveryResponse {
            version_info: version.to_owned(),
            nonce: format!("n{version}"),
            type_url: type_url.to_owned(),
            resources,
            ..DiscoveryResponse::default()
        };
        self.respond(Ok(Response::Sotw(response))).await;
    }

    /// Says what changed of a type.
    pub async fn change(&self, type_url: &str, nonce: &str, given: &[(&str, Any)], gone: &[&str]) {
        let resources = given.iter().map(|(name, body)| Resource {
            name: (*name).to_owned(),
            version: nonce.to_owned(),
            resource: Some(body.clone()),
            ..Resource::default()
        });
        let response = DeltaDiscoveryResponse {
            nonce: nonce.to_owned(),
            type_url: type_url.to_owned(),
            resources: resources.collect(),
            removed_resources: gone.iter().map(|name| (*name).to_owned()).collect(),
            ..DeltaDiscoveryResponse::default()
        };
        self.respond(Ok(Response::Delta(response))).await;
    }

    /// Ends the stream with a status.
    pub async fn fail(self, status: Status) {
        self.respond(Err(status)).await;
    }

    async fn respond(&self, response: Result<Response, Status>) {
        self.responses.send(response).await.unwrap();
    }
}

/// What comes of `future`, which must not take too long.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("took too long")
}

pub fn any<M: Message + prost::Name>(message: &M) -> Any {
    Any {
        type_url: xds_health::proto::type_url::<M>(),
        value: message.encode_to_vec(),
    }
}

async fn accept(
    listener: Listener,
    tls: Option<TlsAcceptor>,
    connections: mpsc::Sender<io::Result<Connection>>,
) {
    let mut handshakes = JoinSet::new();
    loop {
        let io: Box<dyn Io> = match &listener {
            Listener::Tcp(listener) => Box::new(listener.accept().await.unwrap().0),
            Listener::Unix(listener) => Box::new(listener.accept().await.unwrap().0),
        };
        let (tls, connections) = (tls.clone(), connections.clone());
        handshakes.spawn(async move {
            let io: Box<dyn Io> = match tls {
                None => io,
                Some(tls) => match tls.accept(io).await {
                    Ok(io) => Box::new(io),
                    // The client is told by TLS.
                    Err(_) => return,
                },
            };
            let _ = connections.send(Ok(Connection(io))).await;
        });
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

struct Connection(Box<dyn Io>);

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Hands each stream to the test.
#[derive(Clone)]
struct Scripted {
    opened: mpsc::Sender<Stream>,
}

type Responses<M> = Pin<Box<dyn tokio_stream::Stream<Item = Result<M, Status>> + Send>>;

impl Scripted {
    async fn open<Q: Send + 'static, M: Send + 'static>(
        &self,
        service: &'static str,
        call: Call<Streaming<Q>>,
        request: fn(Q) -> Request,
        response: fn(Response) -> M,
    ) -> Result<Reply<Responses<M>>, Status> {
        let (to_test, requests) = mpsc::channel(64);
        let (responses, from_test) = mpsc::channel(64);
        let (metadata, _, mut incoming) = call.into_parts();
        tokio::spawn(async move {
            while let Ok(Some(message)) = incoming.message().await {
                if to_test.send(request(message)).await.is_err() {
                    return;
                }
            }
        });
        let stream = Stream {
            service,
            metadata,
            requests,
            responses,
        };
        let gone = |_| Status::unavailable("the test has ended");
        self.opened.send(stream).await.map_err(gone)?;
        let responses = ReceiverStream::new(from_test).map(move |said| said.map(response));
        Ok(Reply::new(Box::pin(responses)))
    }
}

fn whole(response: Response) -> DiscoveryResponse {
    match response {
        Response::Sotw(response) => response,
        other => panic!("{other:?}"),
    }
}

fn part(response: Response) -> DeltaDiscoveryResponse {
    match response {
        Response::Delta(response) => response,
        other => panic!("{other:?}"),
    }
}

macro_rules! serve {
    ($service:ident, $name:literal, $whole:ident -> $Whole:ident, $part:ident -> $Part:ident $(, $fetch:ident)?) => {
        #[tonic::async_trait]
        impl $service for Scripted {
            type $Whole = Responses<DiscoveryResponse>;
            type $Part = Responses<DeltaDiscoveryResponse>;

            async fn $whole(
                &self,
                call: Call<Streaming<DiscoveryRequest>>,
            ) -> Result<Reply<Self::$Whole>, Status> {
                self.open($name, call, Request::Sotw, whole).await
            }

            async fn $part(
                &self,
                call: Call<Streaming<DeltaDiscoveryRequest>>,
            ) -> Result<Reply<Self::$Part>, Status> {
                self.open($name, call, Request::Delta, part).await
            }
            $(
                async fn $fetch(
                    &self,
                    _: Call<DiscoveryRequest>,
                ) -> Result<Reply<DiscoveryResponse>, Status> {
                    Err(Status::unimplemented("streams only"))
                }
            )?
        }
    };
}

serve!(
    AggregatedDiscoveryService, "ads",
    stream_aggregated_resources -> StreamAggregatedResourcesStream,
    delta_aggregated_resources -> DeltaAggregatedResourcesStream
);
serve!(
    ClusterDiscoveryService, "cds",
    stream_clusters -> StreamClustersStream,
    delta_clusters -> DeltaClustersStream,
    fetch_clusters
);
serve!(
    EndpointDiscoveryService, "eds",
    stream_endpoints -> StreamEndpointsStream,
    delta_endpoints -> DeltaEndpointsStream,
    fetch_endpoints
);

/// A hop between a client and `to`, which can be told to let nothing through any more while connections stay.
pub struct Proxy {
    pub address: SocketAddr,
    silent: Arc<tokio::sync::watch::Sender<bool>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    pub async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let silent = Arc::new(tokio::sync::watch::Sender::new(false));
        let mut tasks = JoinSet::new();
        let of = Arc::clone(&silent);
        tasks.spawn(async move {
            let mut hops = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                hops.spawn(hop(near, to, of.subscribe()));
            }
        });
        Self {
            address,
            silent,
            _tasks: tasks,
        }
    }

    /// From now on the connections that are open are dead, but neither end is told. New ones are not.
    pub fn fall_silent(&self) {
        self.silent.send_replace(true);
        self.silent.send_replace(false);
    }
}

async fn hop(mut near: TcpStream, to: SocketAddr, mut silent: tokio::sync::watch::Receiver<bool>) {
    let mut far = TcpStream::connect(to).await.unwrap();
    silent.mark_unchanged();
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => (),
        // Both sockets stay open, and nobody reads.
        Ok(()) = silent.changed() => std::future::pending().await,
    }
}
