//! The incremental protocol: requests and answers tell what changed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Answer, Wanted};
use crate::proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use crate::proto::google::rpc::Status;

#[derive(Debug, Default)]
pub(super) struct Delta {
    /// Versions of the resources that were taken, by name.
    versions: BTreeMap<String, String>,
    /// Names that were asked for, where these are aliases: to the resources' own.
    aliases: BTreeMap<Arc<str>, String>,
    added: BTreeSet<Arc<str>>,
    dropped: BTreeSet<Arc<str>>,
    /// Replies that are due: nonces and what was wrong.
    replies: VecDeque<(String, Option<Status>)>,
    /// What they weigh.
    backlog: usize,
    /// Something was sent on this stream.
    asked: bool,
}

fn weight(nonce: &str, error: Option<&Status>) -> usize {
    REPLY + nonce.len() + error.map_or(0, |error| error.message.len())
}

/// What is kept of a reply that waits, beside its texts.
const REPLY: usize = 64;

impl Delta {
    /// A name that is dropped and asked for again before the server heard of it is asked for once more, so
    /// that it is sent again.
    pub(super) fn subscribe(&mut self, name: Arc<str>) {
        self.dropped.remove(&name);
        self.added.insert(name);
    }

    pub(super) fn unsubscribe(&mut self, name: &Arc<str>) {
        let alias = self.aliases.remove(name);
        self.versions.remove(alias.as_deref().unwrap_or(name));
        self.added.remove(name);
        self.dropped.insert(Arc::clone(name));
    }

    /// Bytes of the replies that the server has not taken.
    pub(super) fn backlog(&self) -> usize {
        self.backlog
    }

    fn reply(&mut self, nonce: String, error: Option<Status>) {
        self.backlog += weight(&nonce, error.as_ref());
        self.replies.push_back((nonce, error));
    }

    pub(super) fn reset(&mut self) {
        *self = Self {
            versions: std::mem::take(&mut self.versions),
            aliases: std::mem::take(&mut self.aliases),
            ..Self::default()
        };
    }

    pub(super) fn handle_response(
        &mut self,
        response: DeltaDiscoveryResponse,
        wanted: &Wanted,
    ) -> Option<Answer> {
        if !self.asked {
            return None;
        }
        if wanted.is_nothing() {
            self.reply(response.nonce, None);
            return None;
        }
        Some(response.into())
    }

    pub(super) fn handle_verdict(
        &mut self,
        answer: &Answer,
        refused: &BTreeSet<String>,
        wanted: &Wanted,
        error: Option<Status>,
    ) {
        for name in &answer.removed {
            if !refused.contains(name) {
                self.versions.remove(name);
            }
        }
        for item in &answer.resources {
            let name = item.name.as_deref().unwrap_or_default();
            // What was not asked for was not kept either, so the server must not be told that it was.
            let named = wanted.wildcard || wanted.names.contains(name);
            let alias = item.aliases.iter().find_map(|a| wanted.names.get(&**a));
            if item.body.is_none() || refused.contains(name) || !named && alias.is_none() {
                continue;
            }
            if let Some(alias) = alias.filter(|_| !named) {
                let before = self.aliases.insert(Arc::clone(alias), name.to_owned());
                // A resource has one name at a time, or ever new ones would fill the memory.
                if let Some(before) = before.filter(|before| before != name) {
                    self.versions.remove(&before);
                }
            }
            self.versions.insert(name.to_owned(), item.version.clone());
        }
        self.reply(answer.nonce.clone(), error);
    }

    pub(super) fn has_request(&self, wanted: &Wanted) -> bool {
        if !self.asked {
            return !wanted.is_nothing();
        }
        !self.replies.is_empty() || !self.added.is_empty() || !self.dropped.is_empty()
    }

    pub(super) fn request(&mut self, type_url: &str, wanted: &Wanted) -> DeltaDiscoveryRequest {
        let added = std::mem::take(&mut self.added);
        let dropped = std::mem::take(&mut self.dropped);
        let mut request = DeltaDiscoveryRequest {
            type_url: type_url.to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        if std::mem::replace(&mut self.asked, true) {
            let names = |set: BTreeSet<Arc<str>>| set.iter().map(|n| (**n).to_owned()).collect();
            request.resource_names_subscribe = names(added);
            request.resource_names_unsubscribe = names(dropped);
        } else {
            request.resource_names_subscribe = wanted.names();
            request.initial_resource_versions.clone_from(&self.versions);
        }
        if let Some((nonce, error)) = self.replies.pop_front() {
            self.backlog -= weight(&nonce, error.as_ref());
            request.response_nonce = nonce;
            request.error_detail = error;
        }
        request
    }
}
