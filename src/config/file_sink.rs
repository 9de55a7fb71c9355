//! The event sink that is a file.

use std::path::Path;

use super::{ConfigError, wire};
use crate::proto::envoy::extensions::health_check::event_sinks::file::v3::HealthCheckEventFileSink;

/// Configuration of the event sink that writes to a file.
///
/// Source: `envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSinkConfig {
    /// `event_log_path`, not empty.
    pub path: Box<Path>,
}

impl FileSinkConfig {
    /// Checks a message.
    ///
    /// # Errors
    ///
    /// `event_log_path` is empty. Whether the file can be written is not asked.
    pub fn from_message(message: &HealthCheckEventFileSink) -> Result<Self, ConfigError> {
        wire::convert(message, &mut Default::default(), |message, _, _| {
            let path = Path::new(&message.event_log_path);
            Some(Self { path: path.into() })
        })
    }

    /// Checks a serialized message, as in `event_logger.typed_config`.
    ///
    /// # Errors
    ///
    /// As of [`FileSinkConfig::from_message`]; also for bytes that are no such message.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ConfigError> {
        Self::from_message(&wire::decode(bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn a_file_has_a_path() {
        let mut message = HealthCheckEventFileSink::default();
        let error = FileSinkConfig::from_bytes(&message.encode_to_vec()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "event_log_path: value length must be at least 1 characters"
        );
        message.event_log_path = "/var/log/health".to_owned();
        let sink = FileSinkConfig::from_bytes(&message.encode_to_vec()).unwrap();
        assert_eq!(&*sink.path, Path::new("/var/log/health"));
        assert!(FileSinkConfig::from_bytes(b"\xff").is_err());
    }
}
