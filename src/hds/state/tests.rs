use super::*;
use crate::config::text::Document;
use crate::xds::clock;

const CHECK: &str = r#"{timeout: 1s, interval: 1s, unhealthy_threshold: 2, healthy_threshold: 2, custom_health_check: {name: u, typed_config: {"@type": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck, send: {text: "70"}, receive: {text: "71"}}}}"#;

fn specifier(yaml: &str) -> HealthCheckSpecifier {
    let read = Document::from_yaml(yaml)
        .unwrap()
        .read::<HealthCheckSpecifier>();
    assert!(read.faults.is_empty(), "{:?}", read.faults);
    read.message
}

/// A cluster under `checks` with endpoints at `ports`.
fn cluster(name: &str, checks: &str, ports: &[u16]) -> String {
    let endpoint = |port| {
        format!("{{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}")
    };
    let endpoints: Vec<_> = ports.iter().map(endpoint).collect();
    let endpoints = endpoints.join(", ");
    format!(
        "{{cluster_name: {name:?}, health_checks: [{checks}], locality_endpoints: [{{endpoints: [{endpoints}]}}]}}"
    )
}

fn good(name: &str, ports: &[u16]) -> String {
    cluster(name, CHECK, ports)
}

fn bad(name: &str) -> String {
    cluster(name, &CHECK.replace("timeout: 1s, ", ""), &[9])
}

fn all(clusters: &[String]) -> String {
    format!("cluster_health_checks: [{}]", clusters.join(", "))
}

#[test]
fn an_interval_is_one_or_it_spoils_its_specifier() {
    let good = specifier(&all(&[good("a", &[1])]));
    for seconds in [i64::MIN, i64::MIN + 1, -1, 0, 1, 9_223_372_036, i64::MAX] {
        for nanos in [i32::MIN, -1, 0, 1_000_000, 1_000_000_000, i32::MAX] {
            let interval = prost_types::Duration { seconds, nanos };
            let mut bed = Bed::new();
            let specifier = HealthCheckSpecifier {
                interval: Some(interval),
                ..good.clone()
            };
            match bed.0.handle_specifier(clock::time(), &specifier) {
                Verdict::Applied(None) => {
                    let told = duration::read(&interval).unwrap();
                    let least = if told < MILLISECOND { INTERVAL } else { told };
                    assert_eq!(bed.0.interval(), least.max(SHORTEST_INTERVAL));
                }
                Verdict::Refused(error) => {
                    assert!(duration::read(&interval).is_err());
                    let error = error.to_string();
                    assert!(error.starts_with("interval: Invalid duration: "), "{error}");
                }
                other => panic!("{interval:?}: {other:?}"),
            }
        }
    }
}

struct Bed(State);

impl Bed {
    fn new() -> Self {
        Self(State::new(Registry::default(), Limits::default()))
    }

    fn with(yaml: &str) -> Self {
        let mut bed = Self::new();
        let (verdict, _) = bed.take(yaml);
        assert_eq!(verdict, "applied");
        bed
    }

    /// The verdict and what is to be done.
    fn take(&mut self, yaml: &str) -> (String, Vec<String>) {
        let verdict = match self.0.handle_specifier(clock::time(), &specifier(yaml)) {
            Verdict::Same => "same".to_owned(),
            Verdict::Applied(None) => "applied".to_owned(),
            Verdict::Applied(Some(error)) => format!("applied but {error}"),
            Verdict::Refused(error) => format!("refused: {error}"),
        };
        let actions = std::iter::from_fn(|| self.0.poll_action());
        (verdict, actions.map(|action| shown(&action)).collect())
    }

    #[track_caller]
    fn expect(&mut self, yaml: &str, verdict: &str, actions: &[&str]) {
        let actions: Vec<_> = actions.iter().map(|action| (*action).to_owned()).collect();
        assert_eq!(self.take(yaml), (verdict.to_owned(), actions));
    }

    /// The clusters that are reported, with the ports of their endpoints.
    fn reported(&self) -> Vec<String> {
        let shown = |layout: Arc<Layout>| {
            let ports = layout
                .endpoints()
                .map(|e| e.host.address.socket_addr().unwrap().port());
            format!("{} {:?}", layout.name, ports.collect::<Vec<_>>())
        };
        self.0.layouts().into_iter().map(shown).collect()
    }
}

