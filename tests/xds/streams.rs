//! How streams end, and what happens then.

use super::*;
use crate::control_plane::{ControlPlane, Listener, Proxy, Stream};
use tonic::{Code, Status};
use xds_health::xds::{CLUSTER, ENDPOINTS, Limits, Options};

/// A keepalive that finds a dead connection soon.
const QUICK: &str =
    "http2_protocol_options: {connection_keepalive: {interval: 0.2s, timeout: 0.3s}}";

/// Gives cluster `a` one healthy host.
async fn settle(daemon: &Daemon, stream: &mut Stream) {
    stream.sotw().await;
    stream.say(CLUSTER, "1", vec![eds("a")]).await;
    stream.sotw().await;
    stream.sotw().await;
    stream
        .say(ENDPOINTS, "1", vec![assignment("a", &[1])])
        .await;
    stream.sotw().await;
    daemon
        .until("a", |hosts| health(hosts) == [(1, true)])
        .await;
}

/// The first requests of a stream after one that had settled.
async fn resumed(stream: &mut Stream) {
    let (clusters, endpoints) = (stream.sotw().await, stream.sotw().await);
    assert_eq!(
        (&*clusters.version_info, &*clusters.response_nonce),
        ("1", "")
    );
    assert_eq!(
        (&*endpoints.version_info, &*endpoints.response_nonce),
        ("1", "")
    );
    assert_eq!(endpoints.resource_names, ["a"]);
}

#[tokio::test]
async fn a_stream_is_opened_again_however_it_ends() {
    let (mut plane, address) = ControlPlane::start().await;
    let daemon = Daemon::start(&bootstrap(&ads("GRPC"), address, H2));
    let mut stream = plane.stream().await;
    settle(&daemon, &mut stream).await;
    for code in [
        Code::Ok,
        Code::Unavailable,
        Code::Internal,
        Code::Unimplemented,
        Code::Unknown,
    ] {
        stream.fail(Status::new(code, "as the test says")).await;
        stream = plane.stream().await;
        resumed(&mut stream).await;
        assert_eq!(daemon.stat("control_plane.connected_state"), 1);
        stream.say(CLUSTER, "1", vec![eds("a")]).await;
        stream.sotw().await;
    }
    // By OK without a status, too.
    drop(stream);
    stream = plane.stream().await;
    resumed(&mut stream).await;
    assert_eq!(daemon.stat("cluster_manager.cds.update_failure"), 6);
    daemon
        .until("a", |hosts| health(hosts) == [(1, true)])
        .await;
    // Nothing was resent that had changed, so the session is the first one still.
    assert_eq!(daemon.stat("cluster_manager.cluster_modified"), 0);
}

#[tokio::test]
async fn a_server_that_goes_away_is_found_again() {
    let (listener, address) = Listener::tcp().await;
    let mut plane = ControlPlane::serve(listener, None);
    let daemon = Daemon::start(&bootstrap(&ads("GRPC"), address, H2));
    let mut stream = plane.stream().await;
    settle(&daemon, &mut stream).await;
    plane.go_away();
    drop(stream);
    plane.stop().await;
    // Nobody listens for a while.
    daemon
        .when(|daemon| daemon.stat("cluster_manager.cds.update_failure") >= 3)
        .await;
    let (listener, _) = Listener::tcp_at(address).await;
    let mut plane = ControlPlane::serve(listener, None);
    resumed(&mut plane.stream().await).await;
    daemon
        .until("a", |hosts| health(hosts) == [(1, true)])
        .await;
}

#[tokio::test]
async fn fifty_restarts_leave_the_hosts_as_they_are() {
    let (listener, address) = Listener::tcp().await;
    let mut plane = ControlPlane::serve(listener, None);
    let retry = "cds_config: {ads: {}}, ads_config: {api_type: GRPC, grpc_services: [{envoy_grpc: \
        {cluster_name: plane, retry_policy: {retry_back_off: {base_interval: 0.01s, max_interval: 0.05s}}}}]}";
    let daemon = Daemon::start(&bootstrap(retry, address, H2));
    let mut stream = plane.stream().await;
    settle(&daemon, &mut stream).await;
    for _ in 0..50 {
        drop(stream);
        plane.stop().await;
        let (listener, _) = Listener::tcp_at(address).await;
        plane = ControlPlane::serve(listener, None);
        stream = plane.stream().await;
        resumed(&mut stream).await;
        stream.say(CLUSTER, "1", vec![eds("a")]).await;
        stream
            .say(ENDPOINTS, "1", vec![assignment("a", &[1])])
            .await;
        stream.sotw().await;
        stream.sotw().await;
    }
    assert_eq!(daemon.stat("cluster_manager.cluster_modified"), 0);
    assert_eq!(daemon.stat("cluster.a.membership_change"), 1);
    daemon
        .until("a", |hosts| health(hosts) == [(1, true)])
        .await;
}

