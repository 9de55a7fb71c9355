//! Limits that a cluster carries.

use crate::proto::envoy::config::cluster::v3::CircuitBreakers;
use crate::proto::envoy::config::core::v3::RoutingPriority;

/// Limits of one priority, which `/clusters` shows.
///
/// Source: `envoy.config.cluster.v3.CircuitBreakers.Thresholds`. Carried only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thresholds {
    /// `max_connections`, default 1024.
    pub max_connections: u32,
    /// `max_pending_requests`, default 1024.
    pub max_pending_requests: u32,
    /// `max_requests`, default 1024.
    pub max_requests: u32,
    /// `max_retries`, default 3.
    pub max_retries: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_pending_requests: 1024,
            max_requests: 1024,
            max_retries: 3,
        }
    }
}

impl Thresholds {
    /// The limits of the default and the high priority; of several for one, the first, as with Envoy.
    pub(super) fn read(message: &CircuitBreakers) -> [Self; 2] {
        [RoutingPriority::Default, RoutingPriority::High].map(|priority| {
            let mut of_priority = message.thresholds.iter();
            let defaults = Self::default();
            of_priority
                .find(|limits| limits.priority == priority as i32)
                .map_or(defaults, |limits| Self {
                    max_connections: limits.max_connections.unwrap_or(defaults.max_connections),
                    max_pending_requests: limits
                        .max_pending_requests
                        .unwrap_or(defaults.max_pending_requests),
                    max_requests: limits.max_requests.unwrap_or(defaults.max_requests),
                    max_retries: limits.max_retries.unwrap_or(defaults.max_retries),
                })
        })
    }
}
