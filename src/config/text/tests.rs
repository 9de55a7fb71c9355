//! What each kind of field makes of each form of text. The verdicts are Envoy's.

use prost::Message;
use prost::Name;
use prost_reflect::ReflectMessage as _;
use prost_types::value::Kind;

use super::*;
use crate::proto::envoy::config::bootstrap::v3::Bootstrap;
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::core::v3::health_check::{
    CustomHealthCheck, HttpHealthCheck, Payload, payload,
};
use crate::proto::envoy::config::core::v3::{HealthCheck, Metadata, Node as NodeConfig};
use crate::proto::envoy::data::core::v3::HealthCheckEvent;
use crate::proto::envoy::extensions::health_checkers::udp::v3::UdpHealthCheck;
use crate::proto::envoy::r#type::v3::{Int64Range, Percent};
use crate::proto::xds::r#type::v3::TypedStruct;

fn yaml<M: Message + Name + Default>(text: &str) -> Read<M> {
    Document::from_yaml(text)
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .read()
}

fn sound<M: Message + Name + Default>(text: &str) -> M {
    let read = yaml(text);
    assert_eq!(read.faults, [], "{text}");
    read.message
}

fn refused<M: Message + Name + Default>(text: &str, expected: &[&str]) {
    let faults = yaml::<M>(text).faults;
    let told: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(told, expected, "{text}");
}

#[test]
fn unsigned_integers() {
    let read = |text: &str| sound::<HealthCheck>(&format!("unhealthy_threshold: {text}"));
    for (text, expected) in [
        ("5", 5),
        ("\"5\"", 5),
        ("+5", 5),
        ("5.0", 5),
        ("1e2", 100),
        ("\".5e1\"", 5),
        ("0x10", 16),
        ("\"0x1.8p1\"", 3),
        ("010", 8),
        ("\"010\"", 10),
        ("08", 8),
        ("-0", 0),
        ("1e-400", 0),
        ("! 5", 5),
        ("!!str 5", 5),
        ("{value: 5}", 5),
        ("{}", 0),
        ("4294967295", u32::MAX),
    ] {
        assert_eq!(read(text).unhealthy_threshold, Some(expected), "{text}");
    }
    assert_eq!(read("null").unhealthy_threshold, None);

    let range = "is out of range: want 0 to 4294967295";
    for (text, problem) in [
        ("-1", format!("-1 {range}")),
        ("4294967296", format!("\"4294967296\" {range}")),
        ("1e10", format!("\"1e10\" {range}")),
        ("2.5", "\"2.5\" is not a whole number".into()),
        ("\" 2\"", "\" 2\" is not a number".into()),
        ("1_0", "\"1_0\" is not a number".into()),
        ("0o10", "\"0o10\" is not a number".into()),
        ("\"--5\"", "\"--5\" is not a number".into()),
        ("inf", "\"inf\" is not a number".into()),
        ("\"\"", "\"\" is not a number".into()),
        ("yes", "yes is not a number".into()),
        ("[5]", "a list is not a number".into()),
    ] {
        let expected = format!("unhealthy_threshold: {problem}");
        refused::<HealthCheck>(&format!("unhealthy_threshold: {text}"), &[&expected]);
    }
}

#[test]
fn signed_integers_are_exact_as_far_as_their_notation_is() {
    let start = |text: &str| sound::<Int64Range>(&format!("start: {text}")).start;
    assert_eq!(start("9223372036854775807"), i64::MAX);
    assert_eq!(start("-9223372036854775808"), i64::MIN);
    assert_eq!(start("-9007199254740992.0"), -9_007_199_254_740_992);
    assert_eq!(start("-0x10"), -16);
    for text in ["9223372036854775808", "1e16", "1.5", "a"] {
        assert_eq!(
            yaml::<Int64Range>(&format!("start: {text}")).faults.len(),
            1
        );
    }
}

