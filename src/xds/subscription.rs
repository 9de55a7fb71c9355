//! The discovery protocol of one stream, without the stream: messages in, messages out.
//!
//! A [`Subscriptions`] knows the types that are asked for on one stream and, of each, the names, the versions
//! that were accepted, the nonce and what is still to be told to the server. It does no I/O and reads no
//! clock. Whoever has the stream tells it that one was opened, hands in responses and how these fared, and
//! sends what [`Subscriptions::poll_request`] gives. What is known outlives streams: the first requests of a
//! new one tell the accepted versions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use prost::{Message, Name};
use prost_types::Any;

use crate::config::ConfigError;
use crate::proto::duration;
use crate::proto::envoy::config::core::v3::Node;
use crate::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
    ResourceError,
};
use crate::proto::google::rpc::Status;

mod delta;
mod sotw;
#[cfg(test)]
mod tests;

use delta::Delta;
use sotw::Sotw;

/// Longest `error_detail.message` that is sent, in bytes; a longer one is cut.
pub const MAX_ERROR_DETAIL: usize = 16 * 1024;

/// `google.rpc.Code.INVALID_ARGUMENT`.
const INVALID_ARGUMENT: i32 = 3;

/// The name that stands for all resources of a type.
const WILDCARD: &str = "*";

/// Which variant of the protocol a stream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Variant {
    /// State of the world: `GRPC`.
    Sotw,
    /// Incremental: `DELTA_GRPC`.
    Delta,
}

/// A message to the server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Request {
    /// State of the world.
    Sotw(DiscoveryRequest),
    /// Incremental.
    Delta(DeltaDiscoveryRequest),
}

/// A message from the server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Response {
    /// State of the world.
    Sotw(DiscoveryResponse),
    /// Incremental.
    Delta(DeltaDiscoveryResponse),
}

impl Response {
    /// The type of the resources.
    pub fn type_url(&self) -> &str {
        match self {
            Self::Sotw(response) => &response.type_url,
            Self::Delta(response) => &response.type_url,
        }
    }

    /// Its length in bytes.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Sotw(response) => response.encoded_len(),
            Self::Delta(response) => response.encoded_len(),
        }
    }

    /// Leaves out all that it gives.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Sotw(response) => response.resources = Vec::new(),
            Self::Delta(response) => {
                response.resources = Vec::new();
                response.removed_resources = Vec::new();
                response.removed_resource_names = Vec::new();
            }
        }
    }

    /// What the server calls itself, which may be empty.
    pub fn control_plane(&self) -> Option<&str> {
        let control_plane = match self {
            Self::Sotw(response) => response.control_plane.as_ref(),
            Self::Delta(response) => response.control_plane.as_ref(),
        };
        control_plane.map(|control_plane| control_plane.identifier.as_str())
    }
}

/// A response that answers a subscription.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The version of the whole: `version_info`, or `system_version_info`.
    pub version: String,
    /// `nonce`.
    pub nonce: String,
    /// Whether [`Answer::resources`] are all that there are. Else they are those that changed.
    pub whole: bool,
    /// The resources.
    pub resources: Vec<Item>,
    /// Names of resources that are no more.
    pub removed: Vec<String>,
    /// Why the server has not given some resources: names and reasons.
    pub errors: Vec<(String, String)>,
}

/// A resource of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Item {
    /// Its name, as far as it stands outside of it. Incremental answers always have one.
    pub name: Option<String>,
    /// Other names that it answers to.
    pub aliases: Vec<String>,
    /// Its version.
    pub version: String,
    /// What it is; none where the server only prolongs the life of what it gave before.
    pub body: Option<Any>,
    /// For how long it holds unless it is given again; for good if none.
    pub ttl: Option<Duration>,
    pub(super) bad_ttl: Option<duration::Wrong>,
    /// What of it could not be read, where it stood in a text. The body lacks it, and is not to be taken.
    pub fault: Option<ConfigError>,
}

impl From<DiscoveryResponse> for Answer {
    fn from(response: DiscoveryResponse) -> Self {
        Self {
            version: response.version_info,
            nonce: response.nonce,
            whole: true,
            resources: response.resources.into_iter().map(item).collect(),
            removed: Vec::new(),
            errors: errors(response.resource_errors),
        }
    }
}

impl From<DeltaDiscoveryResponse> for Answer {
    fn from(response: DeltaDiscoveryResponse) -> Self {
        let mut removed = response.removed_resources;
        removed.extend(response.removed_resource_names.into_iter().map(|n| n.name));
        Self {
            version: response.system_version_info,
            nonce: response.nonce,
            whole: false,
            resources: response.resources.into_iter().map(Item::from).collect(),
            removed,
            errors: errors(response.resource_errors),
        }
    }
}

