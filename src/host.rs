//! What a host is: its identity, addresses, locality and health flags.
//!
//! A [`Host`] is the immutable description that an endpoint of a cluster became; what checks found out
//! about it lives elsewhere. A million of them have to fit, so addresses are held as packed values,
//! everything that hosts have in common is shared, and what few of them have stands apart.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

/// Where a host, or its health check, is reached.
///
/// Source: `envoy.config.core.v3.Address`, of which `socket_address` with a numeric address and `pipe` can
/// be checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Address {
    /// An IP address and port; IPv6 may carry a scope.
    Ip(SocketAddr),
    /// A path of a Unix domain socket, abstract when it starts with `@`.
    Pipe(Arc<str>),
    /// A listener inside an Envoy. A host may have such an address, but no check goes there.
    Internal(Arc<InternalAddress>),
}

/// A listener inside an Envoy.
///
/// Source: `envoy.config.core.v3.EnvoyInternalAddress`. [`Display`](fmt::Display) gives Envoy's text:
/// `envoy://listener/endpoint`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InternalAddress {
    /// `server_listener_name`.
    pub listener: Box<str>,
    /// `endpoint_id`, which may be empty.
    pub endpoint_id: Box<str>,
}

impl fmt::Display for InternalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "envoy://{}/{}", self.listener, self.endpoint_id)
    }
}

impl Address {
    /// The port, if there is one.
    pub fn port(&self) -> Option<u16> {
        self.socket_addr().map(|address| address.port())
    }

    /// A hash, the same in every process. IP addresses, which are looked up with every packet, have a quick one.
    pub(crate) fn hash64(&self) -> u64 {
        match self {
            Self::Ip(SocketAddr::V4(address)) => {
                let ip = u64::from(address.ip().to_bits());
                mix(ip << 16 | u64::from(address.port()), 4)
            }
            Self::Ip(SocketAddr::V6(address)) => {
                let bits = address.ip().to_bits();
                #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
                let (high, low) = ((bits >> 64) as u64, bits as u64);
                let rest = u64::from(address.scope_id()) << 16 | u64::from(address.port());
                mix(mix(high, 6) ^ low, rest)
            }
            Self::Pipe(_) | Self::Internal(_) => hash_of(self),
        }
    }

    /// The IP address and port, if this is one.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Pipe(_) | Self::Internal(_) => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Pipe(path) => f.write_str(path),
            Self::Internal(address) => address.fmt(f),
        }
    }
}

/// Where a host runs.
///
/// Source: `envoy.config.core.v3.Locality`. All three parts may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Locality {
    /// Region this zone belongs to.
    pub region: Box<str>,
    /// Availability zone.
    pub zone: Box<str>,
    /// Subdivision of the zone.
    pub sub_zone: Box<str>,
}

/// What the control plane says of a host's health, beside any active check.
///
/// Source: `envoy.config.core.v3.HealthStatus` in `LbEndpoint.health_status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EdsHealth {
    /// Nothing is said; taken as healthy.
    #[default]
    Unknown,
    /// Healthy.
    Healthy,
    /// Unhealthy: out of `membership_healthy`.
    Unhealthy,
    /// Being drained: out of `membership_healthy`.
    Draining,
    /// Checks by the control plane timed out: out of `membership_healthy`.
    Timeout,
    /// Degraded: counted by `membership_degraded`.
    Degraded,
}

impl EdsHealth {
    /// The health flag that this status sets.
    pub fn flag(self) -> HealthFlags {
        match self {
            Self::Unknown | Self::Healthy => HealthFlags::NONE,
            Self::Unhealthy | Self::Timeout => HealthFlags::FAILED_EDS_HEALTH,
            Self::Draining => HealthFlags::EDS_STATUS_DRAINING,
            Self::Degraded => HealthFlags::DEGRADED_EDS_HEALTH,
        }
    }

    /// The proto name of the value; like Envoy, which shows `HEALTHY` for a host of which nothing was said.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown | Self::Healthy => "HEALTHY",
            Self::Unhealthy => "UNHEALTHY",
            Self::Draining => "DRAINING",
            Self::Timeout => "TIMEOUT",
            Self::Degraded => "DEGRADED",
        }
    }
}

