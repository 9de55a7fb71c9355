//! Addresses: from messages to what can be connected to.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::sync::Arc;

use super::error::Report;
use crate::host::{Address, InternalAddress};
use crate::proto::envoy::config::core::v3::address;
use crate::proto::envoy::config::core::v3::envoy_internal_address::AddressNameSpecifier;
use crate::proto::envoy::config::core::v3::socket_address::PortSpecifier;
use crate::proto::envoy::config::core::v3::{Address as AddressMessage, Pipe, SocketAddress};
use crate::validate::FieldPath;

/// Room for a path, with the zero that ends it, in the kernel's address of a Unix domain socket.
const MAX_PIPE: usize = 108;

/// An address, which must be numeric if it is of IP.
pub(super) fn read(
    message: &AddressMessage,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Address> {
    match message.address.as_ref()? {
        address::Address::SocketAddress(socket) => {
            read_socket(socket, &at.field("socket_address"), report).map(Address::Ip)
        }
        address::Address::Pipe(pipe) => read_pipe(pipe, &at.field("pipe"), report),
        address::Address::EnvoyInternalAddress(internal) => {
            let AddressNameSpecifier::ServerListenerName(name) =
                internal.address_name_specifier.as_ref()?;
            Some(Address::Internal(Arc::new(InternalAddress {
                listener: name.as_str().into(),
                endpoint_id: internal.endpoint_id.as_str().into(),
            })))
        }
    }
}

/// A numeric address and port.
pub(super) fn read_socket(
    message: &SocketAddress,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<SocketAddr> {
    if !["", "envoy.ip"].contains(&message.resolver_name.as_str()) {
        let reason = format!("unknown address resolver {:?}", message.resolver_name);
        report.fault::<()>(&at.field("resolver_name"), reason);
    }
    if !message.network_namespace_filepath.is_empty() {
        report.warn(
            &at.field("network_namespace_filepath"),
            "is not read: sockets are opened in the network namespace of the process",
        );
    }
    let port = read_port(message, at, report);
    let at_address = at.field("address");
    let address = match parse_ip(&message.address) {
        Some(address) => Some(address),
        None if message.address.is_empty() => None,
        None => report.fault(
            &at_address,
            format!(
                "malformed IP address {:?}; names are resolved in clusters of type STRICT_DNS and LOGICAL_DNS only",
                message.address
            ),
        ),
    };
    let (mut address, port) = (address?, port?);
    address.set_port(port);
    Some(address)
}

/// The port of a socket address, by number.
pub(super) fn read_port(
    message: &SocketAddress,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<u16> {
    match message.port_specifier.as_ref()? {
        PortSpecifier::PortValue(port) => u16::try_from(*port).ok(),
        PortSpecifier::NamedPort(_) => report.fault(
            &at.field("named_port"),
            "a port by name cannot be resolved; give port_value",
        ),
    }
}

/// An address in the notation of `inet_pton`, where a link-local IPv6 address may have a scope: a number,
/// or the name of an interface of this machine.
fn parse_ip(text: &str) -> Option<SocketAddr> {
    let Some((address, scope)) = text.split_once('%') else {
        return text.parse::<IpAddr>().ok().map(|ip| (ip, 0).into());
    };
    let ip: Ipv6Addr = address.parse().ok()?;
    if !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_digit()) {
        let scope = scope.parse().ok()?;
        return Some(SocketAddrV6::new(ip, 0, 0, scope).into());
    }
    // The text is an address, so nothing is asked but the interface's number; only for link-local addresses.
    (text, 0).to_socket_addrs().ok()?.next()
}

fn read_pipe(message: &Pipe, at: &FieldPath<'_>, report: &mut Report) -> Option<Address> {
    let path = message.path.as_str();
    let is_abstract = path.starts_with('@');
    if path.len() >= MAX_PIPE {
        let reason = format!(
            "a path has at most {} bytes, but is {}",
            MAX_PIPE - 1,
            path.len()
        );
        return report.fault(&at.field("path"), reason);
    }
    if !is_abstract && path.contains('\0') {
        return report.fault(&at.field("path"), "a path holds no NUL character");
    }
    if is_abstract && message.mode != 0 {
        return report.fault(&at.field("mode"), "an abstract socket has no mode");
    }
    Some(Address::Pipe(path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::wire;
    use crate::proto::envoy::config::core::v3::EnvoyInternalAddress;

    fn socket(address: &str) -> SocketAddress {
        SocketAddress {
            address: address.to_owned(),
            port_specifier: Some(PortSpecifier::PortValue(80)),
            ..SocketAddress::default()
        }
    }

    fn of(address: impl Into<address::Address>) -> Result<Address, String> {
        let message = AddressMessage {
            address: Some(address.into()),
        };
        wire::convert(&message, &mut Default::default(), read).map_err(|error| error.to_string())
    }

    impl From<SocketAddress> for address::Address {
        fn from(socket: SocketAddress) -> Self {
            Self::SocketAddress(socket)
        }
    }

    impl From<(&str, u32)> for address::Address {
        fn from((path, mode): (&str, u32)) -> Self {
            let path = path.to_owned();
            Self::Pipe(Pipe { path, mode })
        }
    }

    #[track_caller]
    fn refused(address: impl Into<address::Address>, fault: &str) {
        assert_eq!(of(address), Err(fault.to_owned()));
    }

    #[test]
    fn addresses_are_numeric() {
        for (text, shown) in [
            ("127.0.0.1", "127.0.0.1:80"),
            ("FE80::A", "[fe80::a]:80"),
            ("::ffff:127.0.0.1", "[::ffff:127.0.0.1]:80"),
            ("fe80::1%01", "[fe80::1%1]:80"),
            ("2001:db8::1%7", "[2001:db8::1%7]:80"),
        ] {
            assert_eq!(of(socket(text)).unwrap().to_string(), shown);
        }
        for text in [
            "localhost",
            "127.1",
            "127.0.0.010",
            " 127.0.0.1",
            "[::1]",
            "0:0:0:0:0:0:0:00001",
            "fe80::1%",
            "fe80::1%no-such-interface",
            "fe80::1%4294967296",
            "fe80::1%+1",
            "%1",
        ] {
            let fault = of(socket(text)).unwrap_err();
            let start = format!("socket_address.address: malformed IP address {text:?}; names");
            assert!(fault.starts_with(&start), "{fault}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_scope_may_be_an_interface() {
        assert_eq!(of(socket("fe80::1%lo")), of(socket("fe80::1%1")));
        assert!(of(socket("2001:db8::1%lo")).is_err());
    }

    #[test]
    fn all_that_is_wrong_with_a_socket_address_is_told() {
        let message = SocketAddress {
            resolver_name: "mine".to_owned(),
            port_specifier: Some(PortSpecifier::NamedPort("http".to_owned())),
            ..socket("::1")
        };
        refused(
            message,
            "socket_address.resolver_name: unknown address resolver \"mine\"\n\
             socket_address.named_port: a port by name cannot be resolved; give port_value",
        );
        let message = SocketAddress {
            resolver_name: "envoy.ip".to_owned(),
            ..socket("::1")
        };
        assert!(of(message).is_ok());
        let message = SocketAddress {
            port_specifier: None,
            ..socket("")
        };
        refused(
            message,
            "socket_address.address: value length must be at least 1 characters\n\
             socket_address.port_specifier: is required: set one of port_value, named_port",
        );
    }

    #[test]
    fn a_pipe_fits_into_its_address() {
        let path = |bytes: usize| format!("@{}", "x".repeat(bytes - 1));
        assert!(of((&*path(107), 0)).is_ok());
        refused(
            (&*path(108), 0),
            "pipe.path: a path has at most 107 bytes, but is 108",
        );
        refused(("/a\0b", 0), "pipe.path: a path holds no NUL character");
        assert!(of(("@a\0b", 0)).is_ok());
        refused(("@a", 1), "pipe.mode: an abstract socket has no mode");
        assert_eq!(of(("/a", 0o777)), Ok(Address::Pipe("/a".into())));
    }

    #[test]
    fn an_internal_listener_is_an_address() {
        let message = EnvoyInternalAddress {
            address_name_specifier: Some(AddressNameSpecifier::ServerListenerName("x".to_owned())),
            endpoint_id: "y".to_owned(),
        };
        let address = of(address::Address::EnvoyInternalAddress(message));
        assert_eq!(address.unwrap().to_string(), "envoy://x/y");
        refused(
            address::Address::EnvoyInternalAddress(EnvoyInternalAddress::default()),
            "envoy_internal_address.address_name_specifier: is required: set server_listener_name",
        );
    }
}