/// How an answer fared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is wrong with it, a line for each fault; none if all of it was taken.
    pub error: Option<String>,
    /// Names of the resources that were not taken, as far as these have names.
    pub refused: BTreeSet<String>,
}

/// Which resources of a type are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    wildcard: bool,
    names: BTreeSet<Arc<str>>,
}

impl Wanted {
    fn is_nothing(&self) -> bool {
        !self.wildcard && self.names.is_empty()
    }

    /// As the names of a first request: none at all stand for all resources, as servers of old expect; with
    /// names beside it, the wildcard needs its own.
    fn names(&self) -> Vec<String> {
        let star = (self.wildcard && !self.names.is_empty()).then(|| WILDCARD.to_owned());
        let names = self.names.iter().map(|name| (**name).to_owned());
        star.into_iter().chain(names).collect()
    }
}

#[derive(Debug)]
enum Protocol {
    Sotw(Sotw),
    Delta(Delta),
}

#[derive(Debug)]
struct Type {
    url: &'static str,
    wanted: Wanted,
    protocol: Protocol,
}

/// All that is asked for on one stream.
#[derive(Debug)]
pub struct Subscriptions {
    variant: Variant,
    node: Node,
    node_once: bool,
    node_sent: bool,
    open: bool,
    types: Vec<Type>,
}

impl Subscriptions {
    /// Asks for nothing yet. `node` is sent with every request, or with `set_node_on_first_message_only`
    /// (`node_once`) with the first of a stream.
    pub fn new(variant: Variant, node: Node, node_once: bool) -> Self {
        Self {
            variant,
            node,
            node_once,
            node_sent: false,
            open: false,
            types: Vec::new(),
        }
    }

    /// The variant that is spoken.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Whether nothing is asked for.
    pub fn is_idle(&self) -> bool {
        self.types.iter().all(|one| one.wanted.is_nothing())
    }

    /// Whether `name` of a type is asked for by its name.
    pub fn wants(&self, type_url: &str, name: &str) -> bool {
        let found = self.types.iter().find(|one| one.url == type_url);
        found.is_some_and(|one| one.wanted.names.contains(name))
    }

    /// Asks for all resources of a type.
    pub fn subscribe_all(&mut self, type_url: &'static str) {
        let one = self.type_mut(type_url);
        if !std::mem::replace(&mut one.wanted.wildcard, true) {
            match &mut one.protocol {
                Protocol::Sotw(sotw) => sotw.changed(),
                Protocol::Delta(delta) => delta.subscribe(WILDCARD.into()),
            }
        }
    }

    /// Asks for the resource `name` of a type.
    pub fn subscribe(&mut self, type_url: &'static str, name: Arc<str>) {
        let one = self.type_mut(type_url);
        if one.wanted.names.insert(Arc::clone(&name)) {
            match &mut one.protocol {
                Protocol::Sotw(sotw) => sotw.changed(),
                Protocol::Delta(delta) => delta.subscribe(name),
            }
        }
    }

    /// Asks no longer for the resource `name` of a type.
    pub fn unsubscribe(&mut self, type_url: &'static str, name: &Arc<str>) {
        let one = self.type_mut(type_url);
        if one.wanted.names.remove(name) {
            match &mut one.protocol {
                Protocol::Sotw(sotw) => sotw.changed(),
                Protocol::Delta(delta) => delta.unsubscribe(name),
            }
        }
    }

    /// A stream was opened. Nothing was sent on it yet.
    pub fn handle_stream_opened(&mut self) {
        self.open = true;
        self.node_sent = false;
        for one in &mut self.types {
            match &mut one.protocol {
                Protocol::Sotw(sotw) => sotw.reset(),
                Protocol::Delta(delta) => delta.reset(),
            }
        }
    }

    /// The stream has ended: there is nobody to tell anything until the next one.
    pub fn handle_stream_closed(&mut self) {
        self.open = false;
    }

    /// Takes a response; none if nobody asked for it, and it needs no reply. An answer must be followed by
    /// [`Subscriptions::handle_verdict`].
    pub fn handle_response(&mut self, response: Response) -> Option<(&'static str, Answer)> {
        if !self.open {
            return None;
        }
        let type_url = response.type_url();
        let one = self.types.iter_mut().find(|one| one.url == type_url)?;
        let answer = match (&mut one.protocol, response) {
            (Protocol::Sotw(sotw), Response::Sotw(response)) => {
                sotw.handle_response(response, &one.wanted)
            }
            (Protocol::Delta(delta), Response::Delta(response)) => {
                delta.handle_response(response, &one.wanted)
            }
            (Protocol::Sotw(_), Response::Delta(_)) | (Protocol::Delta(_), Response::Sotw(_)) => {
                None
            }
        };
        answer.map(|answer| (one.url, answer))
    }

