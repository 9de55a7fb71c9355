//! The pure parts as a stream would drive them, for fuzzers. There only with `--cfg fuzzing`.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use prost::Message as _;

use super::report::Reporter;
use super::state::{Action, State};
use crate::engine::Snapshot;
use crate::proto::envoy::service::health::v3::{
    HealthCheckRequestOrEndpointHealthResponse, HealthCheckSpecifier,
};
use crate::registry::{Change, Registry};
use crate::snapshot::Part;
use crate::xds::{Limits, Time};

/// A stream, and what is known by it.
#[derive(Debug)]
pub struct Pipe {
    state: State,
    reporter: Reporter,
    time: Time,
}

impl Pipe {
    /// A stream on which nothing was said.
    pub fn new(registry: Registry, limits: Limits, now: Instant) -> Self {
        Self {
            state: State::new(registry, limits),
            reporter: Reporter::new(true, 1 << 16),
            time: Time {
                now,
                wall: SystemTime::UNIX_EPOCH,
            },
        }
    }

    /// The stream ends, and another is opened.
    pub fn reopen(&mut self) {
        self.state.handle_stream_closed();
    }

    /// The server says something, if it can be read at all. What the engine is told follows.
    pub fn specify(&mut self, bytes: &[u8]) -> Vec<Change> {
        if let Ok(specifier) = HealthCheckSpecifier::decode(bytes) {
            let _ = self.state.handle_specifier(self.time, &specifier);
        }
        let mut changes = Vec::new();
        while let Some(action) = self.state.poll_action() {
            match action {
                Action::Remember(layout) => {
                    self.reporter.remember(&layout, &Snapshot::default());
                }
                Action::Apply(change) => {
                    if let Change::RemoveCluster(key) = &change {
                        self.reporter.forget(key);
                    }
                    changes.push(change);
                }
            }
        }
        let _ = self.state.records();
        changes
    }

    /// Reports what `part` finds of each cluster. What is reported can be read, and is of the clusters asked for.
    ///
    /// # Panics
    ///
    /// When that does not hold.
    pub fn report(&mut self, part: impl Fn(&str) -> Option<Part>) {
        let layouts = self.state.layouts();
        let count = layouts.len();
        let with_snapshots = layouts.into_iter().map(|layout| {
            let snapshot = part(&layout.key).map(|part| Snapshot::of([part]));
            (layout, snapshot)
        });
        let clusters: Vec<(Arc<_>, _)> = with_snapshots.collect();
        let report = self.reporter.report(&clusters);
        let read = HealthCheckRequestOrEndpointHealthResponse::decode(report);
        #[expect(clippy::expect_used, reason = "the fuzzer is to hear of it")]
        let read = read.expect("a report that can be read").request_type;
        use crate::proto::envoy::service::health::v3::health_check_request_or_endpoint_health_response::RequestType;
        let Some(RequestType::EndpointHealthResponse(read)) = read else {
            return assert_eq!(count, 0);
        };
        assert_eq!(read.cluster_endpoints_health.len(), count);
    }
}
