//! Bootstraps as text.

use std::net::SocketAddr;

/// Fields of a check that is done over and over, and whose attempts have all the time they may need.
pub const OFTEN: &str = "timeout: 20s, interval: 0.02s, no_traffic_interval: 0.02s, \
                         unhealthy_threshold: 1, healthy_threshold: 1";

/// A section for an admin port that the system chooses.
pub const ADMIN: &str = "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}";

/// A check by UDP: "ping" is to be answered by "pong".
pub fn check(fields: &str) -> String {
    format!(
        "{{{fields}, custom_health_check: {{name: udp, typed_config: {{\
         '@type': type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck, \
         send: {{text: 70696E67}}, receive: {{text: 706F6E67}}}}}}}}"
    )
}

/// A file event sink.
pub fn sink(path: &str) -> String {
    format!(
        "{{name: file, typed_config: {{'@type': type.googleapis.com/\
         envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink, \
         event_log_path: '{path}'}}}}"
    )
}

/// A bootstrap of one static cluster `c`; `fields` are those of the cluster, `sections` of the bootstrap.
pub fn bootstrap(sections: &str, hosts: &[SocketAddr], checks: &[String], fields: &str) -> String {
    let mut text = format!("{sections}\nstatic_resources:\n  clusters:\n  - name: c\n");
    text.push_str("    load_assignment:\n      cluster_name: c\n      endpoints:\n");
    text.push_str("      - lb_endpoints:\n");
    for host in hosts {
        text.push_str(&format!(
            "        - endpoint: {{address: {{socket_address: {{address: {}, port_value: {}}}}}}}\n",
            host.ip(),
            host.port()
        ));
    }
    text.push_str("    health_checks:\n");
    for check in checks {
        text.push_str(&format!("    - {check}\n"));
    }
    text.push_str(&format!("    {fields}\n"));
    text
}
