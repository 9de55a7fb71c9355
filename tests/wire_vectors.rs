//! What Envoy's messages look like on the wire and in JSON, against recorded bytes: the generated types
//! and the descriptors must both read and write them as the official parsers do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends at what it does not expect"
)]

use std::fmt::Debug;

use prost::Message;
use prost_reflect::{DynamicMessage, MapKey, ReflectMessage, SerializeOptions, Value};
use serde::Deserialize;
use serde_json::Value as Json;
use xds_health::proto::{self, descriptor_pool, envoy, grpc, xds};

#[derive(Deserialize)]
struct Vectors {
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    id: String,
    message: String,
    hex: String,
    canonical_hex: Option<String>,
    expect: Expect,
    /// Null where the message has no JSON form.
    json: Option<Json>,
    json_if_read: Option<Json>,
    #[serde(default)]
    json_optional: bool,
    #[serde(default)]
    anys: Vec<AnyAt>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Expect {
    Ok,
    Error,
    /// Official parsers skip a field that others refuse.
    Either,
}

#[derive(Deserialize)]
struct AnyAt {
    path: Vec<Json>,
    type_url: String,
    value_hex: String,
}

/// A generated type with its type known only by name.
#[derive(Debug, PartialEq)]
struct Typed {
    /// What stands in for comparing values: a NaN is not equal to itself.
    shown: String,
    encoded: Vec<u8>,
}

/// Decodes as the generated type of that name; `None` if the list lacks it.
fn decode_typed(name: &str, bytes: &[u8]) -> Option<Result<Typed, prost::DecodeError>> {
    fn decode<M: Message + Default + Debug>(bytes: &[u8]) -> Result<Typed, prost::DecodeError> {
        let message = M::decode(bytes)?;
        Ok(Typed {
            shown: format!("{message:?}"),
            encoded: message.encode_to_vec(),
        })
    }
    macro_rules! types {
        ($($message:ty),* $(,)?) => {$(
            if name == <$message as prost::Name>::full_name() {
                return Some(decode::<$message>(bytes));
            }
        )*};
    }
    types!(
        envoy::admin::v3::Clusters,
        envoy::config::bootstrap::v3::Bootstrap,
        envoy::config::cluster::v3::Cluster,
        envoy::config::core::v3::HealthCheck,
        envoy::config::core::v3::health_check::Payload,
        envoy::config::core::v3::HealthStatusSet,
        envoy::config::core::v3::Metadata,
        envoy::config::endpoint::v3::ClusterLoadAssignment,
        envoy::data::core::v3::HealthCheckEvent,
        envoy::extensions::health_checkers::udp::v3::UdpHealthCheck,
        envoy::service::discovery::v3::DeltaDiscoveryRequest,
        envoy::service::discovery::v3::DeltaDiscoveryResponse,
        envoy::service::discovery::v3::DiscoveryRequest,
        envoy::service::discovery::v3::DiscoveryResponse,
        envoy::service::event_reporting::v3::StreamEventsRequest,
        envoy::service::health::v3::Capability,
        envoy::service::health::v3::HealthCheckRequestOrEndpointHealthResponse,
        envoy::service::health::v3::HealthCheckSpecifier,
        envoy::r#type::v3::Int64Range,
        envoy::r#type::v3::Percent,
        grpc::health::v1::HealthCheckRequest,
        grpc::health::v1::HealthCheckResponse,
        xds::r#type::v3::TypedStruct,
    );
    None
}

fn decode_dynamic(name: &str, bytes: &[u8]) -> Result<DynamicMessage, prost::DecodeError> {
    let message = descriptor_pool().get_message_by_name(name);
    DynamicMessage::decode(message.expect("a message of the descriptors"), bytes)
}

fn to_json(message: &DynamicMessage) -> Result<Json, serde_json::Error> {
    message.serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new())
}

fn from_hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

fn vectors() -> Vec<Vector> {
    let text = include_str!("data/wire_vectors.json");
    serde_json::from_str::<Vectors>(text).unwrap().vectors
}

#[test]
fn every_vector_is_read_and_written_back() {
    for vector in vectors() {
        let (id, bytes) = (&vector.id, from_hex(&vector.hex));
        let typed = decode_typed(&vector.message, &bytes)
            .unwrap_or_else(|| panic!("{id}: no type is listed for {}", vector.message));
        let dynamic = decode_dynamic(&vector.message, &bytes);
        match vector.expect {
            Expect::Error => {
                assert!(typed.is_err(), "{id}: {typed:?}");
                assert!(dynamic.is_err(), "{id}: {dynamic:?}");
            }
            Expect::Either => {
                if let (Ok(typed), Some(json)) = (typed, &vector.json_if_read) {
                    let again = decode_dynamic(&vector.message, &typed.encoded).unwrap();
                    assert!(same(&to_json(&again).unwrap(), json), "{id}");
                }
            }
            Expect::Ok => {
                let typed = typed.unwrap_or_else(|err| panic!("{id}: {err}"));
                let dynamic = dynamic.unwrap_or_else(|err| panic!("{id}: {err}"));
                check_read(&vector, &typed, &dynamic);
            }
        }
    }
}

