//! `/events`: what checks did to hosts, as it happens, or the last of it.
//!
//! The last events are kept in a ring that is filled when someone looks; until then they wait in the engine's
//! own, which is bounded too. All streams read from this ring. One that is so slow that events are gone when
//! it comes to them is told how many.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::{Extensions, HeaderMap};
use axum::response::Response;

use super::Shared;
use super::answer::{self, Refused};
use super::hosts::{millis, string, write_locality, write_reason};
use super::query::Query;
use super::serve::Terms;
use super::stream::{Gone, Lines};
use crate::engine::Engine;
use crate::event::{EventKind, FailureType, HealthCheckEvent, Transition};
use crate::feed::json::write_timestamp;
use crate::feed::{Events, NoEvent};
use crate::host::HealthFlags;

/// How many events are kept.
const KEPT: usize = 1024;

/// The last events, numbered from 1 in the order in which they came.
#[derive(Debug)]
pub(super) struct History(Mutex<Ring>);

#[derive(Debug)]
struct Ring {
    events: Events,
    kept: VecDeque<(u64, Arc<HealthCheckEvent>)>,
    next: u64,
}

impl History {
    /// Begins now.
    pub(super) fn new(engine: &Engine) -> Self {
        Self(Mutex::new(Ring {
            events: engine.events(),
            kept: VecDeque::new(),
            next: 1,
        }))
    }

    /// Those that are kept of the events from number `from` on, and the number of the next one.
    fn since(&self, from: u64) -> (Vec<(u64, Arc<HealthCheckEvent>)>, u64) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.fill();
        let first = ring.kept.partition_point(|(number, _)| *number < from);
        (ring.kept.range(first..).cloned().collect(), ring.next)
    }

    /// So many of the last events.
    pub(super) fn last(&self, count: usize) -> Vec<(u64, Arc<HealthCheckEvent>)> {
        let (mut events, _) = self.since(0);
        events.split_off(events.len().saturating_sub(count))
    }
}

impl Ring {
    fn fill(&mut self) {
        loop {
            match self.events.try_next() {
                Ok(Some(event)) => {
                    if self.kept.len() == KEPT {
                        self.kept.pop_front();
                    }
                    self.kept.push_back((self.next, event));
                    self.next += 1;
                }
                Err(NoEvent::Missed(count)) => self.next += count,
                Ok(None) | Err(_) => return,
            }
        }
    }
}

pub(super) async fn page(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    extensions: Extensions,
    query: Query,
) -> Result<Response, Refused> {
    let cluster = query.get("cluster").map(str::to_owned);
    let wanted = move |event: &HealthCheckEvent| {
        let named = |name: &String| **name == *event.cluster;
        cluster.as_ref().is_none_or(named)
    };
    if query.has("last") {
        let count = query.get("last").map_or(Ok(KEPT), str::parse);
        let usage = |_| Refused::bad_request("usage: /events?last=NUMBER\n");
        let count = count.map_err(usage)?;
        let mut events = shared.history.last(KEPT);
        events.retain(|(_, event)| wanted(event));
        let events = events.split_off(events.len().saturating_sub(count));
        return Ok(answer::json(list(&events)));
    }
    let last = headers.get("last-event-id");
    let after = last.and_then(|id| id.to_str().ok()?.parse::<u64>().ok());
    let of = Arc::clone(&shared);
    let follow = move |lines| follow(of, after, wanted, lines);
    shared.streams.open(Terms::of(&extensions), follow)
}

async fn follow(
    shared: Arc<Shared>,
    after: Option<u64>,
    wanted: impl Fn(&HealthCheckEvent) -> bool,
    mut lines: Lines,
) -> Result<(), Gone> {
    // Only to be woken by. It is there before the first look, so that no event comes between.
    let mut woken = shared.admin.engine.events();
    let (_, now) = shared.history.since(u64::MAX);
    // A number from an earlier life of the process says nothing.
    let mut next = after.map_or(now, |id| id.saturating_add(1)).min(now);
    // The head of the answer is sent with its first piece.
    lines.send("open", "{}").await?;
    loop {
        let (events, end) = shared.history.since(next);
        let first = events.first().map_or(end, |(number, _)| *number);
        if first > next {
            let data = format!("{{\"events\":{}}}", first - next);
            lines.send("missed", &data).await?;
        }
        next = end;
        let mut data = String::new();
        for (number, event) in events {
            if wanted(&event) {
                data.clear();
                write(&mut data, number, &event);
                lines.send_numbered(number, "event", &data).await?;
            }
        }
        if let Err(NoEvent::Ended) = lines.until(woken.next()).await? {
            return Ok(());
        }
        while let Ok(Some(_)) | Err(NoEvent::Missed(_)) = woken.try_next() {}
    }
}

/// A document of events, one a line.
fn list(events: &[(u64, Arc<HealthCheckEvent>)]) -> String {
    let mut to = String::from("{\"events\":[\n");
    for (at, (number, event)) in events.iter().enumerate() {
        to.push_str(if at == 0 { "" } else { ",\n" });
        write(&mut to, *number, event);
    }
    to.push_str("\n]}\n");
    to
}

/// Appends an event, in one line.
fn write(to: &mut String, number: u64, event: &HealthCheckEvent) {
    let _ = write!(to, "{{\"id\":{number},\"timestamp\":\"");
    write_timestamp(to, event.timestamp);
    string(to, "\",\"cluster\":", &event.cluster);
    string(to, ",\"address\":", &event.host.address.to_string());
    string(to, ",\"check\":", &event.check);
    string(to, ",\"event\":", name(event.kind));
    match event.kind {
        EventKind::EjectUnhealthy { failure_type, .. } => failure(to, failure_type),
        EventKind::Failure {
            failure_type,
            first_check,
            ..
        } => {
            failure(to, failure_type);
            let _ = write!(to, ",\"first_check\":{first_check}");
        }
        EventKind::AddHealthy { first_check } => {
            let _ = write!(to, ",\"first_check\":{first_check}");
        }
        _ => (),
    }
    string(
        to,
        ",\"transition\":",
        match event.transition {
            Transition::Unchanged => "unchanged",
            Transition::Changed => "changed",
            Transition::ChangePending => "change_pending",
        },
    );
    flags(to, ",\"flags_before\":[", event.before);
    flags(to, ",\"flags\":[", event.after);
    if let Some(reason) = &event.reason {
        to.push_str(",\"reason\":");
        write_reason(to, reason);
    }
    if let Some(round_trip) = event.round_trip {
        millis(to, ",\"round_trip_ms\":", round_trip);
    }
    write_locality(to, event.host.locality());
    to.push('}');
}

/// A word for an event, as the fields of Envoy's are named.
pub(super) fn name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::EjectUnhealthy { .. } => "eject_unhealthy",
        EventKind::AddHealthy { .. } => "add_healthy",
        EventKind::Failure { .. } => "failure",
        EventKind::Degraded => "degraded",
        EventKind::NoLongerDegraded => "no_longer_degraded",
        EventKind::Success => "success",
    }
}

fn failure(to: &mut String, failure_type: FailureType) {
    string(to, ",\"failure_type\":", failure_type.name());
}

fn flags(to: &mut String, before: &str, flags: HealthFlags) {
    to.push_str(before);
    for (at, flag) in flags.names().enumerate() {
        let _ = write!(to, "{}\"{flag}\"", if at == 0 { "" } else { "," });
    }
    to.push(']');
}
