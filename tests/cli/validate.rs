//! `xds-health validate`.

use std::path::Path;

use tempfile::TempDir;

use crate::command::{Ran, ran};
use crate::config::{OFTEN, bootstrap, check, sink};

const GOOD: &str = "{node: {id: i}}";

fn validate(files: &[(&str, &str)], args: &[&str], input: &str) -> Ran {
    let directory: TempDir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let args: Vec<_> = ["validate"].iter().chain(args).copied().collect();
    ran(directory.path(), &args, input)
}

#[track_caller]
fn refused(text: &str, faults: &[&str]) {
    let ran = validate(&[("b.yaml", text)], &["--config", "b.yaml"], "");
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    assert_eq!(ran.complaints("b.yaml: "), faults);
}

#[test]
fn a_sound_file_is_told_so_in_one_line() {
    for name in ["b.yaml", "b.json", "b"] {
        let text = if name == "b.json" {
            "{\"node\": {}}"
        } else {
            GOOD
        };
        let ran = validate(&[(name, text)], &["-c", name], "");
        assert_eq!(ran.out, format!("configuration '{name}' OK\n"));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    }
}

#[test]
fn the_example_is_sound() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let ran = ran(&example, &["validate", "-c", "bootstrap.yaml"], "");
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}

#[test]
fn warnings_are_told_beside_faults() {
    let text = "{nod: {}, admin: {access_log_path: /dev/null}}";
    for (format, wanted) in [
        (
            "text",
            [
                "b.yaml: line 1, column 7: nod: ",
                "warning: line 1, column 36: admin.access_log_path: is deprecated",
            ],
        ),
        (
            "json",
            ["\"severity\":\"error\"", "\"severity\":\"warning\""],
        ),
        (
            "github",
            [
                "::error file=b.yaml,line=1,col=7::",
                "::warning file=b.yaml,line=1",
            ],
        ),
    ] {
        let ran = validate(
            &[("b.yaml", text)],
            &["-c", "b.yaml", "--format", format],
            "",
        );
        assert_eq!(ran.code, Some(1), "{format}");
        let told = ran.out + &ran.err;
        for wanted in wanted {
            assert!(told.contains(wanted), "{format}: {told}");
        }
    }
}

#[test]
fn standard_input_is_read_for_a_dash() {
    let good = validate(&[], &["-c", "-"], GOOD);
    assert_eq!(good.out, "configuration '<stdin>' OK\n");
    assert_eq!((good.code, &*good.err), (Some(0), ""));
    let bad = validate(&[], &["-c", "-"], "nod: {}");
    assert_eq!((bad.code, &*bad.out), (Some(1), ""));
    assert!(bad.err.starts_with("<stdin>: line 1, column 6: nod: "));
}

#[cfg(target_os = "linux")]
#[test]
fn a_pipe_is_read_and_what_has_no_end_is_refused() {
    let pipe = validate(&[], &["-c", "/dev/fd/0"], GOOD);
    assert_eq!(pipe.out, "configuration '/dev/fd/0' OK\n");
    assert_eq!((pipe.code, &*pipe.err), (Some(0), ""));
    let endless = validate(&[], &["-c", "/dev/zero"], "");
    assert_eq!((endless.code, &*endless.out), (Some(1), ""));
    let told = "/dev/zero: cannot be read: it is longer than 256 MiB\n";
    assert_eq!(endless.err, told);
}

#[test]
fn the_name_tells_the_format() {
    let yaml = validate(&[("b.json", "node: {id: i}")], &["-c", "b.json"], "");
    assert_eq!((yaml.code, &*yaml.out), (Some(1), ""));
    assert_eq!(yaml.complaints("b.json: line 1, column 1: ").len(), 1);
}

#[test]
fn all_faults_of_a_file_are_told_in_one_run() {
    let text = "admin: {address: {socket_address: {address: here, port_value: 1}}}
static_resources:
  clusters:
  - name: a
    health_checks:
    - {timeout: 0s, interval: 1s, unhealthy_threshold: 1, custom_health_check: {name: x, typed_config: {'@type': a/b.C}}}
  - nam: b
    health_checks:
    - timeout: 1s
      interval: 1s
      unhealthy_threshold: 1
      healthy_threshold: 1
      event_log_path: /nonexistent/events
      custom_health_check:
        name: udp
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck
          send: {text: 7g}
          receive: [pong]
";
    refused(
        text,
        &[
            "line 1, column 45: admin.address.socket_address.address: malformed IP address \"here\"; names are resolved in clusters of type STRICT_DNS and LOGICAL_DNS only",
            "line 6, column 7: static_resources.clusters[0].health_checks[0].healthy_threshold: value is required",
            "line 6, column 17: static_resources.clusters[0].health_checks[0].timeout: value must be greater than 0s, but is 0s",
            "line 6, column 104: static_resources.clusters[0].health_checks[0].custom_health_check.typed_config: nothing is built in for a message \"b.C\"; known are envoy.extensions.health_checkers.udp.v3.UdpHealthCheck",
            "line 7, column 5: static_resources.clusters[1].name: value length must be at least 1 characters",
            "line 7, column 10: static_resources.clusters[1].nam: unknown field \"nam\" in envoy.config.cluster.v3.Cluster, did you mean name?",
            "line 13, column 23: static_resources.clusters[1].health_checks[0].event_log_path: cannot open \"/nonexistent/events\" for appending: No such file or directory (os error 2)",
            "line 18, column 24: static_resources.clusters[1].health_checks[0].custom_health_check.typed_config.send.text: invalid hex string: 'g' at offset 1 is no hexadecimal digit",
            "line 19, column 20: static_resources.clusters[1].health_checks[0].custom_health_check.typed_config.receive: a list is not a mapping: want the fields of envoy.config.core.v3.HealthCheck.Payload",
            "warning: line 13, column 23: static_resources.clusters[1].health_checks[0].event_log_path: is deprecated",
        ],
    );
}

