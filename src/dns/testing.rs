//! Help for tests of names.

use std::sync::Arc;

use crate::config::{ClusterConfig, Discovery, DnsConfig, Warnings, text::Document};

/// A cluster with fields of `DnsCluster`, and the names, or endpoints, that it has.
pub(super) fn cluster(fields: &str, endpoints: &[&str]) -> ClusterConfig {
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|name| match name.strip_prefix('{') {
            Some(_) => (*name).to_owned(),
            None => format!(
                "{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: \"{name}\", port_value: 80}}}}}}}}]}}"
            ),
        })
        .collect();
    let endpoints = endpoints.join(", ");
    let comma = if fields.is_empty() { "" } else { ", " };
    let text = format!(
        "{{name: c, cluster_type: {{name: x, typed_config: {{\"@type\": a/envoy.extensions.clusters.dns.v3.DnsCluster{comma}{fields}}}}}, \
         load_assignment: {{cluster_name: c, endpoints: [{endpoints}]}}}}"
    );
    let document = Document::from_yaml(&text).unwrap();
    ClusterConfig::from_document(&document, &mut Warnings::default()).unwrap()
}

/// What of it is about names.
pub(super) fn config(fields: &str, endpoints: &[&str]) -> Arc<DnsConfig> {
    match cluster(fields, endpoints).discovery {
        Discovery::StrictDns(dns) | Discovery::LogicalDns(dns) => dns,
        other => panic!("{other:?}"),
    }
}