/// One host of a cluster: an endpoint with all that bears on its checks.
///
/// Source: `envoy.config.endpoint.v3.LbEndpoint` within its `LocalityLbEndpoints`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Host {
    /// The host's own address, which names it in events and on the admin port.
    pub address: Address,
    /// `load_balancing_weight`, 1 and up; default 1.
    pub weight: u32,
    /// Priority of its locality, 0 (first) to 128; default 0.
    pub priority: u8,
    /// `health_status` by the control plane.
    pub eds_health: EdsHealth,
    /// `health_check_config.disable_active_health_check`: the host is taken as healthy, never checked.
    pub check_disabled: bool,
    /// Metadata `envoy.lb` says `canary: true`.
    pub canary: bool,
    /// None for the empty one.
    locality: Option<Arc<Locality>>,
    /// None when there is nothing in it.
    rare: Option<Box<Rare>>,
}

/// What few hosts have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rare {
    check_address: Option<Address>,
    hostname: Option<Arc<str>>,
    metadata: Option<Arc<str>>,
}

impl Host {
    /// A host at `address` with weight 1, priority 0 and no locality.
    pub fn new(address: impl Into<Address>) -> Self {
        Self {
            address: address.into(),
            weight: 1,
            priority: 0,
            eds_health: EdsHealth::Unknown,
            check_disabled: false,
            canary: false,
            locality: None,
            rare: None,
        }
    }

    /// The same host checked at another address (`health_check_config`).
    pub fn with_check_address(mut self, address: impl Into<Address>) -> Self {
        self.set_rare(|rare| rare.check_address = Some(address.into()));
        self
    }

    /// The same host with a name (`endpoint.hostname`).
    pub fn with_hostname(mut self, hostname: impl Into<Arc<str>>) -> Self {
        self.set_rare(|rare| rare.hostname = Some(hostname.into()));
        self
    }

    /// The same host with metadata, as the JSON that events show.
    pub fn with_metadata(mut self, metadata: impl Into<Arc<str>>) -> Self {
        self.set_rare(|rare| rare.metadata = Some(metadata.into()));
        self
    }

    /// The same host in `locality`.
    pub fn with_locality(mut self, locality: Arc<Locality>) -> Self {
        self.locality = (*locality != *NOWHERE).then_some(locality);
        self
    }

    /// The same host with a load balancing weight, 1 and up; 0 is taken as 1.
    pub fn with_weight(mut self, weight: u32) -> Self {
        self.weight = weight.max(1);
        self
    }

    /// The same host with a priority, 0 being the first and 128 the last; more is taken as 128.
    pub fn with_priority(mut self, priority: u8) -> Self {
        self.priority = priority.min(128);
        self
    }

    /// The same host with a health status by the control plane.
    pub fn with_eds_health(mut self, health: EdsHealth) -> Self {
        self.eds_health = health;
        self
    }

    /// The same host, never actively checked (`disable_active_health_check`).
    pub fn with_check_disabled(mut self) -> Self {
        self.check_disabled = true;
        self
    }

    /// Where checks go when not to [`Host::address`]: `health_check_config.address` and `.port_value`.
    pub fn check_address(&self) -> Option<&Address> {
        self.rare.as_ref()?.check_address.as_ref()
    }

    /// `endpoint.hostname`, if any.
    pub fn hostname(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.hostname.as_ref()
    }

    /// `LbEndpoint.metadata` as the JSON that events show, if there is any.
    pub fn metadata(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.metadata.as_ref()
    }

    /// Locality, shared by all hosts of it.
    pub fn locality(&self) -> &Locality {
        self.locality.as_deref().unwrap_or(&NOWHERE)
    }

    /// Where checks of this host go.
    pub fn checked_at(&self) -> &Address {
        self.check_address().unwrap_or(&self.address)
    }

    /// What the host is found by under its name and port, if it has both.
    pub(crate) fn name_hash64(&self) -> Option<u64> {
        Some(name_hash64(self.hostname()?, self.address.port()?))
    }

    fn set_rare(&mut self, set: impl FnOnce(&mut Rare)) {
        set(self.rare.get_or_insert_default());
    }
}

