//! A network that refuses, has no way, goes down, or takes little at a time.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use crate::bed::{Daemon, Host, QUICK, cluster, command, eventually, in_namespace};

const FAILED: &str = "cluster.far.health_check.network_failure";
const HEALTHY: &str = "cluster.far.membership_healthy";

fn reason(label: &str) -> String {
    format!("xds_health.cluster.far.health_check.failure_reason.{label}")
}

#[test]
fn no_attempt_has_the_local_port_of_one_before_it_that_was_not_answered() {
    in_namespace(
        "network::no_attempt_has_the_local_port_of_one_before_it_that_was_not_answered",
        || {
            for spare_sockets in ["0", "8"] {
                let ports = Arc::new(Mutex::new(Vec::new()));
                let heard = Arc::clone(&ports);
                let host = Host::answering(Ipv4Addr::new(127, 0, 2, 1), move |_, _, from| {
                    heard.lock().unwrap().push(from.port());
                });
                let check =
                    "timeout: 0.01s, interval: 0.01s, unhealthy_threshold: 1, healthy_threshold: 1";
                let daemon =
                    Daemon::start_by(&cluster("far", &[host.address], check, ""), "", |run| {
                        run.args(["--spare-sockets", spare_sockets])
                    });
                // So few that by chance one of ten attempts has the port of the one before it. All hosts have theirs.
                assert!(command(
                    "echo 61000 61009 > /proc/sys/net/ipv4/ip_local_port_range"
                ));
                let enough = host.heard() + 150;
                eventually("enough attempts", || (host.heard() >= enough).then_some(()));
                assert!(command(
                    "echo 32768 60999 > /proc/sys/net/ipv4/ip_local_port_range"
                ));
                daemon.stop();
                let ports = ports.lock().unwrap();
                let twice = ports.windows(2).filter(|pair| pair[0] == pair[1]).count();
                assert_eq!(twice, 0, "of {}", ports.len());
            }
        },
    );
}

#[test]
fn without_a_route_a_host_is_unreachable() {
    in_namespace("network::without_a_route_a_host_is_unreachable", || {
        // Nothing leads there; to the other there is a route that says no.
        assert!(command("ip route add unreachable 10.8.0.0/16"));
        let hosts = ["10.9.9.9:9".parse().unwrap(), "10.8.0.1:9".parse().unwrap()];
        let daemon = Daemon::start(&cluster("far", &hosts, QUICK, ""), "");
        let before = daemon.held();
        daemon.calm_during(|| daemon.until(FAILED, 20));
        daemon.until(&reason("unreachable"), 20);
        daemon.holds_no_more_than(before);
        let log = daemon.stop();
        assert!(log.contains("unreachable: Network is unreachable"), "{log}");
        assert!(log.contains("unreachable: No route to host"), "{log}");
    });
}

#[test]
fn what_a_firewall_forbids_is_a_local_failure_until_it_allows_it() {
    in_namespace(
        "network::what_a_firewall_forbids_is_a_local_failure_until_it_allows_it",
        || {
            let host = Host::at(Ipv4Addr::new(127, 0, 2, 1));
            let rule = "ip daddr 127.0.2.0/24 drop";
            let forbid = format!(
                "nft 'add table inet f; add chain inet f out {{ type filter hook output priority 0; }}; add rule inet f out {rule}'"
            );
            let forbid_otherwise = "iptables -A OUTPUT -d 127.0.2.0/24 -j DROP";
            let allow = "nft delete table inet f 2>/dev/null || iptables -F OUTPUT";
            if !command(&forbid) && !command(forbid_otherwise) {
                println!("skipped: there is neither nft(8) nor iptables(8)");
                return;
            }
            assert!(command(allow));
            let daemon = Daemon::start(&cluster("far", &[host.address], QUICK, ""), "");
            daemon.until_is(HEALTHY, 1);
            let before = daemon.held();
            daemon.calm_during(|| {
                assert!(command(&forbid) || command(forbid_otherwise));
                daemon.until_is(HEALTHY, 0);
                daemon.until(&reason("local"), 2);
                assert!(command(allow));
                daemon.until_is(HEALTHY, 1);
            });
            daemon.holds_no_more_than(before);
            let log = daemon.stop();
            assert!(log.contains("send: Operation not permitted"), "{log}");
        },
    );
}

/// Says that this process is to be a host of another namespace.
const ELSEWHERE: &str = "XDS_HEALTH_TEST_HOST";

#[test]
fn a_host_of_another_namespace() {
    if std::env::var_os(ELSEWHERE).is_none() {
        // It is part of the test below.
        return;
    }
    let socket = UdpSocket::bind("0.0.0.0:9000").unwrap();
    let mut buffer = [0; 64];
    loop {
        if let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(b"pong", from);
        }
    }
}

