//! A small management server: it tells one cluster and its endpoints by ADS, and what changes of them.

use std::io;
use std::net::SocketAddr;

use prost::{Message, Name};
use prost_types::Any;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use super::upstream::Upstream;
use crate::config::text::Document;
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use crate::proto::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use crate::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use crate::xds::{CLUSTER, ENDPOINTS};

/// The one cluster's name.
pub(super) const NAME: &str = "demo";

/// The cluster, as an operator would write it.
const TEXT: &str = r#"
name: demo
type: EDS
eds_cluster_config:
  eds_config: {ads: {}, resource_api_version: V3}
health_checks:
- timeout: 0.3s
  interval: 0.5s
  unhealthy_threshold: 2
  healthy_threshold: 2
  custom_health_check:
    name: envoy.health_checkers.udp
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck
      send: {text: "70696e67"}     # ping
      receive: {text: "706f6e67"}  # pong
"#;

/// Serves on loopback, as a task of the current runtime. Endpoints are those that `upstreams` says, and told
/// anew whenever they change.
pub(super) async fn start(upstreams: watch::Receiver<Vec<Upstream>>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let service = AggregatedDiscoveryServiceServer::new(Management { upstreams });
    let served = Server::builder()
        .add_service(service)
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(served);
    Ok(address)
}

struct Management {
    upstreams: watch::Receiver<Vec<Upstream>>,
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Management {
    type StreamAggregatedResourcesStream = ReceiverStream<Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream = ReceiverStream<Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (tell, told) = mpsc::channel(4);
        let upstreams = self.upstreams.clone();
        tokio::spawn(converse(request.into_inner(), upstreams, tell));
        Ok(Response::new(ReceiverStream::new(told)))
    }

    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented(
            "this server speaks state of the world only",
        ))
    }
}

/// One stream, to its end.
async fn converse(
    mut requests: Streaming<DiscoveryRequest>,
    mut upstreams: watch::Receiver<Vec<Upstream>>,
    tell: mpsc::Sender<Result<DiscoveryResponse, Status>>,
) {
    let (mut version, mut follows) = (0_u64, false);
    loop {
        let response = tokio::select! {
            request = requests.message() => match request {
                // A nonce means that it acknowledges, or refuses, what was told before.
                Ok(Some(request)) if !request.response_nonce.is_empty() => continue,
                Ok(Some(request)) if request.type_url == CLUSTER => clusters(),
                Ok(Some(request)) if request.type_url == ENDPOINTS => {
                    follows = true;
                    endpoints(&upstreams.borrow_and_update())
                }
                Ok(Some(_)) => continue,
                Ok(None) | Err(_) => return,
            },
            changed = upstreams.changed(), if follows => match changed {
                Ok(()) => endpoints(&upstreams.borrow_and_update()),
                Err(_) => return,
            },
        };
        version += 1;
        let response = DiscoveryResponse {
            version_info: version.to_string(),
            nonce: version.to_string(),
            ..response
        };
        if tell.send(Ok(response)).await.is_err() {
            return;
        }
    }
}

fn clusters() -> DiscoveryResponse {
    response::<Cluster>(CLUSTER, TEXT)
}

fn endpoints(upstreams: &[Upstream]) -> DiscoveryResponse {
    let mut text = format!("cluster_name: {NAME}\nendpoints:\n");
    for (zone, part) in ["a", "b"]
        .into_iter()
        .zip(upstreams.chunks(upstreams.len().div_ceil(2).max(1)))
    {
        text.push_str(&format!(
            "- locality: {{region: here, zone: {zone}}}\n  lb_endpoints:\n"
        ));
        for Upstream { manner, address } in part {
            let (ip, port) = (address.ip(), address.port());
            text.push_str(&format!(
                "  - endpoint: {{hostname: {}, address: {{socket_address: {{protocol: UDP, address: {ip}, \
                 port_value: {port}}}}}}}\n",
                manner.name()
            ));
        }
    }
    response::<ClusterLoadAssignment>(ENDPOINTS, &text)
}

/// The one resource that `text` tells of.
fn response<M: Message + Name + Default>(type_url: &str, text: &str) -> DiscoveryResponse {
    // What stands here is well written; a test reads it.
    let message: M = Document::from_yaml(text).map_or_else(|_| M::default(), |d| d.read().message);
    DiscoveryResponse {
        type_url: type_url.to_owned(),
        resources: vec![Any {
            type_url: type_url.to_owned(),
            value: message.encode_to_vec(),
        }],
        ..DiscoveryResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::demo::upstream::Manner;
    use crate::config::{ClusterConfig, Warnings};

    #[test]
    fn what_is_told_can_be_used() {
        let cluster = &clusters().resources[0];
        let mut warnings = Warnings::default();
        let config = ClusterConfig::from_bytes(&cluster.value, &mut warnings).unwrap();
        assert_eq!(&*config.name, NAME);
        assert!(warnings.is_empty(), "{warnings}");
        let upstream = |manner| Upstream {
            manner,
            address: ([127, 0, 0, 1], 7).into(),
        };
        for count in 0..=Manner::ALL.len() {
            let upstreams = Manner::ALL.map(upstream);
            let assignment = &endpoints(&upstreams[..count]).resources[0];
            let hosts = config.hosts_from_bytes(&assignment.value, &mut warnings);
            assert_eq!(hosts.unwrap().len(), count);
        }
    }
}