#[test]
fn floating_point_numbers() {
    let value = |text: &str| sound::<Percent>(&format!("value: {text}")).value;
    for (text, expected) in [
        ("5", 5.0),
        ("5.5", 5.5),
        ("\" 5 \"", 5.0),
        ("0x10", 16.0),
        ("\"+.5\"", 0.5),
        ("1e400", f64::INFINITY),
        ("Infinity", f64::INFINITY),
        ("-inf", f64::NEG_INFINITY),
    ] {
        assert_eq!(value(text).to_bits(), expected.to_bits(), "{text}");
    }
    assert!(value("NaN").is_nan());
    for text in [".inf", ".nan", "1_0", "\"\"", "true", "{}", "[5]", "++5"] {
        assert_eq!(yaml::<Percent>(&format!("value: {text}")).faults.len(), 1);
    }
    let json = Document::from_json(r#"{"value": 1e400}"#).unwrap();
    let faults = json.read::<Percent>().faults;
    assert_eq!(faults, [Fault::new("value", "1e400 is out of range")]);
}

#[test]
fn booleans() {
    let field = "always_log_health_check_failures";
    let read = |text: &str| yaml::<HealthCheck>(&format!("{field}: {text}"));
    for text in [
        "true", "\"true\"", "True", "TRUE", "y", "Yes", "on", "T", "\"1\"", "\"t\"",
    ] {
        let read = read(text);
        assert!(
            read.faults.is_empty() && read.message.always_log_health_check_failures,
            "{text}"
        );
    }
    for text in ["false", "n", "OFF", "\"0\"", "No", "falsE", "null"] {
        let read = read(text);
        assert!(
            read.faults.is_empty() && !read.message.always_log_health_check_failures,
            "{text}"
        );
    }
    for text in ["1", "0", "oN", "\" true\"", "[true]", "{}", "\"\""] {
        assert_eq!(read(text).faults.len(), 1, "{text}");
    }
}

#[test]
fn strings_are_what_yaml_makes_no_number_of() {
    for (text, expected) in [
        ("abc", "abc"),
        ("70e9", "70e9"),
        ("1.5", "1.5"),
        ("08", "08"),
        ("5000000000", "5000000000"),
        ("0x1ffffffff", "8589934591"),
        ("'5'", "5"),
        ("! 5", "5"),
        ("tRUE", "tRUE"),
        ("!!null null", "null"),
        ("|\n  5\n", "5\n"),
        ("\"\\u00e9\"", "é"),
        ("~", ""),
    ] {
        assert_eq!(
            sound::<HealthCheck>(&format!("name: {text}")).name,
            expected
        );
    }
    for text in [
        "7069",
        "0x61",
        "0061",
        "-5",
        "true",
        "y",
        "Off",
        "!!str 5",
        "!!str '5'",
    ] {
        let faults = yaml::<HealthCheck>(&format!("name: {text}")).faults;
        let reason = &faults[0].reason;
        assert!(
            reason.ends_with("is no text here: put it in quotes"),
            "{text}: {reason}"
        );
    }
    refused::<HealthCheck>("name: [a]", &["name: a list is not text"]);
    refused::<HealthCheck>("name: {}", &["name: a mapping is not text"]);
}

#[test]
fn bytes_are_base64_of_either_alphabet() {
    let read = |text: &str| yaml::<Payload>(&format!("binary: {text}"));
    for (text, expected) in [
        ("\"\"", &b""[..]),
        ("cGluZw==", b"ping"),
        ("cGluZw", b"ping"),
        ("cGluZx==", b"ping"),
        ("+_-/", &[0xfb, 0xff, 0xbf]),
    ] {
        let payload = Some(payload::Payload::Binary(expected.to_vec()));
        assert_eq!(read(text).message.payload, payload, "{text}");
    }
    let junk = [
        "cA=",
        "cA===",
        "cGlu=",
        "c",
        "c===",
        "====",
        "cA==cA==",
        "\"c A=\"",
        "\"cGlu\\n\"",
        "é",
        "1234",
    ];
    for text in junk {
        assert_eq!(read(text).faults.len(), 1, "{text}");
    }
}

#[test]
fn enums_are_names_in_any_case_or_numbers() {
    let read = |text: &str| sound::<HttpHealthCheck>(&format!("method: {text}")).method;
    for text in ["HEAD", "head", "Head", "2", "\"2\"", "\" +2\\t\"", "0x2"] {
        assert_eq!(read(text), 2, "{text}");
    }
    assert_eq!(read("-1"), -1);
    for text in [
        "HAED",
        "\"1.0\"",
        "1.5",
        "\"\"",
        "true",
        "[GET]",
        "{}",
        "2147483648",
    ] {
        assert_eq!(
            yaml::<HttpHealthCheck>(&format!("method: {text}"))
                .faults
                .len(),
            1,
            "{text}"
        );
    }
    let faults = yaml::<HttpHealthCheck>("method: HAED").faults;
    assert!(
        faults[0].reason.ends_with(", did you mean HEAD?"),
        "{}",
        faults[0]
    );
}

#[test]
fn durations() {
    let read = |text: &str| {
        let timeout = sound::<HealthCheck>(&format!("timeout: {text}")).timeout;
        timeout.map(|d| (d.seconds, d.nanos))
    };
    assert_eq!(read("1s"), Some((1, 0)));
    assert_eq!(read("\"01.5s\""), Some((1, 500_000_000)));
    assert_eq!(read("-0.000000001s"), Some((0, -1)));
    assert_eq!(read("-315576000000s"), Some((-315_576_000_000, 0)));
    assert_eq!(read("{seconds: \"1\", nanos: 5}"), Some((1, 5)));
    assert_eq!(read("{}"), Some((0, 0)));
    assert_eq!(read("null"), None);
    for text in [
        "1",
        "1.5",
        "1ms",
        "1m",
        "\"\"",
        "s",
        "-s",
        ".5s",
        "1.s",
        "+1s",
        "\" 1s\"",
        "\"1s \"",
        "1S",
        "true",
        "[1s]",
        "0.0000000001s",
        "315576000001s",
        "99999999999999999999s",
        "1.+5s",
        "--1s",
        "1e3s",
        "٣s",
    ] {
        let faults = yaml::<HealthCheck>(&format!("timeout: {text}")).faults;
        assert!(
            faults[0].reason.contains("is not a duration: want"),
            "{text}"
        );
    }
    refused::<HealthCheck>(
        "timeout: {value: 1s}",
        &["timeout.value: unknown field \"value\" in google.protobuf.Duration"],
    );
}

#[test]
fn times() {
    let read = |text: &str| {
        let time = sound::<HealthCheckEvent>(&format!("timestamp: {text}")).timestamp;
        time.map(|t| (t.seconds, t.nanos))
    };
    assert_eq!(read("1970-01-01T00:00:01.5Z"), Some((1, 500_000_000)));
    assert_eq!(read("1969-12-31T23:59:59.5Z"), Some((-1, 500_000_000)));
    assert_eq!(read("\"1970-01-01T01:00:00+01:00\""), Some((0, 0)));
    assert_eq!(read("{seconds: 7}"), Some((7, 0)));
    for text in [
        "1970-01-01",
        "5",
        "1970-01-01 00:00:00Z",
        "noon",
        "1970-01-01T00:00:00",
    ] {
        assert_eq!(
            yaml::<HealthCheckEvent>(&format!("timestamp: {text}"))
                .faults
                .len(),
            1,
            "{text}"
        );
    }
}

#[test]
fn lists_take_one_value_and_lists_of_lists() {
    let read = |text: &str| sound::<HttpHealthCheck>(&format!("request_headers_to_remove: {text}"));
    for text in ["a", "[a]", "[[a]]", "[[], [a, []]]"] {
        assert_eq!(read(text).request_headers_to_remove, ["a"], "{text}");
    }
    assert_eq!(read("[~, a]").request_headers_to_remove, ["", "a"]);
    assert!(read("null").request_headers_to_remove.is_empty());
    refused::<HttpHealthCheck>(
        "request_headers_to_remove: [a, 5]\nexpected_statuses: 7",
        &[
            "request_headers_to_remove[1]: 5 is no text here: put it in quotes",
            "expected_statuses[0]: 7 is not a mapping: want the fields of envoy.type.v3.Int64Range",
        ],
    );
}

#[test]
fn an_item_with_a_fault_keeps_its_place() {
    let text = "expected_statuses: [{start: x}, 5, {start: 200, end: 300}]";
    let read = yaml::<HttpHealthCheck>(text);
    assert_eq!(read.message.expected_statuses[2].end, 300);
    assert_eq!(read.faults.len(), 2);
}

#[test]
fn structs_keep_what_yaml_made_of_a_scalar() {
    let text = "metadata: {a: 1, b: [true, ~, {c: d}], e: 1.5, f: 5000000000, 5: \"6\"}";
    let fields = sound::<NodeConfig>(text).metadata.unwrap().fields;
    let kind = |key: &str| fields[key].kind.clone().unwrap();
    assert_eq!(kind("a"), Kind::NumberValue(1.0));
    assert_eq!(kind("e"), Kind::StringValue("1.5".into()));
    assert_eq!(kind("f"), Kind::StringValue("5000000000".into()));
    assert_eq!(kind("5"), Kind::StringValue("6".into()));
    assert!(matches!(kind("b"), Kind::ListValue(list) if list.values.len() == 3));
    refused::<NodeConfig>("metadata: [a]", &["metadata: a list is not a mapping"]);

    let deep = |n: usize| format!("metadata: {}x{}", "{a: ".repeat(n), "}".repeat(n));
    sound::<NodeConfig>(&deep(30));
    refused::<NodeConfig>(
        &deep(40),
        &["metadata: it is nested too deep: want at most about 30 levels"],
    );
}

#[test]
fn maps() {
    let metadata = sound::<Metadata>("filter_metadata: {5: {a: b}, true: {}, x: null}");
    let mut keys: Vec<_> = metadata.filter_metadata.keys().cloned().collect();
    keys.sort();
    assert_eq!(keys, ["5", "true", "x"]);
    refused::<Metadata>(
        "filter_metadata: {\"a.b\": 5}",
        &["filter_metadata[\"a.b\"]: 5 is not a mapping"],
    );
    refused::<Metadata>(
        "filter_metadata: [a]",
        &["filter_metadata: a list is not a mapping of keys to values"],
    );
}

#[test]
fn names_have_two_spellings_and_no_third() {
    assert!(
        sound::<HealthCheck>("noTrafficInterval: 1s")
            .no_traffic_interval
            .is_some()
    );
    let of = "in envoy.config.core.v3.HealthCheck";
    refused::<HealthCheck>(
        "AltPort: 1\nalt-port: 1\n<<: {}\nretries: ~\n",
        &[
            &format!("AltPort: unknown field \"AltPort\" {of}, did you mean alt_port?"),
            &format!("[\"alt-port\"]: unknown field \"alt-port\" {of}, did you mean alt_port?"),
            &format!("[\"<<\"]: unknown field \"<<\" {of}"),
            &format!("retries: unknown field \"retries\" {of}"),
        ],
    );
}

#[test]
fn what_only_envoy_has_is_passed_over() {
    sound::<Cluster>(
        "name: c\nringHashLbConfig: {minimum_ring_size: {x: [y]}}\noutlier_detection: 5",
    );
    let faults = yaml::<Cluster>("ring_hash_lb_confg: {}").faults;
    assert!(
        faults[0]
            .reason
            .ends_with("did you mean ring_hash_lb_config?")
    );
}

#[test]
fn a_repeated_key_counts_once_in_yaml_with_a_warning() {
    let read = yaml::<HealthCheck>("alt_port: 1\nalt_port: 2\naltPort: 3\n");
    assert_eq!((read.faults, read.message.alt_port), (vec![], Some(3)));
    let told: Vec<_> = read.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "alt_port: the key is given more than once: the last one counts",
            "alt_port: it is given more than once: both are read",
        ]
    );
    let read = yaml::<HealthCheck>("timeout: {seconds: 1}\ntimeout: {nanos: 5}\n");
    assert_eq!(read.message.timeout.unwrap().seconds, 0);
}

