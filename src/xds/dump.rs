//! What is known, for whoever reads it: `/config_dump`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use prost_types::Any;

use super::state::State;
use crate::config::ConfigError;

/// A resource of a control plane.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// Its name; that of an assignment is the one by which it was asked for.
    pub name: Arc<str>,
    /// The version with which its good form came; none while there is no such form.
    pub version_info: Option<Arc<str>>,
    /// Its last good form, as it came.
    pub resource: Option<Any>,
    /// When that came.
    pub last_updated: Option<SystemTime>,
    /// The form that was refused after that, if any.
    pub error_state: Option<ErrorState>,
}

/// A refused form of a resource.
///
/// Source: `envoy.admin.v3.UpdateFailureState`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ErrorState {
    /// `failed_configuration`: as it came.
    pub failed_configuration: Any,
    /// `last_update_attempt`.
    pub last_update_attempt: SystemTime,
    /// `details`: a line for each fault.
    pub details: Arc<str>,
    /// `version_info`.
    pub version_info: Arc<str>,
}

impl ErrorState {
    pub(crate) fn new(body: &Any, version: Arc<str>, at: SystemTime, error: &ConfigError) -> Self {
        Self {
            failed_configuration: body.clone(),
            last_update_attempt: at,
            details: error.to_string().into(),
            version_info: version,
        }
    }

    /// Bytes that are kept of it.
    pub(crate) fn weight(&self) -> usize {
        self.failed_configuration.value.len() + self.details.len()
    }
}

/// How much is kept of what was wrong.
const REASON_BYTES: usize = 4096;

/// How it goes with a management server, or with a file in its place.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Connection {
    /// The server: the cluster's name or the target URI; or the file's path.
    pub server: Arc<str>,
    /// What is asked for: `ADS`, `CDS`, `EDS` or `HDS`.
    pub service: &'static str,
    /// Changes only are told: `DELTA_GRPC`.
    pub delta: bool,
    /// It is a file.
    pub file: bool,
    /// Whether the stream is open; always, for a file.
    pub open: bool,
    /// When the stream was opened or lost, or when it was first tried to open it.
    pub since: Option<SystemTime>,
    /// When the last answer came.
    pub last_answer: Option<SystemTime>,
    /// The last answer that was refused, if any was.
    pub last_nack: Option<Nack>,
    /// Why it last could not be reached or read, or the stream ended, if that ever was.
    pub last_failure: Option<Failure>,
}

/// A server that could not be reached, a stream that ended, or a file that could not be read.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Failure {
    /// When that was.
    pub at: SystemTime,
    /// Why, with all that caused it.
    pub reason: Arc<str>,
}

/// An answer that was refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Nack {
    /// When that was.
    pub at: SystemTime,
    /// What was asked for.
    pub type_url: Arc<str>,
    /// The answer's version.
    pub version_info: Arc<str>,
    /// What was wrong, a line for each fault.
    pub details: Arc<str>,
}

impl Connection {
    pub(crate) fn set_open(&mut self, open: bool, at: SystemTime) {
        if self.open != open || self.since.is_none() {
            self.open = open;
            self.since = Some(at);
        }
    }

    /// Notes that the stream is not, or no longer, open.
    pub(crate) fn set_closed(&mut self, at: SystemTime, reason: &str) {
        self.set_open(false, at);
        self.failed(at, reason);
    }

    /// Notes a failure.
    pub(crate) fn failed(&mut self, at: SystemTime, reason: &str) {
        let reason = beginning(reason).into();
        self.last_failure = Some(Failure { at, reason });
    }

    /// Notes an answer, and why it was refused if it was.
    pub(crate) fn answered(
        &mut self,
        at: SystemTime,
        type_url: &str,
        version: &str,
        refused: Option<&str>,
    ) {
        self.last_answer = Some(at);
        if let Some(details) = refused {
            self.last_nack = Some(Nack {
                at,
                type_url: type_url.into(),
                version_info: version.into(),
                details: beginning(details).into(),
            });
        }
    }
}

/// At most [`REASON_BYTES`] of a text.
fn beginning(text: &str) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|end| *end <= REASON_BYTES).last();
    &text[..end.unwrap_or_default()]
}

/// Reads what a [`Client`](super::Client) knows. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dump(pub(super) Arc<Mutex<State>>);

impl Dump {
    /// Clusters by name, also those of which only a refused form is known.
    pub fn clusters(&self) -> Vec<Record> {
        self.lock().cluster_records().1
    }

    /// The version of the last answer of clusters that was taken as a whole.
    pub fn clusters_version(&self) -> Arc<str> {
        self.lock().cluster_records().0
    }

    /// Assignments by the names that they were asked for by.
    pub fn endpoints(&self) -> Vec<Record> {
        self.lock().endpoint_records()
    }

    /// The management servers and files that are followed.
    pub fn connections(&self) -> Vec<Connection> {
        self.lock().connections.values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