fn shown(action: &Action) -> String {
    match action {
        Action::Remember(layout) => format!("remember {}", layout.name),
        Action::Apply(Change::Cluster(update)) => {
            assert_eq!(
                **update.config.key(),
                format!("hds\0{}", update.config.name)
            );
            format!("set {}", update.config.name)
        }
        Action::Apply(Change::RemoveCluster(key)) => {
            format!("remove {}", key.strip_prefix(KEY_PREFIX).unwrap())
        }
        other => panic!("{other:?}"),
    }
}

const NO_TIMEOUT: &str = "health_checks[0].timeout: value is required";

#[test]
fn only_what_changed_is_told() {
    let mut bed = Bed::new();
    let both = all(&[good("a", &[1]), good("b", &[2])]);
    bed.expect(&both, "applied", &["set a", "set b"]);
    bed.expect(&both, "same", &[]);
    bed.expect(
        &all(&[good("a", &[1, 3]), good("b", &[2])]),
        "applied",
        &["set a"],
    );
    bed.expect(&all(&[good("b", &[2]), good("a", &[1, 3])]), "applied", &[]);
    assert_eq!(bed.reported(), ["b [2]", "a [1, 3]"]);
    let other = CHECK.replace("healthy_threshold: 2, c", "healthy_threshold: 3, c");
    bed.expect(
        &all(&[cluster("b", &other, &[2])]),
        "applied",
        &["remove a", "set b"],
    );
    bed.expect("{}", "applied", &["remove b"]);
    bed.expect("{}", "same", &[]);
}

#[test]
fn a_bad_cluster_keeps_its_last_good_form_and_spoils_no_other() {
    let mut bed = Bed::with(&all(&[good("a", &[1]), good("b", &[2])]));
    bed.expect(
        &all(&[bad("new"), bad("b"), good("c", &[3])]),
        &format!(
            "applied but cluster_health_checks[0].{NO_TIMEOUT}\ncluster_health_checks[1].{NO_TIMEOUT}"
        ),
        &["remove a", "set c"],
    );
    assert_eq!(bed.reported(), ["b [2]", "c [3]"]);
    let records = bed.0.records();
    let refused: Vec<_> = records
        .iter()
        .map(|record| {
            (
                &*record.name,
                record.resource.is_some(),
                record.error_state.is_some(),
            )
        })
        .collect();
    assert_eq!(
        refused,
        [("b", true, true), ("c", true, false), ("new", false, true)]
    );
    bed.expect(&all(&[good("b", &[2]), good("c", &[3])]), "applied", &[]);
    assert!(
        bed.0
            .records()
            .iter()
            .all(|record| record.error_state.is_none())
    );
}

#[test]
fn a_specifier_without_a_good_cluster_changes_nothing() {
    let mut bed = Bed::with(&format!("{{interval: 3s, {}}}", all(&[good("a", &[1])])));
    let refused = format!("refused: cluster_health_checks[0].{NO_TIMEOUT}");
    bed.expect(
        &format!("{{interval: 2s, {}}}", all(&[bad("b")])),
        &refused,
        &[],
    );
    bed.expect(
        &format!("{{interval: 2s, {}}}", all(&[bad("a")])),
        &refused,
        &[],
    );
    assert_eq!(
        (bed.reported(), bed.0.interval()),
        (vec!["a [1]".into()], Duration::from_secs(3))
    );
    bed.expect(
        &format!("{{interval: -1s, {}}}", all(&[good("b", &[1])])),
        "refused: interval: Invalid duration: Expected positive duration, but is -1s",
        &[],
    );
    assert_eq!(bed.reported(), ["a [1]"]);
}

#[test]
fn a_second_cluster_of_a_name_is_not_read() {
    let mut bed = Bed::new();
    bed.expect(
        &all(&[good("a", &[1]), good("a", &[2]), bad("a")]),
        "applied",
        &["set a"],
    );
    assert_eq!(bed.reported(), ["a [1]"]);
}

