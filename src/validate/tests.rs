mod every_rule;

use prost_types::Duration;

use super::*;
use crate::proto::envoy::config::bootstrap::v3::runtime_layer::{
    AdminLayer, DiskLayer, LayerSpecifier, RtdsLayer,
};
use crate::proto::envoy::config::bootstrap::v3::{Bootstrap, RuntimeLayer};
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::cluster::v3::cluster::CommonLbConfig;
use crate::proto::envoy::config::core::v3::address::Address as AnyAddress;
use crate::proto::envoy::config::core::v3::health_check::{
    CustomHealthCheck, HealthChecker, HttpHealthCheck, Payload, payload,
};
use crate::proto::envoy::config::core::v3::socket_address::PortSpecifier;
use crate::proto::envoy::config::core::v3::{
    Address, ConfigSource, HeaderValue, HeaderValueOption, HealthCheck, HealthStatusSet, Metadata,
    RateLimitSettings, SocketAddress, TypedExtensionConfig, UpstreamHttpProtocolOptions,
};
use crate::proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use crate::proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use crate::proto::envoy::extensions::health_checkers::udp::v3::UdpHealthCheck;
use crate::proto::envoy::extensions::transport_sockets::tls::v3::CertificateValidationContext;
use crate::proto::envoy::service::discovery::v3::Resource;
use crate::proto::envoy::service::event_reporting::v3::StreamEventsRequest;
use crate::proto::envoy::r#type::matcher::v3::StringMatcher;
use crate::proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use crate::proto::envoy::r#type::v3::Percent;

const ONE_SECOND: Duration = duration(1, 0);

const fn duration(seconds: i64, nanos: i32) -> Duration {
    Duration { seconds, nanos }
}

fn health_check() -> HealthCheck {
    HealthCheck {
        timeout: Some(ONE_SECOND),
        interval: Some(ONE_SECOND),
        unhealthy_threshold: Some(2),
        healthy_threshold: Some(2),
        health_checker: Some(HealthChecker::CustomHealthCheck(CustomHealthCheck {
            name: "envoy.health_checkers.udp".into(),
            config_type: None,
        })),
        ..HealthCheck::default()
    }
}

fn http(check: HttpHealthCheck) -> HealthCheck {
    HealthCheck {
        health_checker: Some(HealthChecker::HttpHealthCheck(HttpHealthCheck {
            path: "/".into(),
            ..check
        })),
        ..health_check()
    }
}

fn endpoint(port: u32) -> LbEndpoint {
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: Some(Address {
                address: Some(AnyAddress::SocketAddress(SocketAddress {
                    address: "127.0.0.1".into(),
                    port_specifier: Some(PortSpecifier::PortValue(port)),
                    ..SocketAddress::default()
                })),
            }),
            ..Endpoint::default()
        })),
        ..LbEndpoint::default()
    }
}

fn accepted(message: &impl Validate) {
    assert_eq!(message.validate(), Ok(()));
}

/// Refused for this one fault and no other.
#[track_caller]
fn refused(message: &impl Validate, fault: &str) {
    all_refused(message, &[fault]);
}

#[track_caller]
fn all_refused(message: &impl Validate, expected: &[&str]) {
    let faults = message.validate().expect_err("the message is at fault");
    let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults, expected);
}

#[test]
fn a_sound_message_is_accepted() {
    accepted(&health_check());
    accepted(&Cluster {
        name: "c".into(),
        health_checks: vec![health_check()],
        ..Cluster::default()
    });
    accepted(&http(HttpHealthCheck {
        host: "a\tb".into(),
        request_headers_to_remove: vec![String::new()],
        ..HttpHealthCheck::default()
    }));
    accepted(&Bootstrap::default());
}

