//! Control planes that say what they should not, or nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use prost::Message as _;
use rustix::net::sockopt::set_socket_linger;
use xds_health::config::text::Document;
use xds_health::proto::envoy::config::cluster::v3::Cluster;
use xds_health::xds::CLUSTER;

use crate::bed::{Daemon, Host, eventually};
use crate::control_plane::{ControlPlane, any};

/// Dynamic resources from a server at `plane`, found out to be dead within seconds.
fn follows(plane: SocketAddr, kind: &str, source: &str) -> String {
    let service = format!(
        "{{api_type: {kind}, transport_api_version: V3, grpc_services: [{{envoy_grpc: {{cluster_name: plane}}}}]}}"
    );
    let port = plane.port();
    let source = match source {
        "ads" => format!(
            "dynamic_resources:
  ads_config: {service}
  cds_config: {{resource_api_version: V3, ads: {{}}}}
"
        ),
        _ => format!("hds_config: {service}\n"),
    };
    format!(
        "  - name: plane
    connect_timeout: 2s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{connection_keepalive: {{interval: 1s, timeout: 0.5s}}}}}}
    load_assignment: {{cluster_name: plane, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}]}}]}}
{source}"
    )
}

/// A server that does so with each connection.
fn server(manner: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || manner(stream));
        }
    });
    address
}

/// However a server behaves, the stream ends in time and is opened again, and nothing else happens.
fn survives(manner: fn(TcpStream)) {
    let plane = server(manner);
    for source in ["ads", "hds"] {
        let daemon = Daemon::start("", &follows(plane, "GRPC", source));
        let before = daemon.held();
        daemon.calm_during(|| {
            eventually("two streams that ended", || {
                let log = daemon.log();
                let ended = log.matches("stream ended").count();
                (ended + log.matches("cannot connect").count() >= 2).then_some(())
            });
        });
        daemon.holds_no_more_than(before);
        daemon.stop();
    }
}

#[test]
fn a_server_that_sends_garbage() {
    survives(|mut stream| {
        let mut random = 1_u32;
        let garbage: Vec<u8> = std::iter::from_fn(|| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u8::try_from(random >> 24).ok()
        })
        .take(100_000)
        .collect();
        let _ = stream.write_all(&garbage);
        let _ = stream.read(&mut [0; 1024]);
    });
}

#[test]
fn a_server_that_resets_connections_in_the_middle() {
    survives(|mut stream| {
        let _ = stream.read(&mut [0; 24]);
        let _ = stream.write_all(SETTINGS);
        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    });
}

#[test]
fn a_server_that_speaks_another_protocol() {
    survives(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    });
}

#[test]
fn a_server_that_takes_all_and_says_nothing() {
    survives(|mut stream| while stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {});
}

#[test]
fn a_server_that_neither_reads_nor_writes() {
    survives(|stream| {
        std::thread::sleep(Duration::from_secs(3600));
        drop(stream);
    });
}

/// An empty SETTINGS frame, with which every server begins.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

