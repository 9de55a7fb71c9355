//! Messages of Envoy's API, under their package names, and what the crate knows about their types.
//!
//! Everything below [`envoy`], [`google`], [`grpc`], [`udpa`] and [`xds`] is generated from `proto/`,
//! which holds what the product needs of Envoy 1.40.0's API: fields left out there are skipped on the
//! wire. The same files, as descriptors, are in [`DESCRIPTOR_SET`]; [`descriptor_pool`] opens it for
//! code that reads messages by name, such as the JSON and YAML loader. [`xds_health`] is generated too, and
//! the product's own. Well-known types are those of [`prost_types`]. What stands in signatures of other modules of
//! `prost`, `prost_types`, `prost_reflect` and `tonic` is of the versions re-exported here.

use std::sync::LazyLock;

pub use prost;
use prost::Name;
pub use prost_reflect;
use prost_reflect::{DescriptorPool, MessageDescriptor};
pub use prost_types;
#[cfg(feature = "xds")]
pub use tonic;

pub(crate) mod duration;

mod generated {
    #![allow(
        missing_docs,
        missing_debug_implementations,
        unnameable_types,
        unreachable_pub,
        unused_qualifications,
        elided_lifetimes_in_paths,
        clippy::all,
        clippy::pedantic,
        clippy::nursery,
        clippy::restriction,
        reason = "generated: prost and tonic decide what it looks like"
    )]
    include!(concat!(env!("OUT_DIR"), "/packages.rs"));
}

pub use generated::*;

/// The compiled files of `proto/` with everything they import, as an encoded
/// `google.protobuf.FileDescriptorSet`. The validation rules are in it as options.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor_set.bin"));

/// What every type URL that we write starts with.
pub const TYPE_URL_PREFIX: &str = "type.googleapis.com/";

/// The descriptors of [`DESCRIPTOR_SET`], opened at first use.
pub fn descriptor_pool() -> &'static DescriptorPool {
    static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
        #[expect(
            clippy::expect_used,
            reason = "the bytes are those that the build wrote"
        )]
        DescriptorPool::decode(DESCRIPTOR_SET).expect("the descriptor set that was built is sound")
    });
    &POOL
}

/// The name of a message as the resolver of names is configured by; ours is [`xds_health::DnsResolver`].
pub(crate) const CARES_DNS_RESOLVER: &str =
    "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig";

/// The name of the message that asks for the system's resolver; ours is [`xds_health::SystemDnsResolver`].
pub(crate) const SYSTEM_DNS_RESOLVER: &str =
    "envoy.extensions.network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfig";

/// The descriptor of the message that upstream calls `name`, if the crate has it, by whatever name.
pub(crate) fn message_named(name: &str) -> Option<MessageDescriptor> {
    let ours = match name {
        CARES_DNS_RESOLVER => Some(xds_health::DnsResolver::full_name()),
        SYSTEM_DNS_RESOLVER => Some(xds_health::SystemDnsResolver::full_name()),
        _ => None,
    };
    let name = ours.as_deref().unwrap_or(name);
    descriptor_pool().get_message_by_name(name)
}

/// The type URL of a message, as it stands in an `Any`:
/// `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
///
/// ```
/// use xds_health::proto::{envoy::config::cluster::v3::Cluster, type_url};
///
/// assert_eq!(type_url::<Cluster>(), "type.googleapis.com/envoy.config.cluster.v3.Cluster");
/// ```
pub fn type_url<M: Name>() -> String {
    format!("{TYPE_URL_PREFIX}{}", M::full_name())
}

/// The message name in a type URL: what follows its last `/`. `None` if there is no slash or nothing
/// after it. As with Envoy, any host will do before the slash.
///
/// ```
/// use xds_health::proto::strip_type_url;
///
/// assert_eq!(strip_type_url("type.googleapis.com/a.B"), Some("a.B"));
/// assert_eq!(strip_type_url("a.B"), None);
/// assert_eq!(strip_type_url("type.googleapis.com/"), None);
/// ```
pub fn strip_type_url(url: &str) -> Option<&str> {
    let (_, name) = url.rsplit_once('/')?;
    (!name.is_empty()).then_some(name)
}
