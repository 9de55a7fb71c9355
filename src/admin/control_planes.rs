//! `/control_planes`: how it goes with management servers: streams, their age, and what was last
//! refused or failed.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::response::Response;

use super::Shared;
use super::answer;
use super::hosts::string;
use crate::feed::json::write_timestamp;

/// A stream, or a file in its place; what [`xds::Connection`](crate::xds::Connection) tells.
#[derive(Debug)]
#[cfg_attr(
    not(any(feature = "xds", test)),
    allow(dead_code, reason = "nothing is followed")
)]
pub(super) struct Plane {
    pub(super) server: Arc<str>,
    pub(super) service: &'static str,
    pub(super) mode: &'static str,
    pub(super) open: bool,
    pub(super) since: Option<SystemTime>,
    pub(super) last_answer: Option<SystemTime>,
    pub(super) last_nack: Option<Nack>,
    pub(super) last_failure: Option<(SystemTime, Arc<str>)>,
}

/// An answer that was refused.
#[derive(Debug)]
#[cfg_attr(
    not(any(feature = "xds", test)),
    allow(dead_code, reason = "nothing is followed")
)]
pub(super) struct Nack {
    pub(super) at: SystemTime,
    pub(super) type_url: Arc<str>,
    pub(super) version: Arc<str>,
    pub(super) details: Arc<str>,
}

#[cfg(feature = "xds")]
impl From<crate::xds::Connection> for Plane {
    fn from(of: crate::xds::Connection) -> Self {
        Self {
            server: of.server,
            service: of.service,
            mode: match (of.file, of.delta) {
                (true, _) => "file",
                (false, true) => "delta",
                (false, false) => "state of the world",
            },
            open: of.open,
            since: of.since,
            last_answer: of.last_answer,
            last_nack: of.last_nack.map(|nack| Nack {
                at: nack.at,
                type_url: nack.type_url,
                version: nack.version_info,
                details: nack.details,
            }),
            last_failure: of.last_failure.map(|failure| (failure.at, failure.reason)),
        }
    }
}

impl Shared {
    /// All that is followed.
    pub(super) fn planes(&self) -> Vec<Plane> {
        #[cfg(not(feature = "xds"))]
        let planes = std::iter::empty();
        #[cfg(feature = "xds")]
        let planes = {
            let dump = self.admin.dump.iter();
            dump.flat_map(crate::xds::Dump::connections)
                .map(Plane::from)
        };
        #[cfg(feature = "hds")]
        let planes = {
            let dump = self.admin.hds_dump.iter();
            planes.chain(dump.map(|dump| dump.connection().into()))
        };
        planes.collect()
    }
}

pub(super) async fn page(State(shared): State<Arc<Shared>>) -> Response {
    let mut to = String::from("{\"control_planes\":[\n");
    for (at, plane) in shared.planes().iter().enumerate() {
        to.push_str(if at == 0 { "" } else { ",\n" });
        write(&mut to, plane);
    }
    to.push_str("\n]}\n");
    answer::json(to)
}

fn write(to: &mut String, plane: &Plane) {
    string(to, "{\"server\":", &plane.server);
    string(to, ",\"service\":", plane.service);
    string(to, ",\"mode\":", plane.mode);
    to.push_str(match plane.open {
        true => ",\"open\":true",
        false => ",\"open\":false",
    });
    time(to, ",\"since\":\"", plane.since);
    time(to, ",\"last_answer\":\"", plane.last_answer);
    if let Some(nack) = &plane.last_nack {
        time(to, ",\"last_nack\":{\"at\":\"", Some(nack.at));
        string(to, ",\"type_url\":", &nack.type_url);
        string(to, ",\"version_info\":", &nack.version);
        string(to, ",\"details\":", &nack.details);
        to.push('}');
    }
    if let Some((at, reason)) = &plane.last_failure {
        time(to, ",\"last_failure\":{\"at\":\"", Some(*at));
        string(to, ",\"reason\":", reason);
        to.push('}');
    }
    to.push('}');
}

/// Appends a member that is a time, if there is one.
fn time(to: &mut String, before: &str, at: Option<SystemTime>) {
    if let Some(at) = at {
        to.push_str(before);
        write_timestamp(to, at);
        to.push('"');
    }
}
