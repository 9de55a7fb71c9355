//! Connections to control planes: what a gRPC service says, and HTTP/2 to where it says.
//!
//! A [`Service`] is read once from the configuration and holds what does not change; each
//! [`Service::connect`] looks names up and reads certificates anew, so that both may change on disk. Endpoints
//! are tried in turn, beginning after the one that failed last. Server certificates are always verified.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::{Message, Name};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};
use tonic::metadata::{Ascii, Binary, MetadataKey, MetadataValue};
use tonic::transport::{Channel, Endpoint, Uri};

use super::backoff::Backoff;
use crate::config::{At, ConfigError};
use crate::host::Address;
use crate::proto::duration;
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::core::v3::Http2ProtocolOptions;
use crate::proto::envoy::config::core::v3::grpc_service::TargetSpecifier;
use crate::proto::envoy::config::core::v3::{GrpcService, HeaderValue, RetryPolicy};

mod cluster;
mod google;
mod tls;

use tls::Tls;
pub(crate) use tls::TlsError;

/// By what a connection that nobody answers on is found, where the cluster's `tcp_keepalive` does not say
/// otherwise. HTTP/2 pings are only for who asks for them by `connection_keepalive`: a gRPC server takes one every
/// five minutes unless told otherwise, and ends the connections of who sends more. What kernels send each other no
/// server minds.
const PROBES: Probes = Probes {
    idle: Duration::from_secs(30),
    interval: Duration::from_secs(10),
    count: 3,
};

/// `timeout` where a `connection_keepalive` has none.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// `connect_timeout` where a cluster has none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The clusters that `envoy_grpc` may name.
pub(crate) type Planes = BTreeMap<String, Arc<Cluster>>;

