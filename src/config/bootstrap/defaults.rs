//! What stands in for clusters that say nothing of their own. As with Envoy, faults in it count only if there are such.

use std::sync::Arc;

use crate::config::error::Report;
use crate::config::{BindConfig, ClusterConfig, Discovery, DnsResolverConfig};
use crate::proto::envoy::config::bootstrap::v3::Bootstrap;
use crate::validate::FieldPath;

pub(super) fn read_bind(
    message: &Bootstrap,
    clusters: &[ClusterConfig],
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Arc<BindConfig>> {
    let manager = message.cluster_manager.as_ref()?;
    let bind = manager.upstream_bind_config.as_ref()?;
    let at = at.field("cluster_manager");
    let at = at.field("upstream_bind_config");
    let used = clusters.iter().any(|cluster| cluster.bind.is_none());
    read_default(used, message, report, |report| {
        BindConfig::read(bind, &at, report).map(Arc::new)
    })
}

pub(super) fn read_resolver(
    message: &Bootstrap,
    clusters: &[ClusterConfig],
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Arc<DnsResolverConfig>> {
    let resolver = message.typed_dns_resolver_config.as_ref()?;
    let at = at.field("typed_dns_resolver_config");
    let used = clusters.iter().any(|cluster| match &cluster.discovery {
        Discovery::StrictDns(dns) | Discovery::LogicalDns(dns) => dns.resolver.is_none(),
        _ => false,
    });
    read_default(used, message, report, |report| {
        DnsResolverConfig::read_extension(resolver, &at, report)
    })
}

/// Who asks for clusters may be told such that use it.
fn read_default<T>(
    used: bool,
    message: &Bootstrap,
    report: &mut Report,
    read: impl FnOnce(&mut Report) -> Option<T>,
) -> Option<T> {
    let dynamic = message.dynamic_resources.as_ref();
    if used || dynamic.is_some_and(|dynamic| dynamic.cds_config.is_some()) {
        return read(report);
    }
    report.unused(read)
}

#[cfg(test)]
mod tests {
    use crate::config::{Bootstrap, testing};

    const OWN: &str = "{name: a, upstream_bind_config: {}}";

    const BIND: &str = "cluster_manager: {upstream_bind_config: {extra_source_addresses: [{address: {address: \"::1\", port_value: 0}}]}}";

    const RESOLVER: &str = "typed_dns_resolver_config: {name: x, typed_config: {\"@type\": a/envoy.config.core.v3.Node}}";

    const BIND_FAULT: &str = "cluster_manager.upstream_bind_config.extra_source_addresses: cannot be set without source_address";

    const RESOLVER_FAULT: &str = "typed_dns_resolver_config.typed_config: the DNS resolver \"envoy.config.core.v3.Node\" is not built in";

    fn text(part: &str, clusters: &str) -> String {
        format!("{part}\nstatic_resources: {{clusters: [{clusters}]}}")
    }

    #[track_caller]
    fn refused(text: &str, faults: &str) {
        assert_eq!(testing::faults(text, Bootstrap::read), faults);
    }

    #[track_caller]
    fn warned(text: &str, fault: &str) {
        let (bootstrap, warnings) = testing::parse(text, Bootstrap::read).unwrap();
        assert_eq!(warnings, [format!("{fault}; nothing uses it")]);
        assert_eq!((bootstrap.bind, bootstrap.dns_resolver), (None, None));
    }

    #[test]
    fn what_a_cluster_uses_has_to_be_sound() {
        refused(&text(BIND, "{name: b}"), BIND_FAULT);
        refused(&text(BIND, &format!("{OWN}, {{name: b}}")), BIND_FAULT);
        for kind in ["STRICT_DNS", "LOGICAL_DNS"] {
            let endpoint = "{endpoint: {address: {socket_address: {address: x, port_value: 1}}}}";
            let cluster = format!(
                "{{name: b, type: {kind}, load_assignment: {{cluster_name: b, endpoints: [{{lb_endpoints: [{endpoint}]}}]}}}}"
            );
            refused(&text(RESOLVER, &cluster), RESOLVER_FAULT);
        }
    }

    #[test]
    fn what_nobody_uses_is_warned_of() {
        warned(&text(BIND, ""), BIND_FAULT);
        warned(&text(BIND, OWN), BIND_FAULT);
        warned(&text(RESOLVER, "{name: b}"), RESOLVER_FAULT);
        let own = "{name: b, type: STRICT_DNS, use_tcp_for_dns_lookups: true}";
        let text = text(RESOLVER, own);
        let (_, warnings) = testing::parse(&text, Bootstrap::read).unwrap();
        assert!(warnings.contains(&format!("{RESOLVER_FAULT}; nothing uses it")));
    }

    #[test]
    fn clusters_that_are_asked_for_may_use_it() {
        let asks = "node: {id: i, cluster: c}\ndynamic_resources: {cds_config: {path_config_source: {path: /x}}}";
        refused(&format!("{asks}\n{BIND}"), BIND_FAULT);
        refused(&format!("{asks}\n{RESOLVER}"), RESOLVER_FAULT);
    }
}
