//! Checkers: what an attempt does to find out whether a host is healthy.
//!
//! Three small traits, alike for the crate's checkers and an embedder's. A [`CheckerFactory`] turns a
//! configuration into a [`Checker`], of which each cluster's check has one; it makes a [`HostChecker`] for
//! a host, whose attempts are futures. None of them knows thresholds, intervals or the timeout: an attempt
//! that takes too long is dropped.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::config::{BindConfig, ConfigError};
use crate::event::{HealthCheckerType, Outcome};
use crate::host::Host;

mod io;
pub mod udp;

pub use io::AttemptIo;
pub(crate) use io::Waiting;

/// Makes checkers from the configuration that a type URL names.
pub trait CheckerFactory: Send + Sync {
    /// The full name of the configuration's message: the part of a type URL after its last `/`.
    fn message_name(&self) -> &str;

    /// A checker by the serialized message `value`.
    ///
    /// # Errors
    ///
    /// All that is wrong with the configuration, with paths relative to the message.
    ///
    /// # Panics
    ///
    /// It should not. If it does, the configuration is refused by
    /// [`Registry::build`](crate::registry::Registry::build), and nothing else is spoilt by it.
    fn create(&self, value: &[u8]) -> Result<Arc<dyn Checker>, ConfigError>;

    /// A serialized `google.protobuf.FileDescriptorSet` that holds the message and all that it names, so that it can
    /// also be given as text (YAML or JSON) or in a `TypedStruct`. Without it, it can be given as bytes in an `Any`
    /// only, and [`Registry::build`](crate::registry::Registry::build) refuses it as text. Not needed for messages of
    /// this crate.
    fn descriptor_set(&self) -> Option<&[u8]> {
        None
    }
}

/// One check of a cluster, able to check any host of it.
pub trait Checker: fmt::Debug + Send + Sync {
    /// What events call it.
    fn health_checker_type(&self) -> HealthCheckerType;

    /// A checker for one host.
    fn for_host(&self, target: Target<'_>) -> Box<dyn HostChecker>;

    /// An attempt at one host by a checker that keeps nothing between attempts, and goes with it. Only worth
    /// writing to spare the future that this makes around that of the [`HostChecker`].
    fn only_attempt(&self, target: Target<'_>, io: AttemptIo) -> Attempt<'static> {
        let mut host = self.for_host(target);
        Box::pin(async move { host.attempt(&io).await })
    }

    /// Whether a [`HostChecker`] is kept between attempts, with the connections in it. If not, each attempt
    /// has a new one, and a host that waits costs nothing.
    fn keeps_connections(&self) -> bool {
        false
    }
}

/// What a host's checker is made for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Target<'a> {
    /// The host; checks go to [`Host::checked_at`].
    pub host: &'a Host,
    /// From where, if the cluster says so.
    pub bind: Option<&'a Arc<BindConfig>>,
}

impl<'a> Target<'a> {
    /// A host, checked from wherever the system chooses.
    pub fn new(host: &'a Host) -> Self {
        Self { host, bind: None }
    }

    /// The same, checked from `bind`.
    pub fn with_bind(mut self, bind: Option<&'a Arc<BindConfig>>) -> Self {
        self.bind = bind;
        self
    }
}

/// Checks one host, one attempt at a time.
pub trait HostChecker: Send {
    /// One attempt. It is dropped when its time is up, and has no timeout of its own.
    ///
    /// It must not block: all attempts of a shard have one task or thread, so a call that blocks holds up its other
    /// hosts too, and no timeout ends it. What blocks belongs into `tokio::task::spawn_blocking`, where
    /// it goes on when the attempt was dropped: one call at a time for each host, and a bound for all, are the checker's
    /// to keep.
    fn attempt<'a>(&'a mut self, io: &'a AttemptIo) -> Attempt<'a>;
}

/// A running attempt.
pub type Attempt<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;