#[test]
fn a_repeated_key_is_read_each_time_in_json() {
    let read = |text: &str| Document::from_json(text).unwrap().read::<NodeConfig>();
    let node =
        read(r#"{"id": "a", "id": "b", "client_features": ["c"], "client_features": ["d"]}"#);
    assert_eq!((node.message.id.as_str(), node.faults.len()), ("b", 0));
    assert_eq!(node.message.client_features, ["c", "d"]);
    let node = read(r#"{"locality": {"zone": "a"}, "locality": {"region": "b"}}"#);
    let locality = node.message.locality.unwrap();
    assert_eq!(
        (locality.zone.as_str(), locality.region.as_str()),
        ("a", "b")
    );
    let node = read(r#"{"metadata": {"a": 1, "a": 2}}"#);
    let expected = Fault::new("metadata[\"a\"]", "the key is given more than once");
    assert_eq!(node.faults, [expected]);
    let text = r#"{"typed_config": {"@type": "a/b.C", "@type": "a/b.C"}}"#;
    let read = Document::from_json(text)
        .unwrap()
        .read::<CustomHealthCheck>();
    let expected = Fault::new("typed_config", "\"@type\" is given more than once");
    assert_eq!(read.faults, [expected]);
}

#[test]
fn fields_of_a_message_given_again_replace_earlier_ones() {
    let node = |first: &str, second: &str| {
        let text = format!("{{\"node\": {{{first}}}, \"node\": {{\"id\": \"a\", {second}}}}}");
        let read = Document::from_json(&text).unwrap().read::<Bootstrap>();
        assert_eq!(read.faults, [], "{text}");
        read.message.node.unwrap()
    };
    for (first, second, features) in [
        (
            r#""client_features": ["a"]"#,
            r#""client_features": ["b"]"#,
            "b",
        ),
        (r#""client_features": ["a"]"#, r#""clientFeatures": []"#, ""),
        (
            r#""client_features": ["a"]"#,
            r#""client_features": null"#,
            "a",
        ),
        (
            r#""client_features": ["a"]"#,
            r#""client_features": ["b"], "clientFeatures": ["c"]"#,
            "b c",
        ),
    ] {
        let node = node(first, second);
        assert_eq!(node.client_features.join(" "), features, "{first} {second}");
        assert_eq!(node.id, "a");
    }
    let metadata = node(r#""metadata": {"a": 1}"#, r#""metadata": {"b": 1}"#).metadata;
    assert_eq!(
        metadata.unwrap().fields.into_keys().collect::<Vec<_>>(),
        ["b"]
    );

    let cluster = |text: &str| {
        let read = Document::from_json(text).unwrap().read::<Cluster>();
        assert_eq!(read.faults, [], "{text}");
        read.message
    };
    for (first, second, seconds) in [("\"5s\"", "\"0s\"", 0), ("\"0s\"", "{\"seconds\": 5}", 5)] {
        let text = format!("{{\"connect_timeout\": {first}, \"connectTimeout\": {second}}}");
        assert_eq!(cluster(&text).connect_timeout.unwrap().seconds, seconds);
    }
    let text = r#"{"metadata": {"filter_metadata": {"x": {"a": 1}, "y": {}}, "filterMetadata": {"x": {"b": 1}}}}"#;
    let filters = cluster(text).metadata.unwrap().filter_metadata;
    let keys = |name: &str| filters[name].fields.keys().cloned().collect::<Vec<_>>();
    assert_eq!((keys("x"), keys("y")), (vec!["b".to_owned()], vec![]));
}

#[test]
fn a_oneof_is_given_once() {
    sound::<HealthCheck>("http_health_check: ~\ntcp_health_check: {}");
    sound::<HealthCheck>("tcp_health_check: {}\ntcp_health_check: {}");
    let of = "envoy.config.core.v3.HealthCheck takes one health_checker only";
    refused::<HealthCheck>(
        "tcp_health_check: {}\ntcpHealthCheck: {x: 1}",
        &[
            &format!("tcp_health_check: {of}, and this one is given twice"),
            "tcp_health_check.x: unknown field \"x\" in envoy.config.core.v3.HealthCheck.TcpHealthCheck",
        ],
    );
}

#[test]
fn an_any_of_our_types_holds_their_bytes() {
    let any = |text: &str| sound::<Cluster>(&format!("transport_socket: {{typed_config: {text}}}"));
    let url = "x.example/y/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck";
    for text in [
        format!("{{\"@type\": {url}, send: {{text: \"61\"}}}}"),
        format!("{{send: {{text: \"61\"}}, \"@type\": {url}}}"),
    ] {
        let config = any(&text).transport_socket.unwrap().config_type.unwrap();
        let crate::proto::envoy::config::core::v3::transport_socket::ConfigType::TypedConfig(any) =
            config;
        assert_eq!(any.type_url, url);
        let udp = UdpHealthCheck::decode(&*any.value).unwrap();
        assert_eq!(
            udp.send.unwrap().payload,
            Some(payload::Payload::Text("61".into()))
        );
    }
    for text in [
        "{}",
        "{\"@type\": a/google.protobuf.Duration, value: 1s}",
        "{\"@type\": a/google.protobuf.Duration}",
        "{\"@type\": a/google.protobuf.Duration, value: ~}",
        "{\"@type\": a/google.protobuf.Any, value: {\"@type\": a/google.protobuf.Empty}}",
        "{\"@type\": a/google.protobuf.Value, value: ~}",
    ] {
        any(text);
    }
    for (text, expected) in [
        ("[]", ": a list is not a mapping with an \"@type\""),
        ("{a: 1}", ": \"@type\" is missing: want a type URL"),
        ("{\"@type\": 5}", ": \"@type\" is 5: want a type URL"),
        (
            "{\"@type\": a.B}",
            ": \"@type\" is \"a.B\": want a type URL, as in type.googleapis.com/package.Message",
        ),
        (
            "{\"@type\": /a.B}",
            ": \"@type\" is \"/a.B\": want a type URL, as in type.googleapis.com/package.Message",
        ),
        (
            "{\"@type\": a/google.protobuf.Struct, x: 1}",
            ".x: \"x\" stands beside google.protobuf.Struct: want \"@type\" and \"value\" only",
        ),
        (
            "{\"@type\": a/google.protobuf.Empty, value: {}}",
            ".value: unknown field \"value\" in google.protobuf.Empty",
        ),
    ] {
        let text = format!("transport_socket: {{typed_config: {text}}}");
        refused::<Cluster>(
            &text,
            &[&format!("transport_socket.typed_config{expected}")],
        );
    }
}

#[test]
fn an_any_of_another_type_is_kept_as_a_typed_struct() {
    let text =
        "event_logger: {name: logger, typed_config: {\"@type\": a.example/b.C, d: {e: [1]}, f: ~}}";
    let check = sound::<HealthCheck>(text);
    let any = check.event_logger[0].typed_config.clone().unwrap();
    assert_eq!(any.type_url, "type.googleapis.com/xds.type.v3.TypedStruct");
    let kept = TypedStruct::decode(&*any.value).unwrap();
    assert_eq!(kept.type_url, "a.example/b.C");
    let keys: Vec<_> = kept.value.unwrap().fields.into_keys().collect();
    assert_eq!(keys, ["d", "f"]);
}

#[test]
fn a_struct_reads_as_the_message_it_stands_for() {
    let value = sound::<NodeConfig>("metadata: {send: {text: \"61\"}, receive: {text: 5, x: {}}}");
    let udp = UdpHealthCheck::default();
    let descriptor = descriptor_pool()
        .get_message_by_name(&UdpHealthCheck::full_name())
        .unwrap();
    let read = struct_to_message(&value.metadata.unwrap(), &descriptor);
    assert_eq!(read.message.descriptor(), descriptor);
    let told: Vec<_> = read.faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "receive.text: 5 is no text here: put it in quotes",
            "receive.x: unknown field \"x\" in envoy.config.core.v3.HealthCheck.Payload",
        ]
    );
    let message: UdpHealthCheck = read.message.transcode_to().unwrap();
    assert_eq!(
        message.send.unwrap().payload,
        Some(payload::Payload::Text("61".into()))
    );
    let empty = struct_to_message(&prost_types::Struct::default(), &descriptor);
    assert_eq!(empty.message.transcode_to::<UdpHealthCheck>().unwrap(), udp);
}

#[test]
fn a_second_document_is_told_of_and_not_read() {
    let read = yaml::<HealthCheck>("alt_port: 1\n---\nno_such: 2\n");
    assert_eq!((read.message.alt_port, read.faults.len()), (Some(1), 0));
    let reason = "a second document begins at line 2, column 1: only the first is read";
    assert_eq!(read.warnings, [Fault::new("", reason)]);
}

#[test]
fn what_is_no_mapping_is_no_document() {
    for (text, expected) in [
        ("~", "line 1, column 1: the text is empty"),
        ("--- \n---\na: 1", "line 1, column 4: the text is empty"),
        (
            "[{}]",
            "line 1, column 1: the text is a list, not a mapping",
        ),
        (
            "abc",
            "line 1, column 1: the text is \"abc\", not a mapping",
        ),
    ] {
        let error = Document::from_yaml(text).unwrap_err();
        assert_eq!(error.to_string(), expected, "{text}");
    }
    assert!(Document::from_json("null").is_err());
    assert!(Document::from_json("[]").is_err());
}

#[test]
fn the_list_of_faults_has_an_end() {
    let many: String = (0..5000).map(|i| format!("x{i}: 1\n")).collect();
    let faults = yaml::<HealthCheck>(&many).faults;
    assert_eq!(faults.len(), 1001);
    let last = "there are more faults than the 1000 above";
    assert_eq!(faults[1000].to_string(), last);
}
