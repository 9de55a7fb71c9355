//! Streams: one task each, which opens its stream, hands over what comes, and opens it again when it ends.
//!
//! A stream that ends is opened again after a wait, however it ended: by status OK or another, by GOAWAY, because
//! nobody listens, because TLS failed, or because pings were not answered. The wait is the first again after a
//! stream that lasted and on which the server has given an answer.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::Streaming;
use tonic::transport::Channel;
use tonic::{Request as Call, Status};

use super::backoff::Backoff;
use super::cause;
use super::clock;
use super::files::FileError;
use super::sources::{SourceId, Stream};
use super::subscription::{Answer, Request, Response, Variant};
use crate::proto::envoy::service::cluster::v3::cluster_discovery_service_client::ClusterDiscoveryServiceClient;
use crate::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use crate::proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use crate::proto::envoy::service::endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient;

/// Requests that may wait for a stream. What does not fit stays where it can still be joined with others.
const REQUESTS: usize = 16;

/// Which service a stream is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Aggregated,
    Clusters,
    Endpoints,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Aggregated => "ADS",
            Self::Clusters => "CDS",
            Self::Endpoints => "EDS",
        }
    }
}

/// What a stream has to tell.
#[derive(Debug)]
pub(super) enum Event {
    /// It was opened: requests go here, and by the other it is ended.
    Opened(mpsc::Sender<Request>, oneshot::Sender<()>),
    /// The server has said something.
    Response(Response),
    /// The server has said something that is longer than is taken: this many bytes. What it gave is left out.
    TooLong(Response, usize),
    /// It has ended, or could not be opened, and why.
    Closed(String),
    /// A file was read.
    File(Result<Answer, FileError>),
}

/// Keeps a stream open until nobody listens to its events.
pub(super) async fn run(
    id: SourceId,
    stream: Arc<Stream>,
    kind: Kind,
    message_bytes: usize,
    seed: u64,
    events: mpsc::Sender<(SourceId, Event)>,
) {
    let service = &stream.service;
    let (base, max) = service.backoff;
    let mut backoff = Backoff::new(base, max, seed);
    let mut turn = 0;
    let message_bytes = service.message_bytes.unwrap_or(message_bytes);
    loop {
        let mut wait = None;
        let reason = match service.connect(&mut turn).await {
            Err(error) => {
                // It may hold what a server shows of itself, so it is quoted.
                let error = cause::whole(&error);
                tracing::warn!(control_plane = %service.name, error, "cannot connect");
                error
            }
            Ok(channel) => {
                let (requests, queue) = mpsc::channel(REQUESTS);
                let (end, told_to_end) = oneshot::channel();
                let opened = Event::Opened(requests, end);
                if events.send((id, opened)).await.is_err() {
                    return;
                }
                tracing::info!(control_plane = %service.name, "stream opened");
                let wire = Wire {
                    channel,
                    stream: &stream,
                    kind,
                    message_bytes: message_bytes.saturating_mul(2),
                };
                let (since, mut answered) = (clock::now(), false);
                let ended = wire.exchange(queue, |response| {
                    answered = true;
                    events.send((id, measured(response, message_bytes)))
                });
                let ended = tokio::select! {
                    ended = ended => ended,
                    Ok(()) = told_to_end => Ok(Status::cancelled("the server takes no replies")),
                };
                let lived = clock::now().saturating_duration_since(since);
                wait = Some(backoff.after(lived, answered));
                let Ok(status) = ended else {
                    return;
                };
                let reason = cause::of_end(&status);
                // What a server says is quoted: it may hold anything.
                tracing::warn!(control_plane = %service.name, reason, "stream ended");
                reason
            }
        };
        if events.send((id, Event::Closed(reason))).await.is_err() {
            return;
        }
        tokio::time::sleep(wait.unwrap_or_else(|| backoff.next())).await;
    }
}

/// A message of up to twice the length that is taken can still be answered.
fn measured(mut response: Response, most: usize) -> Event {
    let length = response.length();
    if length <= most {
        return Event::Response(response);
    }
    response.clear();
    Event::TooLong(response, length)
}

/// Nobody listens to events any more.
struct Gone;

