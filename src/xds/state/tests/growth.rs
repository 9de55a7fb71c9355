//! What a server may make grow, and how far.

use super::*;

/// A cluster with hosts of its own at ports of loopback, and with so many bytes of metadata.
fn own(name: &str, ports: &[u16], bytes: usize) -> Any {
    use crate::proto::envoy::config::cluster::v3::cluster::ClusterDiscoveryType;
    let assignment: ClusterLoadAssignment = Message::decode(
        &*assignment(name, &ports.iter().map(|p| (*p).into()).collect::<Vec<_>>()).value,
    )
    .unwrap();
    let mut cluster = Cluster {
        name: name.to_owned(),
        load_assignment: Some(assignment),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(0)),
        ..Cluster::default()
    };
    cluster.alt_stat_name = "s".repeat(bytes);
    body(&cluster)
}

fn limited(change: impl FnOnce(&mut Limits)) -> State {
    let mut limits = Limits::default();
    change(&mut limits);
    state_with(limits)
}

#[test]
fn a_cluster_is_known_by_one_name_at_a_time() {
    let mut state = state();
    state
        .clusters(&part([("x1", eds("c", "00", ""))], &[]))
        .unwrap();
    let again = part([("x2", eds("c", "01", ""))], &[]);
    let error = state.clusters(&again).unwrap_err();
    assert_eq!(error, "c: name: is given as the resource \"x1\" already");
    assert_eq!((state.renamed.len(), state.names.len()), (1, 1));
    // A server that takes the old name away may give a new one.
    state
        .clusters(&part([("x2", eds("c", "01", ""))], &["x1"]))
        .unwrap();
    assert_eq!(state.poll_all(), "+c +c >c");
    state.clusters(&part([], &["x2"])).unwrap();
    assert_eq!(state.poll_all(), "-c <c");
    assert_eq!((state.renamed.len(), state.names.len()), (0, 0));
}

#[test]
fn names_of_clusters_that_were_not_taken_are_not_remembered() {
    let mut state = limited(|limits| limits.clusters = 1);
    state
        .clusters(&part([("a", eds("a", "00", ""))], &[]))
        .unwrap();
    state
        .clusters(&part([("x", eds("b", "00", ""))], &[]))
        .unwrap_err();
    assert_eq!((state.renamed.len(), state.names.len()), (0, 0));
}

#[test]
fn a_name_cannot_pass_for_a_line_of_its_own() {
    let mut state = state();
    let mut cluster: Cluster = Message::decode(&*own("a", &[], 0).value).unwrap();
    cluster.name = "a\nb::health_flags::healthy".to_owned();
    let error = state.clusters(&whole("1", [body(&cluster)]));
    let wanted = "a\nb::health_flags::healthy: name: holds the control character '\\n'";
    assert_eq!(error.unwrap_err(), wanted);
    assert_eq!(state.poll_all(), "");
}

#[test]
fn long_versions_are_not_kept() {
    let mut state = limited(|limits| limits.name_bytes = 8);
    let error = state.clusters(&whole("123456789", [eds("a", "00", "")]));
    let wanted = "a: the version is 9 bytes long, but at most 8 are taken";
    assert_eq!(error.unwrap_err(), wanted);
}

#[test]
fn only_so_many_bytes_are_kept() {
    let mut state = limited(|limits| limits.kept_bytes = 1_000);
    state
        .clusters(&part([("a", own("a", &[], 600))], &[]))
        .unwrap();
    let error = state.clusters(&part([("b", own("b", &[], 600))], &[]));
    assert!(
        error
            .unwrap_err()
            .contains("of resources in all, but at most 1000 are kept")
    );
    assert!(state.kept <= 1_000);
    // It may change its form all the same, and once it went there is room again.
    state
        .clusters(&part([("a", own("a", &[1], 600))], &[]))
        .unwrap();
    state.clusters(&part([], &["a", "b"])).unwrap();
    assert_eq!(state.kept, 0);
    state
        .clusters(&part([("b", own("b", &[], 600))], &[]))
        .unwrap();
}

#[test]
fn bytes_of_all_that_went_are_free() {
    let mut state = state();
    state
        .clusters(&whole("1", [eds("a", "00", ""), eds("b", "00", "")]))
        .unwrap();
    state
        .endpoints(&whole("1", [assignment("a", &[1])]))
        .unwrap();
    state
        .clusters(&whole("2", [eds("a", "0x", ""), eds("b", "00", "")]))
        .unwrap_err();
    state
        .endpoints(&whole("2", [assignment("a", &[70_000])]))
        .unwrap_err();
    let all = |state: &State| -> usize {
        let known = state.clusters.values().map(Known::weight);
        known
            .chain(state.watched.values().map(Watched::weight))
            .sum()
    };
    assert_eq!(state.kept, all(&state));
    state
        .clusters(&whole("3", [eds("a", "00", ""), eds("b", "00", "")]))
        .unwrap();
    state
        .endpoints(&whole("3", [assignment("a", &[1])]))
        .unwrap();
    assert_eq!(state.kept, all(&state));
    state.clusters(&whole("4", [])).unwrap();
    assert_eq!((state.kept, state.hosts, state.watched.len()), (0, 0, 0));
}

#[test]
fn hosts_of_all_clusters_count_together() {
    let mut state = limited(|limits| limits.hosts = 3);
    state
        .clusters(&part([("a", own("a", &[1, 2], 0))], &[]))
        .unwrap();
    let error = state.clusters(&part([("b", own("b", &[1, 2], 0))], &[]));
    assert_eq!(
        error.unwrap_err(),
        "b: endpoints: 4 endpoints in all, but at most 3 are taken"
    );
    state
        .clusters(&part([("a", own("a", &[1], 0))], &[]))
        .unwrap();
    state
        .clusters(&part([("b", own("b", &[1, 2], 0))], &[]))
        .unwrap();
    assert_eq!(state.hosts, 3);
    state.clusters(&part([], &["a", "b"])).unwrap();
    assert_eq!(state.hosts, 0);
}

#[test]
fn sources_that_nobody_asks_are_forgotten() {
    let mut state = limited(|limits| limits.sources = 2);
    let from = |name: &str, path: &str| {
        let mut cluster: Cluster = Message::decode(&*eds(name, "00", "").value).unwrap();
        let source = read(&format!("{{path_config_source: {{path: {path}}}}}"));
        cluster.eds_cluster_config.as_mut().unwrap().eds_config = Some(source);
        body(&cluster)
    };
    for turn in 0..10 {
        let path = format!("/{turn}");
        state.clusters(&whole("1", [from("c", &path)])).unwrap();
        // The aggregated stream is another one.
        assert_eq!(state.sources.len(), 2);
    }
    let many = ["a", "b", "c", "d"].map(|name| from(name, &format!("/{name}")));
    let error = state.clusters(&whole("2", many)).unwrap_err();
    assert!(
        error.contains("at most 2 sources are asked for endpoints"),
        "{error}"
    );
    assert!(state.sources.len() <= 4);
    state.clusters(&whole("3", [])).unwrap();
    assert_eq!(state.sources.len(), 1);
}