#[test]
fn an_empty_health_check_has_all_its_faults_reported() {
    all_refused(
        &Cluster {
            health_checks: vec![health_check(), HealthCheck::default()],
            ..Cluster::default()
        },
        &[
            "name: value length must be at least 1 characters",
            "health_checks[1].timeout: value is required",
            "health_checks[1].interval: value is required",
            "health_checks[1].unhealthy_threshold: value is required",
            "health_checks[1].healthy_threshold: value is required",
            "health_checks[1].health_checker: is required: set one of http_health_check, \
             tcp_health_check, grpc_health_check, custom_health_check",
        ],
    );
}

#[test]
fn durations_have_bounds() {
    let timeout = |timeout| HealthCheck {
        timeout: Some(timeout),
        ..health_check()
    };
    accepted(&timeout(duration(0, 1)));
    accepted(&timeout(duration(9_223_372_035, 999_999_999)));
    refused(
        &timeout(duration(0, 0)),
        "timeout: value must be greater than 0s, but is 0s",
    );

    let flush = |seconds, nanos| Bootstrap {
        stats_flush_interval: Some(duration(seconds, nanos)),
        ..Bootstrap::default()
    };
    let out = "stats_flush_interval: value must be inside range [0.001s, 300s)";
    accepted(&flush(0, 1_000_000));
    accepted(&flush(299, 999_999_999));
    refused(&flush(0, 999_999), &format!("{out}, but is 0.000999999s"));
    refused(&flush(300, 0), &format!("{out}, but is 300s"));
}

#[test]
fn a_duration_that_envoy_takes_for_none_is_refused_with_and_without_a_rule() {
    for (value, reason) in [
        (
            duration(-1, 0),
            "Invalid duration: Expected positive duration, but is -1s",
        ),
        (
            duration(0, -500_000_000),
            "Invalid duration: Expected positive duration, but is -0.5s",
        ),
        (
            duration(1, -1),
            "Invalid duration: Expected positive duration, but is -1.000000001s",
        ),
        (
            duration(9_223_372_036, 0),
            "Invalid duration: Duration out-of-range: 9223372036s",
        ),
        (
            duration(1, 1_000_000_000),
            "Invalid duration: Duration out-of-range: 1000000000 nanoseconds",
        ),
    ] {
        let ruled = HealthCheck {
            interval: Some(value),
            ..health_check()
        };
        refused(&ruled, &format!("interval: {reason}"));
        let free = HealthCheck {
            initial_jitter: Some(value),
            ..health_check()
        };
        refused(&free, &format!("initial_jitter: {reason}"));
        let ttl = Resource {
            ttl: Some(value),
            ..Resource::default()
        };
        refused(&ttl, &format!("ttl: {reason}"));
    }
    accepted(&HealthCheck {
        initial_jitter: Some(duration(0, 0)),
        ..health_check()
    });
}

#[test]
fn numbers_have_bounds() {
    let assignment = |endpoints| ClusterLoadAssignment {
        cluster_name: "c".into(),
        endpoints,
        ..ClusterLoadAssignment::default()
    };
    accepted(&endpoint(65_535));
    refused(
        &assignment(vec![
            LocalityLbEndpoints::default(),
            LocalityLbEndpoints {
                lb_endpoints: vec![endpoint(1), endpoint(65_536)],
                ..LocalityLbEndpoints::default()
            },
        ]),
        "endpoints[1].lb_endpoints[1].endpoint.address.socket_address.port_value: \
         value must be less than or equal to 65535, but is 65536",
    );
    refused(
        &LbEndpoint {
            load_balancing_weight: Some(0),
            ..endpoint(1)
        },
        "load_balancing_weight: value must be greater than or equal to 1, but is 0",
    );
    refused(
        &RateLimitSettings {
            fill_rate: Some(0.0),
            ..RateLimitSettings::default()
        },
        "fill_rate: value must be greater than 0, but is 0",
    );

    let panic = |value| Cluster {
        name: "c".into(),
        common_lb_config: Some(CommonLbConfig {
            healthy_panic_threshold: Some(Percent { value }),
            ..CommonLbConfig::default()
        }),
        ..Cluster::default()
    };
    let out = "common_lb_config.healthy_panic_threshold.value: value must be inside range [0, 100]";
    accepted(&panic(100.0));
    refused(&panic(100.5), &format!("{out}, but is 100.5"));
    refused(&panic(f64::NAN), &format!("{out}, but is NaN"));
}