/// A stream to be.
struct Wire<'a> {
    channel: Channel,
    stream: &'a Stream,
    kind: Kind,
    /// Beyond this the stream is ended before all of a message has come.
    message_bytes: usize,
}

impl Wire<'_> {
    /// Opens the stream, sends what `queue` gives, and hands each response to `tell`. The end of the stream is
    /// the result; the status is OK if the server ended it.
    async fn exchange<F, Fut, E>(
        &self,
        queue: mpsc::Receiver<Request>,
        tell: F,
    ) -> Result<Status, Gone>
    where
        F: FnMut(Response) -> Fut,
        Fut: Future<Output = Result<(), E>>,
    {
        let queue = ReceiverStream::new(queue);
        match self.stream.variant {
            Variant::Sotw => {
                let requests = queue.filter_map(|request| match request {
                    Request::Sotw(request) => Some(request),
                    Request::Delta(_) => None,
                });
                let opened = self.sotw(self.call(requests)).await;
                follow(opened, Response::Sotw, tell).await
            }
            Variant::Delta => {
                let requests = queue.filter_map(|request| match request {
                    Request::Delta(request) => Some(request),
                    Request::Sotw(_) => None,
                });
                let opened = self.delta(self.call(requests)).await;
                follow(opened, Response::Delta, tell).await
            }
        }
    }

    fn call<S>(&self, requests: S) -> Call<S> {
        let mut call = Call::new(requests);
        *call.metadata_mut() = self.stream.service.metadata();
        call
    }

    async fn sotw(
        &self,
        call: Call<impl tokio_stream::Stream<Item = DiscoveryRequest> + Send + 'static>,
    ) -> Result<Streaming<crate::proto::envoy::service::discovery::v3::DiscoveryResponse>, Status>
    {
        let (channel, bytes) = (self.channel.clone(), self.message_bytes);
        let answer = match self.kind {
            Kind::Aggregated => {
                let client = AggregatedDiscoveryServiceClient::new(channel);
                let mut client = client.max_decoding_message_size(bytes);
                client.stream_aggregated_resources(call).await
            }
            Kind::Clusters => {
                let client = ClusterDiscoveryServiceClient::new(channel);
                let mut client = client.max_decoding_message_size(bytes);
                client.stream_clusters(call).await
            }
            Kind::Endpoints => {
                let client = EndpointDiscoveryServiceClient::new(channel);
                let mut client = client.max_decoding_message_size(bytes);
                client.stream_endpoints(call).await
            }
        };
        answer.map(tonic::Response::into_inner)
    }

    async fn delta(
        &self,
        call: Call<impl tokio_stream::Stream<Item = DeltaDiscoveryRequest> + Send + 'static>,
    ) -> Result<
        Streaming<crate::proto::envoy::service::discovery::v3::DeltaDiscoveryResponse>,
        Status,
    > {
        let (channel, bytes) = (self.channel.clone(), self.message_bytes);
        let answer = match self.kind {
            Kind::Aggregated => {
                let client = AggregatedDiscoveryServiceClient::new(channel);
                let mut client = client.max_decoding_message_size(bytes);
                client.delta_aggregated_resources(call).await
            }
            Kind::Clusters => {
                let client = ClusterDiscoveryServiceClient::new(channel);
                let mut client = client.max_decoding_message_size(bytes);
                client.delta_clusters(call).await
            }
            Kind::Endpoints => {
                let client = EndpointDiscoveryServiceClient::new(channel);
                let mut client = client.max_decoding_message_size(bytes);
                client.delta_endpoints(call).await
            }
        };
        answer.map(tonic::Response::into_inner)
    }
}

async fn follow<M, F, Fut, E>(
    opened: Result<Streaming<M>, Status>,
    wrap: fn(M) -> Response,
    mut tell: F,
) -> Result<Status, Gone>
where
    F: FnMut(Response) -> Fut,
    Fut: Future<Output = Result<(), E>>,
{
    let mut responses = match opened {
        Ok(responses) => responses,
        Err(status) => return Ok(status),
    };
    loop {
        match responses.message().await {
            Ok(Some(message)) => tell(wrap(message)).await.map_err(|_| Gone)?,
            Ok(None) => return Ok(Status::ok("")),
            Err(status) => return Ok(status),
        }
    }
}
