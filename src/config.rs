//! Configuration: bytes and text in, checked types out.
//!
//! Messages are turned once into types that cannot hold a wrong value; nothing later checks again.

mod cluster;
mod health_check;
mod udp;

pub use cluster::{BindConfig, ClusterConfig, Discovery, SocketOption, Thresholds};
pub use health_check::{CheckerConfig, HealthCheck, TypedConfig};
pub use udp::UdpConfig;