#[test]
fn a_server_that_sends_a_byte_at_a_time() {
    survives(|mut stream| {
        // Settings, and then a frame that would be long, were it ever to end.
        let endless = [SETTINGS, &[0, 63, 255, 0, 0, 0, 0, 0, 1]].concat();
        for byte in endless.into_iter().chain(std::iter::repeat(7)) {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

#[test]
fn a_server_whose_frames_are_longer_than_any_may_be() {
    survives(|mut stream| {
        let _ = stream.write_all(SETTINGS);
        let _ = stream.write_all(&[255, 255, 255, 0, 0, 0, 0, 0, 1]);
        let _ = stream.write_all(&[0; 100_000]);
        let _ = stream.read(&mut [0; 1024]);
    });
}

fn own(name: &str, hosts: &[SocketAddr]) -> Cluster {
    let text = crate::bed::cluster(name, hosts, crate::bed::QUICK, "");
    let text = text.replacen("  - name", "    name", 1);
    let read = Document::from_yaml(&text).unwrap().read::<Cluster>();
    assert!(read.faults.is_empty(), "{:?}", read.faults);
    read.message
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn updates_without_end_leave_nothing_behind() {
    let runtime = runtime();
    let (mut plane, address) = runtime.block_on(ControlPlane::start());
    let host = Host::new();
    let daemon = Daemon::start("", &follows(address, "GRPC", "ads"));
    let stream = runtime.block_on(plane.stream());
    let clusters: Vec<_> = (0..50)
        .map(|n| any(&own(&format!("c{n}"), &[host.address])))
        .collect();
    let before = daemon.held();
    daemon.calm_during(|| {
        let began = Instant::now();
        for turn in 0_u32.. {
            let given = if turn % 2 == 0 { &clusters[..] } else { &[] };
            let version = turn.to_string();
            runtime.block_on(stream.say(CLUSTER, &version, given.to_vec()));
            if began.elapsed() > Duration::from_secs(5) {
                break;
            }
        }
    });
    let updates = daemon.stat("cluster_manager.cds.update_success");
    println!("{updates} updates");
    runtime.block_on(stream.say(CLUSTER, "end", Vec::new()));
    daemon.until_is("cluster_manager.active_clusters", 2);
    daemon.holds_no_more_than(before);
    daemon.stop();
}

#[test]
fn a_server_that_takes_no_replies_loses_its_stream() {
    let runtime = runtime();
    let (mut plane, address) = runtime.block_on(ControlPlane::start());
    let daemon = Daemon::start("", &follows(address, "DELTA_GRPC", "ads"));
    let before = daemon.held();
    daemon.calm_during(|| {
        // Nobody asks for the requests of this stream, so that they are taken no longer.
        let stream = runtime.block_on(plane.stream());
        runtime.block_on(async {
            for turn in 0..2_000 {
                let nonce = format!("{turn}").repeat(1_000);
                let given = [("c", any(&own("c", &[])))];
                let said = stream.change(CLUSTER, &nonce, &given, &[]);
                if tokio::time::timeout(Duration::from_secs(5), said)
                    .await
                    .is_err()
                {
                    break;
                }
                if daemon.log().contains("takes no replies") {
                    break;
                }
            }
        });
        daemon.until_logged("the server takes no replies");
        drop(stream);
        // It has another chance.
        let mut again = runtime.block_on(plane.stream());
        runtime.block_on(again.delta());
    });
    daemon.holds_no_more_than(before);
    daemon.stop();
}

#[test]
fn resources_that_are_wrong_in_every_way_are_refused_and_logged_only_so_often() {
    let runtime = runtime();
    let (mut plane, address) = runtime.block_on(ControlPlane::start());
    let host = Host::new();
    let daemon = Daemon::start("", &follows(address, "GRPC", "ads"));
    let mut stream = runtime.block_on(plane.stream());
    let before = daemon.held();
    let mut bad: Vec<prost_types::Any> = (0..1_000_u32)
        .map(|n| {
            let mut cluster = own("bad", &[host.address]);
            cluster.name = format!("bad\n{n}\u{1b}[31m");
            cluster.health_checks[0].timeout = None;
            any(&cluster)
        })
        .collect();
    // Garbage, another type, none at all, and one name twice.
    bad.push(prost_types::Any {
        type_url: CLUSTER.to_owned(),
        value: vec![0xff; 64],
    });
    bad.push(prost_types::Any {
        type_url: "type.googleapis.com/google.protobuf.Empty".to_owned(),
        value: Vec::new(),
    });
    bad.push(prost_types::Any::default());
    bad.extend([any(&own("twice", &[])), any(&own("twice", &[host.address]))]);
    bad.push(any(&own("good", &[host.address])));
    daemon.calm_during(|| {
        for turn in 0..20 {
            runtime.block_on(stream.say(CLUSTER, &turn.to_string(), bad.clone()));
            let refused = runtime.block_on(async {
                loop {
                    let request = stream.sotw().await;
                    if let Some(detail) = request.error_detail {
                        return detail;
                    }
                }
            });
            assert!(refused.encoded_len() <= 20 * 1024);
        }
    });
    daemon.until_is("cluster.good.membership_healthy", 1);
    assert!(daemon.stat("cluster_manager.cds.update_rejected") >= 20);
    daemon.holds_no_more_than(before);
    let log = daemon.stop();
    assert!(log.len() < 200_000, "{} bytes of log", log.len());
    assert!(!log.contains('\u{1b}'), "a name has colours");
    let stray = log.lines().find(|line| !line.starts_with("20"));
    assert_eq!(stray, None, "a name has lines of its own");
}
