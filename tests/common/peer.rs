//! A UDP host on loopback, spoken to by its test.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses its part of this"
)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::UdpSocket;
use xds_health::host::Host;

/// A host that answers as its test does.
#[derive(Debug)]
pub struct Peer(UdpSocket);

impl Peer {
    /// At a free port of `address`.
    pub async fn at(address: impl Into<IpAddr>) -> Self {
        Self::bind((address.into(), 0).into()).await
    }

    /// At a free port of `127.0.0.1`.
    pub async fn new() -> Self {
        Self::at(Ipv4Addr::LOCALHOST).await
    }

    pub async fn bind(address: SocketAddr) -> Self {
        Self(UdpSocket::bind(address).await.unwrap())
    }

    /// A port that nothing listens at and nothing else can be given: its socket takes datagrams from itself
    /// alone, so that all others are refused.
    pub async fn closed() -> Self {
        let peer = Self::new().await;
        peer.0.connect(peer.address()).await.unwrap();
        peer
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub fn host(&self) -> Host {
        Host::new(self.address())
    }

    /// The next attempt's datagram and where it came from.
    pub async fn next(&self) -> (Vec<u8>, SocketAddr) {
        let mut buffer = vec![0; 65_536];
        let (len, from) = self.0.recv_from(&mut buffer).await.unwrap();
        buffer.truncate(len);
        (buffer, from)
    }

    pub async fn answer(&self, to: SocketAddr, payload: &[u8]) {
        assert_eq!(self.0.send_to(payload, to).await.unwrap(), payload.len());
    }
}
