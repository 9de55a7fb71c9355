use std::net::SocketAddr;
use std::time::Instant;

use prost::Message;

use super::*;
use crate::host::Locality;
use crate::proto::envoy::config::core::v3::address::Address as AnyAddress;
use crate::proto::envoy::config::core::v3::socket_address::PortSpecifier;
use crate::proto::envoy::service::health::v3::health_check_request_or_endpoint_health_response::RequestType;
use crate::proto::envoy::service::health::v3::{
    EndpointHealth, EndpointHealthResponse, HealthCheckRequestOrEndpointHealthResponse,
};
use crate::snapshot::{HostList, Part};

const FAILED: HealthFlags = HealthFlags::FAILED_ACTIVE_HC;

fn host(port: u16) -> Host {
    Host::new(SocketAddr::from(([127, 0, 0, 1], port)))
}

fn view(host: &Host, flags: HealthFlags) -> HostView {
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    let since = Instant::now();
    HostView {
        host: Arc::new(host.clone()),
        flags,
        unchecked: false,
        since,
        reason: None,
    }
}

fn part(version: u64, views: impl IntoIterator<Item = HostView>) -> Part {
    let mut hosts = HostList::default();
    for view in views {
        hosts.push(view);
    }
    Part {
        version,
        initialized: true,
        unchecked: 0,
        hosts,
    }
}

fn layout(name: &str, checked: bool, groups: &[&[Host]]) -> Arc<Layout> {
    let hosts: Vec<_> = groups
        .iter()
        .flat_map(|group| group.iter().cloned().map(Arc::new))
        .collect();
    let sizes = groups.iter().map(|group| group.len());
    Arc::new(Layout::new(
        &name.into(),
        &name.into(),
        checked,
        &hosts,
        sizes,
    ))
}

fn decoded(report: &Bytes) -> EndpointHealthResponse {
    let message = HealthCheckRequestOrEndpointHealthResponse::decode(&**report).unwrap();
    match message.request_type {
        Some(RequestType::EndpointHealthResponse(response)) => response,
        other => panic!("{other:?}"),
    }
}

/// As `port=STATUS`; an endpoint must have nothing but its address.
fn shown(endpoints: &[EndpointHealth]) -> Vec<String> {
    let show = |health: &EndpointHealth| {
        let endpoint = health.endpoint.clone().unwrap();
        let address = endpoint.address.clone().unwrap().address;
        let Some(AnyAddress::SocketAddress(socket)) = &address else {
            panic!("{address:?}");
        };
        assert_eq!(socket.address, "127.0.0.1");
        let Some(PortSpecifier::PortValue(port)) = socket.port_specifier else {
            panic!("{socket:?}");
        };
        assert!(endpoint.health_check_config.is_none() && endpoint.hostname.is_empty());
        assert!(health.health_metadata.is_none());
        format!("{port}={}", health.health_status().as_str_name())
    };
    endpoints.iter().map(show).collect()
}

/// Clusters as `name: [region: endpoints]`.
fn by_cluster(response: &EndpointHealthResponse) -> Vec<String> {
    let clusters = response.cluster_endpoints_health.iter();
    let show = |cluster: &crate::proto::envoy::service::health::v3::ClusterEndpointsHealth| {
        let localities = cluster.locality_endpoints_health.iter().map(|locality| {
            let region = locality.locality.clone().unwrap().region;
            format!("{region}: {}", shown(&locality.endpoints_health).join(" "))
        });
        format!(
            "{}: {:?}",
            cluster.cluster_name,
            localities.collect::<Vec<_>>()
        )
    };
    clusters.map(show).collect()
}

fn report(reporter: &mut Reporter, layout: &Arc<Layout>, part: Part) -> Vec<String> {
    let report = reporter.report(&[(Arc::clone(layout), Some(Snapshot::of([part])))]);
    shown(&decoded(&report).endpoints_health)
}

fn reporter() -> Reporter {
    Reporter::new(true, usize::MAX)
}