#[tokio::test]
async fn a_half_open_stream_is_found_by_its_silence() {
    let (mut plane, address) = ControlPlane::start().await;
    let proxy = Proxy::start(address).await;
    let daemon = Daemon::start(&bootstrap(&ads("GRPC"), proxy.address, QUICK));
    let mut stream = plane.stream().await;
    settle(&daemon, &mut stream).await;
    proxy.fall_silent();
    let mut second = plane.stream().await;
    resumed(&mut second).await;
    second
        .say(ENDPOINTS, "2", vec![assignment("a", &[1, 2])])
        .await;
    daemon
        .until("a", |hosts| health(hosts) == [(1, true), (2, true)])
        .await;
}

#[tokio::test]
async fn what_is_too_long_is_refused_or_ends_the_stream_but_not_the_client() {
    let (mut plane, address) = ControlPlane::start().await;
    let mut limits = Limits::default();
    limits.message_bytes = 4096;
    let options = Options::default().with_seed(1).with_limits(limits);
    let daemon = Daemon::with_options(&bootstrap(&ads("GRPC"), address, H2), options);
    let mut stream = plane.stream().await;
    settle(&daemon, &mut stream).await;
    let long = |bytes| {
        let mut long = eds("long");
        long.value.extend(std::iter::repeat_n(0, bytes));
        vec![long]
    };
    stream.say(CLUSTER, "2", long(5000)).await;
    let refused = stream.sotw().await;
    assert_eq!(
        (&*refused.version_info, &*refused.response_nonce),
        ("1", "n2")
    );
    let detail = refused.error_detail.unwrap().message;
    assert!(
        detail.ends_with(" bytes, but at most 4096 are taken"),
        "{detail}"
    );
    assert_eq!(daemon.stat("cluster_manager.cds.update_rejected"), 1);
    stream.say(CLUSTER, "2", long(9000)).await;
    let mut stream = plane.stream().await;
    resumed(&mut stream).await;
    daemon
        .until("a", |hosts| health(hosts) == [(1, true)])
        .await;
}

#[tokio::test]
async fn what_does_not_decode_is_refused_and_the_stream_goes_on() {
    let (mut plane, address) = ControlPlane::start().await;
    let daemon = Daemon::start(&bootstrap(&ads("GRPC"), address, H2));
    let mut stream = plane.stream().await;
    settle(&daemon, &mut stream).await;
    let garbage = Any {
        type_url: CLUSTER.to_owned(),
        value: vec![0xff; 20],
    };
    stream.say(CLUSTER, "2", vec![garbage]).await;
    let refused = stream.sotw().await;
    assert_eq!(refused.version_info, "1");
    assert!(
        refused
            .error_detail
            .unwrap()
            .message
            .starts_with("resources[0]: no message of type ")
    );
    let garbage = Any {
        type_url: ENDPOINTS.to_owned(),
        value: vec![0xff; 20],
    };
    stream.say(ENDPOINTS, "2", vec![garbage]).await;
    assert!(stream.sotw().await.error_detail.is_some());
    // What nobody asked for is passed over.
    stream
        .say(
            "type.googleapis.com/envoy.config.listener.v3.Listener",
            "9",
            vec![],
        )
        .await;
    stream.say(CLUSTER, "3", vec![eds("a")]).await;
    assert_eq!(stream.sotw().await.version_info, "3");
    daemon
        .until("a", |hosts| health(hosts) == [(1, true)])
        .await;
}

#[tokio::test]
async fn endpoints_of_the_control_plane_are_tried_in_turn() {
    let (mut plane, address) = ControlPlane::start().await;
    let (dead, nobody) = Listener::tcp().await;
    drop(dead);
    let endpoint = |address: SocketAddr| {
        format!(
            "{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}}}}}",
            address.port()
        )
    };
    let text = bootstrap(&ads("GRPC"), address, H2);
    let one = format!("[{{lb_endpoints: [{}]}}]", endpoint(address));
    let both = format!(
        "[{{lb_endpoints: [{}, {}]}}]",
        endpoint(nobody),
        endpoint(address)
    );
    assert!(text.contains(&one));
    let daemon = Daemon::start(&text.replace(&one, &both));
    settle(&daemon, &mut plane.stream().await).await;
}

