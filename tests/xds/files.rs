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
    let resources = format!(
        "cds_config: {{path_config_source: {{path: {}}}}}",
        clusters.display()
    );
    let nobody = "127.0.0.1:1".parse().unwrap();
    let daemon = Daemon::start(&bootstrap(&resources, nobody, ""));
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