#[test]
fn the_layout_is_the_specifiers_whatever_the_order_of_the_snapshot() {
    let locality = Arc::new(Locality {
        region: "r".into(),
        ..Locality::default()
    });
    let near = |port| host(port).with_locality(Arc::clone(&locality));
    let first = layout(
        "a",
        true,
        &[
            &[near(3), near(1)],
            &[],
            &[host(2)],
            &[host(9).with_check_disabled()],
        ],
    );
    let second = layout("b", true, &[]);
    let shards = [
        part(
            1,
            [
                view(&host(2), FAILED | HealthFlags::ACTIVE_HC_TIMEOUT),
                view(&near(1), HealthFlags::NONE),
            ],
        ),
        part(
            1,
            [
                view(&host(9), HealthFlags::NONE),
                view(&near(3), HealthFlags::DEGRADED_ACTIVE_HC),
            ],
        ),
    ];
    let clusters = [(first, Some(Snapshot::of(shards))), (second, None)];
    let response = decoded(&reporter().report(&clusters));
    assert_eq!(
        by_cluster(&response),
        [r#"a: ["r: 3=DEGRADED 1=HEALTHY", ": 2=TIMEOUT"]"#, "b: []"]
    );
    assert_eq!(
        shown(&response.endpoints_health),
        ["3=DEGRADED", "1=HEALTHY", "2=TIMEOUT"]
    );
    let without = decoded(&Reporter::new(false, usize::MAX).report(&clusters));
    assert_eq!(without.endpoints_health, []);
    assert_eq!(
        without.cluster_endpoints_health,
        response.cluster_endpoints_health
    );
}

#[test]
fn what_is_written_is_what_a_message_would_be() {
    let layout = layout("a", true, &[&[host(1)], &[host(2)]]);
    let views = [view(&host(1), HealthFlags::NONE), view(&host(2), FAILED)];
    let report = reporter().report(&[(layout, Some(Snapshot::of([part(1, views)])))]);
    let message = HealthCheckRequestOrEndpointHealthResponse {
        request_type: Some(RequestType::EndpointHealthResponse(decoded(&report))),
    };
    assert_eq!(message.encode_to_vec(), report);
}

#[test]
fn no_clusters_are_an_empty_report() {
    assert_eq!(*reporter().report(&[]), [0x12, 0]);
}

#[test]
fn flags_become_statuses() {
    for (flags, wanted) in [
        (HealthFlags::NONE, "HEALTHY"),
        (FAILED, "UNHEALTHY"),
        (FAILED | HealthFlags::ACTIVE_HC_TIMEOUT, "TIMEOUT"),
        (FAILED | HealthFlags::DEGRADED_ACTIVE_HC, "UNHEALTHY"),
        (HealthFlags::DEGRADED_ACTIVE_HC, "DEGRADED"),
        (HealthFlags::PENDING_DYNAMIC_REMOVAL, "HEALTHY"),
    ] {
        assert_eq!(
            status(&view(&host(1), flags)).as_str_name(),
            wanted,
            "{flags}"
        );
    }
}

#[test]
fn an_endpoint_that_was_not_checked_yet_is_unhealthy() {
    let layout = layout("a", true, &[&[host(1), host(2), host(3)]]);
    let mut waiting = view(&host(1), FAILED);
    waiting.unchecked = true;
    let disabled_before = view(&host(3).with_check_disabled(), HealthFlags::NONE);
    let told = report(
        &mut reporter(),
        &layout,
        part(1, [waiting, disabled_before]),
    );
    assert_eq!(told, ["1=UNHEALTHY", "2=UNHEALTHY", "3=UNHEALTHY"]);
}

#[test]
fn doubles_are_hosts_of_their_own_and_so_are_other_ports_to_check() {
    let other = host(1).with_check_address(SocketAddr::from(([127, 0, 0, 1], 7)));
    let layout = layout("a", true, &[&[host(1), other.clone(), host(1), host(1)]]);
    let views = [
        view(&host(1), HealthFlags::NONE),
        view(&host(1), FAILED),
        view(&other, HealthFlags::DEGRADED_ACTIVE_HC),
    ];
    let told = report(&mut reporter(), &layout, part(1, views));
    assert_eq!(
        told,
        ["1=HEALTHY", "1=DEGRADED", "1=UNHEALTHY", "1=UNHEALTHY"]
    );
}

#[test]
fn a_cluster_is_written_anew_when_its_snapshot_or_its_layout_changes() {
    let first = layout("a", true, &[&[host(1)]]);
    let mut reporter = reporter();
    assert_eq!(
        report(
            &mut reporter,
            &first,
            part(1, [view(&host(1), HealthFlags::NONE)])
        ),
        ["1=HEALTHY"]
    );
    // The same version is not looked at.
    assert_eq!(
        report(&mut reporter, &first, part(1, [view(&host(1), FAILED)])),
        ["1=HEALTHY"]
    );
    assert_eq!(
        report(&mut reporter, &first, part(2, [view(&host(1), FAILED)])),
        ["1=UNHEALTHY"]
    );
    let second = layout("a", true, &[&[host(2)]]);
    assert_eq!(
        report(
            &mut reporter,
            &second,
            part(2, [view(&host(2), HealthFlags::NONE)])
        ),
        ["2=HEALTHY"]
    );
}

#[test]
fn the_last_states_are_told_while_there_are_no_checks_and_until_the_first_after() {
    let before = layout("a", true, &[&[host(1), host(2)]]);
    let without = layout("a", false, &[&[host(1), host(2), host(3)]]);
    let after = layout("a", true, &[&[host(1), host(2), host(3)]]);
    let mut reporter = reporter();
    let timed_out = FAILED | HealthFlags::ACTIVE_HC_TIMEOUT;
    let checked = part(
        1,
        [view(&host(1), HealthFlags::NONE), view(&host(2), timed_out)],
    );
    reporter.remember(&before, &Snapshot::of([checked]));
    let unchecked = [1, 2, 3].map(|port| view(&host(port), HealthFlags::NONE));
    let wanted = ["1=HEALTHY", "2=TIMEOUT", "3=UNHEALTHY"];
    assert_eq!(report(&mut reporter, &without, part(2, unchecked)), wanted);
    let waiting = [1, 2, 3].map(|port| HostView {
        unchecked: true,
        ..view(&host(port), FAILED)
    });
    assert_eq!(
        report(&mut reporter, &after, part(3, waiting.clone())),
        wanted
    );
    let mut some = waiting;
    some[1] = view(&host(2), HealthFlags::NONE);
    assert_eq!(
        report(&mut reporter, &after, part(4, some)),
        ["1=HEALTHY", "2=HEALTHY", "3=UNHEALTHY"]
    );
}

#[test]
fn the_flat_list_is_left_out_where_the_report_would_be_too_long() {
    let clusters = [(layout("a", true, &[&[host(1)]]), None)];
    let length = reporter().report(&clusters).len();
    // Two bytes come before the report itself.
    let both = decoded(&Reporter::new(true, length - 2).report(&clusters));
    assert_eq!(both.endpoints_health.len(), 1);
    let one = decoded(&Reporter::new(true, length - 3).report(&clusters));
    assert_eq!(
        (
            one.endpoints_health.len(),
            one.cluster_endpoints_health.len()
        ),
        (0, 1)
    );
}

#[test]
fn a_hundred_thousand_endpoints_take_some_thirty_bytes_each() {
    let hosts: Vec<_> = (0..100_000_u32)
        .map(|n| Host::new(SocketAddr::from(((0x0a00_0000 + n).to_be_bytes(), 10_000))))
        .collect();
    let layout = layout("a", true, &[&hosts]);
    let views = hosts.iter().map(|host| view(host, HealthFlags::NONE));
    let snapshot = Snapshot::of([part(1, views)]);
    let report = Reporter::new(false, 0).report(&[(layout, Some(snapshot))]);
    let each = report.len() / hosts.len();
    assert!((20..=30).contains(&each), "{each} bytes each");
    assert_eq!(
        decoded(&report).cluster_endpoints_health[0].locality_endpoints_health[0]
            .endpoints_health
            .len(),
        hosts.len()
    );
}