/// Ends with its test.
struct Elsewhere(Child);

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interface_that_goes_down_and_comes_back_takes_its_hosts_with_it() {
    in_namespace(
        "network::an_interface_that_goes_down_and_comes_back_takes_its_hosts_with_it",
        || {
            let elsewhere = Command::new("unshare")
                .args(["--net", "--"])
                .arg(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "network::a_host_of_another_namespace",
                    "--nocapture",
                ])
                .env(ELSEWHERE, "1")
                .spawn();
            let elsewhere = Elsewhere(elsewhere.unwrap());
            let pid = elsewhere.0.id();
            let other = |pid| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
            let own = other(std::process::id());
            eventually("another namespace", || {
                (other(pid)? != own.clone()?).then_some(())
            });
            let made = command(&format!(
                "ip link add v0 type veth peer name v1 && ip link set v1 netns {pid} \
                 && ip addr add 10.7.0.1/24 dev v0 && ip link set v0 up \
                 && nsenter --target {pid} --net sh -c \
                 'ip addr add 10.7.0.2/24 dev v1 && ip link set v1 up'"
            ));
            if !made {
                println!("skipped: there are no pairs of interfaces here");
                return;
            }
            let host = "10.7.0.2:9000".parse().unwrap();
            let daemon = Daemon::start(&cluster("far", &[host], QUICK, ""), "");
            daemon.until_is(HEALTHY, 1);
            let before = daemon.held();
            daemon.calm_during(|| {
                assert!(command("ip link set v0 down"));
                daemon.until_is(HEALTHY, 0);
                daemon.until(&reason("unreachable"), 2);
                assert!(command("ip link set v0 up"));
                daemon.until_is(HEALTHY, 1);
            });
            daemon.holds_no_more_than(before);
            daemon.stop();
        },
    );
}

#[test]
fn datagrams_larger_than_the_network_takes_come_in_pieces() {
    in_namespace(
        "network::datagrams_larger_than_the_network_takes_come_in_pieces",
        || {
            let long = "ab".repeat(5_000);
            let host = Host::answering(Ipv4Addr::LOCALHOST, |socket, datagram, from| {
                assert_eq!(datagram.len(), 5_000);
                let _ = socket.send_to(datagram, from);
            });
            let large = cluster("far", &[host.address], QUICK, "")
                .replace("70696e67", &long)
                .replace("706f6e67", &long);
            let daemon = Daemon::start(&large, "");
            daemon.until_is(HEALTHY, 1);
            daemon.calm_during(|| {
                assert!(command("ip link set lo mtu 600"));
                daemon.until("cluster.far.health_check.success", host.heard() + 10);
            });
            assert_eq!(daemon.stat(FAILED), 0);
            daemon.stop();
        },
    );
}

/// Accepts, reads what comes, and says nothing; what becomes of it when it is alone, the kernels find out.
fn silent_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(
                move || {
                    while stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0) {}
                },
            );
        }
    });
    address
}

#[test]
fn a_control_plane_behind_a_firewall_that_forgot_it_is_found_by_the_kernel() {
    in_namespace(
        "network::a_control_plane_behind_a_firewall_that_forgot_it_is_found_by_the_kernel",
        || {
            let port = silent_server().port();
            let rule = format!("tcp dport {port} drop");
            let forbid = format!(
                "nft 'add table inet f; add chain inet f in {{ type filter hook input priority 0; }}; add rule inet f in {rule}'"
            );
            let forbid_otherwise = format!("iptables -A INPUT -p tcp --dport {port} -j DROP");
            let plane = format!(
                "  - name: plane
    http2_protocol_options: {{}}
    upstream_connection_options: {{tcp_keepalive: {{keepalive_time: 1, keepalive_interval: 1, keepalive_probes: 1}}}}
    load_assignment: {{cluster_name: plane, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}]}}]}}
dynamic_resources:
  ads_config: {{api_type: GRPC, transport_api_version: V3, grpc_services: [{{envoy_grpc: {{cluster_name: plane}}}}]}}
  cds_config: {{resource_api_version: V3, ads: {{}}}}
"
            );
            let daemon = Daemon::start("", &plane);
            daemon.until_logged("stream opened");
            if !command(&forbid) && !command(&forbid_otherwise) {
                println!("skipped: there is neither nft(8) nor iptables(8)");
                return;
            }
            daemon.calm_during(|| daemon.until_logged("stream ended"));
            daemon.stop();
        },
    );
}