/// Where and how a control plane is reached.
#[derive(Debug)]
pub(crate) struct Service {
    /// What logs call it: the cluster, or the target.
    pub(crate) name: Arc<str>,
    targets: Vec<Target>,
    authority: String,
    tls: Option<Tls>,
    probes: Probes,
    keepalive: Option<Keepalive>,
    http2: Http2ProtocolOptions,
    connect_timeout: Duration,
    metadata: Vec<Entry>,
    /// `max_receive_message_length`.
    pub(crate) message_bytes: Option<usize>,
    /// `retry_back_off`: base and longest wait.
    pub(crate) backoff: (Duration, Duration),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Address(Address),
    /// To be looked up at each connect.
    Name(String, u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Keepalive {
    interval: Duration,
    timeout: Duration,
}

/// Keepalive of TCP: when the kernel asks whether the other end is still there, and gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probes {
    idle: Duration,
    interval: Duration,
    count: u32,
}

impl Probes {
    /// What has not been acknowledged for as long as it takes to find a silent connection ends it as well.
    fn set(&self, stream: &TcpStream) -> io::Result<()> {
        let socket = SockRef::from(stream);
        let keepalive = TcpKeepalive::new()
            .with_time(self.idle)
            .with_interval(self.interval)
            .with_retries(self.count);
        socket.set_tcp_keepalive(&keepalive)?;
        let whole = self.idle + self.interval * self.count;
        socket.set_tcp_user_timeout(Some(whole))
    }
}

#[derive(Clone, Debug)]
enum Entry {
    Ascii(MetadataKey<Ascii>, MetadataValue<Ascii>),
    Binary(MetadataKey<Binary>, MetadataValue<Binary>),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// What failed is in the error's causes: itself it says no more than that it is one.
    #[error("{0}")]
    Address(String, #[source] tonic::transport::Error),
    #[error("{0} cannot be looked up")]
    Lookup(String, #[source] io::Error),
    #[error("TLS")]
    Tls(#[from] TlsError),
    #[error("there is no address to connect to")]
    NoAddress,
}

impl Service {
    /// Reads a gRPC service.
    ///
    /// # Errors
    ///
    /// What it says cannot be done here; paths are relative to it.
    pub(crate) fn read(message: &GrpcService, planes: &Planes) -> Result<Self, ConfigError> {
        let (mut service, backoff) = match &message.target_specifier {
            None => return Err(ConfigError::new("target_specifier", "value is required")),
            Some(TargetSpecifier::EnvoyGrpc(envoy)) => {
                let backoff = envoy.retry_policy.as_ref().map(read_backoff);
                if let Some((base, max)) = backoff.filter(|(base, max)| max < base) {
                    let reason =
                        format!("must be at least base_interval, {base:?}, but is {max:?}");
                    let field = "envoy_grpc.retry_policy.retry_back_off.max_interval";
                    return Err(ConfigError::new(field, reason));
                }
                (cluster::read(envoy, planes).at("envoy_grpc")?, backoff)
            }
            Some(TargetSpecifier::GoogleGrpc(google)) => {
                (google::read(google).at("google_grpc")?, None)
            }
        };
        for (index, header) in message.initial_metadata.iter().enumerate() {
            let entry = read_header(header);
            let entry = entry.map_err(|e| e.at_index("initial_metadata", index))?;
            service.metadata.push(entry);
        }
        // Of this one, Envoy looks at no more than the rules.
        let retry = message.retry_policy.as_ref();
        let retry = retry.map(|retry| {
            let (base, max) = read_backoff(retry);
            (base, max.max(base))
        });
        service.backoff = backoff.or(retry).unwrap_or(service.backoff);
        Ok(service)
    }

    fn new(name: &str, authority: &str) -> Self {
        Self {
            name: name.into(),
            targets: Vec::new(),
            authority: authority.to_owned(),
            tls: None,
            probes: PROBES,
            keepalive: None,
            http2: Http2ProtocolOptions::default(),
            connect_timeout: CONNECT_TIMEOUT,
            metadata: Vec::new(),
            message_bytes: None,
            backoff: (Backoff::BASE, Backoff::MAX),
        }
    }

    /// Whether the certificates that it needs can be read now.
    pub(crate) fn check_files(&self) -> Result<(), TlsError> {
        match &self.tls {
            Some(tls) => tls.client(None).map(drop),
            None => Ok(()),
        }
    }

    /// What is to stand in the headers of each stream.
    pub(crate) fn metadata(&self) -> tonic::metadata::MetadataMap {
        let mut map = tonic::metadata::MetadataMap::new();
        for entry in &self.metadata {
            match entry.clone() {
                Entry::Ascii(key, value) => drop(map.append(key, value)),
                Entry::Binary(key, value) => drop(map.append_bin(key, value)),
            }
        }
        map
    }

    /// Connects to the first address that lets us, beginning with number `turn`, which is then the number of
    /// the one after it.
    pub(crate) async fn connect(&self, turn: &mut usize) -> Result<Channel, ConnectError> {
        let mut last = ConnectError::NoAddress;
        let mut addresses = Vec::new();
        for target in &self.targets {
            match target {
                Target::Address(address) => addresses.push(address.clone()),
                Target::Name(host, port) => {
                    match tokio::net::lookup_host((host.as_str(), *port)).await {
                        Ok(found) => addresses.extend(found.map(Address::from)),
                        Err(error) => last = ConnectError::Lookup(host.clone(), error),
                    }
                }
            }
        }
        for _ in 0..addresses.len() {
            let address = &addresses[*turn % addresses.len()];
            *turn = turn.wrapping_add(1);
            match self.connect_to(address).await {
                Ok(channel) => return Ok(channel),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_to(&self, address: &Address) -> Result<Channel, ConnectError> {
        let tls = match &self.tls {
            Some(tls) => Some(tls.client(address.socket_addr())?),
            None => None,
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let origin = Uri::builder()
            .scheme(scheme)
            .authority(self.authority.as_str())
            .path_and_query("/")
            .build()
            .unwrap_or_default();
        let windows = &self.http2;
        let endpoint = Endpoint::from_static("http://control-plane")
            .origin(origin)
            .connect_timeout(self.connect_timeout)
            .initial_stream_window_size(windows.initial_stream_window_size)
            .initial_connection_window_size(windows.initial_connection_window_size);
        let endpoint = match self.keepalive {
            Some(keepalive) => endpoint
                .http2_keep_alive_interval(keepalive.interval)
                .keep_alive_timeout(keepalive.timeout)
                .keep_alive_while_idle(true),
            None => endpoint,
        };
        let (target, probes) = (address.clone(), self.probes);
        let connector = tower::service_fn(move |_: Uri| {
            let (target, tls) = (target.clone(), tls.clone());
            async move { open(&target, probes, tls).await.map(TokioIo::new) }
        });
        let connected = endpoint.connect_with_connector(connector).await;
        connected.map_err(|error| ConnectError::Address(address.to_string(), error))
    }
}

/// A connection that HTTP/2 can be spoken on.
async fn open(
    address: &Address,
    probes: Probes,
    tls: Option<tls::Client>,
) -> io::Result<Box<dyn Io>> {
    let plain: Box<dyn Io> = match address {
        Address::Ip(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            probes.set(&stream)?;
            Box::new(stream)
        }
        Address::Pipe(path) => Box::new(open_pipe(path).await?),
        Address::Internal(_) => return Err(io::ErrorKind::Unsupported.into()),
    };
    match tls {
        Some(tls) => Ok(Box::new(tls.connect(plain).await?)),
        None => Ok(plain),
    }
}

async fn open_pipe(path: &str) -> io::Result<UnixStream> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream as StdStream};

    let Some(name) = path.strip_prefix('@') else {
        return UnixStream::connect(path).await;
    };
    let stream = StdStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// What bytes can be read from and written to.
trait Io: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Io for T {}

fn read_header(header: &HeaderValue) -> Result<Entry, ConfigError> {
    let wrong =
        |field: &str, error: &dyn std::fmt::Display| ConfigError::new(field, error.to_string());
    let key = header.key.to_ascii_lowercase();
    if key.ends_with("-bin") {
        let key = MetadataKey::from_bytes(key.as_bytes()).map_err(|e| wrong("key", &e))?;
        let raw = [&header.raw_value[..], header.value.as_bytes()].concat();
        return Ok(Entry::Binary(key, MetadataValue::from_bytes(&raw)));
    }
    let key = MetadataKey::from_bytes(key.as_bytes()).map_err(|e| wrong("key", &e))?;
    let (field, bytes) = match header.value.as_bytes() {
        [] => ("raw_value", &header.raw_value[..]),
        value => ("value", value),
    };
    let value = MetadataValue::try_from(bytes).map_err(|e| wrong(field, &e))?;
    Ok(Entry::Ascii(key, value))
}

fn read_backoff(retry: &RetryPolicy) -> (Duration, Duration) {
    let backoff = retry.retry_back_off.as_ref();
    let base = backoff.and_then(|b| duration::read(&b.base_interval?).ok());
    let max = backoff.and_then(|b| duration::read(&b.max_interval?).ok());
    match (base, max) {
        (None, _) => (Backoff::BASE, Backoff::MAX),
        (Some(base), Some(max)) => (base, max),
        // As with Envoy, ten times the base.
        (Some(base), None) => (base, base.saturating_mul(10)),
    }
}

/// The message of type `M` in an `Any`, if it is of that type.
fn unpack<M: Message + Name + Default>(any: &prost_types::Any) -> Option<Result<M, ConfigError>> {
    (any.type_url.rsplit('/').next() == Some(M::full_name().as_str()))
        .then(|| M::decode(&*any.value).map_err(|error| ConfigError::new("", error.to_string())))
}

/// Where names and addresses are told as text: `host:port`, the port being optional.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        let host = text.rsplit_once(':')?.0;
        return Some((host.trim_matches(['[', ']']), Some(address.port())));
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => Some((host, Some(port.parse().ok()?))),
        _ if text.is_empty() => None,
        _ => Some((text, None)),
    }
}
