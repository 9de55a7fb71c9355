//! Placeholder.
use crate::proto::envoy::config::core::v3::health_check::payload::Payload as P;
use crate::proto::envoy::extensions::health_checkers::udp::v3::UdpHealthCheck;
use crate::validate::Fault;
/// UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    send: Vec<u8>,
    receive: Vec<u8>,
}
impl UdpConfig {
    /// send
    pub fn new(send: &[u8], receive: &[u8]) -> Self {
        Self {
            send: send.into(),
            receive: receive.into(),
        }
    }
    /// send
    pub fn send(&self) -> &[u8] {
        &self.send
    }
    /// receive
    pub fn receive(&self) -> &[u8] {
        &self.receive
    }
    /// matches
    pub fn matches(&self, got: &[u8]) -> bool {
        self.receive == got
    }
}
impl TryFrom<UdpHealthCheck> for UdpConfig {
    type Error = Vec<Fault>;
    fn try_from(m: UdpHealthCheck) -> Result<Self, Vec<Fault>> {
        let p = |p: Option<crate::proto::envoy::config::core::v3::health_check::Payload>| match p
            .and_then(|p| p.payload)
        {
            Some(P::Binary(b)) => b,
            _ => Vec::new(),
        };
        Ok(Self {
            send: p(m.send),
            receive: p(m.receive),
        })
    }
}