#[test]
fn every_fault_has_its_path() {
    let hex = CHECK.replace("text: \"70\"", "text: zz");
    let custom = "health_checks[0].custom_health_check.typed_config";
    let name =
        |name: &str| format!("address: {{socket_address: {{address: {name}, port_value: 1}}}}");
    let of = |endpoint: &str| {
        format!(
            "{{cluster_name: a, health_checks: [{CHECK}], locality_endpoints: [{{endpoints: [{endpoint}]}}]}}"
        )
    };
    for (text, fault) in [
        (cluster("a", &hex, &[1]), format!("{custom}.send.text: ")),
        (
            cluster("a", &CHECK.replace(r#"UdpHealthCheck, send: {text: "70"}, receive: {text: "71"}"#, "UdpHealthCheck"), &[1])
                .replace("envoy.extensions.health_checkers.udp.v3.UdpHealthCheck", "google.protobuf.Empty"),
            format!("{custom}: nothing is built in for a message \"google.protobuf.Empty\""),
        ),
        (of("{}"), "locality_endpoints[0].endpoints[0].address: value is required".into()),
        (
            of(&format!("{{{}}}", name("a.example"))),
            "locality_endpoints[0].endpoints[0].address.socket_address.address: malformed IP address".into(),
        ),
        (
            cluster("a", &CHECK.replace("interval: 1s", "interval: -1s"), &[1]),
            "health_checks[0].interval: Invalid duration: Expected positive duration".into(),
        ),
        (
            format!("{{cluster_name: {}}}", "n".repeat(5000)),
            "cluster_name: is 5000 bytes long, but at most 4096 are taken".into(),
        ),
    ] {
        let (verdict, actions) = Bed::new().take(&all(&[text]));
        let wanted = format!("refused: cluster_health_checks[0].{fault}");
        assert!(verdict.starts_with(&wanted), "{verdict}\nis not\n{wanted}");
        assert_eq!(actions.len(), 0);
    }
}

#[test]
fn faults_of_fields_and_of_checkers_are_told_together() {
    let both = CHECK
        .replace("text: \"70\"", "text: zz")
        .replace("timeout: 1s, ", "");
    let (verdict, _) = Bed::new().take(&all(&[cluster("a", &both, &[1])]));
    assert_eq!(verdict.lines().count(), 2, "{verdict}");
}

#[test]
fn more_endpoints_than_are_taken_are_refused() {
    let limits = Limits {
        hosts: 2,
        ..Limits::default()
    };
    let mut bed = Bed(State::new(Registry::default(), limits));
    let text = all(&[good("a", &[1, 2]), good("b", &[3])]);
    bed.expect(
        &text,
        "applied but cluster_health_checks[1].locality_endpoints: 3 endpoints in all, but at most 2 are taken",
        &["set a"],
    );
}

#[test]
fn what_was_found_is_remembered_when_checks_are_taken_away() {
    let mut bed = Bed::with(&all(&[good("a", &[1])]));
    let none = all(&[cluster("a", "", &[1, 2])]);
    bed.expect(&none, "applied", &["remember a", "set a"]);
    assert_eq!(bed.reported(), ["a [1, 2]"]);
    let other = all(&[cluster("a", "", &[2])]);
    bed.expect(&other, "applied", &["set a"]);
    bed.expect(&all(&[good("a", &[2])]), "applied", &["set a"]);
}

#[test]
fn on_another_stream_the_same_counts_as_new_but_causes_nothing() {
    let text = all(&[good("a", &[1])]);
    let mut bed = Bed::with(&text);
    bed.0.handle_stream_closed();
    bed.expect(&text, "applied", &[]);
    bed.expect(&text, "same", &[]);
}

#[test]
fn the_report_interval_has_a_default_and_a_floor() {
    for (text, wanted) in [
        ("{}", 1000),
        ("interval: 0s", 1000),
        ("interval: 0.000999s", 1000),
        ("interval: 0.001s", 50),
        ("interval: 0.05s", 50),
        ("interval: 0.4s", 400),
        ("interval: 86400s", 86_400_000),
    ] {
        let mut bed = Bed::new();
        bed.take(text);
        assert_eq!(bed.0.interval(), Duration::from_millis(wanted), "{text}");
    }
    let mut bed = Bed::new();
    bed.expect("interval: 2s", "applied", &[]);
    bed.expect("interval: 3s", "applied", &[]);
    bed.expect("interval: 3s", "same", &[]);
}

#[test]
fn refused_clusters_do_not_pile_up() {
    let mut bed = Bed::with(&all(&[good("a", &[1])]));
    for number in 0..100 {
        bed.take(&all(&[bad(&format!("b{number}"))]));
    }
    let names: Vec<_> = bed.0.records().into_iter().map(|r| r.name).collect();
    assert_eq!(names, ["a".into(), "b99".into()]);
}

#[test]
fn more_clusters_than_are_taken_are_refused() {
    let limits = Limits {
        clusters: 2,
        ..Limits::default()
    };
    let mut bed = Bed(State::new(Registry::default(), limits));
    let four = ["a", "b", "c", "d"].map(|name| good(name, &[1]));
    let (verdict, _) = bed.take(&all(&four));
    assert_eq!(
        verdict,
        "applied but cluster_health_checks[2]: at most 2 clusters are taken"
    );
    assert_eq!(bed.reported(), ["a [1]", "b [1]"]);
}