/// What hosts of a name are found by. Names are as bytes: `a` and `A` are two.
pub(crate) fn name_hash64(name: &str, port: u16) -> u64 {
    let mut hash = u64::from(port);
    for chunk in name.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word), name.len() as u64);
    }
    hash
}

/// Two numbers made one, each bit of which goes by all of theirs: both halves of products by odd constants.
fn mix(a: u64, b: u64) -> u64 {
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
        let halves = (product as u64) ^ ((product >> 64) as u64);
        halves
    };
    let folded = fold(a ^ 0x2d35_8dcc_aa6c_78a5, b ^ 0x9e37_79b9_7f4a_7c15);
    fold(folded ^ 0x8bb8_4b93_962e_acc9, 0x4b33_a62e_d433_d4a3)
}

fn hash_of(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// The locality of hosts that have none.
static NOWHERE: LazyLock<Locality> = LazyLock::new(Locality::default);

/// The health flags of a host, as Envoy names and orders them in `/clusters`.
///
/// [`Display`](fmt::Display) gives Envoy's text: `healthy`, or the names of the set flags, each after a `/`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct HealthFlags(u16);

impl HealthFlags {
    /// No flag: the host is healthy.
    pub const NONE: Self = Self(0);
    /// An active health check has failed the host, or has not yet passed it.
    pub const FAILED_ACTIVE_HC: Self = Self(1);
    /// Outlier detection ejected the host. Never set here: kept so that the order is Envoy's.
    pub const FAILED_OUTLIER_CHECK: Self = Self(1 << 1);
    /// The control plane says unhealthy or timed out.
    pub const FAILED_EDS_HEALTH: Self = Self(1 << 2);
    /// An active health check found the host degraded.
    pub const DEGRADED_ACTIVE_HC: Self = Self(1 << 3);
    /// The control plane says degraded.
    pub const DEGRADED_EDS_HEALTH: Self = Self(1 << 4);
    /// The control plane has removed the host; it stays until its first ejection.
    pub const PENDING_DYNAMIC_REMOVAL: Self = Self(1 << 5);
    /// Not checked yet, and its cluster ignores new hosts until they are.
    pub const PENDING_ACTIVE_HC: Self = Self(1 << 6);
    /// Set unhealthy from outside, and left out of panic calculations until a check passes.
    pub const EXCLUDED_VIA_IMMEDIATE_HC_FAIL: Self = Self(1 << 7);
    /// The last failure of a failed host was a timeout.
    pub const ACTIVE_HC_TIMEOUT: Self = Self(1 << 8);
    /// The control plane drains the host.
    pub const EDS_STATUS_DRAINING: Self = Self(1 << 9);
    /// Outlier detection found the host degraded. Never set here.
    pub const DEGRADED_OUTLIER_DETECTION: Self = Self(1 << 10);

    const NAMES: [(Self, &'static str); 11] = [
        (Self::FAILED_ACTIVE_HC, "failed_active_hc"),
        (Self::FAILED_OUTLIER_CHECK, "failed_outlier_check"),
        (Self::FAILED_EDS_HEALTH, "failed_eds_health"),
        (Self::DEGRADED_ACTIVE_HC, "degraded_active_hc"),
        (Self::DEGRADED_EDS_HEALTH, "degraded_eds_health"),
        (Self::PENDING_DYNAMIC_REMOVAL, "pending_dynamic_removal"),
        (Self::PENDING_ACTIVE_HC, "pending_active_hc"),
        (
            Self::EXCLUDED_VIA_IMMEDIATE_HC_FAIL,
            "excluded_via_immediate_hc_fail",
        ),
        (Self::ACTIVE_HC_TIMEOUT, "active_hc_timeout"),
        (Self::EDS_STATUS_DRAINING, "eds_status_draining"),
        (
            Self::DEGRADED_OUTLIER_DETECTION,
            "degraded_outlier_detection",
        ),
    ];

    const UNHEALTHY: Self = Self(
        Self::FAILED_ACTIVE_HC.0
            | Self::FAILED_OUTLIER_CHECK.0
            | Self::FAILED_EDS_HEALTH.0
            | Self::EDS_STATUS_DRAINING.0,
    );
    const DEGRADED: Self = Self(
        Self::DEGRADED_ACTIVE_HC.0
            | Self::DEGRADED_EDS_HEALTH.0
            | Self::DEGRADED_OUTLIER_DETECTION.0,
    );
    const EXCLUDED: Self = Self(
        Self::PENDING_ACTIVE_HC.0
            | Self::EXCLUDED_VIA_IMMEDIATE_HC_FAIL.0
            | Self::EDS_STATUS_DRAINING.0,
    );

    /// Whether any of `flags` is set.
    pub const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// These flags with `flags` set or cleared.
    pub const fn with(self, flags: Self, set: bool) -> Self {
        if set {
            Self(self.0 | flags.0)
        } else {
            Self(self.0 & !flags.0)
        }
    }

    /// How a load balancer would take the host, counted by `membership_healthy` and `membership_degraded`.
    pub const fn health(self) -> Health {
        if self.intersects(Self::UNHEALTHY) {
            Health::Unhealthy
        } else if self.intersects(Self::DEGRADED) {
            Health::Degraded
        } else {
            Health::Healthy
        }
    }

    /// Whether the host is left out of panic calculations: `membership_excluded`.
    pub const fn excluded(self) -> bool {
        self.intersects(Self::EXCLUDED)
    }

    /// Names of the set flags in Envoy's order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .filter(move |(flag, _)| self.intersects(*flag))
            .map(|(_, name)| name)
    }
}

impl std::ops::BitOr for HealthFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for HealthFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("healthy");
        }
        for name in self.names() {
            write!(f, "/{name}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for HealthFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HealthFlags({self})")
    }
}

