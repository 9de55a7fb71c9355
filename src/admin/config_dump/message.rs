//! Messages as JSON without their secrets.
//!
//! As by Envoy, each text in a secret field, or within it, is replaced, and anything else in it left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage, Value,
};
use prost_types::value::Kind as StructKind;
use prost_types::{Any, ListValue, Struct};

use super::mask::Mask;
use crate::admin::json::Layout;
use crate::config::json::{key_text, write_number, write_one, write_string};
use crate::proto::{message_named, strip_type_url};

/// What is marked as sensitive in Envoy's API.
const SECRETS: [&str; 5] = [
    // Headers carry tokens.
    "envoy.config.core.v3.HeaderValue.raw_value",
    "envoy.config.core.v3.HeaderValue.value",
    "envoy.config.core.v3.GrpcService.GoogleGrpc.SslCredentials.private_key",
    "envoy.extensions.transport_sockets.tls.v3.TlsCertificate.password",
    "envoy.extensions.transport_sockets.tls.v3.TlsCertificate.private_key",
];
const TYPED_STRUCTS: [&str; 2] = ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"];
/// What stands for a secret.
const REDACTED: &str = "[redacted]";

/// A text that is written.
#[derive(Debug, Default)]
pub(super) struct Text {
    pub(super) layout: Layout,
    pub(super) to: String,
}

impl Text {
    /// An `Any` with its message. Of one that cannot be read nothing but the type is told, since nobody knows
    /// where it holds secrets.
    pub(super) fn any(&mut self, any: &Any, mask: &Mask) {
        self.any_of(any, mask, false);
    }

    /// A serialized message of type `name`.
    pub(super) fn bytes_as(&mut self, name: &str, bytes: &[u8], mask: &Mask) {
        match read(name, bytes, mask) {
            Some(message) => self.message(&message, false),
            None => write_string(&mut self.to, REDACTED),
        }
    }

    fn any_of(&mut self, any: &Any, mask: &Mask, secret: bool) {
        let message = strip_type_url(&any.type_url).and_then(|name| read(name, &any.value, mask));
        self.layout.open(&mut self.to, '{');
        if !any.type_url.is_empty() {
            self.layout.string(&mut self.to, "@type", &any.type_url);
        }
        match message {
            Some(message) if is_well_known(&message) => {
                self.layout.key(&mut self.to, "value");
                self.message(&message, secret);
            }
            Some(message) => self.fields(&message, secret),
            None if any.value.is_empty() => (),
            None => self.layout.string(&mut self.to, "value", REDACTED),
        }
        self.layout.close(&mut self.to, '}');
    }

    fn message(&mut self, message: &DynamicMessage, secret: bool) {
        if is_well_known(message) && self.well_known(message, secret).is_some() {
            return;
        }
        self.layout.open(&mut self.to, '{');
        self.fields(message, secret);
        self.layout.close(&mut self.to, '}');
    }

    fn well_known(&mut self, message: &DynamicMessage, secret: bool) -> Option<()> {
        match message.descriptor().name() {
            "Any" => self.any_of(&message.transcode_to().ok()?, &Mask::WHOLE, secret),
            "Struct" => self.structure(&message.transcode_to().ok()?, None, secret),
            "Value" => self.value(&message.transcode_to().ok()?, None, secret),
            "ListValue" => self.list(&message.transcode_to().ok()?, None, secret),
            name if name == "Duration" || name == "Timestamp" || name.ends_with("Value") => {
                write_one(
                    &mut self.to,
                    &Value::Message(message.clone()),
                    &Kind::Message(message.descriptor()),
                );
            }
            _ => return None,
        }
        Some(())
    }

    /// The fields that are set, between the braces.
    fn fields(&mut self, message: &DynamicMessage, secret: bool) {
        let descriptor = message.descriptor();
        let typed = TYPED_STRUCTS.contains(&descriptor.full_name());
        for (field, value) in message.fields() {
            let secret = secret || is_secret(&field);
            if secret && !may_be_shown(value) {
                continue;
            }
            self.layout.key(&mut self.to, field.name());
            match value {
                Value::Message(inner) if typed && field.name() == "value" => {
                    self.typed_value(message, inner, secret);
                }
                Value::List(items) => {
                    self.layout.open(&mut self.to, '[');
                    for item in items {
                        self.layout.item(&mut self.to);
                        self.one(item, &field.kind(), secret);
                    }
                    self.layout.close(&mut self.to, ']');
                }
                Value::Map(entries) => {
                    let Kind::Message(entry) = field.kind() else {
                        continue;
                    };
                    let kind = entry.map_entry_value_field().kind();
                    let mut entries: Vec<(String, &Value)> =
                        entries.iter().map(|(k, v)| (key_text(k), v)).collect();
                    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                    self.layout.open(&mut self.to, '{');
                    for (key, value) in entries {
                        self.name(&key);
                        self.one(value, &kind, secret);
                    }
                    self.layout.close(&mut self.to, '}');
                }
                value => self.one(value, &field.kind(), secret),
            }
        }
    }

