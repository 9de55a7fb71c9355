//! Which name servers are asked, and how.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::error::Report;
use super::{TypedConfig, address, typed, wire};
use crate::host::Address;
use crate::proto::envoy::config::cluster::v3::Cluster;
use crate::proto::envoy::config::core::v3::{Address as AddressMessage, TypedExtensionConfig};
use crate::proto::xds_health::{DnsResolver, SystemDnsResolver};
use crate::proto::{CARES_DNS_RESOLVER, SYSTEM_DNS_RESOLVER};
use crate::validate::FieldPath;

/// Which name servers are asked, and how; by default, as the system says.
///
/// Source: `envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig`, or the older
/// `dns_resolvers` and `use_tcp_for_dns_lookups` of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DnsResolverConfig {
    /// `resolvers`: the servers, in place of the system's. Port 0 stands for 53.
    pub servers: Vec<SocketAddr>,
    /// `use_resolvers_as_fallback`: ask `servers` only if the system names none.
    pub as_fallback: bool,
    /// `use_tcp_for_dns_lookups`: ask over TCP only.
    pub tcp: bool,
    /// `no_default_search_domain`: take names as they are, without the system's search list.
    pub no_search: bool,
    /// `query_timeout_seconds`: how long a server has to answer, 1 s and up; default as the system says,
    /// mostly 5 s.
    pub timeout: Option<Duration>,
    /// `query_tries`: how often servers are asked before a lookup has failed, 1 and up; default as the
    /// system says, mostly 2.
    pub tries: Option<u32>,
    /// `rotate_nameservers`: begin with another server each time.
    pub rotate: bool,
}

