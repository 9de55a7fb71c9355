//! From addresses to hosts.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::config::DnsConfig;
use crate::host::{Address, Host};

/// The hosts of a cluster in the order of its endpoints; one that two of them lead to is there once. As
/// with Envoy, the name stands for a hostname that is not set, and a logical host has priority 0.
pub(super) fn hosts<'a>(
    dns: &DnsConfig,
    logical: bool,
    addresses: impl Fn(&str) -> &'a [IpAddr],
) -> Arc<[Arc<Host>]> {
    let mut seen: HashSet<(Address, Option<Address>)> = HashSet::new();
    let mut hosts = Vec::new();
    for endpoint in &dns.endpoints {
        let mut addresses = addresses(&endpoint.name);
        if logical {
            addresses = &addresses[..addresses.len().min(1)];
        }
        for address in addresses {
            let mut host = endpoint.host(*address);
            if host.hostname().is_none() {
                host = host.with_hostname(Arc::clone(&endpoint.name));
            }
            if logical {
                host.priority = 0;
            }
            if seen.insert((host.address.clone(), host.check_address().cloned())) {
                hosts.push(Arc::new(host));
            }
        }
    }
    hosts.into()
}