#[test]
fn map_keys_and_map_values_are_checked() {
    let named = Endpoint {
        address: Some(Address::default()),
        ..Endpoint::default()
    };
    refused(
        &ClusterLoadAssignment {
            cluster_name: "c".into(),
            named_endpoints: [("a \"b\"".to_owned(), named)].into(),
            ..ClusterLoadAssignment::default()
        },
        "named_endpoints[\"a \\\"b\\\"\"].address.address: is required: set one of \
         socket_address, pipe, envoy_internal_address",
    );
    refused(
        &Metadata {
            filter_metadata: [(String::new(), prost_types::Struct::default())].into(),
            ..Metadata::default()
        },
        "filter_metadata[\"\"]: value length must be at least 1 characters",
    );
}

#[test]
fn enums_hold_defined_values_only() {
    let method = |method| {
        http(HttpHealthCheck {
            method,
            ..HttpHealthCheck::default()
        })
    };
    accepted(&method(9));
    refused(
        &method(10),
        "http_health_check.method: value must be one of the defined enum values, but is 10",
    );
    refused(
        &method(6),
        "http_health_check.method: value must not be in list [CONNECT]",
    );
    refused(
        &HealthStatusSet {
            statuses: vec![0, 9],
        },
        "statuses[1]: value must be one of the defined enum values, but is 9",
    );
    refused(
        &Cluster {
            name: "c".into(),
            cluster_discovery_type: Some(
                crate::proto::envoy::config::cluster::v3::cluster::ClusterDiscoveryType::Type(5),
            ),
            ..Cluster::default()
        },
        "type: value must be one of the defined enum values, but is 5",
    );
}

#[test]
fn header_shapes_are_as_strict_as_their_rule() {
    let host = |host: &str| {
        http(HttpHealthCheck {
            host: host.into(),
            ..HttpHealthCheck::default()
        })
    };
    accepted(&host("é"));
    for bad in ["\u{1}", "a\n", "\u{7f}", "\0"] {
        refused(
            &host(bad),
            r#"http_health_check.host: value does not match regex pattern "^[^\x00-\b\n-\x1f\x7f]*$""#,
        );
    }

    let added = |key: &str| HeaderValue {
        key: key.into(),
        ..HeaderValue::default()
    };
    accepted(&added("\u{1}"));
    refused(
        &added("a\r"),
        r#"key: value does not match regex pattern "^[^\x00\n\r]*$""#,
    );
    refused(&HeaderValueOption::default(), "header: value is required");

    let sni = |name: &str| UpstreamHttpProtocolOptions {
        override_auto_sni_header: name.into(),
        ..UpstreamHttpProtocolOptions::default()
    };
    for good in ["", ":authority", "x-a", "a,b", "`|~"] {
        accepted(&sni(good));
    }
    for bad in [":", "a b", "a:b", "é", "a/b"] {
        refused(
            &sni(bad),
            "override_auto_sni_header: value does not match regex pattern \
             \"^:?[0-9a-zA-Z!#$%&'*+-.^_|~`]+$\"",
        );
    }
}

#[test]
fn lengths_are_counted_in_characters_and_in_bytes() {
    let context = |hash: String| CertificateValidationContext {
        verify_certificate_spki: vec![hash],
        ..CertificateValidationContext::default()
    };
    accepted(&context("a".repeat(44)));
    // 44 bytes, but half as many characters.
    refused(
        &context("é".repeat(22)),
        "verify_certificate_spki[0]: value length must be at least 44 characters",
    );
    refused(
        &context("a".repeat(45)),
        "verify_certificate_spki[0]: value length must be at most 44 bytes, but is 45",
    );
    let raw = |raw_value| HeaderValue {
        key: "k".into(),
        raw_value,
        ..HeaderValue::default()
    };
    accepted(&raw(vec![0; 16_384]));
    refused(
        &raw(vec![0; 16_385]),
        "raw_value: value length must be at most 16384 bytes, but is 16385",
    );
}

