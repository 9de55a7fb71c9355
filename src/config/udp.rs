//! What the UDP checker sends and awaits.

use super::error::Report;
use super::{ConfigError, Payload, Warnings, wire};
use crate::proto::envoy::config::core::v3::health_check::{Payload as PayloadMessage, payload};
use crate::proto::envoy::extensions::health_checkers::udp::v3::UdpHealthCheck;
use crate::validate::FieldPath;

/// Configuration of the UDP checker.
///
/// Source: `envoy.extensions.health_checkers.udp.v3.UdpHealthCheck`. Both payloads are required, as the
/// message's documentation has it; Envoy takes one that is missing as empty.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpConfig {
    /// `send`: the one datagram of an attempt.
    pub send: Payload,
    /// `receive`: the datagram that makes an attempt succeed.
    pub receive: Payload,
}

impl UdpConfig {
    /// A checker that sends `send` and awaits `receive`.
    pub fn new(send: Payload, receive: Payload) -> Self {
        Self { send, receive }
    }

    /// Checks a message.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, with paths such as `send.text`.
    pub fn from_message(message: &UdpHealthCheck) -> Result<Self, ConfigError> {
        wire::convert(message, &mut Warnings::default(), Self::read)
    }

    /// Checks a serialized message, as in `custom_health_check.typed_config`.
    ///
    /// # Errors
    ///
    /// As of [`UdpConfig::from_message`]; also for bytes that are no such message.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ConfigError> {
        Self::from_message(&wire::decode(bytes)?)
    }

    /// What is sent.
    pub fn send(&self) -> &[u8] {
        &self.send
    }

    /// What is awaited.
    pub fn receive(&self) -> &[u8] {
        &self.receive
    }

    /// Whether `datagram`, all of it, is what is awaited.
    pub fn matches(&self, datagram: &[u8]) -> bool {
        *datagram == *self.receive
    }

    fn read(message: &UdpHealthCheck, at: &FieldPath<'_>, report: &mut Report) -> Option<Self> {
        let send = read_payload(message.send.as_ref(), &at.field("send"), report);
        let receive = read_payload(message.receive.as_ref(), &at.field("receive"), report);
        Some(Self {
            send: send?,
            receive: receive?,
        })
    }
}

impl TryFrom<UdpHealthCheck> for UdpConfig {
    type Error = ConfigError;

    fn try_from(message: UdpHealthCheck) -> Result<Self, ConfigError> {
        Self::from_message(&message)
    }
}

fn read_payload(
    message: Option<&PayloadMessage>,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Payload> {
    let (payload, member) = match message?.payload.as_ref()? {
        // The rules refuse an empty text in words of their own.
        payload::Payload::Text(text) if text.is_empty() => return None,
        payload::Payload::Text(text) => (Payload::from_hex(text), "text"),
        payload::Payload::Binary(bytes) => (Payload::new(bytes.as_slice()), "binary"),
    };
    payload.map_or_else(
        |error| report.fault(&at.field(member), error.to_string()),
        Some,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<PayloadMessage> {
        Some(PayloadMessage {
            payload: Some(payload::Payload::Text(text.to_owned())),
        })
    }

    fn binary(bytes: &[u8]) -> Option<PayloadMessage> {
        Some(PayloadMessage {
            payload: Some(payload::Payload::Binary(bytes.to_vec())),
        })
    }

    #[track_caller]
    fn refused(send: Option<PayloadMessage>, receive: Option<PayloadMessage>, faults: &str) {
        let error = UdpConfig::try_from(UdpHealthCheck { send, receive }).unwrap_err();
        assert_eq!(error.to_string(), faults);
    }

    #[test]
    fn both_payloads_are_required() {
        refused(
            None,
            None,
            "send: value is required\nreceive: value is required",
        );
        refused(
            Some(PayloadMessage::default()),
            binary(b""),
            "send.payload: is required: set one of text, binary",
        );
        refused(
            binary(b""),
            Some(PayloadMessage::default()),
            "receive.payload: is required: set one of text, binary",
        );
    }

    #[test]
    fn faults_name_the_payload_and_its_form() {
        refused(
            text(""),
            text("7"),
            "send.text: value length must be at least 1 characters\n\
             receive.text: invalid hex string: two digits make a byte, but there are 1",
        );
        refused(
            text("zz"),
            binary(&[0; 65_508]),
            "send.text: invalid hex string: 'z' at offset 0 is no hexadecimal digit\n\
             receive.binary: payload size 65508 exceeds the maximum of 65507 bytes",
        );
        let error = UdpConfig::from_bytes(b"\xff").unwrap_err();
        assert!(error.to_string().contains("UdpHealthCheck"), "{error}");
    }

    #[test]
    fn a_match_is_of_whole_datagrams() {
        let config = UdpConfig::try_from(UdpHealthCheck {
            send: text("70696E67"),
            receive: binary(b"pong"),
        })
        .unwrap();
        assert_eq!(config.send(), b"ping");
        assert!(config.matches(b"pong"));
        assert!(!config.matches(b"pongX"));
        assert!(!config.matches(b"pon"));
        assert!(!config.matches(b""));
    }
}