/// How a load balancer takes a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Health {
    /// To be used.
    Healthy,
    /// To be used when healthy hosts do not suffice.
    Degraded,
    /// Not to be used.
    Unhealthy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_written_as_envoy_writes_them() {
        let mut flags = HealthFlags::NONE;
        assert_eq!(flags.to_string(), "healthy");
        for flag in [
            HealthFlags::ACTIVE_HC_TIMEOUT,
            HealthFlags::FAILED_EDS_HEALTH,
            HealthFlags::FAILED_ACTIVE_HC,
        ] {
            flags = flags.with(flag, true);
        }
        assert_eq!(
            flags.to_string(),
            "/failed_active_hc/failed_eds_health/active_hc_timeout"
        );
        flags = flags.with(HealthFlags::FAILED_EDS_HEALTH, false);
        assert_eq!(flags.to_string(), "/failed_active_hc/active_hc_timeout");
    }

    #[test]
    fn health_follows_the_worst_flag() {
        let health = |flags: HealthFlags| flags.health();
        assert_eq!(health(HealthFlags::NONE), Health::Healthy);
        assert_eq!(
            health(HealthFlags::PENDING_DYNAMIC_REMOVAL),
            Health::Healthy
        );
        assert_eq!(health(HealthFlags::DEGRADED_ACTIVE_HC), Health::Degraded);
        assert_eq!(
            health(HealthFlags::DEGRADED_EDS_HEALTH | HealthFlags::FAILED_ACTIVE_HC),
            Health::Unhealthy
        );
        assert_eq!(health(HealthFlags::EDS_STATUS_DRAINING), Health::Unhealthy);
    }

    #[test]
    fn panic_calculations_leave_out_those_that_drain_and_those_that_are_not_yet_checked() {
        let excluded: Vec<_> = HealthFlags::NAMES
            .into_iter()
            .filter(|(flag, _)| flag.excluded())
            .map(|(_, name)| name)
            .collect();
        let expected = [
            "pending_active_hc",
            "excluded_via_immediate_hc_fail",
            "eds_status_draining",
        ];
        assert_eq!(excluded, expected);
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_host_is_small() {
        assert!(size_of::<Host>() <= 56, "{}", size_of::<Host>());
    }

    #[test]
    fn an_empty_locality_is_as_good_as_none() {
        let at: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let host = Host::new(at);
        assert_eq!(host.clone().with_locality(Arc::default()), host);
        assert_eq!(*host.locality(), Locality::default());
    }

    #[test]
    fn an_ipv6_address_is_shown_in_brackets() {
        let address: SocketAddr = "[::1]:80".parse().unwrap();
        assert_eq!(Address::from(address).to_string(), "[::1]:80");
    }
}