impl DnsResolverConfig {
    /// One that asks `servers`, and otherwise does as the system says.
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self {
            servers,
            ..Self::default()
        }
    }

    /// By the fields of a cluster, if it sets any: the newest of them counts, as with Envoy.
    pub(super) fn read_cluster(
        message: &Cluster,
        at: &FieldPath<'_>,
        report: &mut Report,
    ) -> Option<Arc<Self>> {
        let older = !message.dns_resolvers.is_empty() || message.use_tcp_for_dns_lookups;
        let extension = message.typed_dns_resolver_config.as_ref();
        // One of no type counts as none, as with Envoy, unless it would hide what the older fields say.
        let extension = extension.filter(|extension| {
            let config = extension.typed_config.as_ref();
            older || config.is_none_or(|config| !config.type_url.is_empty())
        });
        if let Some(extension) = extension {
            let at = at.field("typed_dns_resolver_config");
            return Self::read_extension(extension, &at, report);
        }
        if !older {
            return None;
        }
        let mut read = Self::default();
        read.read_servers(&message.dns_resolvers, "dns_resolvers", at, report);
        read.tcp = message.use_tcp_for_dns_lookups;
        Some(Arc::new(read))
    }

    /// By an extension, which stands at `at`.
    pub(super) fn read_extension(
        extension: &TypedExtensionConfig,
        at: &FieldPath<'_>,
        report: &mut Report,
    ) -> Option<Arc<Self>> {
        let config = TypedConfig::from(extension.typed_config.as_ref()?);
        let at = at.field("typed_config");
        let name = typed::bare(&config);
        let read = match name.as_deref() {
            Ok(CARES_DNS_RESOLVER) => wire::decode_checked::<DnsResolver>(&config.value).map(Some),
            Ok(SYSTEM_DNS_RESOLVER) => {
                wire::decode_checked::<SystemDnsResolver>(&config.value).map(|_| None)
            }
            Ok(name) => {
                let reason = format!("the DNS resolver {name:?} is not built in");
                return report.fault(&at, reason);
            }
            Err(error) => Err(error.clone()),
        };
        let cares = match read {
            Ok(Some(cares)) => cares,
            Ok(None) => return Some(Arc::default()),
            Err(error) => return report.within(&at, error),
        };
        let options = cares.dns_resolver_options.unwrap_or_default();
        let timeout = cares.query_timeout_seconds.filter(|&seconds| seconds > 0);
        let mut read = Self {
            as_fallback: cares.use_resolvers_as_fallback,
            tcp: options.use_tcp_for_dns_lookups,
            no_search: options.no_default_search_domain,
            timeout: timeout.map(Duration::from_secs),
            tries: cares.query_tries.filter(|&tries| tries > 0),
            rotate: cares.rotate_nameservers,
            ..Self::default()
        };
        read.read_servers(&cares.resolvers, "resolvers", &at, report);
        Some(Arc::new(read))
    }

    fn read_servers(
        &mut self,
        servers: &[AddressMessage],
        field: &str,
        at: &FieldPath<'_>,
        report: &mut Report,
    ) {
        for (index, server) in servers.iter().enumerate() {
            let at = at.item(field, index);
            match address::read(server, &at, report) {
                Some(Address::Ip(server)) => self.servers.push(server),
                Some(_) => {
                    report.fault::<()>(&at, "a name server has an IP address");
                }
                None => (),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClusterConfig, Discovery, testing};

    fn text(fields: &str) -> String {
        format!("name: c\ntype: STRICT_DNS\n{fields}")
    }

    fn resolver(fields: &str) -> Option<DnsResolverConfig> {
        let (cluster, _) = testing::parse(&text(fields), ClusterConfig::read).unwrap();
        let Discovery::StrictDns(dns) = cluster.discovery else {
            panic!("{:?}", cluster.discovery);
        };
        dns.resolver.as_deref().cloned()
    }

    #[track_caller]
    fn refused(fields: &str, faults: &str) {
        assert_eq!(testing::faults(&text(fields), ClusterConfig::read), faults);
    }

    fn cares(fields: &str) -> String {
        extension("cares.v3.CaresDnsResolverConfig", fields)
    }

    fn extension(name: &str, fields: &str) -> String {
        format!(
            "typed_dns_resolver_config: {{name: x, typed_config: {{\"@type\": a/envoy.extensions.network.dns_resolver.{name}, {fields}}}}}"
        )
    }

    const SERVERS: &str = "[{socket_address: {address: 127.0.0.1, port_value: 5353}}, {socket_address: {address: \"::1\", port_value: 0}}]";

    #[test]
    fn servers_are_named_in_two_ways() {
        let servers = vec![
            "127.0.0.1:5353".parse().unwrap(),
            "[::1]:0".parse().unwrap(),
        ];
        let options = "dns_resolver_options: {use_tcp_for_dns_lookups: true}";
        let wanted = Some(DnsResolverConfig {
            tcp: true,
            ..DnsResolverConfig::new(servers)
        });
        for fields in [
            format!("dns_resolvers: {SERVERS}\nuse_tcp_for_dns_lookups: true"),
            cares(&format!("resolvers: {SERVERS}, {options}")),
            format!(
                "use_tcp_for_dns_lookups: false\ndns_resolvers: []\n{}",
                cares(&format!("resolvers: {SERVERS}, {options}"))
            ),
        ] {
            assert_eq!(resolver(&fields), wanted, "{fields}");
        }
        assert_eq!(resolver(""), None);
        let none = "typed_dns_resolver_config: {name: x, typed_config: {}}";
        assert_eq!(resolver(none), None);
        let system = extension(
            "getaddrinfo.v3.GetAddrInfoDnsResolverConfig",
            "num_retries: 3, num_resolver_threads: 0",
        );
        assert_eq!(resolver(&system), Some(DnsResolverConfig::default()));
    }

    #[test]
    fn all_that_is_asked_for_is_read() {
        let fields = "use_resolvers_as_fallback: true, query_timeout_seconds: 3, query_tries: 4, rotate_nameservers: true, \
             dns_resolver_options: {no_default_search_domain: true}";
        let wanted = DnsResolverConfig {
            servers: Vec::new(),
            as_fallback: true,
            tcp: false,
            no_search: true,
            timeout: Some(Duration::from_secs(3)),
            tries: Some(4),
            rotate: true,
        };
        assert_eq!(resolver(&cares(fields)), Some(wanted));
        let zeros = "query_timeout_seconds: 0, query_tries: 0, edns0_max_payload_size: 0";
        assert_eq!(resolver(&cares(zeros)), Some(DnsResolverConfig::default()));
    }

    #[test]
    fn faults_have_their_paths() {
        let at = "typed_dns_resolver_config.typed_config";
        refused(
            &cares("resolvers: [{pipe: {path: /x}}]"),
            &format!("{at}.resolvers[0]: a name server has an IP address"),
        );
        refused(
            "dns_resolvers: [{pipe: {path: /x}}]",
            "dns_resolvers[0]: a name server has an IP address",
        );
        refused(
            "typed_dns_resolver_config: {name: x, typed_config: {\"@type\": a/envoy.config.core.v3.Node}}",
            &format!("{at}: the DNS resolver \"envoy.config.core.v3.Node\" is not built in"),
        );
        refused(
            "typed_dns_resolver_config: {name: x, typed_config: {}}\nuse_tcp_for_dns_lookups: true",
            &format!("{at}: the DNS resolver \"\" is not built in"),
        );
        refused(
            &cares("no_such: 1"),
            &format!("{at}.no_such: unknown field \"no_such\" in xds_health.DnsResolver"),
        );
        refused(
            &extension("getaddrinfo.v3.GetAddrInfoDnsResolverConfig", "no_such: 1"),
            &format!("{at}.no_such: unknown field \"no_such\" in xds_health.SystemDnsResolver"),
        );
        refused(
            "typed_dns_resolver_config: {name: x, typed_config: {\"@type\": a/xds.type.v3.TypedStruct, type_url: a/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig}}",
            &format!("{at}: a TypedStruct is not taken here: give the message itself"),
        );
    }
}
