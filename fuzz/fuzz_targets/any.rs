//! What stands in an `Any` of a health check: any type, any bytes. A checker is made or it is told why not; a
//! payload that is taken can be sent.
#![no_main]

use libfuzzer_sys::{arbitrary, arbitrary::Arbitrary, fuzz_target};
use xds_health::checker::udp::UdpFactory;
use xds_health::config::{
    CheckerConfig, FileSinkConfig, HealthCheck, Payload, TypedConfig, UdpConfig,
};
use xds_health::registry::Registry;

#[derive(Arbitrary, Debug)]
enum Kind {
    Udp,
    XdsStruct,
    UdpaStruct,
    Sink,
    Other(String),
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    kind: Kind,
    hex: &'a str,
    value: &'a [u8],
}

fuzz_target!(|input: Input<'_>| {
    let type_url = match &input.kind {
        Kind::Udp => {
            "type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck".to_owned()
        }
        Kind::XdsStruct => "type.googleapis.com/xds.type.v3.TypedStruct".to_owned(),
        Kind::UdpaStruct => "type.googleapis.com/udpa.type.v1.TypedStruct".to_owned(),
        Kind::Sink => {
            "type.googleapis.com/envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink"
                .to_owned()
        }
        Kind::Other(url) => url.clone(),
    };
    let config = TypedConfig {
        type_url: type_url.into(),
        value: input.value.into(),
    };
    if let Ok(resolved) = xds_health::config::resolve(&config) {
        assert!(resolved.path.is_empty() || resolved.path == "value");
    }
    let second = std::time::Duration::from_secs(1);
    let check = HealthCheck::new(CheckerConfig::Custom(config), second, second, 1, 1);
    let registry = Registry::empty().with_checker(UdpFactory);
    if let Err(error) = registry.checker(&check) {
        assert!(!error.to_string().is_empty());
    }
    if let Ok(config) = UdpConfig::from_bytes(input.value) {
        assert!(config.send().len() <= Payload::MAX && config.receive().len() <= Payload::MAX);
        assert!(config.matches(config.receive()));
    }
    let _ = FileSinkConfig::from_bytes(input.value).map_err(|error| error.to_string());
    match Payload::from_hex(input.hex) {
        Ok(payload) => {
            assert_eq!(payload.len() * 2, input.hex.len());
            let back: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
            // A pair may be one digit and a blank or a NUL.
            let plain = input.hex.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(!plain || back == input.hex.to_ascii_lowercase());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
