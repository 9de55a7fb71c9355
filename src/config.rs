//! Configuration: bytes and text in, checked types out.
//!
//! Messages are turned once into types that cannot hold a wrong value; nothing later checks again. Every
//! fault is reported, each at the path of its field under its proto name.

mod address;
mod bind;
mod bootstrap;
mod cluster;
mod dns;
mod dns_resolver;
mod endpoint;
mod error;
mod file_sink;
#[cfg(feature = "hds")]
mod hds;
mod health_check;
pub(crate) mod json;
mod limits;
mod payload;
#[cfg(test)]
mod testing;
pub mod text;
mod typed;
mod udp;
mod wire;

pub use bind::{BindConfig, ExtraSource, IpVersion, SocketOption};
pub use bootstrap::{Admin, Bootstrap, Format};
pub use cluster::{ClusterConfig, Discovery, EdsConfig, Thresholds};
pub use dns::{DnsConfig, DnsEndpoint, LookupFamily};
pub use dns_resolver::DnsResolverConfig;
pub(crate) use error::Errors;
#[cfg(feature = "cli")]
pub(crate) use error::explains;
pub use error::{At, ConfigError, Warnings};
pub use file_sink::FileSinkConfig;
pub use health_check::{CheckerConfig, HealthCheck, TypedConfig};
pub use limits::IntervalLimits;
pub use payload::{Payload, PayloadError};
pub use typed::{Resolved, resolve, resolve_with};
pub(crate) use typed::{bare, held};
pub use udp::UdpConfig;
#[cfg(feature = "xds")]
pub(crate) use wire::printable;
