//! `xds-health check` and `xds-health presets`.

use std::net::SocketAddr;

use serde_json::Value;

use crate::command::{Ran, ran};
use crate::config::{OFTEN, bootstrap, check as health_check};
use crate::manners::{Host, closed};
use crate::prometheus::Scrape;
use crate::snapshot::{same, steady};

/// All the time that an attempt may need.
const PATIENT: &[&str] = &["--timeout", "60s", "--interval", "1ms"];
const PING: &[&str] = &["--send-text", "ping", "--receive-text", "pong"];

fn check(args: &[&[&str]]) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    let args: Vec<_> = ["check"].into_iter().chain(args.concat()).collect();
    ran(directory.path(), &args, "")
}

fn named(hosts: &[(SocketAddr, &'static str)]) -> Vec<(String, &'static str)> {
    let named = hosts.iter().map(|(host, word)| (host.to_string(), *word));
    named.collect()
}

#[test]
fn a_table_tells_of_each_host_and_shows_the_first_difference() {
    let (good, wrong) = (Host::answering(b"pong"), Host::answering(b"pang"));
    let (_held, closed) = closed();
    let hosts = [
        (good.address, "GOOD"),
        (wrong.address, "WRONG"),
        (closed, "CLOSED"),
    ];
    let names = named(&hosts);
    let targets: Vec<_> = names.iter().map(|(host, _)| &**host).collect();
    let ran = check(&[&targets, PING, &["--timeout", "3s", "--count", "1"]]);
    assert_eq!((ran.code, &*ran.err), (Some(1), ""));
    same("check-table", &steady(&ran.out, &names));
}

#[test]
fn all_that_pass_are_a_success_in_every_form() {
    let host = Host::answering(b"pong");
    let target = [&*host.address.to_string()];
    let with = |format| {
        check(&[
            &target,
            PING,
            PATIENT,
            &["--count", "5", "--format", format],
        ])
    };
    for format in ["table", "json", "prometheus", "nagios"] {
        let ran = with(format);
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{}", ran.out);
    }
    assert_eq!(host.heard(), 20, "as many as were asked for");

    let answer: Value = serde_json::from_str(&with("json").out).unwrap();
    assert_eq!(answer["verdict"], "passed");
    let told = &answer["hosts"][0];
    assert_eq!(told["host"], host.address.to_string());
    assert_eq!((&told["attempts"], &told["passed"]), (&5.into(), &5.into()));
    let datagrams = serde_json::json!({"sent": 5, "matched": 5, "others": 0});
    assert_eq!(told["datagrams"], datagrams);
    let trip = |name: &str| told["round_trip"][name].as_u64().unwrap();
    assert!(trip("min_us") <= trip("median_us") && trip("p99_us") <= trip("max_us"));

    let names = named(&[(host.address, "HOST")]);
    same(
        "check-prometheus",
        &without_times(&with("prometheus").out, &names),
    );
    same("check-nagios", &without_times(&with("nagios").out, &names));
}

/// Each number with a fraction is a measured time.
fn without_times(text: &str, names: &[(String, &str)]) -> String {
    let mut text = text.to_owned();
    for (name, word) in names {
        text = text.replace(name, word);
    }
    let words = text.split_inclusive([' ', '\n', '=', ';']).map(|word| {
        let number = word.trim_end_matches([' ', '\n', '=', ';', 's']);
        match number.contains('.') && number.parse::<f64>().is_ok() {
            true => word.replace(number, "T"),
            false => word.to_owned(),
        }
    });
    words.collect()
}

#[test]
fn metrics_are_as_prometheus_wants_them() {
    let (good, wrong) = (Host::answering(b"pong"), Host::answering(b"pang"));
    let targets = [good.address, wrong.address].map(|host| host.to_string());
    let targets: Vec<_> = targets.iter().map(|host| &**host).collect();
    let short = ["--timeout", "2s", "--count", "1", "--format", "prometheus"];
    let ran = check(&[&targets, PING, &short]);
    assert_eq!(ran.code, Some(1));
    let scrape = Scrape::read(&ran.out);
    let passed = |host: SocketAddr| {
        let labels = [("host", &*host.to_string()), ("check", "")];
        scrape.value("xds_health_check_passed", &labels)
    };
    assert_eq!(passed(good.address), Some(1.0));
    assert_eq!(passed(wrong.address), Some(0.0));
}

#[test]
fn every_datagram_is_counted() {
    let chatty = Host::new(|_, ping| vec![b"x".to_vec(), ping.to_vec(), b"pong".to_vec()]);
    let target = [&*chatty.address.to_string()];
    let ran = check(&[&target, PING, PATIENT, &["--count", "4"]]);
    assert_eq!(ran.code, Some(0), "{}", ran.out);
    let last = ran.out.lines().last().unwrap();
    assert_eq!(
        last,
        "4 datagrams sent, 4 answers matched and 8 others came"
    );
    assert_eq!(chatty.heard(), 4);
}

#[test]
fn a_host_that_passes_at_times_is_a_warning_to_nagios() {
    let flaky = Host::new(|before, _| match before % 2 {
        0 => vec![b"pong".to_vec()],
        _ => vec![],
    });
    let target = [&*flaky.address.to_string()];
    let twice = [
        "--timeout",
        "2s",
        "--count",
        "2",
        "--interval",
        "1ms",
        "--format",
        "nagios",
    ];
    let ran = check(&[&target, PING, &twice]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    let begin = "UDP WARNING: 0 of 1 passed, 1 of 2 attempts; ";
    assert!(ran.out.starts_with(begin), "{}", ran.out);
    let (_held, closed) = closed();
    let target = [&*closed.to_string()];
    let ran = check(&[&target, PING, &["--count", "1", "--format", "nagios"]]);
    assert_eq!(ran.code, Some(2), "{}", ran.out);
    assert!(
        ran.out.starts_with("UDP CRITICAL: 0 of 1 passed"),
        "{}",
        ran.out
    );
}

#[test]
fn nagios_is_told_all_of_a_complaint_in_one_line() {
    let ran = check(&[&["--preset", "echo", "--format", "nagios"]]);
    assert_eq!((ran.code, &*ran.err), (Some(3), ""));
    let line = "UDP UNKNOWN: the following required arguments were not provided: <HOST:PORT/--config <FILE>>\n";
    assert_eq!(ran.out, line);
}

#[cfg(target_os = "linux")]
#[test]
fn a_payload_without_end_is_refused() {
    let args = [
        "127.0.0.1:1",
        "--send-file",
        "/dev/zero",
        "--receive-text",
        "x",
    ];
    let ran = check(&[&args]);
    assert_eq!((ran.code, &*ran.out), (Some(2), ""));
    assert_eq!(
        ran.err,
        "error: --send-file: /dev/zero is longer than 65507 bytes\n"
    );
}

#[test]
fn names_cannot_turn_what_is_written() {
    let text = bootstrap(
        "",
        &[([127, 0, 0, 1], 1).into()],
        &[health_check(OFTEN)],
        "",
    );
    let text = text.replacen("name: c\n", "name: \"c\\u202ed\"\n", 1);
    let ran = check_file(&text, &[], &["--cluster", "d"]);
    assert_eq!((ran.code, &*ran.out), (Some(2), ""));
    let known = "error: there is no cluster \"d\": known are c\\u{202e}d\n";
    assert_eq!(ran.err, known);
}

#[test]
fn payloads_come_as_digits_as_text_and_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let echo = Host::new(|_, ping| vec![ping.to_vec()]);
    let target = echo.address.to_string();
    std::fs::write(directory.path().join("payload"), b"a\0\xff").unwrap();
    let forms = [
        ["--send-hex", "6100FF", "--receive-text", "a\\0\\xff"],
        ["--send-text", "\\x61\\0\\xFF", "--receive-file", "payload"],
        ["--send-file", "payload", "--receive-hex", "6100ff"],
    ];
    for form in forms {
        let args = [&["check", &target], PATIENT, &["-n", "1"], &form].concat();
        let ran = ran(directory.path(), &args, "");
        assert_eq!(ran.code, Some(0), "{form:?}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn what_cannot_be_understood_is_told_and_nothing_is_sent() {
    let host = Host::answering(b"pong");
    let target = host.address.to_string();
    for (args, told) in [
        (
            &["--send-text", "x"][..],
            "want one of --receive-hex, --receive-text, --receive-file, or --preset",
        ),
        (
            &["--send-hex", "7", "--receive-hex", "70"],
            "--send-hex: invalid hex string: two digits make a byte, but there are 1",
        ),
        (
            &["--send-text", "\\q", "--receive-hex", "70"],
            "--send-text: \\q is no escape",
        ),
        (
            &["--preset", "ntp"],
            "ntp: no answer is fixed: every answer holds the time",
        ),
        (
            &["--preset", "http"],
            "\"http\" is no preset: see xds-health presets",
        ),
        (&["nowhere", "--preset", "echo"], "nowhere: want HOST:PORT"),
    ] {
        let ran = check(&[&[&target], args]);
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{args:?}");
        assert_eq!(ran.err, format!("error: {told}\n"));
        let ran = check(&[&[&target], args, &["--format", "nagios"]]);
        let line = format!("UDP UNKNOWN: {told}\n");
        assert_eq!((ran.code, ran.out, &*ran.err), (Some(3), line, ""));
    }
    for args in [
        &["--preset", "echo", "--send-text", "x"][..],
        &["--preset", "echo", "--receive-text", "x"],
        &["--preset", "echo", "--interval", "5"],
        &["--preset", "echo", "--count", "0"],
        &["--cluster", "c"],
        &["--config", "b.yaml"],
    ] {
        let ran = check(&[&[&target], args]);
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{args:?}");
        let ran = check(&[&[&target], args, &["--format", "nagios"]]);
        assert_eq!((ran.code, &*ran.err), (Some(3), ""), "{args:?}");
        assert!(ran.out.starts_with("UDP UNKNOWN: "), "{args:?}");
    }
    assert_eq!(host.heard(), 0);
}

#[test]
fn trouble_of_this_machine_is_not_the_hosts() {
    let host = Host::answering(b"pong");
    let target = [&*host.address.to_string()];
    // An address of documentation, which no machine has.
    let ran = check(&[&target, PING, &["-n", "1", "--source", "203.0.113.1"]]);
    assert_eq!(ran.code, Some(3), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("bind: "), "{}", ran.out);
    assert!(
        ran.out
            .ends_with("\n0 datagrams sent, 0 answers matched and 0 others came\n")
    );
    let ran = check(&[&target, &["--send-file", "gone", "--receive-hex", "00"]]);
    assert_eq!((ran.code, &*ran.out), (Some(3), ""));
    let own = check(&[
        &target,
        PING,
        PATIENT,
        &["-n", "1", "--source", "127.0.0.2"],
    ]);
    assert_eq!(own.code, Some(0), "{}{}", own.out, own.err);
}

#[test]
fn a_name_stands_for_its_addresses() {
    let host = Host::answering(b"pong");
    let target = [&*format!("localhost:{}", host.address.port())];
    let ran = check(&[&target, PING, PATIENT, &["-n", "1", "--format", "json"]]);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    let hosts = answer["hosts"].as_array().unwrap();
    let found = hosts.iter().find(|h| h["host"] == host.address.to_string());
    let found = found.unwrap();
    assert_eq!(found["hostname"], *target[0]);
    assert_eq!(found["verdict"], "passed");
}

const FIELDS: &str = "timeout: 60s, interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1";

fn check_file(text: &str, files: &[(&str, &str)], args: &[&str]) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [&[("b.yaml", text)], files].concat() {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let rest = ["check", "-c", "b.yaml", "--interval", "1ms"];
    ran(directory.path(), &[&rest, args].concat(), "")
}

#[test]
fn a_cluster_of_a_file_is_checked_as_the_daemon_would() {
    let (a, b) = (Host::answering(b"pong"), Host::answering(b"pong"));
    // Its event log is not touched, wherever that would be.
    let fields = format!("{FIELDS}, event_log_path: /nonexistent/events");
    let checks = ["one", "two"].map(|name| health_check(&format!("name: {name}, {fields}")));
    let hosts = [a.address, b.address, a.address];
    let text = bootstrap("", &hosts, &checks, "");
    let ran = check_file(&text, &[], &["--cluster", "c", "--count", "2"]);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    let names = named(&[(a.address, "A"), (b.address, "B")]);
    same("check-cluster", &steady(&ran.out, &names));
    assert_eq!((a.heard(), b.heard()), (4, 4), "an address is checked once");

    let ran = check_file(&text, &[], &["--cluster", "d"]);
    assert_eq!((ran.code, &*ran.out), (Some(2), ""));
    assert_eq!(ran.err, "error: there is no cluster \"d\": known are c\n");
    let ran = check_file("{nod: {}}", &[], &["--cluster", "c"]);
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    assert!(
        ran.err
            .starts_with("error: b.yaml: line 1, column 7: nod: "),
        "{}",
        ran.err
    );
}

#[test]
fn endpoints_are_asked_for_where_the_file_says() {
    let host = Host::answering(b"pong");
    let eds = "type: EDS, eds_cluster_config: {eds_config: {path_config_source: {path: eds.json}}}";
    let text = format!(
        "{{node: {{id: i, cluster: c}}, static_resources: {{clusters: [{{name: c, {eds}, health_checks: [{}]}}]}}}}",
        health_check(FIELDS)
    );
    let endpoints = format!(
        r#"{{"resources": [{{"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "c", "endpoints": [{{"lb_endpoints": [{{"endpoint": {{"address":
            {{"socket_address": {{"address": "127.0.0.1", "port_value": {}}}}}}}}}]}}]}}]}}"#,
        host.address.port()
    );
    let found = check_file(
        &text,
        &[("eds.json", &endpoints)],
        &["--cluster", "c", "-n", "1"],
    );
    assert_eq!(found.code, Some(0), "{}{}", found.out, found.err);
    assert_eq!(host.heard(), 1);
    let empty = check_file(
        &text,
        &[("eds.json", "{\"resources\": []}")],
        &["--cluster", "c", "--wait", "100ms"],
    );
    assert_eq!((empty.code, &*empty.out), (Some(3), ""), "{}", empty.err);
    assert_eq!(
        empty.err,
        "error: the endpoints of \"c\" were not told within 100ms\neds.json (EDS): answered without them\n"
    );
    let broken = check_file(
        &text,
        &[("eds.json", "{\"resources\": 7}")],
        &["--cluster", "c", "--wait", "100ms"],
    );
    assert_eq!(
        broken.err,
        "error: the endpoints of \"c\" were not told within 100ms\n\
         eds.json (EDS): refused: resources[0]: line 1, column 15: 7 is not a mapping with an \"@type\"\n"
    );
}