#[test]
fn faults_of_checkers_and_of_event_sinks_stand_side_by_side() {
    let hosts = [([127, 0, 0, 1], 1).into()];
    let fields = format!("{OFTEN}, event_logger: [{}]", sink("/nonexistent/events"));
    let checks = [check(&fields).replace("70696E67", "7g")];
    refused(
        &bootstrap("", &hosts, &checks, ""),
        &[
            "line 11, column 277: static_resources.clusters[0].health_checks[0].event_logger[0].typed_config.event_log_path: cannot open \"/nonexistent/events\" for appending: No such file or directory (os error 2)",
            "line 11, column 449: static_resources.clusters[0].health_checks[0].custom_health_check.typed_config.send.text: invalid hex string: 'g' at offset 1 is no hexadecimal digit",
        ],
    );
}

#[test]
fn hosts_that_cannot_be_found_are_a_fault_beside_others() {
    let checks = [check(OFTEN).replace("70696E67", "7g")];
    let text = bootstrap(
        "",
        &[],
        &checks,
        "type: ORIGINAL_DST\n    lb_policy: CLUSTER_PROVIDED",
    );
    let text = text.replace(
        "    load_assignment:\n      cluster_name: c\n      endpoints:\n      - lb_endpoints:\n",
        "",
    );
    refused(
        &text,
        &[
            "line 6, column 259: static_resources.clusters[0].health_checks[0].custom_health_check.typed_config.send.text: invalid hex string: 'g' at offset 1 is no hexadecimal digit",
            "line 7, column 11: static_resources.clusters[0].type: hosts of clusters of type ORIGINAL_DST cannot be found: it is not built in",
        ],
    );
}

#[test]
fn what_is_no_text_of_its_kind_is_told_with_its_place() {
    refused("node: {id: i", &["line 1, column 7: unclosed bracket '{'"]);
}

#[test]
fn a_file_that_is_not_there_is_a_fault_of_the_configuration() {
    let ran = validate(&[], &["-c", "gone.yaml"], "");
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    let faults = ran.complaints("gone.yaml: cannot be read: ");
    assert_eq!(faults, ["No such file or directory (os error 2)"]);
}

#[test]
fn warnings_stand_beside_the_answer_on_standard_error() {
    let hosts = [([127, 0, 0, 1], 1).into()];
    let fields = OFTEN.replace("timeout: 20s", "timeout: 0.01s");
    let checks = [check(&format!("{fields}, event_log_path: events"))];
    let text = bootstrap("", &hosts, &checks, "");
    let ran = validate(&[("b.yaml", &text)], &["-c", "b.yaml"], "");
    assert_eq!(ran.out, "configuration 'b.yaml' OK\n");
    assert_eq!(ran.code, Some(0));
    assert_eq!(
        ran.complaints("b.yaml: warning: "),
        [
            "line 11, column 131: static_resources.clusters[0].health_checks[0].event_log_path: is deprecated"
        ]
    );
}

#[test]
fn arguments_that_cannot_be_understood_have_an_exit_code_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    for args in [
        &[][..],
        &["validate"],
        &["check", "-c", "b.yaml"],
        &["validate", "-c", "b.yaml", "--hurry"],
        &["validate", "-c", "b.yaml", "c.yaml"],
        &["run"],
        &["run", "-c", "b.yaml", "--traffic", "sometimes"],
        &["run", "-c", "b.yaml", "--concurrency", "0"],
        &["run", "-c", "b.yaml", "--max-in-flight", "0"],
        &["run", "-c", "b.yaml", "--log-format", "xml"],
        &["run", "-c", "b.yaml", "--log-level", "info,x=loud"],
        &["run", "-c", "b.yaml", "--log-level", "loud"],
    ] {
        let ran = ran(directory.path(), args, "");
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{args:?}");
        assert!(!ran.err.is_empty(), "{args:?}");
    }
}

#[test]
fn help_and_version_are_answers() {
    let directory = tempfile::tempdir().unwrap();
    for args in [&["--help"][..], &["help", "run"], &["run", "-h"]] {
        let ran = ran(directory.path(), args, "");
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{args:?}");
        assert!(ran.out.contains("Usage: xds-health"), "{}", ran.out);
    }
    let version = concat!("xds-health ", env!("CARGO_PKG_VERSION"), "\n");
    let short = ran(directory.path(), &["-V"], "");
    assert_eq!((short.code, &*short.out), (Some(0), version));
    let long = ran(directory.path(), &["--version"], "");
    let features = "features: admin cli dns hds xds\n";
    assert_eq!(long.out, format!("{version}{features}"));
}