fn check_read(vector: &Vector, typed: &Typed, dynamic: &DynamicMessage) {
    let id = &vector.id;
    for bytes in [
        Some(typed.encoded.clone()),
        vector.canonical_hex.as_deref().map(from_hex),
    ] {
        let Some(bytes) = bytes else { continue };
        let again = decode_typed(&vector.message, &bytes).unwrap().unwrap();
        assert_eq!(&again, typed, "{id}");
    }
    // What the generated type wrote holds no unknown fields; in JSON neither does the other.
    let rewritten = decode_dynamic(&vector.message, &typed.encoded).unwrap();
    for message in [dynamic, &rewritten] {
        for any in &vector.anys {
            check_any(id, message, any);
        }
        check_json(vector, message);
    }
}

fn check_any(id: &str, message: &DynamicMessage, any: &AnyAt) {
    let mut value = Value::Message(message.clone());
    for step in &any.path {
        value = step_into(&value, step).unwrap_or_else(|| panic!("{id}: nothing at {step}"));
    }
    let Value::Message(found) = value else {
        panic!("{id}: {value} is no Any");
    };
    let found = found.transcode_to::<prost_types::Any>().unwrap();
    assert_eq!(found.type_url, any.type_url, "{id}");
    assert_eq!(found.value, from_hex(&any.value_hex), "{id}");
}

fn step_into(value: &Value, step: &Json) -> Option<Value> {
    match (value, step) {
        (Value::Message(message), Json::String(name)) => {
            let field = message.descriptor().get_field_by_json_name(name)?;
            Some(message.get_field(&field).into_owned())
        }
        (Value::List(items), Json::Number(index)) => {
            items.get(usize::try_from(index.as_u64()?).ok()?).cloned()
        }
        (Value::Map(entries), Json::String(key)) => {
            entries.get(&MapKey::String(key.clone())).cloned()
        }
        _ => None,
    }
}

fn check_json(vector: &Vector, message: &DynamicMessage) {
    let (id, json) = (&vector.id, to_json(message));
    let Some(expected) = &vector.json else {
        assert!(json.is_err(), "{id}: {json:?}");
        return;
    };
    let json = match json {
        Ok(json) => json,
        Err(_) if vector.json_optional => return,
        Err(err) => panic!("{id}: {err}"),
    };
    assert!(same(&json, expected), "{id}: {json} is not {expected}");
    let read = DynamicMessage::deserialize(message.descriptor(), json.clone());
    match read {
        Ok(read) => assert!(same(&to_json(&read).unwrap(), &json), "{id}"),
        Err(err) => assert!(vector.json_optional, "{id}: {err}"),
    }
}

/// Equal as JSON, with numbers compared by value: 2 is 2.0.
fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a.as_f64() == b.as_f64(),
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            let held = |(key, a)| b.get(key).is_some_and(|b| same(a, b));
            a.len() == b.len() && a.iter().all(held)
        }
        _ => a == b,
    }
}

/// A file of `proto/` that is lost, or one that is added, shows here.
#[test]
fn the_descriptor_set_holds_all_that_is_declared() {
    let ours = |package: &str| !["google.protobuf", "validate"].contains(&package);
    let pool = descriptor_pool();
    let messages: Vec<_> = pool
        .all_messages()
        .filter(|message| ours(message.package_name()) && !message.is_map_entry())
        .collect();
    let enums = pool
        .all_enums()
        .filter(|one| ours(one.package_name()))
        .count();
    let fields: usize = messages.iter().map(|message| message.fields().len()).sum();
    let methods: usize = pool.services().map(|service| service.methods().len()).sum();
    assert_eq!((messages.len(), fields), (160, 566));
    assert_eq!((enums, pool.services().len(), methods), (28, 6, 13));
}

#[test]
fn the_descriptor_set_holds_rules_and_no_comments() {
    let pool = descriptor_pool();
    assert!(pool.get_extension_by_name("validate.rules").is_some());
    let commented = pool
        .file_descriptor_protos()
        .find(|file| file.source_code_info.is_some());
    assert_eq!(commented.map(|file| file.name()), None);
}

#[test]
fn type_urls_are_those_of_the_protocol() {
    let url = proto::type_url::<envoy::extensions::health_checkers::udp::v3::UdpHealthCheck>();
    let name = "envoy.extensions.health_checkers.udp.v3.UdpHealthCheck";
    assert_eq!(url, format!("type.googleapis.com/{name}"));
    assert_eq!(proto::strip_type_url(&url), Some(name));
    assert_eq!(
        proto::strip_type_url(&format!("example.com/deep/path/{name}")),
        Some(name)
    );
    for bad in ["", name, "/", "type.googleapis.com/"] {
        assert_eq!(proto::strip_type_url(bad), None, "{bad}");
    }
}
