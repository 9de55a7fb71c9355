//! What `xds-health validate` warns of, and the forms in which it tells.

use std::net::SocketAddr;

use serde_json::Value;

use crate::command::{Ran, ran};
use crate::config::{OFTEN, bootstrap, check};
use crate::snapshot::same;

fn validate(text: &str, args: &[&str]) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("b.yaml"), text).unwrap();
    let args: Vec<_> = ["validate", "-c", "b.yaml"]
        .iter()
        .chain(args)
        .copied()
        .collect();
    ran(directory.path(), &args, "")
}

/// A check with these fields beside those that every check has.
fn with_check(fields: &str, hosts: usize) -> String {
    let hosts: Vec<SocketAddr> = (1..=hosts)
        .map(|n| ([127, 0, 0, 1], u16::try_from(n).unwrap()).into())
        .collect();
    bootstrap("", &hosts, &[check(fields)], "")
}

/// A check that there is nothing to warn of.
const SOUND: &str = "timeout: 1s, interval: 2s, unhealthy_threshold: 1, healthy_threshold: 1";

#[track_caller]
fn warned(text: &str, args: &[&str], warnings: &[&str]) {
    let ran = validate(text, args);
    assert_eq!(
        (ran.code, &*ran.out),
        (Some(0), "configuration 'b.yaml' OK\n")
    );
    let told = ran.complaints("b.yaml: warning: ").into_iter();
    let told = told.map(|line| {
        line.split_once(": static_resources.clusters[0].")
            .unwrap()
            .1
    });
    assert_eq!(told.collect::<Vec<_>>(), warnings);
}

#[test]
fn a_timeout_longer_than_the_interval() {
    warned(
        &with_check(
            "timeout: 5s, interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1",
            1,
        ),
        &[],
        &[
            "health_checks[0].timeout: 5s is longer than the interval of 1s: a silent host is checked every 6s only",
        ],
    );
}

#[test]
fn thresholds_that_are_never_reached() {
    warned(
        &with_check(
            "timeout: 1s, interval: 1s, unhealthy_threshold: 0, healthy_threshold: 0",
            1,
        ),
        &[],
        &[
            "health_checks[0].unhealthy_threshold: 0 is never reached: a host that passed once is never failed again",
            "health_checks[0].healthy_threshold: 0 is never reached: a failed host is never brought back, but by its first check",
        ],
    );
}

#[test]
fn an_interval_that_will_rule_unasked() {
    let thresholds = "unhealthy_threshold: 1, healthy_threshold: 1";
    let unset = format!("timeout: 1s, interval: 2s, {thresholds}");
    let set = format!("{unset}, no_traffic_interval: 1s");
    warned(&with_check(&unset, 1), &[], &[]);
    warned(
        &with_check(&unset, 1),
        &["--traffic", "never"],
        &[
            "health_checks[0].no_traffic_interval: is not set: with --traffic never, 60s rules and not the interval of 2s",
        ],
    );
    warned(
        &with_check(&set, 1),
        &["--traffic", "never"],
        &[
            "health_checks[0].no_traffic_interval: rules with --traffic never, and not the interval of 2s",
        ],
    );
    warned(
        &with_check(&set, 1),
        &[],
        &[
            "health_checks[0].no_traffic_interval: is shorter than the interval of 2s: it rules until every host was checked once",
        ],
    );
    let same = format!("timeout: 1s, interval: 2s, {thresholds}, no_traffic_interval: 2s");
    warned(&with_check(&same, 1), &["--traffic", "never"], &[]);
}

#[test]
fn many_hosts_without_jitter() {
    warned(
        &with_check(SOUND, 1000),
        &[],
        &[
            "health_checks[0].initial_jitter: is not set, nor is any other jitter: the attempts of all 1000 hosts stand at one time",
        ],
    );
    warned(&with_check(SOUND, 999), &[], &[]);
    for jitter in [
        "initial_jitter: 1s",
        "interval_jitter: 1s",
        "interval_jitter_percent: 5",
    ] {
        warned(&with_check(&format!("{SOUND}, {jitter}"), 1000), &[], &[]);
    }
}

#[test]
fn a_protocol_that_is_said_and_not_meant() {
    let text = with_check(SOUND, 3);
    for (said, warnings) in [
        ("protocol: UDP, address", &[][..]),
        (
            "protocol: TCP, address",
            &[
                "load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address.protocol: says TCP, but the checker speaks UDP; so do 2 more of this cluster",
            ][..],
        ),
    ] {
        warned(
            &text.replace("{address: 127", &format!("{{{said}: 127")),
            &[],
            warnings,
        );
    }
}

