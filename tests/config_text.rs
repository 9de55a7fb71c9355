//! Configuration text is read, and refused, as Envoy 1.40 reads and refuses it.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde::Deserialize;
use xds_health::config::text::{Document, Read};
use xds_health::proto::envoy::config::bootstrap::v3::Bootstrap;
use xds_health::proto::envoy::config::core::v3::HealthCheck;

/// One health check and what `envoy --mode validate` says of a bootstrap with it.
#[derive(Deserialize)]
struct Case {
    case: String,
    health_check: String,
    envoy: String,
    /// What refused it: `json`, the step from text to message, or a later one.
    stage: Option<String>,
}

/// Cases that we read otherwise than Envoy, each with its reason.
const DIFFERENCES: &[(&str, &str)] = &[];

#[test]
fn the_recorded_cases_are_read_as_envoy_reads_them() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("data/config_text.json")).unwrap();
    let mut different = Vec::new();
    for case in &cases {
        let faults = match Document::from_yaml(&case.health_check) {
            Ok(document) => texts(&document.read::<HealthCheck>()),
            Err(error) => vec![error.to_string()],
        };
        let refused = case.envoy == "reject" && case.stage.as_deref() == Some("json");
        if refused == faults.is_empty() {
            println!("{}: {faults:?}", case.case);
            different.push(case.case.as_str());
        }
    }
    let listed: Vec<_> = DIFFERENCES.iter().map(|&(case, _)| case).collect();
    assert_eq!(different, listed);
}

#[test]
fn all_faults_of_a_bootstrap_are_told_with_path_and_line() {
    let text = r#"
node: {id: 7, cluster: c}
static_resources:
  listeners: [{whatever: {that: is}}]
  clusters:
  - name: c
    connectTimeout: 1 s
    healthChecks:
      timeout: 1ms
      unhealthy_threshold: 2.5
      interval: 1s
      http_health_check: {path: /, method: GTE}
      tcp_health_check: {}
      custom_health_check:
        name: udp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck
          send: {text: 7069, txt: x}
    load_assignment:
      endpoints:
      - lb_endpoints:
        - {load_balancing_weight: -1, endpoint: {hostname: [h]}}
    metadata: {filter_metadata: {"a.b": 5}}
"#;
    let document = Document::from_yaml(text).unwrap();
    let read = document.read::<Bootstrap>();
    let told: Vec<String> = read
        .faults
        .iter()
        .map(|fault| format!("{} {fault}", document.locate(&fault.path).unwrap().line))
        .collect();
    let check = "static_resources.clusters[0].health_checks[0]";
    let cluster = "static_resources.clusters[0]";
    let oneof = "envoy.config.core.v3.HealthCheck takes one health_checker only";
    assert_eq!(
        told,
        [
            "2 node.id: 7 is no text here: put it in quotes".to_owned(),
            format!(
                "7 {cluster}.connect_timeout: \"1 s\" is not a duration: want digits, at most nine \
                 decimals, then s, as in 0.25s"
            ),
            format!(
                "9 {check}.timeout: \"1ms\" is not a duration: want digits, at most nine decimals, \
                 then s, as in 0.25s"
            ),
            format!("10 {check}.unhealthy_threshold: \"2.5\" is not a whole number"),
            format!(
                "12 {check}.http_health_check.method: \"GTE\" is not one of METHOD_UNSPECIFIED, GET, \
                 HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, TRACE, PATCH, did you mean GET?"
            ),
            format!("13 {check}.tcp_health_check: {oneof}, and http_health_check is given too"),
            format!("15 {check}.custom_health_check: {oneof}, and tcp_health_check is given too"),
            format!(
                "18 {check}.custom_health_check.typed_config.send.text: 7069 is no text here: put it \
                 in quotes"
            ),
            format!(
                "18 {check}.custom_health_check.typed_config.send.txt: unknown field \"txt\" in \
                 envoy.config.core.v3.HealthCheck.Payload, did you mean text?"
            ),
            format!(
                "22 {cluster}.load_assignment.endpoints[0].lb_endpoints[0].load_balancing_weight: -1 \
                 is out of range: want 0 to 4294967295"
            ),
            format!(
                "22 {cluster}.load_assignment.endpoints[0].lb_endpoints[0].endpoint.hostname: a list \
                 is not text"
            ),
            format!("23 {cluster}.metadata.filter_metadata[\"a.b\"]: 5 is not a mapping"),
        ]
    );
    assert!(read.explains(&format!("{check}.timeout")));
    assert!(!read.explains(&format!("{check}.healthy_threshold")));
    assert_eq!(read.message.node.unwrap().cluster, "c");
}

#[test]
fn a_json_file_reads_like_the_yaml_file() {
    let json = r#"{"timeout": "1s", "interval": {"seconds": 2}, "unhealthyThreshold": 3,}"#;
    let from_json = Document::from_json(json).unwrap().read::<HealthCheck>();
    let from_yaml = Document::from_yaml(json).unwrap().read::<HealthCheck>();
    assert_eq!(from_json, from_yaml);
    assert_eq!(from_json.message.unhealthy_threshold, Some(3));
}

fn texts<M>(read: &Read<M>) -> Vec<String> {
    read.faults.iter().map(ToString::to_string).collect()
}

const BOOTSTRAP: &str = r#"
node: &node {id: a, cluster: b, metadata: {m: [1, 2.5, {n: null}], o: "p"}}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  clusters:
  - name: c
    type: STATIC
    connect_timeout: 0.25s
    lb_policy: round_robin
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    health_checks:
    - timeout: &t 1s
      interval: *t
      unhealthyThreshold: 0x2
      healthy_threshold: {value: "2"}
      reuse_connection: yes
      custom_health_check:
        name: envoy.health_checkers.udp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck
          send: {text: "70696e67"}
          receive: {binary: cG9uZw==}
    load_assignment:
      cluster_name: c
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: "::1", port_value: 80}}}
"#;

/// Reads whatever it is, and everything about it, in a time that fits its length.
fn read_anyhow(text: &str) -> Result<(), TestCaseError> {
    let start = Instant::now();
    for document in [Document::from_yaml(text), Document::from_json(text)] {
        let Ok(document) = document else {
            continue;
        };
        let read = document.read::<Bootstrap>();
        for fault in read.faults.iter().chain(&read.warnings) {
            prop_assert!(!fault.reason.is_empty());
            prop_assert!(document.locate(&fault.path).is_some(), "{fault}");
        }
    }
    prop_assert!(start.elapsed() < Duration::from_secs(5), "{text:?}");
    Ok(())
}

#[test]
fn the_text_that_the_mutations_start_from_is_sound() {
    let read = Document::from_yaml(BOOTSTRAP).unwrap().read::<Bootstrap>();
    assert_eq!(texts(&read), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_anyhow(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn any_yaml_like_text_is_read_or_refused(text in "([-?:,\\[\\]{}#&*!|>'\"%@` \n\ta0\\\\]|: |- |\n  ){0,120}") {
        read_anyhow(&text)?;
    }

    #[test]
    fn any_change_of_a_bootstrap_is_read_or_refused(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, ".{0,3}|[\\[\\]{}:,\"'&*!|0-9 \n-]{1,4}"), 1..8)
    ) {
        let mut text: Vec<char> = BOOTSTRAP.chars().collect();
        for (index, removed, put) in edits {
            let from = index.index(text.len());
            let to = (from + removed).min(text.len());
            text.splice(from..to, put.chars());
        }
        read_anyhow(&text.into_iter().collect::<String>())?;
    }
}
