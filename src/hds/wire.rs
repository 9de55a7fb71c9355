//! Calls of the health discovery service. What is sent is bytes already, and goes out as it is.

use prost::bytes::{BufMut, Bytes};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, EncodeBuf, Encoder, Streaming};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request as Call, Status};
use tonic_prost::ProstDecoder;

use crate::proto::envoy::service::health::v3::HealthCheckSpecifier;
use crate::xds::channel::Service;

const STREAM: &str = "/envoy.service.health.v3.HealthDiscoveryService/StreamHealthCheck";
const FETCH: &str = "/envoy.service.health.v3.HealthDiscoveryService/FetchHealthCheck";

/// A way to the service.
#[derive(Debug)]
pub(super) struct Wire<'a> {
    service: &'a Service,
    grpc: Grpc<Channel>,
}

impl<'a> Wire<'a> {
    /// By `channel`, as `service` says, taking messages of at most so many bytes.
    pub(super) fn new(service: &'a Service, channel: Channel, message_bytes: usize) -> Self {
        let bytes = service.message_bytes.unwrap_or(message_bytes);
        let grpc = Grpc::new(channel).max_decoding_message_size(bytes);
        Self { service, grpc }
    }

    /// `StreamHealthCheck`: sends what `queue` gives.
    pub(super) async fn stream(
        &mut self,
        queue: mpsc::Receiver<Bytes>,
    ) -> Result<Streaming<HealthCheckSpecifier>, Status> {
        self.ready().await?;
        let call = self.call(ReceiverStream::new(queue));
        let opened = self
            .grpc
            .streaming(call, PathAndQuery::from_static(STREAM), Encoded);
        Ok(opened.await?.into_inner())
    }

    /// `FetchHealthCheck`.
    pub(super) async fn fetch(&mut self, message: Bytes) -> Result<HealthCheckSpecifier, Status> {
        self.ready().await?;
        let call = self.call(message);
        let answer = self
            .grpc
            .unary(call, PathAndQuery::from_static(FETCH), Encoded);
        Ok(answer.await?.into_inner())
    }

    async fn ready(&mut self) -> Result<(), Status> {
        let ready = self.grpc.ready().await;
        ready.map_err(|error| Status::unavailable(format!("not ready: {error}")))
    }

    fn call<T>(&self, message: T) -> Call<T> {
        let mut call = Call::new(message);
        *call.metadata_mut() = self.service.metadata();
        call
    }
}

/// Sends bytes as they are, and reads specifiers.
#[derive(Debug)]
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = HealthCheckSpecifier;
    type Encoder = Self;
    type Decoder = ProstDecoder<HealthCheckSpecifier>;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::default()
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}