#[test]
fn that_a_management_server_was_not_reached_is_said_with_the_reason() {
    let at = |address: SocketAddr| {
        let text = format!(
            "
node: {{id: n1, cluster: checkers}}
dynamic_resources:
  cds_config: {{ads: {{}}}}
  ads_config: {{api_type: GRPC, grpc_services: [{{envoy_grpc: {{cluster_name: plane}}}}]}}
static_resources:
  clusters:
  - name: plane
    http2_protocol_options: {{}}
    load_assignment:
      cluster_name: plane
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: \
{{address: {}, port_value: {}}}}}}}}}]}}]
",
            address.ip(),
            address.port()
        );
        check_file(&text, &[], &["--cluster", "c", "--wait", "500ms"])
    };
    // Its own client, so that nobody else can be given the port, which nobody listens at.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let taken = std::net::TcpStream::connect(address).unwrap();
    let closed = taken.local_addr().unwrap();
    let found = at(closed);
    assert_eq!((found.code, &*found.out), (Some(3), ""), "{}", found.err);
    assert_eq!(
        found.err,
        format!(
            "error: no cluster \"c\" was told of within 500ms\n\
             plane (ADS): {closed}: Connection refused (os error 111)\n"
        )
    );
    // It takes connections, and nothing else.
    let found = at(address);
    assert_eq!(
        found.err,
        "error: no cluster \"c\" was told of within 500ms\nplane (ADS): has not answered\n"
    );
}

