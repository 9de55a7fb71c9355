//! What answers do, without streams and engines.

use proptest::prelude::*;

use super::*;
use crate::config::text::Document;
use crate::proto::envoy::config::core::v3::ApiConfigSource;
use crate::proto::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use crate::proto::type_url;

mod growth;

fn time(seconds: u64) -> Time {
    use std::sync::LazyLock;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Time {
        now: *START + Duration::from_secs(seconds),
        wall: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
    }
}

fn read<M: Message + Name + Default>(yaml: &str) -> M {
    let read = Document::from_yaml(yaml).unwrap().read::<M>();
    assert_eq!(read.faults, []);
    read.message
}

fn state_with(limits: Limits) -> State {
    let ads: ApiConfigSource = read(
        "{api_type: GRPC, grpc_services: [{google_grpc: {target_uri: \"unix:/none\", stat_prefix: x}}]}",
    );
    let sources = Sources::new(Default::default(), Some(&ads)).unwrap();
    State::new(Registry::default(), None, sources, limits, Arc::default())
}

fn state() -> State {
    state_with(Limits::default())
}

/// A cluster of type EDS whose check sends `send`, with more `fields`.
fn eds(name: &str, send: &str, fields: &str) -> Any {
    let yaml = format!(
        "
name: {name}
type: EDS
eds_cluster_config: {{eds_config: {{ads: {{}}}}}}
health_checks:
- timeout: 1s
  interval: 1s
  unhealthy_threshold: 2
  healthy_threshold: 2
  custom_health_check:
    name: x
    typed_config:
      \"@type\": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck
      send: {{text: \"{send}\"}}
      receive: {{text: \"00\"}}
{fields}"
    );
    body(&read::<Cluster>(&yaml))
}

fn body<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: type_url::<M>(),
        value: message.encode_to_vec(),
    }
}

/// An assignment of hosts at ports of loopback.
fn assignment(name: &str, ports: &[u32]) -> Any {
    let mut yaml = format!("cluster_name: {name}\nendpoints: [{{lb_endpoints: [");
    for port in ports {
        yaml += &format!(
            "{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}},"
        );
    }
    yaml += "]}]";
    body(&read::<ClusterLoadAssignment>(&yaml))
}

fn whole(version: &str, bodies: impl IntoIterator<Item = Any>) -> Answer {
    let item = |body| Item {
        body: Some(body),
        ..Item::default()
    };
    Answer {
        version: version.to_owned(),
        nonce: String::new(),
        whole: true,
        resources: bodies.into_iter().map(item).collect(),
        removed: Vec::new(),
        errors: Vec::new(),
    }
}

fn part(given: impl IntoIterator<Item = (&'static str, Any)>, removed: &[&str]) -> Answer {
    let item = |(name, body): (&str, Any)| Item {
        name: Some(name.to_owned()),
        version: "v".to_owned(),
        body: Some(body),
        ..Item::default()
    };
    Answer {
        whole: false,
        resources: given.into_iter().map(item).collect(),
        removed: removed.iter().map(|name| (*name).to_owned()).collect(),
        ..whole("", [])
    }
}

impl State {
    fn clusters(&mut self, answer: &Answer) -> Result<(), String> {
        self.handle_clusters(time(1), answer)
            .error
            .map_or(Ok(()), Err)
    }

    fn endpoints(&mut self, answer: &Answer) -> Result<(), String> {
        let ads = self.sources.ads().unwrap();
        self.handle_endpoints(time(2), ads, answer)
            .error
            .map_or(Ok(()), Err)
    }

    /// What follows, in short: `+a` for a cluster, `-a` for one that goes, `a=2` for so many hosts, `a?` for none
    /// to wait for; `>a` and `<a` for endpoints that are, or are no longer, asked for.
    fn poll_all(&mut self) -> String {
        let changes = std::iter::from_fn(|| self.poll_change());
        let changes = changes.filter_map(|change| {
            Some(match change {
                Change::Cluster(update) => format!("+{}", update.config.name),
                Change::RemoveCluster(name) => format!("-{name}"),
                Change::Hosts { cluster, hosts } => format!("{cluster}={}", hosts.len()),
                Change::HostsUnavailable(name) => format!("{name}?"),
                Change::ClustersTold => return None,
            })
        });
        let changes: Vec<_> = changes.collect();
        let wants = std::iter::from_fn(|| self.poll_want()).map(|want| match want {
            Want::Endpoints(_, name) => format!(">{name}"),
            Want::NoEndpoints(_, name) => format!("<{name}"),
        });
        changes
            .into_iter()
            .chain(wants)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

#[test]
fn clusters_come_change_and_go() {
    let mut state = state();
    state
        .clusters(&whole("1", [eds("a", "00", ""), eds("b", "00", "")]))
        .unwrap();
    assert_eq!(state.poll_all(), "+a +b >a >b");
    // The later ones are told their hosts first.
    state
        .endpoints(&whole(
            "1",
            [assignment("a", &[1]), assignment("b", &[1, 2])],
        ))
        .unwrap();
    assert_eq!(state.poll_all(), "b=2 a=1");
    // As it was, but in another place.
    state
        .clusters(&whole("2", [eds("b", "00", ""), eds("a", "00", "")]))
        .unwrap();
    assert_eq!(state.poll_all(), "");
    // The engine keeps the hosts that it knows.
    state
        .clusters(&whole("3", [eds("a", "01", ""), eds("b", "00", "")]))
        .unwrap();
    assert_eq!(state.poll_all(), "+a");
    state.clusters(&whole("4", [eds("b", "00", "")])).unwrap();
    assert_eq!(state.poll_all(), "-a <a");
    assert_eq!(state.hosts(), 2);
    // Its endpoints went with it.
    state
        .clusters(&whole("5", [eds("a", "00", ""), eds("b", "00", "")]))
        .unwrap();
    assert_eq!(state.poll_all(), "+a >a");
}

#[test]
fn what_checks_do_not_depend_on_changes_nothing_but_is_kept() {
    let mut state = state();
    state.clusters(&whole("1", [eds("a", "00", "")])).unwrap();
    state.poll_all();
    let other = eds("a", "00", "connect_timeout: 7s");
    state.clusters(&whole("2", [other.clone()])).unwrap();
    assert_eq!(state.poll_all(), "");
    let (version, records) = state.cluster_records();
    assert_eq!(&*version, "2");
    assert_eq!(records[0].resource, Some(other));
    assert_eq!(records[0].version_info.as_deref(), Some("2"));
}

#[test]
fn one_bad_resource_spoils_itself_only() {
    let mut state = state();
    state
        .clusters(&whole("1", [eds("a", "00", ""), eds("b", "00", "")]))
        .unwrap();
    state.poll_all();
    let error = state.clusters(&whole(
        "2",
        [eds("a", "0x", ""), eds("b", "01", ""), eds("new", "zz", "")],
    ));
    let at = "health_checks[0].custom_health_check.typed_config.send.text";
    let error = error.unwrap_err();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(lines[0].starts_with(&format!("a: {at}: ")), "{error}");
    assert!(lines[1].starts_with(&format!("new: {at}: ")), "{error}");
    // The good one was taken, and the last good form of the bad one stays.
    assert_eq!(state.poll_all(), "+b");
    let (version, records) = state.cluster_records();
    assert_eq!(&*version, "1");
    let shown: Vec<_> = records
        .iter()
        .map(|r| (&*r.name, r.version_info.as_deref(), r.error_state.is_some()))
        .collect();
    assert_eq!(
        shown,
        [
            ("a", Some("1"), true),
            ("b", Some("2"), false),
            ("new", None, true)
        ]
    );
    let refused = records[0].error_state.as_ref().unwrap();
    assert_eq!(refused.failed_configuration, eds("a", "0x", ""));
    assert_eq!(
        (&*refused.version_info, refused.last_update_attempt),
        ("2", time(1).wall)
    );
    assert!(refused.details.starts_with(at));
    // What is wrong is forgotten when the good form comes again, or nothing does.
    state
        .clusters(&whole("3", [eds("a", "00", ""), eds("b", "01", "")]))
        .unwrap();
    let (_, records) = state.cluster_records();
    assert!(records.iter().all(|record| record.error_state.is_none()));
    assert_eq!(records.len(), 2);
}

#[test]
fn all_faults_of_a_resource_are_told() {
    let mut state = state();
    let bad = eds("a", "zz", "connect_timeout: -1s\nalt_stat_name: x");
    let error = state.clusters(&whole("1", [bad])).unwrap_err();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(
        lines[0],
        "a: connect_timeout: Invalid duration: Expected positive duration, but is -1s"
    );
    assert!(
        lines[1].starts_with("a: health_checks[0].custom_health_check.typed_config.send.text: ")
    );
    assert_eq!(lines.len(), 2);
    let yaml = "{name: a, type: EDS, eds_cluster_config: {eds_config: {api_config_source: {api_type: REST}}}}";
    let error = state
        .clusters(&whole("1", [body(&read::<Cluster>(yaml))]))
        .unwrap_err();
    assert_eq!(
        error,
        "a: eds_cluster_config.eds_config.api_config_source.api_type: REST is not supported: give GRPC or DELTA_GRPC"
    );
    assert_eq!(state.poll_all(), "");
}

#[test]
fn what_cannot_be_read_may_be_any_cluster_so_none_is_missing() {
    let mut state = state();
    state.clusters(&whole("1", [eds("a", "00", "")])).unwrap();
    state.poll_all();
    let garbage = Any {
        type_url: type_url::<Cluster>(),
        value: vec![0xff; 9],
    };
    let error = state.clusters(&whole("2", [garbage])).unwrap_err();
    assert!(
        error.starts_with("resources[0]: no message of type envoy.config.cluster.v3.Cluster: "),
        "{error}"
    );
    let error = state
        .clusters(&whole("2", [assignment("a", &[])]))
        .unwrap_err();
    assert!(
        error.starts_with("resources[0]: is of type \"type.googleapis.com/envoy.config.endpoint")
    );
    let error = state
        .clusters(&whole("2", [eds("\"\"", "00", "")]))
        .unwrap_err();
    assert!(
        error.starts_with("resources[0]: name: value length must be at least 1"),
        "{error}"
    );
    assert_eq!(state.poll_all(), "-a <a", "only the last could be read");
}

#[test]
fn names_given_twice_are_refused_and_the_first_counts() {
    let mut state = state();
    let error = state
        .clusters(&whole("1", [eds("a", "00", ""), eds("a", "01", "")]))
        .unwrap_err();
    assert_eq!(error, "a: name: is that of another cluster of this answer");
    assert_eq!(state.poll_all(), "+a >a");
    let error = state.endpoints(&whole("1", [assignment("a", &[1]), assignment("a", &[])]));
    assert_eq!(
        error.unwrap_err(),
        "a: cluster_name: is that of another assignment of this answer"
    );
    assert_eq!(state.poll_all(), "a=1");
}

#[test]
fn incremental_answers_add_and_remove() {
    let mut state = state();
    state
        .clusters(&part(
            [("a", eds("a", "00", "")), ("b", eds("b", "00", ""))],
            &["c"],
        ))
        .unwrap();
    assert_eq!(state.poll_all(), "+a +b >a >b");
    state
        .clusters(&part([("b", eds("b", "01", ""))], &["a"]))
        .unwrap();
    assert_eq!(state.poll_all(), "+b -a <a");
    let mut aliased = part([("real", assignment("real", &[1]))], &[]);
    aliased.resources[0].aliases = vec!["x".to_owned(), "b".to_owned()];
    state.endpoints(&aliased).unwrap();
    assert_eq!(state.poll_all(), "b=1");
    // As with Envoy, hosts stay when their assignment is removed.
    state.endpoints(&part([], &["b", "unknown"])).unwrap();
    assert_eq!(state.poll_all(), "");
    let error = state
        .endpoints(&part([("b", assignment("c", &[1]))], &[]))
        .unwrap_err();
    assert_eq!(
        error,
        "b: cluster_name: is \"c\", but the resource is named \"b\""
    );
}

#[test]
fn assignments_that_nobody_asked_for_are_passed_over() {
    let mut state = state();
    state
        .endpoints(&whole("1", [assignment("a", &[1])]))
        .unwrap();
    state.clusters(&whole("1", [eds("a", "00", "")])).unwrap();
    assert_eq!(state.poll_all(), "+a >a");
    assert_eq!(state.endpoint_records(), []);
}

#[test]
fn clusters_share_the_assignment_of_their_service() {
    let mut state = state();
    let shared = |name: &str| {
        let yaml = format!(
            "{{name: {name}, type: EDS, eds_cluster_config: {{service_name: s, eds_config: {{ads: {{}}}}}}}}"
        );
        body(&read::<Cluster>(&yaml))
    };
    state
        .clusters(&whole("1", [shared("a"), shared("b")]))
        .unwrap();
    assert_eq!(state.poll_all(), "+a +b >s");
    state
        .endpoints(&whole("1", [assignment("s", &[1])]))
        .unwrap();
    assert_eq!(state.poll_all(), "b=1 a=1");
    state
        .clusters(&whole("2", [shared("b"), shared("c")]))
        .unwrap();
    assert_eq!(state.poll_all(), "+c c=1 -a");
    // Another name to ask by: the hosts stay until it is answered.
    state.clusters(&whole("3", [eds("b", "00", "")])).unwrap();
    assert_eq!(state.poll_all(), "+b -c >b <s");
}

#[test]
fn hosts_are_waited_for_only_so_long() {
    let mut state = state();
    let with = |name: &str, wait: &str| {
        let yaml = format!(
            "{{name: {name}, type: EDS, eds_cluster_config: {{eds_config: {{ads: {{}}{wait}}}}}}}"
        );
        body(&read::<Cluster>(&yaml))
    };
    let clusters = [
        with("a", ""),
        with("b", ", initial_fetch_timeout: 3s"),
        with("c", ", initial_fetch_timeout: 0s"),
        with("d", ", initial_fetch_timeout: 4s"),
    ];
    state.clusters(&whole("1", clusters)).unwrap();
    state
        .endpoints(&whole("1", [assignment("d", &[])]))
        .unwrap();
    state.poll_all();
    assert_eq!(state.poll_timeout(), Some(time(4).now));
    state.handle_timeout(time(4));
    assert_eq!(state.poll_all(), "b?");
    assert_eq!(state.poll_timeout(), Some(time(16).now));
    state.handle_timeout(time(16));
    // Without an end, "c" is waited for on and on.
    assert_eq!(state.poll_all(), "a?");
    assert_eq!(state.poll_timeout(), None);
    let timeouts = |name: &str| {
        let name: Arc<str> = name.into();
        state
            .stats
            .cluster(&name, &name)
            .updates
            .init_fetch_timeout
            .value()
    };
    assert_eq!(["a", "b", "c", "d"].map(timeouts), [1, 1, 0, 0]);
}

#[test]
fn what_could_not_be_read_of_a_resource_is_its_fault() {
    let mut state = state();
    state
        .clusters(&whole("1", [eds("a", "00", ""), eds("b", "00", "")]))
        .unwrap();
    state.poll_all();
    let spoil = |answer: &mut Answer, index: usize| {
        answer.resources[index].fault = Some(ConfigError::new("f", "is odd"));
    };
    let mut answer = whole("2", [eds("a", "01", ""), eds("b", "01", "")]);
    spoil(&mut answer, 0);
    assert_eq!(state.clusters(&answer).unwrap_err(), "a: f: is odd");
    assert_eq!(state.poll_all(), "+b");
    // It may be any of those that seem to be missing.
    let mut answer = whole("3", [eds("", "00", ""), eds("b", "01", "")]);
    spoil(&mut answer, 0);
    assert_eq!(
        state.clusters(&answer).unwrap_err(),
        "resources[0]: f: is odd"
    );
    assert_eq!(state.poll_all(), "");

    let mut answer = whole("1", [assignment("a", &[1]), assignment("b", &[1])]);
    spoil(&mut answer, 1);
    assert_eq!(state.endpoints(&answer).unwrap_err(), "b: f: is odd");
    assert_eq!(state.poll_all(), "b? a=1");
    let mut answer = whole("2", [assignment("", &[1]), assignment("c", &[1])]);
    spoil(&mut answer, 0);
    spoil(&mut answer, 1);
    assert_eq!(
        state.endpoints(&answer).unwrap_err(),
        "resources[0]: f: is odd"
    );
    assert_eq!(state.poll_all(), "");
}

#[test]
fn hosts_that_are_refused_are_waited_for_no_longer() {
    let mut state = state();
    state
        .clusters(&whole("1", [eds("a", "00", ""), eds("b", "00", "")]))
        .unwrap();
    state.poll_all();
    state
        .endpoints(&whole("1", [assignment("a", &[70_000])]))
        .unwrap_err();
    assert_eq!(state.poll_all(), "a?");
    // Whom a file says nothing of neither.
    let ads = state.sources.ads().unwrap();
    state.file_was_read(ads);
    assert_eq!(state.poll_all(), "b?");
    assert_eq!(state.poll_timeout(), None);
}

#[test]
fn the_first_answer_of_clusters_is_told_of_after_them_and_once() {
    let told = |state: &mut State| {
        let changes = std::iter::from_fn(|| state.poll_change());
        let changes = changes.map(|change| matches!(change, Change::ClustersTold));
        changes.collect::<Vec<_>>()
    };
    let mut of_good = state();
    let answer = whole("1", [eds("a", "00", ""), eds("b", "00", "")]);
    of_good.clusters(&answer).unwrap();
    assert_eq!(told(&mut of_good), [false, false, true]);
    of_good.clusters(&whole("2", [])).unwrap();
    of_good.end_wait_for_clusters();
    assert_eq!(told(&mut of_good), [false, false]);

    let mut of_bad = state();
    of_bad
        .clusters(&whole("1", [eds("a", "0", "")]))
        .unwrap_err();
    assert_eq!(told(&mut of_bad), [true]);
}

#[test]
fn what_is_given_for_a_time_goes_unless_it_is_given_again() {
    let mut state = state();
    let mut answer = part([("a", eds("a", "00", ""))], &[]);
    answer.resources[0].ttl = Some(Duration::from_secs(5));
    state.clusters(&answer).unwrap();
    state.poll_all();
    answer.resources[0].body = None;
    state.handle_clusters(time(4), &answer);
    state.handle_timeout(time(8));
    assert_eq!(state.poll_all(), "");
    state.handle_timeout(time(9));
    assert_eq!(state.poll_all(), "-a <a");
}

/// All that a duration can be on the wire.
fn durations() -> impl Iterator<Item = prost_types::Duration> {
    let seconds = [i64::MIN, i64::MIN + 1, -1, 0, 5, 9_223_372_036, i64::MAX];
    let nanos = [i32::MIN, -1, 0, 1_000_000_000, i32::MAX];
    seconds
        .into_iter()
        .flat_map(move |seconds| nanos.map(|nanos| prost_types::Duration { seconds, nanos }))
}

#[test]
fn a_time_to_live_that_is_none_spoils_its_resource_only() {
    use crate::proto::envoy::service::discovery::v3::Resource;

    for ttl in durations() {
        let mut state = state();
        let wrapped = |name: &str, ttl| {
            body(&Resource {
                name: name.to_owned(),
                ttl,
                resource: Some(eds(name, "00", "")),
                ..Resource::default()
            })
        };
        let answer: Answer = DiscoveryResponse {
            type_url: type_url::<Cluster>(),
            resources: vec![wrapped("a", Some(ttl)), wrapped("b", None)],
            ..DiscoveryResponse::default()
        }
        .into();
        let good = duration::read(&ttl).is_ok();
        let error = state.handle_clusters(time(0), &answer).error;
        let told = error
            .as_deref()
            .is_none_or(|error| error.starts_with("a: ttl: Invalid duration: "));
        assert!(error.is_none() == good && told, "{ttl:?}: {error:?}");
        let taken = if good { "+a +b >a >b" } else { "+b >b" };
        assert_eq!(state.poll_all(), taken, "{ttl:?}");

        // The life of what is there is prolonged by none.
        let prolonged: Answer = DeltaDiscoveryResponse {
            resources: vec![Resource {
                name: "b".to_owned(),
                ttl: Some(ttl),
                ..Resource::default()
            }],
            ..DeltaDiscoveryResponse::default()
        }
        .into();
        let error = state.handle_clusters(time(0), &prolonged).error;
        assert_eq!(error.is_none(), good, "{ttl:?}: {error:?}");
        let ads = state.sources.ads().unwrap();
        let error = state.handle_endpoints(time(0), ads, &prolonged).error;
        assert_eq!(error.is_none(), good, "{ttl:?}: {error:?}");
    }
}

#[test]
fn no_duration_in_a_resource_does_more_than_spoil_it() {
    use crate::proto::envoy::config::core::v3::ConfigSource;
    use prost_types::Duration as Message;

    let set: [fn(&mut Cluster, Option<Message>); 5] = [
        |cluster, value| cluster.connect_timeout = value,
        |cluster, value| cluster.health_checks[0].timeout = value,
        |cluster, value| cluster.health_checks[0].interval_jitter = value,
        |cluster, value| cluster.dns_refresh_rate = value,
        |cluster, value| {
            let eds = cluster.eds_cluster_config.as_mut().unwrap();
            let source: &mut ConfigSource = eds.eds_config.as_mut().unwrap();
            source.initial_fetch_timeout = value;
        },
    ];
    for value in durations() {
        for set in set {
            let mut cluster = Cluster::decode(&*eds("a", "00", "").value).unwrap();
            set(&mut cluster, Some(value));
            // It is taken or refused; either way there is an answer.
            let answer = whole("1", [body(&cluster), eds("b", "00", "")]);
            let error = state().handle_clusters(time(0), &answer).error;
            let told = error
                .as_deref()
                .is_none_or(|error| error.starts_with("a: "));
            assert!(told, "{value:?}: {error:?}");
        }
        let mut state = state();
        state.clusters(&whole("1", [eds("a", "00", "")])).unwrap();
        let mut message = ClusterLoadAssignment::decode(&*assignment("a", &[1]).value).unwrap();
        message.policy.get_or_insert_default().endpoint_stale_after = Some(value);
        let ads = state.sources.ads().unwrap();
        state.handle_endpoints(time(0), ads, &whole("1", [body(&message)]));
    }
}

#[test]
fn endpoints_go_stale_unless_they_are_given_again_in_their_time() {
    let mut state = state();
    state.clusters(&whole("1", [eds("a", "00", "")])).unwrap();
    let given = |after: &str| {
        let mut message: ClusterLoadAssignment = read(&format!(
            "{{cluster_name: a, policy: {{{after}overprovisioning_factor: 140}}}}"
        ));
        let ports = ClusterLoadAssignment::decode(&*assignment("a", &[1, 2]).value).unwrap();
        message.endpoints = ports.endpoints;
        whole("1", [body(&message)])
    };
    let ads = state.sources.ads().unwrap();
    let stale = given("endpoint_stale_after: 5s, ");
    assert_eq!(state.handle_endpoints(time(2), ads, &stale).error, None);
    assert_eq!(state.poll_all(), "+a a=2 >a");
    // The same again is word of them, too.
    assert_eq!(state.handle_endpoints(time(6), ads, &stale).error, None);
    assert_eq!(state.poll_timeout(), Some(time(11).now));
    state.handle_timeout(time(10));
    assert_eq!((state.poll_all().as_str(), state.hosts()), ("", 2));
    state.handle_timeout(time(11));
    assert_eq!((state.poll_all().as_str(), state.hosts()), ("a=0", 0));
    assert_eq!(state.poll_timeout(), None);

    state.handle_endpoints(time(12), ads, &stale);
    state.handle_endpoints(time(13), ads, &given(""));
    assert_eq!(state.poll_timeout(), None);
    assert_eq!((state.poll_all().as_str(), state.hosts()), ("a=2 a=2", 2));
    let updates = Arc::clone(&state.stats.cluster(&"a".into(), &"a".into()).updates);
    assert_eq!(updates.assignment_timeout_received.value(), 3);
    assert_eq!(updates.assignment_stale.value(), 1);
    state.handle_endpoints(time(14), ads, &stale);
    state.clusters(&whole("2", [])).unwrap();
    assert_eq!(
        state.poll_timeout(),
        None,
        "a deadline goes with its cluster"
    );
}

#[test]
fn limits_are_told() {
    let limits = Limits {
        clusters: 2,
        hosts: 3,
        name_bytes: 8,
        ..Limits::default()
    };
    let mut state = state_with(limits);
    let error = state.clusters(&whole(
        "1",
        [
            eds("a", "00", ""),
            eds("b", "00", ""),
            eds("c", "00", ""),
            eds("too-long-a-name", "00", ""),
        ],
    ));
    assert_eq!(
        error.unwrap_err(),
        "c: at most 2 clusters are taken\ntoo-long-a-name: name: is 15 bytes long, but at most 8 are taken"
    );
    state
        .endpoints(&whole("1", [assignment("a", &[1, 2])]))
        .unwrap();
    let error = state
        .endpoints(&whole("2", [assignment("b", &[1, 2])]))
        .unwrap_err();
    assert_eq!(
        error,
        "b: endpoints: 4 endpoints in all, but at most 3 are taken"
    );
    // What an assignment had before makes room for what it has now.
    state
        .endpoints(&whole("3", [assignment("a", &[1, 2, 3])]))
        .unwrap();
    assert_eq!(state.hosts(), 3);
}

#[test]
fn a_cluster_of_the_bootstrap_is_not_changed() {
    let mut state = state();
    let config = ClusterConfig::from_bytes(&eds("a", "00", "").value, &mut Warnings::default());
    state
        .add_static(time(0), &Arc::new(config.unwrap()))
        .unwrap();
    assert_eq!(state.poll_all(), ">a");
    state.clusters(&whole("1", [eds("a", "01", "")])).unwrap();
    state.clusters(&whole("2", [])).unwrap();
    state.clusters(&part([], &["a"])).unwrap();
    assert_eq!(state.poll_all(), "");
    assert_eq!(state.cluster_records().1, []);
    state
        .endpoints(&whole("1", [assignment("a", &[1])]))
        .unwrap();
    assert_eq!(state.poll_all(), "a=1");
}

proptest! {
    #[test]
    fn any_bytes_are_taken_or_refused(
        given in prop::collection::vec((0..4_u8, prop::collection::vec(any::<u8>(), 0..60)), 0..8),
    ) {
        let mut state = state();
        for (kind, bytes) in given {
            let body = match kind {
                0 => eds("a", "00", ""),
                1 => Any { type_url: type_url::<Cluster>(), value: bytes },
                2 => Any { type_url: type_url::<ClusterLoadAssignment>(), value: bytes },
                _ => assignment("a", &[1, 2]),
            };
            let answer = whole("1", [body]);
            let _ = state.clusters(&answer);
            let _ = state.endpoints(&answer);
            state.poll_all();
        }
    }
}
