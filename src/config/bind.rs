//! From where attempts are sent, and with which socket options.

use std::net::SocketAddr;

use super::address::read_socket;
use super::error::Report;
use super::{ConfigError, TypedConfig, Warnings, typed, wire};
use crate::proto::envoy::config::core::v3::socket_option::{
    SocketIpVersion, SocketState, SocketType, Value,
};
use crate::proto::envoy::config::core::v3::{
    BindConfig as BindMessage, ExtraSourceAddress, SocketOption as OptionMessage,
};
use crate::validate::FieldPath;

/// From where attempts are sent.
///
/// Source: `envoy.config.core.v3.BindConfig` in `upstream_bind_config`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BindConfig {
    /// `source_address`; port 0 takes a fresh port for each attempt.
    pub source: Option<SocketAddr>,
    /// `extra_source_addresses`, of which there may be one: taken for hosts of its family, which is not
    /// that of `source`.
    pub extra_source: Option<ExtraSource>,
    /// `socket_options`, set before binding or as their `state` says, and those that `freebind` stands for.
    pub socket_options: Vec<SocketOption>,
}

/// A source address for hosts of the other family.
///
/// Source: `envoy.config.core.v3.ExtraSourceAddress`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtraSource {
    /// `address`.
    pub address: SocketAddr,
    /// `socket_options` in place of [`BindConfig::socket_options`]; none, perhaps.
    pub socket_options: Option<Vec<SocketOption>>,
}

/// A socket option to set on each attempt's socket.
///
/// Source: `envoy.config.core.v3.SocketOption`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketOption {
    /// `level`, as for `setsockopt`.
    pub level: i32,
    /// `name`, as for `setsockopt`.
    pub name: i32,
    /// `int_value` in native byte order, or `buf_value`.
    pub value: Box<[u8]>,
    /// Whether it is set after the socket is bound (`STATE_BOUND`), not before.
    pub after_bind: bool,
    /// `ip_version`: sockets of the other version do not get it.
    pub ip_version: Option<IpVersion>,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// The version of an address.
    pub fn of(address: SocketAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }
}

impl BindConfig {
    /// Checks a message.
    ///
    /// # Errors
    ///
    /// All that is wrong with it.
    pub fn from_message(
        message: &BindMessage,
        warnings: &mut Warnings,
    ) -> Result<Self, ConfigError> {
        wire::convert(message, warnings, Self::read)
    }

    /// The same with an address for hosts of the other version.
    pub fn with_extra_source(mut self, address: SocketAddr) -> Self {
        self.extra_source = Some(ExtraSource {
            address,
            socket_options: None,
        });
        self
    }

    /// The source address for a host at `target`: the one whose family fits, else `source`.
    pub fn source_for(&self, target: SocketAddr) -> Option<SocketAddr> {
        self.extra_for(target)
            .map_or(self.source, |extra| Some(extra.address))
    }

    /// The options of a socket that goes to a host at `target`.
    pub fn options_for(&self, target: SocketAddr) -> impl Iterator<Item = &SocketOption> {
        let extra = self.extra_for(target);
        extra
            .and_then(|extra| extra.socket_options.as_ref())
            .unwrap_or(&self.socket_options)
            .iter()
            .filter(move |option| option.ip_version.is_none_or(|v| v == IpVersion::of(target)))
    }

    fn extra_for(&self, target: SocketAddr) -> Option<&ExtraSource> {
        let version = IpVersion::of(target);
        self.extra_source
            .as_ref()
            .filter(|extra| IpVersion::of(extra.address) == version)
    }

    pub(super) fn read(
        message: &BindMessage,
        at: &FieldPath<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let at_source = at.field("source_address");
        let source = message.source_address.as_ref();
        let source = source.map(|source| read_socket(source, &at_source, report));
        if let Some(Some(source)) = source
            && source.port() != 0
        {
            report.warn(
                &at_source.field("port_value"),
                "with a fixed port, an answer that comes late counts for the attempt after",
            );
        }
        let selector = message.local_address_selector.as_ref();
        if let Some(config) = selector.and_then(|selector| selector.typed_config.as_ref()) {
            check_selector(&config.into(), &at.field("local_address_selector"), report);
        }
        let extra_source = read_extra(message, source.flatten(), at, report);
        let mut socket_options = read_options(&message.socket_options, at, report);
        if message.freebind == Some(true) {
            socket_options.extend(SocketOption::freebind());
        }
        Some(Self {
            source: match source {
                None => None,
                Some(read) => Some(read?),
            },
            extra_source: extra_source?,
            socket_options,
        })
    }
}