#[test]
fn presets_are_listed_and_shown_as_health_checks() {
    let directory = tempfile::tempdir().unwrap();
    let list = ran(directory.path(), &["presets"], "");
    assert_eq!((list.code, &*list.err), (Some(0), ""));
    same("presets", &list.out);
    let names = list.out.lines().skip(1).take_while(|line| !line.is_empty());
    for name in names.map(|line| line.split(' ').next().unwrap()) {
        let shown = ran(directory.path(), &["presets", name], "");
        assert_eq!((shown.code, &*shown.err), (Some(0), ""), "{name}");
        let cluster = shown.out.replace('\n', "\n    ");
        let text = format!("static_resources:\n  clusters:\n  - name: c\n    {cluster}\n");
        let sound = ran(directory.path(), &["validate", "-c", "-"], &text);
        assert_eq!(sound.out, "configuration '<stdin>' OK\n", "{}", sound.err);
    }
    let dns = ran(directory.path(), &["presets", "dns"], "");
    assert_eq!((dns.code, &*dns.out), (Some(2), ""));
    assert!(
        dns.err.starts_with("error: dns: no answer is fixed: "),
        "{}",
        dns.err
    );
}

#[test]
fn a_preset_is_sent_and_awaited() {
    let coap = Host::new(|_, ping| {
        assert_eq!(ping[..2], [0x40, 0x00]);
        vec![[&[0x70], &ping[1..]].concat()]
    });
    let target = [&*coap.address.to_string()];
    let ran = check(&[&target, &["--preset", "coap", "-n", "1"], PATIENT]);
    assert_eq!(ran.code, Some(0), "{}", ran.out);
}
