//! Specifiers of a health discovery service, one after the other, through the state, the clusters that follow and
//! the reports of them. Frames are those of `xds.rs`.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use xds_health::checker::udp::UdpFactory;
use xds_health::hds::fuzzing::Pipe;
use xds_health::registry::Registry;
use xds_health::xds::Limits;

#[path = "common/clusters.rs"]
mod clusters;
#[path = "common/frames.rs"]
mod frames;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    let mut limits = Limits::default();
    (limits.clusters, limits.hosts) = (8, 64);
    let mut pipe = Pipe::new(Registry::empty().with_checker(UdpFactory), limits);
    let mut clusters = clusters::Bed::new(Instant::now());
    while let Some((what, time, bytes)) = frames::next(&mut rest) {
        match what % 8 {
            0 => pipe.reopen(),
            1 => clusters.pass(Duration::from_millis(u64::from(time) * 250)),
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
