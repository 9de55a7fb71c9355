//! Name servers, and what they say of a name.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig,
    ServerOrderingStrategy,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::{Name, RecordType};

use super::answer::Family;
use super::system::SystemServers;
use crate::config::DnsResolverConfig;

/// Questions that one server may have before it. More than lookups that run, each with two.
const QUESTIONS: usize = 1024;

/// Servers that are asked, and what is appended to names.
pub(super) struct Servers {
    resolver: TokioResolver,
    search: Vec<Name>,
    dots: usize,
}

/// The addresses of one family, and for how long they hold.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) ttl: Option<Duration>,
}

impl Servers {
    /// As `config` says, and the system where it says nothing.
    pub(super) fn new(
        config: &DnsResolverConfig,
        system: &SystemServers,
    ) -> Result<Self, NetError> {
        let own = !config.servers.is_empty();
        let of_system = system.config.name_servers();
        let mut servers = if own && (of_system.is_empty() || !config.as_fallback) {
            let servers = config.servers.iter();
            servers
                .map(|server| name_server(server.ip(), server.port()))
                .collect()
        } else if of_system.is_empty() {
            vec![name_server(Ipv4Addr::LOCALHOST.into(), 0)]
        } else {
            of_system.to_vec()
        };
        if config.tcp {
            for server in &mut servers {
                let tcp = |one: &ConnectionConfig| matches!(one.protocol, ProtocolConfig::Tcp);
                server.connections.retain(tcp);
            }
        }
        let mut options = system.options.clone();
        // What is asked is asked when it is due, not when an answer of before has run out.
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        options.max_active_requests = QUESTIONS;
        if let Some(timeout) = config.timeout {
            options.timeout = timeout;
        }
        let tries = config.tries.map(usize::try_from);
        let tries = tries.map_or(options.attempts, |tries| tries.unwrap_or(usize::MAX));
        // There, those after the first are counted.
        options.attempts = tries.saturating_sub(1);
        if config.rotate {
            options.server_ordering_strategy = ServerOrderingStrategy::RoundRobin;
        }
        let search = if config.no_search {
            Vec::new()
        } else {
            system.config.search().to_vec()
        };
        let dots = options.ndots;
        let config = ResolverConfig::from_name_servers(servers);
        let resolver = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options)
            .build()?;
        Ok(Self {
            resolver,
            search,
            dots,
        })
    }

    /// What to ask for, one after the other, for a name that may be short for another.
    pub(super) fn full_names(&self, name: &Name) -> Vec<Name> {
        let mut whole = name.clone();
        whole.set_fqdn(true);
        if name.is_fqdn() {
            return vec![whole];
        }
        let search = self.search.iter();
        // One that would be too long is none.
        let mut names: Vec<_> = search
            .filter_map(|domain| name.clone().append_domain(domain).ok())
            .collect();
        let dots = usize::from(name.num_labels()).saturating_sub(1);
        let place = if dots >= self.dots { 0 } else { names.len() };
        names.insert(place, whole);
        names
    }

    /// Asks for the addresses that the first of `names` has that has any. There are none only if every
    /// name was answered: who could not be asked might have known one.
    pub(super) async fn ask(&self, names: &[Name], family: Family) -> Result<Found, NetError> {
        let mut failure = None;
        for name in names {
            match self.ask_one(name, family).await {
                Ok(found) if found.addresses.is_empty() => (),
                Ok(found) => return Ok(found),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or_else(|| Ok(Found::default()), Err)
    }

    async fn ask_one(&self, name: &Name, family: Family) -> Result<Found, NetError> {
        let kind = match family {
            Family::V4 => RecordType::A,
            Family::V6 => RecordType::AAAA,
        };
        let answer = match self.resolver.lookup(name.clone(), kind).await {
            Ok(answer) => answer,
            Err(NetError::Dns(DnsError::NoRecordsFound(_))) => return Ok(Found::default()),
            Err(error) => return Err(error),
        };
        let records = answer.answers();
        let ttl = records.iter().map(|record| record.ttl).min();
        let of_kind = records.iter().filter(|record| record.record_type() == kind);
        Ok(Found {
            addresses: of_kind.filter_map(|record| record.data.ip_addr()).collect(),
            ttl: ttl.map(|ttl| Duration::from_secs(ttl.into())),
        })
    }
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Servers")
            .field("search", &self.search)
            .finish_non_exhaustive()
    }
}

/// A server at `ip`, at the usual port if `port` is 0.
fn name_server(ip: IpAddr, port: u16) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(ip);
    if port != 0 {
        for connection in &mut server.connections {
            connection.port = port;
        }
    }
    server
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_resolver::system_conf::parse_resolv_conf;

    fn names(resolv_conf: &str, config: &DnsResolverConfig, name: &str) -> Vec<String> {
        let (system, options) = parse_resolv_conf(resolv_conf).unwrap();
        let system = SystemServers {
            config: system,
            options,
        };
        let servers = Servers::new(config, &system).unwrap();
        let names = servers.full_names(&Name::from_str_relaxed(name).unwrap());
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn short_names_are_completed_by_the_search_list() {
        let conf = "nameserver 127.0.0.1\nsearch a.example b.example\noptions ndots:2";
        let of = |name| names(conf, &DnsResolverConfig::default(), name);
        assert_eq!(of("x.y"), ["x.y.a.example.", "x.y.b.example.", "x.y."]);
        assert_eq!(of("x.y.z")[0], "x.y.z.");
        assert_eq!(of("x.y.z").len(), 3);
        assert_eq!(of("x."), ["x."]);
        let config = DnsResolverConfig {
            no_search: true,
            ..DnsResolverConfig::default()
        };
        assert_eq!(names(conf, &config, "x"), ["x."]);
    }
}
