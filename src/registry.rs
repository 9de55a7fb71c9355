//! tmp
use crate::checker::Checker;
use crate::config::ClusterConfig;
use crate::feed::EventSink;
use std::sync::Arc;
/// A cluster with the checkers and event sinks of its health checks.
#[derive(Clone, Debug)]
pub struct Update {
    /// The cluster.
    pub config: Arc<ClusterConfig>,
    /// A checker for each of its health checks, in their order.
    pub checkers: Vec<Arc<dyn Checker>>,
    /// The event sinks of each of its health checks, in their order.
    pub sinks: Vec<Vec<Arc<dyn EventSink>>>,
}
impl Update {
    /// Of its parts.
    pub fn new(
        config: Arc<ClusterConfig>,
        checkers: Vec<Arc<dyn Checker>>,
        sinks: Vec<Vec<Arc<dyn EventSink>>>,
    ) -> Self {
        Self {
            config,
            checkers,
            sinks,
        }
    }
}
