//! All that is known of the hosts at one address: their checks, and their last attempts.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::json::{Times, string, write_host, write_reason};
use crate::cluster::{Last, SessionView};
use crate::config::ClusterConfig;
use crate::config::json::write_string;
use crate::engine::{Cluster, Explanation, PastAttempt, PastOutcome};
use crate::host::Address;
use crate::session::State;

/// The hosts of `clusters` at an address, in the form of the list, with more about each.
pub(super) async fn list(clusters: &[Cluster], address: &str, times: Times) -> String {
    let mut to = String::from("{\"hosts\":[\n");
    let mut comma = "";
    for cluster in clusters {
        let Some(address) = address_in(cluster, address) else {
            continue;
        };
        // A cluster that has just been removed has no hosts.
        let hosts = cluster.explain(&address).await.unwrap_or_default();
        let config = cluster.config();
        for host in hosts {
            to.push_str(std::mem::replace(&mut comma, ",\n"));
            write(&mut to, &config, &host, times);
        }
    }
    to.push_str("\n],\"more\":false}\n");
    to
}

/// The address of that text, if a host of the cluster has it.
fn address_in(cluster: &Cluster, text: &str) -> Option<Address> {
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Some(address.into());
    }
    // Of paths and listeners there is no form that could be read again.
    let snapshot = cluster.snapshot();
    let mut addresses = snapshot.hosts().map(|view| &view.host.address);
    addresses.find(|of| of.to_string() == text).cloned()
}

fn write(to: &mut String, cluster: &ClusterConfig, host: &Explanation, times: Times) {
    to.push('{');
    write_host(to, cluster, &host.view, times);
    to.push_str(",\n \"checks\":[");
    for (at, session) in host.sessions.iter().enumerate() {
        to.push_str(if at == 0 { "\n  " } else { ",\n  " });
        write_session(to, session, times);
    }
    to.push_str("],\n \"attempts\":[");
    for (at, attempt) in host.attempts.iter().enumerate() {
        to.push_str(if at == 0 { "\n  " } else { ",\n  " });
        write_attempt(to, attempt, times);
    }
    to.push_str("]}");
}

fn write_session(to: &mut String, session: &SessionView, times: Times) {
    string(to, "{\"check\":", &session.check);
    let state = match session.state {
        State::Waiting { .. } => "waiting",
        State::Queued { .. } => "queued",
        State::Attempting { .. } => "attempting",
    };
    let _ = write!(
        to,
        ",\"state\":\"{state}\",\"failed\":{},\"degraded\":{},\"first_check\":{},\
         \"successes\":{},\"healthy_threshold\":{},\"failures\":{},\"unhealthy_threshold\":{}",
        session.failed,
        session.degraded,
        session.first_check,
        session.successes,
        session.healthy_threshold,
        session.failures,
        session.unhealthy_threshold,
    );
    match &session.last {
        None => (),
        Some(Last::Failure(Some(reason))) => {
            to.push_str(",\"last\":{\"passed\":false,\"reason\":");
            write_reason(to, reason);
            to.push('}');
        }
        Some(last) => {
            let passed = matches!(last, Last::Success);
            let _ = write!(to, ",\"last\":{{\"passed\":{passed}}}");
        }
    }
    if let Some(round_trip) = session.round_trip {
        millis(to, ",\"round_trip_ms\":", round_trip);
    }
    millis(to, ",\"timeout_ms\":", session.timeout);
    if let Some(due) = session.due() {
        at(to, ",\"due\":", due, times);
        let left = due.saturating_duration_since(times.now);
        millis(to, ",\"due_in_ms\":", left);
    }
    string(to, ",\"interval\":", session.waits_by.name());
    millis(to, ",\"interval_ms\":", session.interval);
    millis(to, ",\"jitter_ms\":", session.jitter);
    string(to, ",\"why\":", session.waits_by.why());
    to.push('}');
}

fn write_attempt(to: &mut String, attempt: &PastAttempt, times: Times) {
    at(to, "{\"at\":", attempt.at, times);
    string(to, ",\"check\":", &attempt.check);
    match attempt.outcome {
        PastOutcome::Success { degraded } => {
            let _ = write!(to, ",\"passed\":true,\"degraded\":{degraded}");
        }
        PastOutcome::Failure {
            failure_type,
            label,
            detail,
        } => {
            string(
                to,
                ",\"passed\":false,\"failure_type\":",
                failure_type.name(),
            );
            string(to, ",\"kind\":", label);
            if let Some(detail) = detail {
                let name = match label {
                    "mismatch" => "first_difference",
                    _ => "errno",
                };
                let _ = write!(to, ",\"{name}\":{detail}");
            }
        }
    }
    to.push_str(",\"text\":");
    write_string(to, &attempt.outcome.to_string());
    if let Some(took) = attempt.took {
        millis(to, ",\"took_ms\":", took);
    }
    to.push('}');
}

fn at(to: &mut String, before: &str, at: Instant, times: Times) {
    to.push_str(before);
    times.write(to, at);
}

/// Appends a member that is a number of milliseconds.
pub(in crate::admin) fn millis(to: &mut String, before: &str, duration: Duration) {
    let micros = duration.as_micros();
    let _ = write!(to, "{before}{}.{:03}", micros / 1000, micros % 1000);
}
