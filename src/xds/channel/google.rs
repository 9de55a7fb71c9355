//! `google_grpc`: a control plane that a target URI tells of.

use super::tls::Tls;
use super::{Service, Target, split_port};
use crate::config::ConfigError;
use crate::host::Address;
use crate::proto::envoy::config::core::v3::grpc_service::GoogleGrpc;
use crate::proto::envoy::config::core::v3::grpc_service::google_grpc::channel_credentials::CredentialSpecifier;

/// The port of a target that has none.
const DEFAULT_PORT: u16 = 443;

pub(super) fn read(message: &GoogleGrpc) -> Result<Service, ConfigError> {
    if !message.call_credentials.is_empty() {
        return Err(ConfigError::new("call_credentials", "are not supported"));
    }
    let uri = message.target_uri.as_str();
    let (targets, authority) =
        targets(uri).map_err(|reason| ConfigError::new("target_uri", reason))?;
    let mut service = Service::new(uri, &authority);
    service.targets = targets;
    let credentials = message.channel_credentials.as_ref();
    service.tls = match credentials.and_then(|c| c.credential_specifier.as_ref()) {
        None | Some(CredentialSpecifier::LocalCredentials(_)) => None,
        Some(CredentialSpecifier::SslCredentials(ssl)) => {
            let host = split_port(&authority).map_or(authority.as_str(), |(host, _)| host);
            let tls = Tls::of_target(ssl, host);
            Some(tls.map_err(|error| error.at("channel_credentials.ssl_credentials"))?)
        }
        Some(CredentialSpecifier::GoogleDefault(_)) => {
            let reason = "is not supported; give ssl_credentials";
            return Err(ConfigError::new(
                "channel_credentials.google_default",
                reason,
            ));
        }
    };
    Ok(service)
}

/// Where a target URI leads, and what stands in `:authority`.
fn targets(uri: &str) -> Result<(Vec<Target>, String), String> {
    let wrong = || format!("{uri:?} is no target: want host:port, dns:, ipv4:, ipv6: or unix:");
    if let Some(path) = uri.strip_prefix("unix:") {
        let path = path
            .strip_prefix("//")
            .filter(|p| p.starts_with('/'))
            .unwrap_or(path);
        let target = Target::Address(Address::Pipe(path.into()));
        return Ok((vec![target], "localhost".to_owned()));
    }
    if let Some(name) = uri.strip_prefix("unix-abstract:") {
        let target = Target::Address(Address::Pipe(format!("@{name}").into()));
        return Ok((vec![target], "localhost".to_owned()));
    }
    let listed = uri
        .strip_prefix("ipv4:")
        .or_else(|| uri.strip_prefix("ipv6:"));
    if let Some(list) = listed {
        let target = |text: &str| {
            let (host, port) = split_port(text)?;
            let ip: std::net::IpAddr = host.trim_matches(['[', ']']).parse().ok()?;
            Some(Target::Address(Address::Ip(
                (ip, port.unwrap_or(DEFAULT_PORT)).into(),
            )))
        };
        let targets: Option<Vec<_>> = list.split(',').map(target).collect();
        let first = list.split(',').next().unwrap_or_default().to_owned();
        return targets.map(|targets| (targets, first)).ok_or_else(wrong);
    }
    let name = match uri.strip_prefix("dns:") {
        // The DNS server that may stand between the slashes is the one of the system here.
        Some(rest) => match rest.strip_prefix("//") {
            Some(rest) => rest.split_once('/').ok_or_else(wrong)?.1,
            None => rest,
        },
        None if uri.contains("://") => return Err(wrong()),
        None => uri,
    };
    let (host, port) = split_port(name).ok_or_else(wrong)?;
    if host.is_empty() || host.contains('/') {
        return Err(wrong());
    }
    let target = Target::Name(host.to_owned(), port.unwrap_or(DEFAULT_PORT));
    Ok((vec![target], name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_as_grpc_names_them() {
        let name = |host: &str, port| Target::Name(host.to_owned(), port);
        let pipe = |path: &str| Target::Address(Address::Pipe(path.into()));
        let ip = |text: &str| Target::Address(Address::Ip(text.parse().unwrap()));
        for (uri, wanted, authority) in [
            ("plane:80", vec![name("plane", 80)], "plane:80"),
            ("plane", vec![name("plane", 443)], "plane"),
            ("dns:///plane:80", vec![name("plane", 80)], "plane:80"),
            (
                "dns://1.1.1.1/plane:80",
                vec![name("plane", 80)],
                "plane:80",
            ),
            ("dns:plane", vec![name("plane", 443)], "plane"),
            ("127.0.0.1:80", vec![name("127.0.0.1", 80)], "127.0.0.1:80"),
            ("[::1]:80", vec![name("::1", 80)], "[::1]:80"),
            ("unix:/run/p", vec![pipe("/run/p")], "localhost"),
            ("unix:///run/p", vec![pipe("/run/p")], "localhost"),
            ("unix:p", vec![pipe("p")], "localhost"),
            ("unix-abstract:p", vec![pipe("@p")], "localhost"),
            (
                "ipv4:1.2.3.4:80,1.2.3.5",
                vec![ip("1.2.3.4:80"), ip("1.2.3.5:443")],
                "1.2.3.4:80",
            ),
            ("ipv6:[::1]:80", vec![ip("[::1]:80")], "[::1]:80"),
        ] {
            assert_eq!(targets(uri), Ok((wanted, authority.to_owned())), "{uri}");
        }
        for uri in [
            "",
            "http://plane",
            "xds:///plane",
            "dns:///",
            "ipv4:plane:80",
            "plane:port",
        ] {
            targets(uri).unwrap_err();
        }
    }
}
