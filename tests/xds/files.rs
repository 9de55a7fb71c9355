//! Resources from files.

use std::path::Path;

use prost::Message;

use super::*;
use xds_health::proto::envoy::service::discovery::v3::DiscoveryResponse;

fn response(resources: Vec<Any>) -> Vec<u8> {
    let response = DiscoveryResponse {
        resources,
        version_info: "1".to_owned(),
        ..DiscoveryResponse::default()
    };
    response.encode_to_vec()
}

/// Moves a file to its place, as whoever edits it must.
fn put(path: &Path, bytes: &[u8]) {
    let part = path.with_extension("part");
    std::fs::write(&part, bytes).unwrap();
    std::fs::rename(part, path).unwrap();
}

/// A daemon whose clusters are those of a file.
fn following(clusters: &Path) -> Daemon {
    let resources = format!(
        "cds_config: {{path_config_source: {{path: {}}}}}",
        clusters.display()
    );
    let nobody = "127.0.0.1:1".parse().unwrap();
    Daemon::start(&bootstrap(&resources, nobody, ""))
}

#[tokio::test]
async fn clusters_and_endpoints_from_files_and_their_changes() {
    let directory = tempfile::tempdir().unwrap();
    let (clusters, endpoints) = (
        directory.path().join("cds.pb"),
        directory.path().join("eds.yaml"),
    );
    let yaml = |port: u16| {
        format!(
            "
version_info: \"7\"
resources:
- \"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: a
  endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}]}}]
"
        )
    };
    put(&endpoints, yaml(1).as_bytes());
    let source = format!("path_config_source: {{path: {}}}", endpoints.display());
    put(&clusters, &response(vec![eds_from("a", "00", &source)]));
    let daemon = following(&clusters);
    daemon
        .until("a", |hosts| health(hosts) == [(1, true)])
        .await;
    assert_eq!(
        daemon.dump.endpoints()[0].version_info.as_deref(),
        Some("7")
    );

    // A change in place is not seen; one that is moved to the place is. What is half done is refused.
    put(&endpoints, b"resources: [");
    std::fs::write(&endpoints, yaml(FAILING)).unwrap();
    daemon
        .when(|daemon| {
            daemon.stat("cluster.a.update_failure") + daemon.stat("cluster.a.update_success") > 1
        })
        .await;
    put(&endpoints, yaml(2).as_bytes());
    daemon
        .until("a", |hosts| health(hosts).contains(&(2, true)))
        .await;
    put(
        &clusters,
        &response(vec![
            eds_from("a", "00", &source),
            eds_from("b", "00", &source),
        ]),
    );
    daemon
        .when(|daemon| daemon.engine.cluster("b").is_some())
        .await;
    put(&clusters, &response(vec![eds_from("b", "00", &source)]));
    daemon
        .when(|daemon| daemon.engine.cluster("a").is_none())
        .await;
}

#[tokio::test]
async fn a_watched_directory_is_the_sign() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cds.pb");
    let signs = directory.path().join("signs");
    std::fs::create_dir(&signs).unwrap();
    std::fs::write(&path, response(vec![eds("a")])).unwrap();
    let resources = format!(
        "cds_config: {{path_config_source: {{path: {}, watched_directory: {{path: {}}}}}}}, \
         ads_config: {{api_type: GRPC, grpc_services: [{{envoy_grpc: {{cluster_name: plane}}}}]}}",
        path.display(),
        signs.display()
    );
    let nobody = "127.0.0.1:1".parse().unwrap();
    let daemon = Daemon::start(&bootstrap(&resources, nobody, H2));
    daemon
        .when(|daemon| daemon.engine.cluster("a").is_some())
        .await;
    std::fs::write(&path, response(vec![eds("b")])).unwrap();
    put(&signs.join("sign"), b"");
    daemon
        .when(|daemon| daemon.engine.cluster("b").is_some())
        .await;
    assert!(daemon.engine.cluster("a").is_none());
}

/// A file of clusters; the interval of the second is as given.
fn two(interval: &str) -> String {
    let cluster = |name: &str, interval: &str| {
        format!(
            "
- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: {name}
  type: STATIC
  health_checks:
  - timeout: 1s
    interval: {interval}
    unhealthy_threshold: 2
    healthy_threshold: 2
    custom_health_check:
      name: x
      typed_config:
        \"@type\": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck
        send: {{text: \"00\"}}
        receive: {{text: \"00\"}}"
        )
    };
    let (a, b) = (cluster("a", "1s"), cluster("b", interval));
    format!("version_info: \"{interval}\"\nresources:{a}{b}\n")
}

#[tokio::test]
async fn a_field_that_cannot_be_read_spoils_its_resource_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cds.yaml");
    put(&path, two("soon").as_bytes());
    let daemon = following(&path);
    daemon
        .when(|daemon| daemon.engine.cluster("a").is_some())
        .await;
    assert!(daemon.engine.cluster("b").is_none());
    let refused = || daemon.dump.connections()[0].last_nack.clone();
    let interval = |daemon: &Daemon| {
        let config = daemon.engine.cluster("b")?.config();
        Some(config.health_checks[0].interval.as_secs())
    };
    let nack = refused().unwrap();
    assert_eq!(
        &*nack.details,
        "b: line 22, column 15: health_checks[0].interval: \"soon\" is not a duration: want digits, at most nine \
         decimals, then s, as in 0.25s"
    );
    assert_eq!(&*nack.version_info, "soon");
    let records = daemon.dump.clusters();
    assert!(records[0].error_state.is_none());
    assert!(records[1].error_state.is_some() && records[1].resource.is_none());
    assert_eq!(daemon.stat("cluster_manager.cds.update_rejected"), 1);

    put(&path, two("2s").as_bytes());
    daemon.when(|daemon| interval(daemon) == Some(2)).await;
    // The last good form stays in force.
    put(&path, two("[]").as_bytes());
    daemon
        .when(|daemon| daemon.stat("cluster_manager.cds.update_rejected") == 2)
        .await;
    assert_eq!(interval(&daemon), Some(2));
    // So does all of it when a file says nothing that could be read.
    put(&path, b"resources: [");
    daemon
        .when(|daemon| daemon.stat("cluster_manager.cds.update_failure") == 1)
        .await;
    let details = refused().unwrap().details;
    assert!(details.starts_with("line 1, column "), "{details}");
    assert_eq!(interval(&daemon), Some(2));
    assert!(daemon.engine.cluster("a").is_some());
    assert_eq!(daemon.dump.connections()[0].last_failure, None);
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_told_of() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cds.yaml");
    std::fs::create_dir(&path).unwrap();
    let daemon = following(&path);
    daemon
        .when(|daemon| {
            let connections = daemon.dump.connections();
            connections
                .first()
                .is_some_and(|of| of.last_failure.is_some())
        })
        .await;
    let of = &daemon.dump.connections()[0];
    assert_eq!(
        &*of.last_failure.as_ref().unwrap().reason,
        "is no regular file"
    );
    assert!(of.last_answer.is_none() && of.last_nack.is_none());
}
