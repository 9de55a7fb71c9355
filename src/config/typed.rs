//! What stands in an `Any`: which message, and its bytes.

use std::borrow::Cow;

use super::{ConfigError, TypedConfig};

/// The message that a [`TypedConfig`] holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved<'a> {
    /// Its full name, as `envoy.extensions.health_checkers.udp.v3.UdpHealthCheck`.
    pub name: Cow<'a, str>,
    /// Its serialized form.
    pub value: Cow<'a, [u8]>,
}

/// Finds what a configuration holds: the message is named by the text after the last `/` of the type URL.
///
/// # Errors
///
/// None yet.
pub fn resolve(config: &TypedConfig) -> Result<Resolved<'_>, ConfigError> {
    let name = config.type_url.rsplit('/').next().unwrap_or_default();
    Ok(Resolved {
        name: name.into(),
        value: (&*config.value).into(),
    })
}