#[test]
fn lists_have_bounds() {
    refused(
        &Cluster {
            name: "c".into(),
            health_checks: vec![health_check(); 9],
            ..Cluster::default()
        },
        "health_checks: value must contain no more than 8 item(s), but has 9",
    );
    refused(
        &StreamEventsRequest::default(),
        "events: value must contain at least 1 item(s), but has 0",
    );
}

#[test]
fn an_any_is_required_but_not_opened() {
    let unopened = TypedExtensionConfig {
        name: "n".into(),
        typed_config: Some(prost_types::Any {
            type_url: crate::proto::type_url::<Cluster>(),
            value: Vec::new(),
        }),
    };
    accepted(&unopened);
    refused(
        &TypedExtensionConfig {
            typed_config: None,
            ..unopened
        },
        "typed_config: value is required",
    );
}

#[test]
fn a_required_oneof_takes_every_member_that_envoy_has() {
    let layer = |specifier| RuntimeLayer {
        name: "l".into(),
        layer_specifier: specifier,
    };
    for specifier in [
        LayerSpecifier::StaticLayer(prost_types::Struct::default()),
        LayerSpecifier::DiskLayer(DiskLayer::default()),
        LayerSpecifier::AdminLayer(AdminLayer::default()),
        LayerSpecifier::RtdsLayer(RtdsLayer::default()),
    ] {
        accepted(&layer(Some(specifier)));
    }
    refused(
        &layer(None),
        "layer_specifier: is required: set one of static_layer, disk_layer, admin_layer, rtds_layer",
    );
    refused(
        &layer(Some(LayerSpecifier::RtdsLayer(RtdsLayer {
            name: "r".into(),
            rtds_config: Some(ConfigSource::default()),
        }))),
        "rtds_layer.rtds_config.config_source_specifier: is required: set one of path, \
         api_config_source, ads, self, path_config_source",
    );
}

#[test]
fn a_string_matcher_may_hold_what_is_not_known_here() {
    let matcher = |match_pattern| StringMatcher {
        match_pattern,
        ..StringMatcher::default()
    };
    refused(
        &matcher(Some(MatchPattern::Prefix(String::new()))),
        "prefix: value length must be at least 1 characters",
    );
    // It may have set `custom`.
    accepted(&matcher(None));
}

#[test]
fn the_rules_of_the_udp_checker_are_those_declared() {
    let text = |text: &str| {
        Some(Payload {
            payload: Some(payload::Payload::Text(text.into())),
        })
    };
    accepted(&UdpHealthCheck {
        send: text("00"),
        receive: text("00"),
    });
    all_refused(
        &UdpHealthCheck {
            send: text(""),
            receive: Some(Payload::default()),
        },
        &[
            "send.text: value length must be at least 1 characters",
            "receive.payload: is required: set one of text, binary",
        ],
    );
    all_refused(
        &UdpHealthCheck::default(),
        &["send: value is required", "receive: value is required"],
    );
}

#[test]
fn a_path_can_start_below_what_the_caller_knows() {
    let mut faults = Vec::new();
    let static_resources = FieldPath::ROOT.field("static_resources");
    let at = static_resources.item("clusters", 2);
    Cluster::default().validate_at(&at, &mut |fault| faults.push(fault.path));
    assert_eq!(faults, ["static_resources.clusters[2].name"]);
    assert_eq!(
        FieldPath::ROOT.fault("it is wrong").to_string(),
        "it is wrong"
    );
}