    /// Tells how `answer` of a type fared, which decides the reply.
    pub fn handle_verdict(&mut self, type_url: &str, answer: &Answer, verdict: Verdict) {
        let Some(one) = self.types.iter_mut().find(|one| one.url == type_url) else {
            return;
        };
        let error = verdict.error.map(|message| Status {
            code: INVALID_ARGUMENT,
            message: cut(message),
            ..Status::default()
        });
        match &mut one.protocol {
            Protocol::Sotw(sotw) => sotw.handle_verdict(answer, error),
            Protocol::Delta(delta) => {
                delta.handle_verdict(answer, &verdict.refused, &one.wanted, error);
            }
        }
    }

    /// Bytes of replies that wait for [`Subscriptions::poll_request`], about: they grow while the server says
    /// more than it lets itself be told.
    pub fn backlog(&self) -> usize {
        let backlogs = self.types.iter().map(|one| match &one.protocol {
            // One reply at most, to what was said last.
            Protocol::Sotw(_) => 0,
            Protocol::Delta(delta) => delta.backlog(),
        });
        backlogs.sum()
    }

    /// Whether [`Subscriptions::poll_request`] has something to say.
    pub fn has_request(&self) -> bool {
        self.open && self.types.iter().any(Type::has_request)
    }

    /// The next message to the server, if any.
    pub fn poll_request(&mut self) -> Option<Request> {
        if !self.open {
            return None;
        }
        let one = self.types.iter_mut().find(|one| one.has_request())?;
        let mut request = match &mut one.protocol {
            Protocol::Sotw(sotw) => Request::Sotw(sotw.request(one.url, &one.wanted)),
            Protocol::Delta(delta) => Request::Delta(delta.request(one.url, &one.wanted)),
        };
        if !self.node_once || !self.node_sent {
            self.node_sent = true;
            let node = Some(self.node.clone());
            match &mut request {
                Request::Sotw(request) => request.node = node,
                Request::Delta(request) => request.node = node,
            }
        }
        Some(request)
    }

    fn type_mut(&mut self, url: &'static str) -> &mut Type {
        let index = self.types.iter().position(|one| one.url == url);
        let index = index.unwrap_or_else(|| {
            let protocol = match self.variant {
                Variant::Sotw => Protocol::Sotw(Sotw::default()),
                Variant::Delta => Protocol::Delta(Delta::default()),
            };
            self.types.push(Type {
                url,
                wanted: Wanted::default(),
                protocol,
            });
            self.types.len() - 1
        });
        &mut self.types[index]
    }
}

impl Type {
    fn has_request(&self) -> bool {
        match &self.protocol {
            Protocol::Sotw(sotw) => sotw.has_request(&self.wanted),
            Protocol::Delta(delta) => delta.has_request(&self.wanted),
        }
    }
}

/// A resource of a state-of-the-world answer, which may stand in a `Resource` of its own.
fn item(body: Any) -> Item {
    let wrapped = body.type_url.rsplit('/').next() == Some(Resource::full_name().as_str());
    if wrapped && let Ok(resource) = Resource::decode(&*body.value) {
        return resource.into();
    }
    Item {
        body: Some(body),
        ..Item::default()
    }
}

impl From<Resource> for Item {
    fn from(resource: Resource) -> Self {
        let name = match resource.resource_name {
            Some(name) if resource.name.is_empty() => name.name,
            _ => resource.name,
        };
        let ttl = resource.ttl.map(|ttl| duration::read(&ttl));
        Self {
            name: Some(name),
            aliases: resource.aliases,
            version: resource.version,
            body: resource.resource,
            ttl: ttl.as_ref().and_then(|ttl| ttl.ok()),
            bad_ttl: ttl.and_then(|ttl| ttl.err()),
            fault: None,
        }
    }
}

fn errors(errors: Vec<ResourceError>) -> Vec<(String, String)> {
    let named = |error: ResourceError| {
        let name = error.resource_name.map(|name| name.name);
        let reason = error.error_detail.map(|status| status.message);
        (name.unwrap_or_default(), reason.unwrap_or_default())
    };
    errors.into_iter().map(named).collect()
}

/// At most [`MAX_ERROR_DETAIL`] bytes of `message`, in whole lines as far as there are any.
fn cut(mut message: String) -> String {
    const MORE: &str = "\n(and more)";
    if message.len() <= MAX_ERROR_DETAIL {
        return message;
    }
    let mut end = MAX_ERROR_DETAIL - MORE.len();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let end = message[..end].rfind('\n').unwrap_or(end);
    message.truncate(end);
    message.push_str(MORE);
    message
}