#[test]
fn chance_that_rules() {
    for (jitter, warnings) in [
        ("interval_jitter_percent: 1000", &[][..]),
        (
            "interval_jitter_percent: 1001",
            &[
                "health_checks[0].interval_jitter_percent: adds up to 20.02s by chance, more than 10 times the interval of 2s",
            ],
        ),
        (
            "initial_jitter: 1000000000s",
            &[
                "health_checks[0].initial_jitter: adds up to 1000000000s by chance, more than 10 times the interval of 2s",
            ],
        ),
    ] {
        let text = with_check(&format!("{SOUND}, {jitter}"), 1);
        warned(&text, &[], warnings);
    }
}

#[test]
fn what_says_nothing_to_a_checker() {
    warned(
        &with_check(&format!("{SOUND}, alt_port: 7"), 1),
        &[],
        &["health_checks[0].alt_port: has no effect on a custom_health_check"],
    );
}

#[test]
fn an_endpoint_that_is_given_twice() {
    let text = with_check(SOUND, 2).replace("port_value: 2}", "port_value: 1}");
    warned(
        &text,
        &[],
        &[
            "load_assignment.endpoints[0].lb_endpoints[1].endpoint.address: is that of endpoints[0].lb_endpoints[0] too: one host, which is the first",
        ],
    );
}

#[test]
fn a_key_that_is_given_twice() {
    let text =
        with_check(OFTEN, 1).replace("interval: 0.02s, no", "interval: 1s, interval: 20s, no");
    let ran = validate(&text, &[]);
    assert!(ran.err.contains("interval"), "{}", ran.err);
    assert_eq!(ran.complaints("b.yaml: warning: ").len(), 2, "{}", ran.err);
}

const ODD: &str = "\
static_resources:
  clusters:
  - name: games
    load_assignment: {cluster_name: games}
    health_checks:
    - timeout: 5s
      interval: 1s
      unhealthy_threshold: 0
      healthy_threshold: 1
      custom_health_check:
        name: udp
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck
          send: {text: '70'}
          receive: {text: '70'}
";

#[test]
fn the_lines_in_question_are_shown() {
    let ran = validate(ODD, &[]);
    assert_eq!(ran.code, Some(0));
    same("validate-warnings", &ran.err);
    let bad = ODD
        .replace("timeout: 5s", "timeout: soon")
        .replace("'70'", "'7'");
    let ran = validate(&bad, &[]);
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    same("validate-faults", &ran.err);
}

#[test]
fn strict_takes_warnings_as_faults() {
    let ran = validate(ODD, &["--strict"]);
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    let last = ran.err.lines().last().unwrap();
    assert_eq!(last, "b.yaml: refused by --strict: 2 things to warn of");
    let sound = validate("{node: {id: i}}", &["--strict"]);
    assert_eq!((sound.code, &*sound.err), (Some(0), ""));
}

#[test]
fn github_shows_them_beside_the_lines() {
    let ran = validate(ODD, &["--format", "github"]);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    same("validate-github", &ran.out);
}

#[test]
fn json_has_all_of_it() {
    let ran = validate(ODD, &["--format", "json", "--strict"]);
    assert_eq!((ran.code, &*ran.err), (Some(1), ""));
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["file"], "b.yaml");
    assert_eq!(answer["ok"], false);
    let first = &answer["findings"][0];
    assert_eq!(first["severity"], "warning");
    assert_eq!((&first["line"], &first["column"]), (&6.into(), &16.into()));
    assert_eq!(
        first["path"],
        "static_resources.clusters[0].health_checks[0].timeout"
    );
    assert_eq!(first["source"], "    - timeout: 5s");
    let ran = validate("nod: {}", &["--format", "json"]);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (ran.code, &answer["findings"][0]["severity"]),
        (Some(1), &"error".into())
    );
}

#[test]
fn a_field_that_could_not_be_read_is_told_once() {
    let ran = validate(&ODD.replace("send: {text: '70'}", "send: {text: 70}"), &[]);
    let told = ran.complaints("b.yaml: ");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].ends_with("send.text: 70 is no text here: put it in quotes"),
        "{told:?}"
    );
}
