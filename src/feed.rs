//! What leaves in process: events to whoever logs or follows them.
//!
//! An [`EventSink`] takes each event of the health checks that name it. It must not block: what it cannot
//! take at once it drops and counts. Sinks are made by factories that a registry finds by type URL, like
//! checkers.

use std::fmt;
use std::sync::Arc;

use crate::config::ConfigError;
use crate::event::HealthCheckEvent;

mod events;
mod file;
pub mod json;

pub(crate) use events::Broadcast;
pub use events::{Events, NoEvent};
pub use file::FileSinkFactory;

/// Makes event sinks from the configuration that a type URL names.
pub trait EventSinkFactory: Send + Sync {
    /// The full name of the configuration's message: the part of a type URL after its last `/`.
    fn message_name(&self) -> &str;

    /// A sink by the serialized message `value`.
    ///
    /// # Errors
    ///
    /// All that is wrong with the configuration, with paths relative to the message.
    fn create(&self, value: &[u8]) -> Result<Arc<dyn EventSink>, ConfigError>;

    /// A serialized `google.protobuf.FileDescriptorSet` that holds the message, so that it can also be given
    /// in a `TypedStruct`. Without it, as with Envoy's own sinks, only the message itself is taken.
    fn descriptor_set(&self) -> Option<&[u8]> {
        None
    }

    /// Opens anew what sinks write to, after files were moved away.
    fn reopen(&self) {}
}

/// Takes events.
pub trait EventSink: fmt::Debug + Send + Sync {
    /// Takes one event, without blocking. If it panics, the event is lost to it and nothing else.
    fn record(&self, event: &HealthCheckEvent);
}
