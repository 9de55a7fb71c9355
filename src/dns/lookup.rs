//! One lookup: from a name and the family of addresses that is wanted to an answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use hickory_resolver::Hosts;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};

use super::answer::{Answer, Family};
use super::servers::{Found, Servers};
use crate::config::LookupFamily;

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum LookupError {
    #[error("not a name: {0}")]
    Name(String),
    #[error(transparent)]
    Servers(#[from] NetError),
    #[error("it has no address")]
    Empty,
    #[error("no answer in time")]
    Late,
    #[error("the lookup ended early")]
    Lost,
}

/// What a lookup needs.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    pub(super) hosts: Arc<Hosts>,
    pub(super) servers: Arc<Servers>,
}

impl Sources {
    /// The addresses of `name`. What this machine knows goes before what servers say.
    pub(super) async fn look_up(
        &self,
        name: &str,
        family: LookupFamily,
    ) -> Result<Answer, LookupError> {
        let name =
            Name::from_str_relaxed(name).map_err(|error| LookupError::Name(error.to_string()))?;
        let (families, all): (&[Family], _) = match family {
            LookupFamily::Auto => (&[Family::V6, Family::V4], false),
            LookupFamily::V4Preferred => (&[Family::V4, Family::V6], false),
            LookupFamily::V4Only => (&[Family::V4], false),
            LookupFamily::V6Only => (&[Family::V6], false),
            LookupFamily::All => (&[Family::V4, Family::V6], true),
        };
        let mut here: Vec<_> = families
            .iter()
            .map(|family| self.known_here(&name, *family))
            .filter(|addresses| !addresses.is_empty())
            .collect();
        if !all {
            here.truncate(1);
        }
        if !here.is_empty() {
            return Ok(Answer {
                addresses: here.concat(),
                ttl: None,
                missing: None,
            });
        }
        let names = self.servers.full_names(&name);
        if all {
            let (v4, v6) = tokio::join!(
                self.servers.ask(&names, Family::V4),
                self.servers.ask(&names, Family::V6),
            );
            return both(v4, v6);
        }
        let mut failure = None;
        for family in families {
            match self.servers.ask(&names, *family).await {
                Ok(found) if found.addresses.is_empty() => (),
                Ok(found) => return Ok(answer(found, None)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or_else(|| Ok(Answer::default()), |error| Err(error.into()))
    }

    fn known_here(&self, name: &Name, family: Family) -> Vec<IpAddr> {
        if name.is_localhost() {
            return vec![match family {
                Family::V4 => Ipv4Addr::LOCALHOST.into(),
                Family::V6 => Ipv6Addr::LOCALHOST.into(),
            }];
        }
        let kind = match family {
            Family::V4 => RecordType::A,
            Family::V6 => RecordType::AAAA,
        };
        let known = self
            .hosts
            .lookup_static_host(&Query::query(name.clone(), kind));
        let known = known.iter().flat_map(|known| known.answers());
        known.filter_map(|record| record.data.ip_addr()).collect()
    }
}

/// IPv4 goes first. If one family could not be had, what the other has is an answer all the same.
fn both(v4: Result<Found, NetError>, v6: Result<Found, NetError>) -> Result<Answer, LookupError> {
    match (v4, v6) {
        (Ok(mut v4), Ok(v6)) => {
            v4.addresses.extend(v6.addresses);
            v4.ttl = v4.ttl.into_iter().chain(v6.ttl).min();
            Ok(answer(v4, None))
        }
        (Ok(found), Err(_)) if !found.addresses.is_empty() => Ok(answer(found, Some(Family::V6))),
        (Err(_), Ok(found)) if !found.addresses.is_empty() => Ok(answer(found, Some(Family::V4))),
        (Err(error), _) | (_, Err(error)) => Err(error.into()),
    }
}

fn answer(found: Found, missing: Option<Family>) -> Answer {
    Answer {
        addresses: found.addresses,
        ttl: found.ttl,
        missing,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::DnsResolverConfig;
    use crate::dns::system::System;

    /// With a hosts file, and no server that answers.
    async fn look_up(hosts: &str, name: &str, family: LookupFamily) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        fs::write(&path, hosts).unwrap();
        let mut system = System::new(&path, dir.path().join("none"));
        let hosts = system.hosts();
        let mut config = DnsResolverConfig::new(vec!["127.0.0.1:1".parse().unwrap()]);
        config.tries = Some(1);
        let servers = Arc::new(Servers::new(&config, &system.servers().0).unwrap());
        let answer = Sources { hosts, servers }.look_up(name, family).await;
        let addresses = answer.unwrap().addresses;
        addresses.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn localhost_is_known_by_both_families() {
        let of = |family| look_up("127.0.0.1 localhost", "localhost", family);
        assert_eq!(of(LookupFamily::Auto).await, ["::1"]);
        assert_eq!(of(LookupFamily::V6Only).await, ["::1"]);
        assert_eq!(of(LookupFamily::V4Only).await, ["127.0.0.1"]);
        assert_eq!(of(LookupFamily::V4Preferred).await, ["127.0.0.1"]);
        assert_eq!(of(LookupFamily::All).await, ["127.0.0.1", "::1"]);
    }

    #[tokio::test]
    async fn the_hosts_file_goes_before_servers() {
        let hosts = "127.0.0.2 game game.example # one\n::2 game\n127.0.0.3 other\n127.0.0.4 other";
        let of = |name, family| look_up(hosts, name, family);
        assert_eq!(of("game", LookupFamily::Auto).await, ["::2"]);
        assert_eq!(of("GAME", LookupFamily::All).await, ["127.0.0.2", "::2"]);
        assert_eq!(of("game.example", LookupFamily::Auto).await, ["127.0.0.2"]);
        let both = of("other", LookupFamily::Auto).await;
        assert_eq!(both, ["127.0.0.3", "127.0.0.4"]);
    }

    #[test]
    fn a_changed_file_is_read_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        let mut system = System::new(dir.path().join("hosts"), &path);
        let (servers, changed) = system.servers();
        assert!(!changed && servers.config.name_servers().is_empty());
        fs::write(&path, "nameserver 127.0.0.1").unwrap();
        let (servers, changed) = system.servers();
        assert!(changed);
        assert_eq!(servers.config.name_servers().len(), 1);
        assert!(!system.servers().1);
    }
}
