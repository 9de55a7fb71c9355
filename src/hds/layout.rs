//! What is reported of a cluster, apart from the health itself.

use std::net::SocketAddr;
use std::sync::Arc;

use prost::Message;

use crate::host::{Address, Host, InternalAddress, Locality};
use crate::proto::envoy::config::core::v3::address;
use crate::proto::envoy::config::core::v3::envoy_internal_address::AddressNameSpecifier;
use crate::proto::envoy::config::core::v3::socket_address::PortSpecifier;
use crate::proto::envoy::config::core::v3::{
    Address as AddressMessage, EnvoyInternalAddress, Locality as LocalityMessage, Pipe,
    SocketAddress,
};
use crate::proto::envoy::config::endpoint::v3::Endpoint;

/// The endpoints of a cluster as reports list them: in the specifier's order, without those that are not to be
/// checked. It does not change; another specifier may bring another.
#[derive(Debug)]
pub(super) struct Layout {
    /// The cluster's name, as it is told back.
    pub(super) name: Arc<str>,
    /// What the engine knows it by.
    pub(super) key: Arc<str>,
    /// Whether it has checks. Where it has none, what was found last goes on being reported.
    pub(super) checked: bool,
    pub(super) groups: Vec<Group>,
}

/// The endpoints of one locality that are checked, at least one.
#[derive(Debug)]
pub(super) struct Group {
    /// An encoded `envoy.config.core.v3.Locality`.
    pub(super) locality: Box<[u8]>,
    pub(super) endpoints: Vec<Reported>,
}

#[derive(Debug)]
pub(super) struct Reported {
    pub(super) host: Arc<Host>,
    /// An encoded `envoy.config.endpoint.v3.Endpoint` that has the address only.
    pub(super) endpoint: Box<[u8]>,
}

impl Layout {
    /// The layout of a cluster with `hosts`, of which as many as `sizes` tell belong to each locality.
    pub(super) fn new(
        name: &Arc<str>,
        key: &Arc<str>,
        checked: bool,
        hosts: &[Arc<Host>],
        sizes: impl Iterator<Item = usize>,
    ) -> Self {
        let mut rest = hosts;
        let mut groups = Vec::new();
        for size in sizes {
            let (group, others) = rest.split_at_checked(size).unwrap_or((rest, &[]));
            rest = others;
            let endpoints: Vec<_> = group
                .iter()
                .filter(|host| !host.check_disabled)
                .map(Reported::new)
                .collect();
            if let Some(first) = endpoints.first() {
                let locality = locality(first.host.locality()).encode_to_vec().into();
                groups.push(Group {
                    locality,
                    endpoints,
                });
            }
        }
        Self {
            name: Arc::clone(name),
            key: Arc::clone(key),
            checked,
            groups,
        }
    }

    /// All endpoints in order.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = &Reported> {
        self.groups.iter().flat_map(|group| &group.endpoints)
    }
}

impl Reported {
    fn new(host: &Arc<Host>) -> Self {
        let endpoint = Endpoint {
            address: Some(write_address(&host.address)),
            ..Endpoint::default()
        };
        Self {
            host: Arc::clone(host),
            endpoint: endpoint.encode_to_vec().into(),
        }
    }
}

fn locality(locality: &Locality) -> LocalityMessage {
    LocalityMessage {
        region: locality.region.to_string(),
        zone: locality.zone.to_string(),
        sub_zone: locality.sub_zone.to_string(),
    }
}

/// An address as Envoy writes it: TCP for every socket.
fn write_address(address: &Address) -> AddressMessage {
    let address = match address {
        Address::Ip(address) => {
            let scope = match address {
                SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("%{}", v6.scope_id()),
                _ => String::new(),
            };
            address::Address::SocketAddress(SocketAddress {
                address: format!("{}{scope}", address.ip()),
                port_specifier: Some(PortSpecifier::PortValue(address.port().into())),
                ..SocketAddress::default()
            })
        }
        Address::Pipe(path) => address::Address::Pipe(Pipe {
            path: path.to_string(),
            ..Pipe::default()
        }),
        Address::Internal(internal) => {
            let InternalAddress {
                listener,
                endpoint_id,
            } = &**internal;
            address::Address::EnvoyInternalAddress(EnvoyInternalAddress {
                endpoint_id: endpoint_id.to_string(),
                address_name_specifier: Some(AddressNameSpecifier::ServerListenerName(
                    listener.to_string(),
                )),
            })
        }
    };
    AddressMessage {
        address: Some(address),
    }
}