impl SocketOption {
    /// The option `name` of `level` with `value`, set before the socket is bound.
    pub fn new(level: i32, name: i32, value: impl Into<Box<[u8]>>) -> Self {
        Self {
            level,
            name,
            value: value.into(),
            after_bind: false,
            ip_version: None,
        }
    }

    /// Allows addresses that this machine does not have: `IP_FREEBIND` and `IPV6_FREEBIND` of Linux.
    fn freebind() -> [Self; 2] {
        let on = 1_i32.to_ne_bytes();
        let mut options = [Self::new(0, 15, on), Self::new(41, 78, on)];
        options[0].ip_version = Some(IpVersion::V4);
        options[1].ip_version = Some(IpVersion::V6);
        options
    }
}

/// Refuses any way of choosing among source addresses but Envoy's own, which is what is done here. One of them lets
/// the filter state of a connection decide first; checks have none.
fn check_selector(config: &TypedConfig, at: &FieldPath<'_>, report: &mut Report) {
    const DEFAULT: &str =
        "envoy.config.upstream.local_address_selector.v3.DefaultLocalAddressSelector";
    const BY_FILTER_STATE: &str =
        "envoy.extensions.local_address_selectors.filter_state_override.v3.Config";
    let at = at.field("typed_config");
    match typed::held(config) {
        Ok(name) if name == DEFAULT || name == BY_FILTER_STATE => (),
        Ok(name) => {
            let reason = format!("only {DEFAULT} can be given, not {name:?}");
            report.fault::<()>(&at, reason);
        }
        Err(error) => {
            report.within::<()>(&at, error);
        }
    }
}