    /// The value of a `TypedStruct`, which stands for a message of the type that it names.
    fn typed_value(&mut self, message: &DynamicMessage, value: &DynamicMessage, secret: bool) {
        let url = message.get_field_by_name("type_url");
        let url = url.as_deref().and_then(Value::as_str).unwrap_or_default();
        match (message_of(url), value.transcode_to::<Struct>()) {
            (Some(descriptor), Ok(value)) => self.structure(&value, Some(&descriptor), secret),
            _ => write_string(&mut self.to, REDACTED),
        }
    }

    fn one(&mut self, value: &Value, kind: &Kind, secret: bool) {
        match value {
            Value::Message(message) => self.message(message, secret),
            Value::String(_) if secret => write_string(&mut self.to, REDACTED),
            Value::Bytes(_) if secret => write_string(&mut self.to, &STANDARD.encode(REDACTED)),
            value => write_one(&mut self.to, value, kind),
        }
    }

    /// A `Struct`, which may stand for a message of type `of`.
    fn structure(&mut self, value: &Struct, of: Option<&MessageDescriptor>, secret: bool) {
        let named = value.fields.get("@type").and_then(|value| {
            let Some(StructKind::StringValue(url)) = &value.kind else {
                return None;
            };
            message_of(url)
        });
        let of = named.as_ref().or(of);
        self.layout.open(&mut self.to, '{');
        for (key, value) in &value.fields {
            let field = of.and_then(|of| {
                of.get_field_by_name(key)
                    .or_else(|| of.get_field_by_json_name(key))
            });
            let secret = secret || field.as_ref().is_some_and(is_secret);
            let inner = field.and_then(|field| match field.kind() {
                Kind::Message(inner) => Some(inner),
                _ => None,
            });
            self.name(key);
            self.value(value, inner.as_ref(), secret);
        }
        self.layout.close(&mut self.to, '}');
    }

    fn value(&mut self, value: &prost_types::Value, of: Option<&MessageDescriptor>, secret: bool) {
        match &value.kind {
            Some(StructKind::StructValue(value)) => self.structure(value, of, secret),
            Some(StructKind::ListValue(list)) => self.list(list, of, secret),
            None | Some(StructKind::NullValue(_)) => self.to.push_str("null"),
            Some(_) if secret => write_string(&mut self.to, REDACTED),
            Some(StructKind::BoolValue(value)) => self.to.push_str(&value.to_string()),
            Some(StructKind::NumberValue(value)) => write_number(&mut self.to, *value),
            Some(StructKind::StringValue(value)) => write_string(&mut self.to, value),
        }
    }

    fn list(&mut self, list: &ListValue, of: Option<&MessageDescriptor>, secret: bool) {
        self.layout.open(&mut self.to, '[');
        for value in &list.values {
            self.layout.item(&mut self.to);
            self.value(value, of, secret);
        }
        self.layout.close(&mut self.to, ']');
    }

    /// Begins a member of an object by any name.
    fn name(&mut self, name: &str) {
        self.layout.item(&mut self.to);
        write_string(&mut self.to, name);
        self.to.push_str(": ");
    }
}

/// The message that a type URL names, if it is known here.
pub(super) fn message_of(type_url: &str) -> Option<MessageDescriptor> {
    message_named(strip_type_url(type_url)?)
}

fn read(name: &str, bytes: &[u8], mask: &Mask) -> Option<DynamicMessage> {
    let descriptor = message_named(name)?;
    let mut message = DynamicMessage::decode(descriptor, bytes).ok()?;
    mask.trim(&mut message);
    Some(message)
}

fn is_secret(field: &FieldDescriptor) -> bool {
    SECRETS.contains(&field.full_name())
}

/// Whether something of a secret value is left to be shown.
fn may_be_shown(value: &Value) -> bool {
    match value {
        Value::String(_) | Value::Bytes(_) | Value::Message(_) => true,
        Value::List(items) => items.iter().all(may_be_shown),
        Value::Map(entries) => entries.values().all(may_be_shown),
        _ => false,
    }
}

