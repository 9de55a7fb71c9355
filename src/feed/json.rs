//! Events as Envoy writes them: one JSON object a line.
//!
//! Source: `envoy.data.core.v3.HealthCheckEvent` by the protobuf JSON mapping, under proto names, in field
//! order, with default values of set messages and without those unset.

use std::fmt::Write as _;
use std::time::SystemTime;

use crate::config::json::write_string;
use crate::event::{EventKind, HealthCheckEvent};
use crate::host::{Address, Locality};

/// Appends `event` to `line`, without a line break.
pub fn write_event(line: &mut String, event: &HealthCheckEvent) {
    line.push_str("{\"health_checker_type\":\"");
    line.push_str(event.health_checker_type.name());
    line.push_str("\",\"host\":");
    write_address(line, &event.host.address);
    line.push_str(",\"cluster_name\":");
    write_string(line, &event.cluster);
    match event.kind {
        EventKind::EjectUnhealthy {
            failure_type,
            http_status_code,
        } => {
            let name = failure_type.name();
            let _ = write!(
                line,
                ",\"eject_unhealthy_event\":{{\"failure_type\":\"{name}\",\"http_status_code\":{http_status_code}}}"
            );
        }
        EventKind::AddHealthy { first_check } => {
            let _ = write!(
                line,
                ",\"add_healthy_event\":{{\"first_check\":{first_check}}}"
            );
        }
        _ => (),
    }
    line.push_str(",\"timestamp\":\"");
    write_timestamp(line, event.timestamp);
    line.push('"');
    match event.kind {
        EventKind::Failure {
            failure_type,
            first_check,
            http_status_code,
        } => {
            let name = failure_type.name();
            let _ = write!(
                line,
                ",\"health_check_failure_event\":{{\"failure_type\":\"{name}\",\"first_check\":{first_check},\"http_status_code\":{http_status_code}}}"
            );
        }
        EventKind::Degraded => line.push_str(",\"degraded_healthy_host\":{}"),
        EventKind::NoLongerDegraded => line.push_str(",\"no_longer_degraded_host\":{}"),
        _ => (),
    }
    if let Some(metadata) = event.host.metadata() {
        line.push_str(",\"metadata\":");
        line.push_str(metadata);
    }
    line.push_str(",\"locality\":");
    write_locality(line, event.host.locality());
    if event.kind == EventKind::Success {
        line.push_str(",\"successful_health_check_event\":{}");
    }
    line.push('}');
}

/// Appends an address. Envoy names TCP for every socket address, so do we.
fn write_address(line: &mut String, address: &Address) {
    match address {
        Address::Ip(address) => {
            line.push_str("{\"socket_address\":{\"protocol\":\"TCP\",\"address\":\"");
            let _ = write!(line, "{}", address.ip());
            if let std::net::SocketAddr::V6(v6) = address
                && v6.scope_id() != 0
            {
                let _ = write!(line, "%{}", v6.scope_id());
            }
            let port = address.port();
            let _ = write!(
                line,
                "\",\"port_value\":{port},\"resolver_name\":\"\",\"ipv4_compat\":false,\"network_namespace_filepath\":\"\"}}}}"
            );
        }
        Address::Pipe(path) => {
            line.push_str("{\"pipe\":{\"path\":");
            write_string(line, path);
            line.push_str(",\"mode\":0}}");
        }
        Address::Internal(address) => {
            line.push_str("{\"envoy_internal_address\":{\"server_listener_name\":");
            write_string(line, &address.listener);
            line.push_str(",\"endpoint_id\":");
            write_string(line, &address.endpoint_id);
            line.push_str("}}");
        }
    }
}

fn write_locality(line: &mut String, locality: &Locality) {
    for (before, part) in [
        ("{\"region\":", &locality.region),
        (",\"zone\":", &locality.zone),
        (",\"sub_zone\":", &locality.sub_zone),
    ] {
        line.push_str(before);
        write_string(line, part);
    }
    line.push('}');
}

