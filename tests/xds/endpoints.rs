//! What changes of endpoints do to health.

use std::slice::from_ref;

use super::*;
use crate::control_plane::ControlPlane;
use xds_health::proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use xds_health::xds::{CLUSTER, ENDPOINTS};

fn endpoint(port: u16, check: Option<u16>) -> String {
    let check = check.map_or_else(String::new, |port| {
        format!(", health_check_config: {{port_value: {port}}}")
    });
    format!(
        "{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}{check}}}}}"
    )
}

fn groups(groups: &[(u32, &[String])]) -> Any {
    let groups: Vec<_> = groups
        .iter()
        .map(|(priority, endpoints)| {
            format!(
                "{{priority: {priority}, lb_endpoints: [{}]}}",
                endpoints.join(",")
            )
        })
        .collect();
    let groups = groups.join(",");
    any(&read::<ClusterLoadAssignment>(&format!(
        "{{cluster_name: a, endpoints: [{groups}]}}"
    )))
}

/// Priorities, a health check port and duplicates in a row, which Envoy 1.40.0 does not survive.
#[tokio::test]
async fn edits_in_a_row_leave_one_session_and_no_gap() {
    let (mut plane, address) = ControlPlane::start().await;
    let daemon = Daemon::start(&bootstrap(&ads("GRPC"), address, H2));
    let mut stream = plane.stream().await;
    stream.sotw().await;
    stream.say(CLUSTER, "1", vec![eds("a")]).await;
    stream.sotw().await;
    stream.sotw().await;
    let (own, other) = (endpoint(1, None), endpoint(1, Some(2)));
    let edits = [
        groups(&[(0, from_ref(&own))]),
        groups(&[(0, from_ref(&own)), (1, from_ref(&own))]),
        groups(&[(0, &[other])]),
        groups(&[(0, &[own.clone(), own.clone()])]),
        groups(&[(0, from_ref(&own)), (1, from_ref(&own))]),
        groups(&[(0, from_ref(&own))]),
    ];
    for (version, edit) in edits.into_iter().enumerate() {
        let version = version.to_string();
        stream.say(ENDPOINTS, &version, vec![edit]).await;
        assert_eq!(stream.sotw().await.version_info, version);
        daemon
            .until("a", |hosts| {
                hosts.len() == 1 && health(hosts) == [(1, true)]
            })
            .await;
    }
    let cluster = daemon.engine.cluster("a").unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 1)).into();
    assert_eq!(cluster.explain(&address).await.unwrap().len(), 1);
    daemon
        .when(|daemon| daemon.stat("cluster.a.health_check.healthy") == 1)
        .await;
    assert_eq!(daemon.stat("cluster.a.membership_total"), 1);
    assert!(daemon.checker.attempts(2) > 0);
}

#[tokio::test]
async fn a_changed_check_goes_on_with_the_endpoints_that_are_known() {
    let (mut plane, address) = ControlPlane::start().await;
    let daemon = Daemon::start(&bootstrap(&ads("DELTA_GRPC"), address, H2));
    let mut stream = plane.stream().await;
    stream.delta().await;
    stream.change(CLUSTER, "1", &[("a", eds("a"))], &[]).await;
    stream
        .change(ENDPOINTS, "early", &[("a", assignment("a", &[9]))], &[])
        .await;
    let first = [stream.delta().await, stream.delta().await];
    assert!(
        first
            .iter()
            .any(|request| request.resource_names_subscribe == ["a"])
    );
    stream
        .change(ENDPOINTS, "1", &[("a", assignment("a", &[1]))], &[])
        .await;
    daemon
        .until("a", |hosts| health(hosts) == [(1, true)])
        .await;
    let before = daemon.checker.attempts(1);
    stream
        .change(CLUSTER, "2", &[("a", eds_from("a", "01", "ads: {}"))], &[])
        .await;
    // Checked at once by the new check, long before an interval has passed, and healthy all along.
    daemon
        .when(|daemon| daemon.checker.attempts(1) > before)
        .await;
    daemon
        .until("a", |hosts| health(hosts) == [(1, true)])
        .await;
    assert_eq!(daemon.stat("cluster_manager.cluster_modified"), 1);
}

#[tokio::test]
async fn an_assignment_that_never_comes_ends_the_wait() {
    let (mut plane, address) = ControlPlane::start().await;
    let daemon = Daemon::start(&bootstrap(&ads("GRPC"), address, H2));
    let mut stream = plane.stream().await;
    stream.sotw().await;
    let source = "ads: {}, initial_fetch_timeout: 0.05s";
    stream
        .say(CLUSTER, "1", vec![eds_from("a", "00", source)])
        .await;
    daemon.until("a", Snapshot::initialized).await;
    assert_eq!(daemon.stat("cluster.a.init_fetch_timeout"), 1);
}