#[tokio::test]
async fn a_control_plane_on_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plane");
    let mut plane = ControlPlane::serve(Listener::unix(&path), None);
    let pipe = format!("pipe: {{path: {}}}", path.display());
    let daemon = Daemon::start(&bootstrap_at(&ads("GRPC"), &pipe, H2));
    settle(&daemon, &mut plane.stream().await).await;

    let target = format!(
        "cds_config: {{ads: {{}}}}, ads_config: {{api_type: GRPC, grpc_services: [{{google_grpc: \
         {{target_uri: \"unix:{}\", stat_prefix: x}}}}]}}",
        path.display()
    );
    let daemon = Daemon::start(&bootstrap_at(&target, &pipe, ""));
    settle(&daemon, &mut plane.stream().await).await;
}

#[tokio::test]
async fn nobody_who_takes_changes_ends_the_client() {
    let (mut plane, address) = ControlPlane::start().await;
    let mut daemon = Daemon::start(&bootstrap(&ads("GRPC"), address, H2));
    let mut stream = plane.stream().await;
    settle(&daemon, &mut stream).await;
    daemon.tasks.shutdown().await;
    stream.ended().await;
}

#[tokio::test]
async fn the_dump_tells_how_it_goes_with_the_server() {
    let (mut plane, address) = ControlPlane::start().await;
    let daemon = Daemon::start(&bootstrap(&ads("GRPC"), address, H2));
    let of = || daemon.dump.connections().into_iter().next().unwrap();
    let mut stream = plane.stream().await;
    settle(&daemon, &mut stream).await;
    let connection = of();
    assert_eq!((connection.service, connection.open), ("ADS", true));
    assert!(connection.since.is_some() && connection.last_nack.is_none());
    let answered = connection.last_answer.unwrap();

    let mut broken = assignment("a", &[1]);
    broken.value.truncate(2);
    stream.say(ENDPOINTS, "2", vec![broken]).await;
    stream.sotw().await;
    let connection = of();
    assert!(connection.last_answer.unwrap() >= answered);
    let nack = connection.last_nack.unwrap();
    assert_eq!((&*nack.type_url, &*nack.version_info), (ENDPOINTS, "2"));
    assert!(nack.details.contains("resources[0]"), "{}", nack.details);

    stream
        .fail(Status::new(Code::Unavailable, "as the test says"))
        .await;
    let mut stream = plane.stream().await;
    resumed(&mut stream).await;
    let again = of();
    assert!(again.open && again.since > connection.since && again.last_nack.is_some());
    let failure = again.last_failure.unwrap();
    assert_eq!(&*failure.reason, "Unavailable: as the test says");
    assert!(connection.last_failure.is_none() && Some(failure.at) <= again.since);
}

#[tokio::test]
async fn why_a_server_is_not_reached_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    // Nobody listens at the port of a client, and nobody else can be given it.
    let closed = taken.local_addr().unwrap();
    let daemon = Daemon::start(&bootstrap(&ads("GRPC"), closed, H2));
    let wanted = format!("{closed}: Connection refused (os error 111)");
    assert_eq!(daemon.failure().await, wanted);

    let target = "cds_config: {ads: {}}, ads_config: {api_type: GRPC, grpc_services: [{google_grpc: \
                  {target_uri: \"no-such.invalid:1\", stat_prefix: x}}]}";
    let daemon = Daemon::start(&bootstrap(target, closed, ""));
    let told = daemon.failure().await;
    let cause = told.strip_prefix("no-such.invalid cannot be looked up: ");
    assert!(cause.is_some_and(|cause| !cause.is_empty()), "{told}");
}

#[tokio::test]
async fn a_client_of_which_a_stream_panics_panics_too() {
    let (_plane, address) = ControlPlane::start().await;
    let _panics = common::panics::at("stream opened");
    let mut daemon = Daemon::start(&bootstrap(&ads("GRPC"), address, H2));
    let panicked = async {
        loop {
            if let Err(error) = daemon.tasks.join_next().await.unwrap() {
                return error.is_panic();
            }
        }
    };
    assert!(within(panicked).await);
}
