//! A listener to the log that panics: whoever logs a certain event panics there, in whichever task that is.
#![allow(unreachable_pub, reason = "it is a part of several crates")]

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Metadata, Subscriber};

struct Panics(&'static str);

/// Until the guard goes, each event with this message has its thread's task panic.
#[must_use]
pub fn at(message: &'static str) -> (DefaultGuard, Dispatch) {
    // As long as there is only one listener, a thread that has none decides for all that nobody wants an event which
    // it is the first to come by.
    let other = Dispatch::new(Panics(""));
    (tracing::subscriber::set_default(Panics(message)), other)
}

impl Subscriber for Panics {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Reader(self.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Reader(&'static str);

impl Visit for Reader {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        assert!(
            field.name() != "message" || text != self.0,
            "as the test says, at: {text}"
        );
    }
}
