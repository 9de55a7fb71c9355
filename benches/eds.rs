//! What a large answer of endpoints costs, of which little has changed, and how far it holds up checks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bench prints, ends at the first surprise and counts in floating point"
)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use common::args::Args;
use common::fleet::{self, Fleet};
use common::process::Cpu;
use common::responder::{self, Responder};
use prost::Message;
use prost_types::Any;
use xds_health::config::{ClusterConfig, Discovery, Warnings};
use xds_health::host::Host;
use xds_health::proto::envoy::config::core::v3::socket_address::PortSpecifier;
use xds_health::proto::envoy::config::core::v3::{Address, Locality, SocketAddress, address};
use xds_health::proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use xds_health::proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use xds_health::proto::envoy::service::discovery::v3::DiscoveryResponse;
use xds_health::proto::type_url;
use xds_health::stats::HistogramView;

mod common;

const SECOND: Duration = Duration::from_secs(1);
/// Endpoints that share a locality.
const GROUP: usize = 1000;

fn main() -> ExitCode {
    responder::run_if_asked();
    let args = Args::new();
    let short = args.short();
    let count = args.value("--hosts", if short { 5_000 } else { 100_000 });
    let interval = args.value("--interval-s", if short { 1 } else { 10 }) * SECOND;
    let rounds = args.value("--rounds", if short { 2 } else { 5 });
    let after = args.value("--after-ms", if short { 500 } else { 2_000 });
    let after = Duration::from_millis(after);

    let responder = Responder::start();
    let fleet = Fleet::start(fleet::check(interval, interval));
    let config = ClusterConfig::new(fleet::CLUSTER, Discovery::Dynamic)
        .with_health_check(fleet::check(interval, interval));
    let hosts = read(&config, &answer(count, responder.port, 0)).hosts;
    // As the client does, the last answer's hosts are kept.
    let mut held = Arc::clone(&hosts);
    fleet.apply(hosts);
    fleet.wait_for_successes(count as u64);
    let lag = |since: &HistogramView| fleet.stats().engine.schedule_lag.view().since(since);

    let quiet = fleet.stats().engine.schedule_lag.view();
    std::thread::sleep(after * rounds);
    let quiet = lag(&quiet);

    println!("{count} endpoints, 1% of them others each time, checked every {interval:?}");
    println!("milliseconds of CPU time");
    println!(
        "{:>8} {:>8} {:>8} {:>8} {:>8}",
        "KiB", "decode", "convert", "apply", "all"
    );
    let busy = fleet.stats().engine.schedule_lag.view();
    let mut columns = [const { Vec::new() }; 4];
    for round in 1..=rounds {
        let bytes = answer(count, responder.port, round as usize);
        let size = bytes.len() >> 10;
        let told = read(&config, &bytes);
        let before = Cpu::now();
        let changed = fleet.membership_changes();
        fleet.apply(Arc::clone(&told.hosts));
        while fleet.membership_changes() == changed {
            std::thread::sleep(Duration::from_micros(200));
        }
        held = told.hosts;
        let apply = (Cpu::now() - before).micros_per(1000);
        let all = told.decode + told.convert + apply;
        let row = [told.decode, told.convert, apply, all];
        println!(
            "{size:>8} {:>8.1} {:>8.1} {:>8.1} {:>8.1}",
            row[0], row[1], row[2], row[3]
        );
        for (column, value) in columns.iter_mut().zip(row) {
            column.push(value);
        }
        std::thread::sleep(after);
    }
    let busy = lag(&busy);
    let [decode, convert, apply, all] = columns.map(common::median);
    println!(
        "{:>8} {decode:>8.1} {convert:>8.1} {apply:>8.1} {all:>8.1}",
        "median"
    );
    for (name, lag) in [("without answers", quiet), ("with them", busy)] {
        let at = |q| lag.quantile_ms(q).unwrap_or_default();
        println!(
            "{name}: {} attempts begun late by p99 <= {} ms, at most {} ms",
            lag.count(),
            at(0.99),
            at(1.0)
        );
    }
    drop(held);
    let failed = fleet.stop();
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        println!("{failed} attempts of hosts that always answer have failed");
        ExitCode::FAILURE
    }
}

/// An answer as it comes from a control plane. In each round other 0.5% of the endpoints are new, in place of
/// those of the round before, and other 0.5% have another weight.
fn answer(count: usize, port: u16, round: usize) -> Vec<u8> {
    let endpoint = |index: usize| {
        let changes = index.is_multiple_of(200);
        let shown = if changes {
            index + count * round
        } else {
            index
        };
        let ip = fleet::address(shown, port).ip().to_string();
        let socket = SocketAddress {
            address: ip,
            port_specifier: Some(PortSpecifier::PortValue(port.into())),
            ..SocketAddress::default()
        };
        let endpoint = Endpoint {
            address: Some(Address {
                address: Some(address::Address::SocketAddress(socket)),
            }),
            ..Endpoint::default()
        };
        let heavy = index % 200 == 1 + round % 100;
        LbEndpoint {
            host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
            load_balancing_weight: Some(if heavy { 2 } else { 1 }),
            ..LbEndpoint::default()
        }
    };
    let endpoints: Vec<_> = (0..count).map(endpoint).collect();
    let groups = endpoints.chunks(GROUP).enumerate();
    let groups = groups.map(|(zone, endpoints)| LocalityLbEndpoints {
        locality: Some(Locality {
            region: "region".to_owned(),
            zone: format!("zone-{zone}"),
            ..Locality::default()
        }),
        lb_endpoints: endpoints.to_vec(),
        ..LocalityLbEndpoints::default()
    });
    let assignment = ClusterLoadAssignment {
        cluster_name: fleet::CLUSTER.to_owned(),
        endpoints: groups.collect(),
        ..ClusterLoadAssignment::default()
    };
    let resource = Any {
        type_url: type_url::<ClusterLoadAssignment>(),
        value: assignment.encode_to_vec(),
    };
    let answer = DiscoveryResponse {
        version_info: round.to_string(),
        resources: vec![resource],
        ..DiscoveryResponse::default()
    };
    answer.encode_to_vec()
}

/// Hosts as they were read, and the milliseconds of CPU time that it took.
struct Told {
    hosts: Arc<[Arc<Host>]>,
    decode: f64,
    convert: f64,
}

/// Reads an answer as the client of the discovery services does.
fn read(config: &ClusterConfig, bytes: &[u8]) -> Told {
    let begun = Cpu::of_thread();
    let answer = DiscoveryResponse::decode(bytes).unwrap();
    let assignment = ClusterLoadAssignment::decode(&*answer.resources[0].value).unwrap();
    let decoded = Cpu::of_thread();
    let hosts = config.hosts(&assignment, &mut Warnings::default()).unwrap();
    let hosts = hosts.into();
    drop((answer, assignment));
    let converted = Cpu::of_thread();
    Told {
        hosts,
        decode: (decoded - begun).micros_per(1000),
        convert: (converted - decoded).micros_per(1000),
    }
}