/// Appends a time in UTC with milliseconds, as `2026-01-31T18:18:11.568Z`; without a fraction on a whole
/// second, as the protobuf JSON mapping has it.
pub(crate) fn write_timestamp(line: &mut String, time: SystemTime) {
    let Ok(time) = jiff::Timestamp::try_from(time) else {
        return;
    };
    let millis = time.subsec_nanosecond() / 1_000_000;
    let _ = write!(line, "{}", time.strftime("%Y-%m-%dT%H:%M:%S"));
    if millis != 0 {
        let _ = write!(line, ".{millis:03}");
    }
    line.push('Z');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{FailureType, HealthCheckerType, Transition};
    use crate::host::{HealthFlags, Host};
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::Duration;

    fn event(kind: EventKind) -> HealthCheckEvent {
        let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
        HealthCheckEvent {
            health_checker_type: HealthCheckerType::Udp,
            host: Arc::new(Host::new(address)),
            cluster: "c1".into(),
            check: "".into(),
            kind,
            transition: Transition::Unchanged,
            before: HealthFlags::NONE,
            after: HealthFlags::NONE,
            timestamp: SystemTime::UNIX_EPOCH + Duration::from_micros(1_785_000_000_568_999),
            reason: None,
            round_trip: None,
        }
    }

    fn line(event: &HealthCheckEvent) -> String {
        let mut line = String::new();
        write_event(&mut line, event);
        line
    }

    const HOST: &str = r#"{"socket_address":{"protocol":"TCP","address":"127.0.0.1","port_value":80,"resolver_name":"","ipv4_compat":false,"network_namespace_filepath":""}}"#;
    const TAIL: &str = r#""locality":{"region":"","zone":"","sub_zone":""}"#;

    #[test]
    fn each_kind_stands_in_its_fields_place() {
        let failure_type = FailureType::NetworkTimeout;
        let cases = [
            (
                EventKind::EjectUnhealthy {
                    failure_type,
                    http_status_code: 0,
                },
                r#""eject_unhealthy_event":{"failure_type":"NETWORK_TIMEOUT","http_status_code":0},"#,
                "",
                "",
            ),
            (
                EventKind::AddHealthy { first_check: true },
                r#""add_healthy_event":{"first_check":true},"#,
                "",
                "",
            ),
            (
                EventKind::Failure {
                    failure_type,
                    first_check: false,
                    http_status_code: 0,
                },
                "",
                r#""health_check_failure_event":{"failure_type":"NETWORK_TIMEOUT","first_check":false,"http_status_code":0},"#,
                "",
            ),
            (
                EventKind::Degraded,
                "",
                r#""degraded_healthy_host":{},"#,
                "",
            ),
            (
                EventKind::NoLongerDegraded,
                "",
                r#""no_longer_degraded_host":{},"#,
                "",
            ),
            (
                EventKind::Success,
                "",
                "",
                r#","successful_health_check_event":{}"#,
            ),
        ];
        for (kind, before, after, last) in cases {
            let wanted = format!(
                r#"{{"health_checker_type":"UDP","host":{HOST},"cluster_name":"c1",{before}"timestamp":"2026-07-25T17:20:00.568Z",{after}{TAIL}{last}}}"#
            );
            assert_eq!(line(&event(kind)), wanted);
        }
    }

    #[test]
    fn strings_are_escaped_as_envoy_escapes_them() {
        let mut text = String::new();
        write_string(&mut text, "a<b>&'\"\\ \u{e9}\u{2028}\u{1}\u{7f}/");
        assert_eq!(
            text,
            "\"a\\u003cb\\u003e&'\\\"\\\\ \u{e9}\\u2028\\u0001\\u007f/\""
        );
    }

    #[test]
    fn a_whole_second_has_no_fraction() {
        let mut text = String::new();
        write_timestamp(&mut text, SystemTime::UNIX_EPOCH + Duration::from_secs(1));
        assert_eq!(text, "1970-01-01T00:00:01Z");
    }
}
