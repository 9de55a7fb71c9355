//! What a lookup finds out.

use std::net::IpAddr;
use std::time::Duration;

/// The addresses of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The addresses, the first one first. None if the name does not exist, or has no address.
    pub addresses: Vec<IpAddr>,
    /// For how long they hold, if that was told.
    pub ttl: Option<Duration>,
    /// Of two families that were asked for, the one whose lookup failed.
    pub missing: Option<Family>,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    fn holds(self, address: IpAddr) -> bool {
        (self == Self::V4) == address.is_ipv4()
    }
}

impl Answer {
    /// The addresses that count, where `before` were known: for a `logical` cluster the first, otherwise
    /// all, in an order that does not depend on the server's. Those of a family that is missing stay.
    pub(super) fn settle(self, logical: bool, before: &[IpAddr]) -> Vec<IpAddr> {
        let mut addresses = self.addresses;
        if let Some(missing) = self.missing {
            let kept = before.iter().filter(|address| missing.holds(**address));
            let place = if missing == Family::V4 {
                0
            } else {
                addresses.len()
            };
            addresses.splice(place..place, kept.copied());
        }
        if logical {
            addresses.truncate(1);
        } else {
            addresses.sort_unstable();
            addresses.dedup();
        }
        addresses
    }
}
