//! When the daemon is ready: as an Envoy, once clusters were told and have done their first round.

use std::net::{SocketAddr, TcpListener, TcpStream};

use prost_types::Any;
use xds_health::config::text::Document;
use xds_health::proto::envoy::config::cluster::v3::Cluster;
use xds_health::xds::CLUSTER;

use crate::config::{ADMIN, OFTEN, check};
use crate::control_plane::{ControlPlane, any};
use crate::daemon::{Daemon, eventually};
use crate::http::get;
use crate::peer::Peer;

/// A bootstrap whose clusters come from `source`, for as long as that may take; `plane` is where a server is.
fn bootstrap(source: &str, plane: SocketAddr) -> String {
    format!(
        "
node: {{id: n1, cluster: checkers}}
{ADMIN}
dynamic_resources:
  cds_config: {{{source}}}
  ads_config: {{api_type: GRPC, grpc_services: [{{envoy_grpc: {{cluster_name: plane}}}}]}}
static_resources:
  clusters:
  - name: plane
    http2_protocol_options: {{}}
    load_assignment: {}
",
        assignment("plane", plane)
    )
}

const ADS: &str = "ads: {}, initial_fetch_timeout: 0s";

fn assignment(cluster: &str, host: SocketAddr) -> String {
    let (address, port) = (host.ip(), host.port());
    let address = format!("socket_address: {{address: {address}, port_value: {port}}}");
    let endpoint = format!("{{endpoint: {{address: {{{address}}}}}}}");
    format!("{{cluster_name: {cluster}, endpoints: [{{lb_endpoints: [{endpoint}]}}]}}")
}

fn cluster(host: SocketAddr) -> Any {
    let assignment = assignment("c", host);
    let check = check(OFTEN);
    let yaml = format!(
        "{{name: c, type: STATIC, load_assignment: {assignment}, health_checks: [{check}]}}"
    );
    let read = Document::from_yaml(&yaml).unwrap().read::<Cluster>();
    assert_eq!(read.faults, []);
    any(&read.message)
}

/// What tells whether it is ready, which must agree.
async fn state(daemon: &Daemon) -> (u16, &'static str) {
    let admin = daemon.admin().await;
    let ready = get(admin, "/ready").await;
    let info: serde_json::Value =
        serde_json::from_str(&get(admin, "/server_info").await.body).unwrap();
    let stat = get(admin, "/stats?filter=^server.state$").await.body;
    let (name, number) = match &*ready.body {
        "LIVE\n" => ("LIVE", 0),
        "PRE_INITIALIZING\n" => ("PRE_INITIALIZING", 2),
        other => panic!("{other}"),
    };
    assert_eq!(info["state"], name);
    assert_eq!(stat, format!("server.state: {number}\n"));
    (ready.status, name)
}

const NOT_YET: (u16, &str) = (503, "PRE_INITIALIZING");

async fn until_live(daemon: &Daemon) {
    daemon.page("/ready", |lines| lines == ["LIVE"]).await;
    assert_eq!(state(daemon).await, (200, "LIVE"));
}

#[tokio::test]
async fn clusters_are_waited_for_and_then_their_first_checks() {
    let host = Peer::new().await;
    let (mut plane, address) = ControlPlane::start().await;
    let mut daemon = Daemon::start(&bootstrap(ADS, address), &[]);
    let mut stream = plane.stream().await;
    stream.sotw().await;
    assert_eq!(state(&daemon).await, NOT_YET);

    stream
        .say(CLUSTER, "1", vec![cluster(host.address())])
        .await;
    let (_, from) = host.next().await;
    assert_eq!(state(&daemon).await, NOT_YET);
    host.answer(from, b"pong").await;
    until_live(&daemon).await;

    // Once live, it stays so.
    let later = Peer::new().await;
    stream
        .say(CLUSTER, "2", vec![cluster(later.address())])
        .await;
    later.next().await;
    assert_eq!(state(&daemon).await, (200, "LIVE"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_server_that_is_not_reached_is_waited_for_as_long_as_it_is_told_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let closed = taken.local_addr().unwrap();
    let failed = |lines: &[&str]| lines.concat().contains("Connection refused");
    let mut daemon = Daemon::start(&bootstrap(ADS, closed), &[]);
    daemon.page("/control_planes", failed).await;
    assert_eq!(state(&daemon).await, NOT_YET);
    daemon.stop().await;

    let source = "ads: {}, initial_fetch_timeout: 0.2s";
    let mut daemon = Daemon::start(&bootstrap(source, closed), &[]);
    until_live(&daemon).await;
    let told = || daemon.read("err").contains("no clusters came in time");
    eventually("a line about it", || told().then_some(())).await;
    daemon.stop().await;
}

#[tokio::test]
async fn clusters_that_are_refused_are_not_waited_for() {
    let (mut plane, address) = ControlPlane::start().await;
    let mut daemon = Daemon::start(&bootstrap(ADS, address), &[]);
    let mut stream = plane.stream().await;
    stream.sotw().await;
    let nameless = any(&Cluster::default());
    stream.say(CLUSTER, "1", vec![nameless]).await;
    until_live(&daemon).await;
    daemon.stop().await;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cds.yaml");
    std::fs::write(&path, "{{{").unwrap();
    let path = path.display();
    let source = format!("path_config_source: {{path: {path}}}, initial_fetch_timeout: 0s");
    let mut daemon = Daemon::start(&bootstrap(&source, address), &[]);
    until_live(&daemon).await;
    let planes = daemon.page("/control_planes", |_| true).await.concat();
    let planes: serde_json::Value = serde_json::from_str(&planes).unwrap();
    let all = planes["control_planes"].as_array().unwrap();
    let file = all.iter().find(|plane| plane["mode"] == "file").unwrap();
    assert_eq!(
        file["last_nack"]["details"],
        "line 1, column 3: unclosed bracket '{'"
    );
    daemon.stop().await;
}
