//! A bootstrap file: YAML, JSON or a serialized message, by the first byte. What is taken is taken again from its
//! serialized form, and every cluster of it can be built or says why not.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use xds_health::checker::udp::UdpFactory;
use xds_health::config::text::Document;
use xds_health::config::{Bootstrap, Warnings};
use xds_health::proto::envoy::config::bootstrap::v3::Bootstrap as Wire;
use xds_health::registry::Registry;

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    let mut warnings = Warnings::default();
    let (read, message) = match kind % 3 {
        2 => (
            Bootstrap::from_bytes(rest, &mut warnings),
            Wire::decode(rest).ok(),
        ),
        kind => {
            let Ok(text) = std::str::from_utf8(rest) else {
                return;
            };
            let document = if kind == 0 {
                Document::from_yaml(text)
            } else {
                Document::from_json(text)
            };
            let document = match document {
                Ok(document) => document,
                Err(error) => return drop(error.to_string()),
            };
            let read = Bootstrap::from_document(&document, &mut warnings);
            let read = read.map_err(|error| error.located_in(&document).in_order());
            (read, Some(document.read::<Wire>().message))
        }
    };
    for (warning, place) in warnings.located() {
        let _ = (warning.reason.to_string(), place);
    }
    match read {
        Err(error) => {
            // A fault has words for it.
            assert!(!error.to_string().is_empty());
        }
        Ok(bootstrap) => {
            if let Some(message) = message {
                let bytes = message.encode_to_vec();
                let again = Bootstrap::from_bytes(&bytes, &mut Warnings::default());
                assert!(
                    again.is_ok(),
                    "taken as text, but not as a message: {again:?}"
                );
            }
            let registry = Registry::empty().with_checker(UdpFactory);
            for cluster in &bootstrap.clusters {
                let _ = registry
                    .build(Arc::clone(cluster))
                    .map_err(|error| error.to_string());
            }
        }
    }
});
