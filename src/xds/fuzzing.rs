//! The pure parts as a stream would drive them, for fuzzers. There only with `--cfg fuzzing`.

use std::time::{Duration, Instant, SystemTime};

use prost::Message as _;

use super::state::{State, Time, Want};
use super::subscription::{Request, Response, Subscriptions, Variant};
use super::{CLUSTER, ENDPOINTS, Limits, Sources};
use crate::proto::envoy::config::core::v3::{ApiConfigSource, Node};
use crate::proto::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use crate::registry::{Change, Registry};

/// A stream, and what is known by it.
#[derive(Debug)]
pub struct Pipe {
    state: State,
    subscriptions: Subscriptions,
    variant: Variant,
    time: Time,
    /// Requests that were sent, replies among them.
    replies: usize,
}

impl Pipe {
    /// A stream that was just opened, and asks for clusters.
    ///
    /// # Panics
    ///
    /// Never, unless its own configuration is wrong.
    pub fn new(
        ads: &ApiConfigSource,
        registry: Registry,
        variant: Variant,
        limits: Limits,
        now: Instant,
    ) -> Self {
        #[expect(clippy::expect_used, reason = "the fuzzer gives what can be used")]
        let sources = Sources::new(Default::default(), Some(ads)).expect("a source");
        let mut pipe = Self {
            state: State::new(registry, None, sources, limits, Default::default()),
            subscriptions: Subscriptions::new(variant, Node::default(), true),
            variant,
            time: Time {
                now,
                wall: SystemTime::UNIX_EPOCH,
            },
            replies: 0,
        };
        pipe.subscriptions.subscribe_all(CLUSTER);
        pipe.reopen();
        pipe
    }

    /// The stream ends, and another is opened.
    pub fn reopen(&mut self) {
        self.subscriptions.handle_stream_closed();
        assert!(self.subscriptions.poll_request().is_none());
        self.subscriptions.handle_stream_opened();
        self.settle();
    }

    /// Time passes.
    pub fn pass(&mut self, by: Duration) {
        self.time.now += by;
        self.time.wall += by;
        self.state.handle_timeout(self.time);
        assert!(
            self.state
                .poll_timeout()
                .is_none_or(|at| at > self.time.now)
        );
        self.settle();
    }

    /// The server says something, if it can be read at all. Each answer is replied to once.
    pub fn respond(&mut self, bytes: &[u8]) {
        let response = match self.variant {
            Variant::Sotw => DiscoveryResponse::decode(bytes).map(Response::Sotw),
            Variant::Delta => DeltaDiscoveryResponse::decode(bytes).map(Response::Delta),
        };
        let Ok(response) = response else {
            return;
        };
        let before = self.replies;
        let Some((type_url, answer)) = self.subscriptions.handle_response(response) else {
            return self.settle();
        };
        let verdict = if type_url == CLUSTER {
            self.state.handle_clusters(self.time, &answer)
        } else {
            let Some(ads) = self.state.sources.ads() else {
                return;
            };
            self.state.handle_endpoints(self.time, ads, &answer)
        };
        self.subscriptions
            .handle_verdict(type_url, &answer, verdict);
        self.settle();
        assert!(self.replies > before, "an answer without a reply");
    }

    /// What the engine is told.
    pub fn changes(&mut self) -> Vec<Change> {
        std::iter::from_fn(|| self.state.poll_change()).collect()
    }

    /// How many endpoints all assignments and static clusters have.
    pub fn hosts(&self) -> usize {
        self.state.hosts()
    }

    fn settle(&mut self) {
        let ads = self.state.sources.ads();
        while let Some(want) = self.state.poll_want() {
            match want {
                Want::Endpoints(source, name) if Some(source) == ads => {
                    self.subscriptions.subscribe(ENDPOINTS, name);
                }
                Want::NoEndpoints(source, name) if Some(source) == ads => {
                    self.subscriptions.unsubscribe(ENDPOINTS, &name);
                }
                Want::Endpoints(..) | Want::NoEndpoints(..) => (),
            }
        }
        while let Some(request) = self.subscriptions.poll_request() {
            let detail = match &request {
                Request::Sotw(request) => &request.error_detail,
                Request::Delta(request) => &request.error_detail,
            };
            let longest = super::subscription::MAX_ERROR_DETAIL;
            assert!(detail.as_ref().is_none_or(|d| d.message.len() <= longest));
            self.replies += 1;
        }
        assert!(!self.subscriptions.has_request());
        let _ = (self.state.cluster_records(), self.state.endpoint_records());
    }
}
