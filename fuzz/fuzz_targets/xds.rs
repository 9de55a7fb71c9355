//! Discovery responses, one after the other, through the protocol, the state and the clusters that follow.
//!
//! The input is a list of frames: a byte that says what happens, a byte of time, and two bytes of length with so
//! many bytes of a response after them.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use xds_health::checker::udp::UdpFactory;
use xds_health::proto::envoy::config::core::v3::grpc_service::{GoogleGrpc, TargetSpecifier};
use xds_health::proto::envoy::config::core::v3::{ApiConfigSource, GrpcService};
use xds_health::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource,
};
use xds_health::proto::prost_types::Any;
use xds_health::proto::type_url;
use xds_health::registry::Registry;
use xds_health::xds::Limits;
use xds_health::xds::fuzzing::Pipe;
use xds_health::xds::subscription::Variant;

#[path = "common/clusters.rs"]
mod clusters;
#[path = "common/extremes.rs"]
mod extremes;
#[path = "common/frames.rs"]
mod frames;

fn ads() -> ApiConfigSource {
    let target = GoogleGrpc {
        target_uri: "unix:/none".to_owned(),
        ..GoogleGrpc::default()
    };
    ApiConfigSource {
        api_type: 2,
        grpc_services: vec![GrpcService {
            target_specifier: Some(TargetSpecifier::GoogleGrpc(target)),
            ..GrpcService::default()
        }],
        ..ApiConfigSource::default()
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, mut rest)) = data.split_first() else {
        return;
    };
    let variant = if kind % 2 == 0 {
        Variant::Sotw
    } else {
        Variant::Delta
    };
    let now = Instant::now();
    let mut limits = Limits::default();
    (limits.clusters, limits.hosts) = (8, 64);
    let registry = Registry::empty().with_checker(UdpFactory);
    let mut pipe = Pipe::new(&ads(), registry, variant, limits, now);
    let mut clusters = clusters::Bed::new(now);
    while let Some((what, time, bytes)) = frames::next(&mut rest) {
        match what % 8 {
            0 => pipe.reopen(),
            1 => {
                let by = Duration::from_millis(u64::from(time) * 250);
                pipe.pass(by);
                clusters.pass(by);
            }
            2 => {
                // One more resource that holds for so long, as each variant has it.
                let resource = Resource {
                    name: "a".to_owned(),
                    ttl: extremes::duration(time),
                    ..Resource::default()
                };
                let wrapped = Any {
                    type_url: type_url::<Resource>(),
                    value: resource.encode_to_vec(),
                };
                let more = if matches!(variant, Variant::Sotw) {
                    let more = DiscoveryResponse {
                        resources: vec![wrapped],
                        ..DiscoveryResponse::default()
                    };
                    more.encode_to_vec()
                } else {
                    let more = DeltaDiscoveryResponse {
                        resources: vec![resource],
                        ..DeltaDiscoveryResponse::default()
                    };
                    more.encode_to_vec()
                };
                pipe.respond(&[bytes, &more].concat());
            }
            _ => pipe.respond(bytes),
        }
        for change in pipe.changes() {
            clusters.apply(change);
        }
        assert!(pipe.hosts() <= 64 && clusters.names().len() <= 8);
    }
});
