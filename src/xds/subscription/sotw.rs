//! State of the world: each request tells all that is wanted, each answer all that there is.

use super::{Answer, Wanted};
use crate::proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use crate::proto::google::rpc::Status;

#[derive(Debug, Default)]
pub(super) struct Sotw {
    /// Of the last answer that was taken as a whole.
    version: String,
    /// Of the last response on this stream.
    nonce: String,
    /// Something was sent on this stream.
    asked: bool,
    /// An answer waits for its verdict. Whatever were sent now would pass for a reply to it.
    judging: bool,
    due: bool,
    error: Option<Status>,
}

impl Sotw {
    pub(super) fn changed(&mut self) {
        self.due = true;
    }

    pub(super) fn reset(&mut self) {
        *self = Self {
            version: std::mem::take(&mut self.version),
            due: true,
            ..Self::default()
        };
    }

    pub(super) fn handle_response(
        &mut self,
        response: DiscoveryResponse,
        wanted: &Wanted,
    ) -> Option<Answer> {
        if !self.asked {
            return None;
        }
        self.nonce.clone_from(&response.nonce);
        if wanted.is_nothing() {
            return None;
        }
        self.judging = true;
        Some(response.into())
    }

    pub(super) fn handle_verdict(&mut self, answer: &Answer, error: Option<Status>) {
        if !self.judging || answer.nonce != self.nonce {
            return;
        }
        self.judging = false;
        self.due = true;
        if error.is_none() {
            self.version.clone_from(&answer.version);
        }
        self.error = error;
    }

    /// An empty list of names stands for all resources unless there were names before, so it is not sent
    /// first when nothing is wanted.
    pub(super) fn has_request(&self, wanted: &Wanted) -> bool {
        self.due && !self.judging && (self.asked || !wanted.is_nothing())
    }

    pub(super) fn request(&mut self, type_url: &str, wanted: &Wanted) -> DiscoveryRequest {
        self.due = false;
        self.asked = true;
        DiscoveryRequest {
            version_info: self.version.clone(),
            resource_names: wanted.names(),
            type_url: type_url.to_owned(),
            response_nonce: self.nonce.clone(),
            error_detail: self.error.take(),
            ..DiscoveryRequest::default()
        }
    }
}
