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

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
