//! What stands in an `Any`: which message, and its bytes.
//!
//! As with Envoy, a configuration is found by the type of its message alone, and may also be a `Struct`
//! under the type's name, in a `TypedStruct`.

use std::borrow::Cow;

use prost::{Message, Name};
use prost_reflect::MessageDescriptor;
use prost_types::Struct;

use super::{ConfigError, TypedConfig, text, wire};
use crate::proto::{message_named, udpa, xds};

/// The message that a [`TypedConfig`] holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved<'a> {
    /// Its full name, as `envoy.extensions.health_checkers.udp.v3.UdpHealthCheck`.
    pub name: Cow<'a, str>,
    /// Its serialized form.
    pub value: Cow<'a, [u8]>,
    /// Where the message stands in the `Any`: nowhere deeper, or in the field `value` of a `TypedStruct`.
    pub path: &'static str,
}

/// Finds what a configuration holds.
///
/// The message is named by the text after the last `/` of the type URL. If it is a `xds.type.v3.TypedStruct`
/// or a `udpa.type.v1.TypedStruct`, its `value` is read as the message that its own type URL names.
///
/// # Errors
///
/// A `TypedStruct` that names no message of this crate, or whose value is none.
pub fn resolve(config: &TypedConfig) -> Result<Resolved<'_>, ConfigError> {
    resolve_with(config, message_named)
}

/// As [`resolve`], where `find` knows the messages that a `TypedStruct` may name.
///
/// # Errors
///
/// As there.
pub fn resolve_with(
    config: &TypedConfig,
    find: impl FnOnce(&str) -> Option<MessageDescriptor>,
) -> Result<Resolved<'_>, ConfigError> {
    let Some((type_url, value)) = unwrap(config)? else {
        return Ok(Resolved {
            name: message_name(&config.type_url).into(),
            value: (&*config.value).into(),
            path: "",
        });
    };
    let name = message_name(&type_url);
    let Some(descriptor) = find(name) else {
        let reason = format!("there is no message {name:?} here");
        return Err(ConfigError::new("", reason));
    };
    let read = text::struct_to_message(&value, &descriptor);
    if let Some(error) = ConfigError::from_faults(read.faults) {
        return Err(error.at("value"));
    }
    Ok(Resolved {
        name: name.to_owned().into(),
        value: read.message.encode_to_vec().into(),
        path: "value",
    })
}

/// The name of the message that a configuration holds, whether or not it is known here.
pub(crate) fn held(config: &TypedConfig) -> Result<String, ConfigError> {
    let inner = unwrap(config)?;
    let type_url = inner.as_ref().map_or(&*config.type_url, |(url, _)| url);
    Ok(message_name(type_url).to_owned())
}

/// As [`held`], where Envoy unwraps no `TypedStruct`. In one of a message that is not known here a text may have been
/// kept, so its name is for the caller to refuse.
pub(crate) fn bare(config: &TypedConfig) -> Result<String, ConfigError> {
    let name = held(config)?;
    if name != message_name(&config.type_url) && message_named(&name).is_some() {
        let reason = "a TypedStruct is not taken here: give the message itself";
        return Err(ConfigError::new("", reason));
    }
    Ok(name)
}

/// What is in a `TypedStruct`, if this is one.
fn unwrap(config: &TypedConfig) -> Result<Option<(String, Struct)>, ConfigError> {
    let name = message_name(&config.type_url);
    let (type_url, value) = if name == xds::r#type::v3::TypedStruct::full_name() {
        let wrapped = wire::decode::<xds::r#type::v3::TypedStruct>(&config.value)?;
        (wrapped.type_url, wrapped.value)
    } else if name == udpa::r#type::v1::TypedStruct::full_name() {
        let wrapped = wire::decode::<udpa::r#type::v1::TypedStruct>(&config.value)?;
        (wrapped.type_url, wrapped.value)
    } else {
        return Ok(None);
    };
    Ok(Some((type_url, value.unwrap_or_default())))
}

fn message_name(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prost_types::Value;
    use prost_types::value::Kind;

    use super::*;
    use crate::config::UdpConfig;

    const UDP: &str = "envoy.extensions.health_checkers.udp.v3.UdpHealthCheck";

    fn message(fields: &[(&str, Value)]) -> Struct {
        let fields = fields.iter();
        Struct {
            fields: fields.map(|(k, v)| ((*k).to_owned(), v.clone())).collect(),
        }
    }

    fn payload(text: &str) -> Value {
        Kind::StructValue(message(&[("text", text.into())])).into()
    }

    fn in_xds(type_url: &str, value: Struct) -> TypedConfig {
        TypedConfig::of(&xds::r#type::v3::TypedStruct {
            type_url: type_url.to_owned(),
            value: Some(value),
        })
    }

    #[test]
    fn the_last_part_of_a_type_url_counts() {
        for type_url in ["type.googleapis.com/a.B", "a.example/b/a.B", "a.B"] {
            let config = TypedConfig {
                type_url: type_url.into(),
                value: [1].into(),
            };
            let resolved = resolve(&config).unwrap();
            assert_eq!((&*resolved.name, &*resolved.value), ("a.B", &[1_u8][..]));
            assert_eq!(resolved.path, "");
        }
        assert_eq!(resolve(&TypedConfig::default()).unwrap().name, "");
    }

    #[test]
    fn both_typed_structs_are_unwrapped() {
        let value = message(&[("send", payload("7069")), ("receive", payload("706f"))]);
        let udpa = udpa::r#type::v1::TypedStruct {
            type_url: format!("type.googleapis.com/{UDP}"),
            value: Some(value.clone()),
        };
        for config in [in_xds(UDP, value), TypedConfig::of(&udpa)] {
            let resolved = resolve(&config).unwrap();
            assert_eq!((&*resolved.name, resolved.path), (UDP, "value"));
            let udp = UdpConfig::from_bytes(&resolved.value).unwrap();
            assert_eq!((udp.send(), udp.receive()), (&b"pi"[..], &b"po"[..]));
        }
    }

    #[test]
    fn faults_in_a_typed_struct_have_their_paths() {
        let refused = |config: &TypedConfig, fault: &str| {
            let error = resolve(config).unwrap_err();
            assert_eq!(error.to_string().split(", did").next(), Some(fault));
        };
        refused(
            &in_xds("x/no.Such", message(&[])),
            "there is no message \"no.Such\" here",
        );
        refused(
            &in_xds(
                "",
                Struct {
                    fields: BTreeMap::new(),
                },
            ),
            "there is no message \"\" here",
        );
        refused(
            &in_xds(UDP, message(&[("x", 1.0.into())])),
            "value.x: unknown field \"x\" in envoy.extensions.health_checkers.udp.v3.UdpHealthCheck",
        );
    }
}