fn is_well_known(message: &DynamicMessage) -> bool {
    message.descriptor().package_name() == "google.protobuf"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::text::Document;
    use crate::proto::descriptor_pool;

    fn shown(name: &str, yaml: &str) -> serde_json::Value {
        let descriptor = descriptor_pool().get_message_by_name(name).unwrap();
        let read = Document::from_yaml(yaml).unwrap().read_as(&descriptor);
        assert_eq!(read.faults, []);
        let mut text = Text::default();
        text.message(&read.message, false);
        serde_json::from_str(&text.to).unwrap()
    }

    #[test]
    fn each_field_that_sounds_secret_is_one() {
        for message in descriptor_pool().all_messages() {
            for field in message.fields() {
                let name = field.name();
                let sounds = ["private_key", "password", "secret", "ticket", "token"];
                if name != "max_tokens" && sounds.iter().any(|word| name.contains(word)) {
                    assert!(is_secret(&field), "{}", field.full_name());
                }
            }
        }
        for name in SECRETS {
            let (message, field) = name.rsplit_once('.').unwrap();
            let message = descriptor_pool().get_message_by_name(message).unwrap();
            assert!(message.get_field_by_name(field).is_some(), "{name}");
        }
    }

    #[test]
    fn secrets_are_not_shown_wherever_they_stand() {
        let certificate = "{certificate_chain: {inline_string: chain}, \
             private_key: {inline_string: key!}, password: {inline_bytes: a2V5IQ==}}";
        let tls = format!("common_tls_context: {{tls_certificates: [{certificate}]}}");
        let url =
            "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
        let plain = format!("{{\"@type\": {url}, {tls}}}");
        let typed = format!(
            "{{\"@type\": type.googleapis.com/xds.type.v3.TypedStruct, type_url: {url}, value: {{{tls}}}}}"
        );
        for config in [plain, typed] {
            let socket = format!("{{name: tls, typed_config: {config}}}");
            let shown = shown(
                "envoy.config.cluster.v3.Cluster",
                &format!("name: c\ntransport_socket: {socket}"),
            );
            let config = &shown["transport_socket"]["typed_config"];
            let tls = config.get("value").unwrap_or(config);
            let certificate = &tls["common_tls_context"]["tls_certificates"][0];
            assert_eq!(certificate["certificate_chain"]["inline_string"], "chain");
            assert_eq!(certificate["private_key"]["inline_string"], REDACTED);
            assert!(certificate["password"]["inline_bytes"].is_string());
            let text = shown.to_string();
            assert!(!text.contains("key!") && !text.contains("a2V5"), "{text}");
        }
        let shown = shown(
            "envoy.config.core.v3.GrpcService",
            "google_grpc: {target_uri: t, stat_prefix: s, channel_credentials: {ssl_credentials: \
             {root_certs: {inline_string: root}, private_key: {inline_string: key!}}}}",
        );
        let ssl = &shown["google_grpc"]["channel_credentials"]["ssl_credentials"];
        assert_eq!(ssl["root_certs"]["inline_string"], "root");
        assert_eq!(ssl["private_key"]["inline_string"], REDACTED);
    }

    #[test]
    fn messages_that_are_named_otherwise_here_are_known_too() {
        let shown = shown(
            "envoy.config.core.v3.TypedExtensionConfig",
            "name: r\ntyped_config: {\"@type\": type.googleapis.com/envoy.extensions.network.dns_resolver\
             .cares.v3.CaresDnsResolverConfig, dns_resolver_options: {use_tcp_for_dns_lookups: true}}",
        );
        let options = &shown["typed_config"]["dns_resolver_options"];
        assert_eq!(options["use_tcp_for_dns_lookups"], true);
    }

    #[test]
    fn of_an_unknown_message_only_the_type_is_told() {
        let mut text = Text::default();
        let any = Any {
            type_url: "a/no.Such".to_owned(),
            value: b"key!".to_vec(),
        };
        text.any(&any, &Mask::parse("name"));
        assert_eq!(
            text.to,
            "{\n \"@type\": \"a/no.Such\",\n \"value\": \"[redacted]\"\n}"
        );
    }

    #[test]
    fn defaults_are_left_out_and_known_types_have_their_own_forms() {
        let shown = shown(
            "envoy.config.cluster.v3.Cluster",
            "name: c\nconnect_timeout: 1.5s\ntype: EDS\nhealth_checks:\n- {timeout: 0.2s, interval: 1s, \
             unhealthy_threshold: 3, healthy_threshold: 0, tcp_health_check: {}}",
        );
        let check = serde_json::json!({
            "timeout": "0.200s", "interval": "1s", "unhealthy_threshold": 3, "healthy_threshold": 0,
            "tcp_health_check": {},
        });
        let wanted = serde_json::json!({
            "name": "c", "connect_timeout": "1.500s", "type": "EDS", "health_checks": [check],
        });
        assert_eq!(shown, wanted);
    }
}
