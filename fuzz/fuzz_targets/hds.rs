//! Specifiers of a health discovery service, one after the other, through the state, the clusters that follow and
//! the reports of them. Frames are those of `xds.rs`.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use xds_health::checker::udp::UdpFactory;
use xds_health::hds::fuzzing::Pipe;
use xds_health::proto::envoy::service::health::v3::HealthCheckSpecifier;
use xds_health::registry::Registry;
use xds_health::xds::Limits;

#[path = "common/clusters.rs"]
mod clusters;
#[path = "common/extremes.rs"]
mod extremes;
#[path = "common/frames.rs"]
mod frames;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    let mut limits = Limits::default();
    (limits.clusters, limits.hosts) = (8, 64);
    let now = Instant::now();
    let mut pipe = Pipe::new(Registry::empty().with_checker(UdpFactory), limits, now);
    let mut clusters = clusters::Bed::new(now);
    while let Some((what, time, bytes)) = frames::next(&mut rest) {
        match what % 8 {
            0 => pipe.reopen(),
            1 => clusters.pass(Duration::from_millis(u64::from(time) * 250)),
            2 => {
                // What is appended is what holds.
                let interval = HealthCheckSpecifier {
                    interval: extremes::duration(time),
                    ..HealthCheckSpecifier::default()
                };
                let bytes = [bytes, &interval.encode_to_vec()].concat();
                for change in pipe.specify(&bytes) {
                    clusters.apply(change);
                }
            }
            _ => {
                for change in pipe.specify(bytes) {
                    clusters.apply(change);
                }
            }
        }
        pipe.report(|key| clusters.part(key));
        assert!(clusters.names().len() <= 8);
    }
});