/// The extra source address, if there is one: Envoy has room for two addresses, one for each version.
fn read_extra(
    message: &BindMessage,
    source: Option<SocketAddr>,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Option<ExtraSource>> {
    const OLD: &str = "additional_source_addresses";
    const NEW: &str = "extra_source_addresses";
    report.deprecated(!message.additional_source_addresses.is_empty(), OLD, at);
    let old = message.additional_source_addresses.iter();
    let old = old.map(|address| (Some(address), None));
    let new = message.extra_source_addresses.iter().map(
        |ExtraSourceAddress {
             address,
             socket_options,
         }| (address.as_ref(), socket_options.as_ref()),
    );
    let (name, count) = match (old.len(), new.len()) {
        (0, 0) => return Some(None),
        (0, count) => (NEW, count),
        (count, 0) => (OLD, count),
        _ => {
            let reason = format!("cannot be set beside {NEW}");
            return report.fault(&at.field(OLD), reason);
        }
    };
    let at_field = at.field(name);
    if message.source_address.is_none() {
        return report.fault(&at_field, "cannot be set without source_address");
    }
    if count > 1 {
        let reason = format!("there can be one source address more, but are {count}");
        return report.fault(&at_field, reason);
    }
    let (address, options) = old.chain(new).next()?;
    let at_item = at.item(name, 0);
    let at_address = at_item.field("address");
    let at_address = if name == OLD { &at_item } else { &at_address };
    let address = read_socket(address?, at_address, report)?;
    if source.is_some_and(|source| source.is_ipv4() == address.is_ipv4()) {
        let reason = "must be of the other IP version than source_address";
        return report.fault(at_address, reason);
    }
    Some(Some(ExtraSource {
        address,
        socket_options: options.map(|options| {
            let at = at_item.field("socket_options");
            read_options(&options.socket_options, &at, report)
        }),
    }))
}

/// The options that concern sockets of checks.
fn read_options(
    messages: &[OptionMessage],
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Vec<SocketOption> {
    let mut options = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        let at = at.item("socket_options", index);
        options.extend(read_option(message, &at, report));
    }
    options
}

fn read_option(
    message: &OptionMessage,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<SocketOption> {
    let level = read_int(message.level, &at.field("level"), report);
    let name = read_int(message.name, &at.field("name"), report);
    let value: Box<[u8]> = match message.value.as_ref()? {
        Value::IntValue(value) => {
            let value = read_int(*value, &at.field("int_value"), report);
            value.to_ne_bytes().into()
        }
        Value::BufValue(value) => value.as_slice().into(),
    };
    let mut option = SocketOption::new(level, name, value);
    option.ip_version = match SocketIpVersion::try_from(message.ip_version) {
        Ok(SocketIpVersion::Ipv4) => Some(IpVersion::V4),
        Ok(SocketIpVersion::Ipv6) => Some(IpVersion::V6),
        Ok(SocketIpVersion::Unspecified) | Err(_) => None,
    };
    let of_streams = matches!(
        message.r#type,
        Some(SocketType {
            stream: Some(_),
            datagram: None
        })
    );
    match SocketState::try_from(message.state).ok()? {
        _ if of_streams => return None,
        SocketState::StatePrebind => (),
        SocketState::StateBound => option.after_bind = true,
        // No socket of a check listens.
        SocketState::StateListening => return None,
    }
    Some(option)
}

/// An `int` as `setsockopt` takes it. As with Envoy, of a greater number only the low 32 bits count.
fn read_int(value: i64, at: &FieldPath<'_>, report: &mut Report) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "there is a warning of it")]
    let cut = value as i32;
    if i64::from(cut) != value {
        report.warn(
            at,
            format!("does not fit into the int of setsockopt: {cut} is used"),
        );
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing;

    fn bind(fields: &str) -> (BindConfig, Vec<String>) {
        testing::parse(fields, BindConfig::read).unwrap()
    }

    #[track_caller]
    fn refused(fields: &str, faults: &str) {
        assert_eq!(testing::faults(fields, BindConfig::read), faults);
    }

    const SOURCE: &str = "source_address: {address: 127.0.0.1, port_value: 0}";

    fn to(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    #[test]
    fn a_source_is_of_the_hosts_version_if_there_is_one() {
        let (config, warnings) = bind(&format!(
            "{SOURCE}\nextra_source_addresses: [{{address: {{address: \"::1\", port_value: 7}}}}]"
        ));
        assert_eq!(
            config.source_for(to("127.0.0.9:1")),
            Some(to("127.0.0.1:0"))
        );
        assert_eq!(config.source_for(to("[::9]:1")), Some(to("[::1]:7")));
        assert_eq!(warnings, [""; 0]);
        let (config, _) = bind(SOURCE);
        assert_eq!(config.source_for(to("[::9]:1")), Some(to("127.0.0.1:0")));
        assert_eq!(bind("{}").0, BindConfig::default());
        assert_eq!(BindConfig::default().source_for(to("[::9]:1")), None);
    }

    #[test]
    fn options_are_those_of_the_source_and_of_the_version() {
        let (config, _) = bind(&format!(
            "{SOURCE}
freebind: true
socket_options:
- {{level: 1, name: 2, int_value: -3}}
- {{level: 4, name: 5, buf_value: AQI=, state: STATE_BOUND, ip_version: 1}}
- {{level: 6, name: 7, int_value: 1, type: {{stream: {{}}}}}}
- {{level: 6, name: 7, int_value: 1, state: STATE_LISTENING}}
- {{level: 8, name: 9, int_value: 1, type: {{datagram: {{}}}}, ip_version: 2}}"
        ));
        let options = |target| -> Vec<_> {
            let options = config.options_for(to(target));
            options.map(|o| (o.level, o.name, o.after_bind)).collect()
        };
        assert_eq!(
            options("127.0.0.1:1"),
            [(1, 2, false), (4, 5, true), (0, 15, false)]
        );
        assert_eq!(
            options("[::1]:1"),
            [(1, 2, false), (8, 9, false), (41, 78, false)]
        );
        assert_eq!(*config.socket_options[0].value, (-3_i32).to_ne_bytes());
        assert_eq!(*config.socket_options[1].value, [1, 2]);

        let (config, _) = bind(&format!(
            "{SOURCE}
socket_options: [{{level: 1, name: 2, int_value: 3}}]
extra_source_addresses: [{{address: {{address: \"::1\", port_value: 0}}, socket_options: {{}}}}]"
        ));
        assert_eq!(config.options_for(to("127.0.0.1:1")).count(), 1);
        assert_eq!(config.options_for(to("[::1]:1")).count(), 0);
    }

    #[test]
    fn what_may_not_be_meant_is_warned_of() {
        let (config, warnings) = bind(
            "source_address: {address: 127.0.0.1, port_value: 5, network_namespace_filepath: /x}
additional_source_addresses: [{address: \"::1\", port_value: 0}]
local_address_selector: {name: x, typed_config: {\"@type\": a/envoy.config.upstream.local_address_selector.v3.DefaultLocalAddressSelector}}",
        );
        assert!(config.extra_source.is_some());
        assert_eq!(
            warnings,
            [
                "source_address.network_namespace_filepath: is not read: sockets are opened in the network namespace of the process",
                "source_address.port_value: with a fixed port, an answer that comes late counts for the attempt after",
                "additional_source_addresses: is deprecated",
            ]
        );
    }

    #[test]
    fn sources_are_refused_as_envoy_refuses_them() {
        let v6 = "{address: \"::1\", port_value: 0}";
        let malformed = "malformed IP address \"localhost\"; names are resolved in clusters of type STRICT_DNS and LOGICAL_DNS only";
        refused(
            "source_address: {address: localhost, port_value: 0}",
            &format!("source_address.address: {malformed}"),
        );
        refused(
            &format!("extra_source_addresses: [{{address: {v6}}}]"),
            "extra_source_addresses: cannot be set without source_address",
        );
        refused(
            &format!("{SOURCE}\nextra_source_addresses: [{{address: {v6}}}, {{address: {v6}}}]"),
            "extra_source_addresses: there can be one source address more, but are 2",
        );
        refused(
            &format!(
                "{SOURCE}\nextra_source_addresses: [{{address: {v6}}}]\nadditional_source_addresses: [{v6}]"
            ),
            "additional_source_addresses: cannot be set beside extra_source_addresses",
        );
        refused(
            &format!(
                "{SOURCE}\nadditional_source_addresses: [{{address: 127.0.0.1, port_value: 0}}]"
            ),
            "additional_source_addresses[0]: must be of the other IP version than source_address",
        );
        refused(
            &format!(
                "{SOURCE}\nextra_source_addresses: [{{address: {{address: 127.0.0.1, port_value: 0}}}}]"
            ),
            "extra_source_addresses[0].address: must be of the other IP version than source_address",
        );
        refused(
            &format!("{SOURCE}\nextra_source_addresses: [{{}}]"),
            "extra_source_addresses[0].address: value is required",
        );
        refused(
            &format!(
                "{SOURCE}\nextra_source_addresses: [{{address: {{address: localhost, port_value: 0}}}}]"
            ),
            &format!("extra_source_addresses[0].address.address: {malformed}"),
        );
    }

    #[test]
    fn sources_are_chosen_in_envoys_way_only() {
        refused(
            "local_address_selector: {name: x, typed_config: {\"@type\": a/b.C}}",
            "local_address_selector.typed_config: only envoy.config.upstream.local_address_selector.v3.DefaultLocalAddressSelector can be given, not \"b.C\"",
        );
    }

    #[test]
    fn of_an_option_beyond_an_int_the_low_bits_count() {
        let (config, warnings) = bind(
            "socket_options: [{level: 2147483648, name: -2147483649, int_value: 99999999999}]",
        );
        let option = &config.socket_options[0];
        let value = i32::from_ne_bytes((*option.value).try_into().unwrap());
        assert_eq!(
            (option.level, option.name, value),
            (i32::MIN, i32::MAX, 1_215_752_191)
        );
        let told = ["level", "name", "int_value"].map(|name| format!("socket_options[0].{name}"));
        let told: Vec<_> = told
            .iter()
            .zip([option.level, option.name, value])
            .map(|(path, cut)| {
                format!("{path}: does not fit into the int of setsockopt: {cut} is used")
            })
            .collect();
        assert_eq!(warnings, told);
        refused(
            "socket_options: [{}]",
            "socket_options[0].value: is required: set one of int_value, buf_value",
        );
    }
}
