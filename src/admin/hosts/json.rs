//! A host, and why it is as it is, as JSON.

use std::fmt::Write as _;
use std::time::{Instant, SystemTime};

use crate::config::ClusterConfig;
use crate::config::json::write_string;
use crate::engine::Engine;
use crate::event::{Mismatch, Reason};
use crate::feed::json::write_timestamp;
use crate::host::Locality;
use crate::snapshot::HostView;

/// What is now, by the clock of the engine and by the one on the wall.
#[derive(Clone, Copy, Debug)]
pub(in crate::admin) struct Times {
    pub(super) now: Instant,
    wall: SystemTime,
}

impl Times {
    pub(in crate::admin) fn of(engine: &Engine) -> Self {
        let now = engine.now();
        let wall = engine.wall_clock(now);
        Self { now, wall }
    }

    /// An instant by the clock on the wall.
    pub(in crate::admin) fn wall(self, at: Instant) -> SystemTime {
        let then = match at.checked_duration_since(self.now) {
            Some(later) => self.wall.checked_add(later),
            None => self.wall.checked_sub(self.now.duration_since(at)),
        };
        then.unwrap_or(self.wall)
    }

    /// Appends an instant as a string.
    pub(in crate::admin) fn write(self, to: &mut String, at: Instant) {
        to.push('"');
        write_timestamp(to, self.wall(at));
        to.push('"');
    }
}

/// Appends the members of an object that tells of a host.
pub(in crate::admin) fn write_host(
    to: &mut String,
    cluster: &ClusterConfig,
    view: &HostView,
    times: Times,
) {
    let host = &*view.host;
    string(to, "\"cluster\":", &cluster.name);
    if cluster.key() != &cluster.name {
        string(to, ",\"cluster_key\":", cluster.key());
    }
    string(to, ",\"address\":", &host.address.to_string());
    string(to, ",\"state\":", view.verdict().name());
    to.push_str(",\"since\":");
    times.write(to, view.since);
    to.push_str(",\"flags\":[");
    for (at, flag) in view.flags.names().enumerate() {
        let _ = write!(to, "{}\"{flag}\"", if at == 0 { "" } else { "," });
    }
    to.push(']');
    if let Some(reason) = &view.reason {
        to.push_str(",\"reason\":");
        write_reason(to, reason);
    }
    write_locality(to, host.locality());
    let _ = write!(
        to,
        ",\"priority\":{},\"weight\":{}",
        host.priority, host.weight
    );
    if let Some(name) = host.hostname() {
        string(to, ",\"hostname\":", name);
    }
    if let Some(address) = host.check_address() {
        string(to, ",\"check_address\":", &address.to_string());
    }
    if host.check_disabled {
        to.push_str(",\"check_disabled\":true");
    }
    string(to, ",\"eds_health_status\":", host.eds_health.name());
}

/// Appends why an attempt failed: in a word, in a sentence, and with all that was seen.
pub(in crate::admin) fn write_reason(to: &mut String, reason: &Reason) {
    string(to, "{\"kind\":", reason.label());
    string(to, ",\"text\":", &reason.to_string());
    match reason {
        Reason::Mismatch(mismatch) => write_mismatch(to, mismatch),
        Reason::Unreachable(errno) => {
            let _ = write!(to, ",\"errno\":{errno}");
        }
        Reason::Local { call, errno } => {
            string(to, ",\"call\":", call);
            let _ = write!(to, ",\"errno\":{errno}");
        }
        Reason::Shortage(what) => string(to, ",\"of\":", what.name()),
        _ => (),
    }
    to.push('}');
}

fn write_mismatch(to: &mut String, mismatch: &Mismatch) {
    let _ = write!(
        to,
        ",\"datagrams\":{},\"length\":{},\"first_difference\":{},\"bytes\":\"",
        mismatch.datagrams, mismatch.length, mismatch.first_difference
    );
    for byte in &mismatch.sample {
        let _ = write!(to, "{byte:02x}");
    }
    to.push('"');
}

pub(in crate::admin) fn write_locality(to: &mut String, locality: &Locality) {
    string(to, ",\"locality\":{\"region\":", &locality.region);
    string(to, ",\"zone\":", &locality.zone);
    string(to, ",\"sub_zone\":", &locality.sub_zone);
    to.push('}');
}

/// Appends a member that is a string: what comes before it, and the string.
pub(in crate::admin) fn string(to: &mut String, before: &str, value: &str) {
    to.push_str(before);
    write_string(to, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Shortage;
    use std::sync::Arc;

    #[test]
    fn a_reason_has_all_that_was_seen() {
        let written = |reason: &Reason| {
            let mut to = String::new();
            write_reason(&mut to, reason);
            serde_json::from_str::<serde_json::Value>(&to).unwrap()
        };
        let mismatch = Mismatch::note(None, b"pong", b"po\xff<");
        let wrong = written(&Reason::Mismatch(Arc::new(mismatch)));
        assert_eq!(wrong["kind"], "mismatch");
        assert_eq!(wrong["bytes"], "706fff3c");
        assert_eq!(
            (&wrong["first_difference"], &wrong["length"]),
            (&2.into(), &4.into())
        );
        let local = Reason::Local {
            call: "connect",
            errno: 13,
        };
        assert_eq!(written(&local)["call"], "connect");
        assert_eq!(written(&local)["errno"], 13);
        assert_eq!(written(&Reason::Unreachable(113))["errno"], 113);
        assert_eq!(written(&Reason::Shortage(Shortage::Ports))["of"], "ports");
        let odd = Reason::Other("a\"<b>\n".into());
        assert_eq!(written(&odd)["text"], "a\"<b>\n");
    }
}
