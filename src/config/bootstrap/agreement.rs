//! Where one part of a bootstrap has to fit another.

use crate::config::error::Report;
use crate::proto::envoy::config::bootstrap::v3::Bootstrap;
use crate::proto::envoy::config::bootstrap::v3::runtime_layer::LayerSpecifier;
use crate::proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use crate::validate::FieldPath;

pub(super) fn check(message: &Bootstrap, at: &FieldPath<'_>, report: &mut Report) {
    check_local_cluster(message, at, report);
    check_node(message, at, report);
}

/// The cluster that the node itself is in must be there, and have one priority.
fn check_local_cluster(message: &Bootstrap, at: &FieldPath<'_>, report: &mut Report) {
    let local = message.cluster_manager.as_ref();
    let Some(local) = local.map(|manager| manager.local_cluster_name.as_str()) else {
        return;
    };
    if local.is_empty() {
        return;
    }
    let clusters = message.static_resources.iter();
    let mut clusters = clusters
        .flat_map(|resources| &resources.clusters)
        .enumerate();
    let Some((index, cluster)) = clusters.find(|(_, cluster)| cluster.name == local) else {
        let at = at.field("cluster_manager");
        let reason = format!("there is no {local:?} in static_resources.clusters");
        report.fault::<()>(&at.field("local_cluster_name"), reason);
        return;
    };
    let logical = ClusterDiscoveryType::Type(DiscoveryType::LogicalDns.into());
    if cluster.cluster_discovery_type == Some(logical) {
        return;
    }
    let at = at.field("static_resources");
    let at = at.item("clusters", index);
    let at = at.field("load_assignment");
    let groups = cluster.load_assignment.iter().flat_map(|a| &a.endpoints);
    for (index, group) in groups.enumerate() {
        if group.priority > 0 {
            let at = at.item("endpoints", index);
            let reason = "must be 0 in the cluster that cluster_manager.local_cluster_name names";
            report.fault::<()>(&at.field("priority"), reason);
        }
    }
}

/// Management servers are told who asks.
fn check_node(message: &Bootstrap, at: &FieldPath<'_>, report: &mut Report) {
    let eds = Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()));
    let mut clusters = message.static_resources.iter().flat_map(|r| &r.clusters);
    let dynamic = message.dynamic_resources.as_ref();
    let runtime = message
        .layered_runtime
        .iter()
        .flat_map(|runtime| &runtime.layers);
    let mut layers = runtime.filter_map(|layer| layer.layer_specifier.as_ref());
    let asks = dynamic.is_some_and(|d| d.ads_config.is_some() || d.cds_config.is_some())
        || clusters.any(|cluster| cluster.cluster_discovery_type == eds)
        || layers.any(|layer| matches!(layer, LayerSpecifier::RtdsLayer(_)));
    if !asks {
        return;
    }
    let node = message.node.as_ref();
    for (name, value) in [
        ("id", node.map_or("", |node| &node.id)),
        ("cluster", node.map_or("", |node| &node.cluster)),
    ] {
        if value.is_empty() {
            let reason = "value is required: a management server is told who asks";
            report.fault::<()>(&at.field("node").field(name), reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Bootstrap, testing};

    #[track_caller]
    fn refused(text: &str, faults: &str) {
        assert_eq!(testing::faults(text, Bootstrap::read), faults);
    }

    #[track_caller]
    fn accepted(text: &str) {
        let read = testing::parse(text, Bootstrap::read);
        assert!(read.is_ok(), "{read:?}");
    }

    #[test]
    fn the_local_cluster_is_there_and_has_one_priority() {
        let local = |kind: &str, priority: u8| {
            let endpoint =
                "{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}";
            format!(
                "cluster_manager: {{local_cluster_name: b}}
static_resources:
  clusters:
  - name: a
    load_assignment: {{cluster_name: a, endpoints: [{{priority: 1}}]}}
  - name: b
    type: {kind}
    load_assignment: {{cluster_name: b, endpoints: [{{priority: 0}}, {{priority: {priority}, lb_endpoints: [{endpoint}]}}]}}"
            )
        };
        accepted("cluster_manager: {}");
        for kind in ["STATIC", "STRICT_DNS", "LOGICAL_DNS"] {
            accepted(&local(kind, 0));
        }
        accepted(&local("LOGICAL_DNS", 1));
        for kind in ["STATIC", "STRICT_DNS"] {
            refused(
                &local(kind, 1),
                "static_resources.clusters[1].load_assignment.endpoints[1].priority: \
                 must be 0 in the cluster that cluster_manager.local_cluster_name names",
            );
        }
        refused(
            "cluster_manager: {local_cluster_name: x}",
            "cluster_manager.local_cluster_name: there is no \"x\" in static_resources.clusters",
        );
    }

    #[test]
    fn who_asks_management_servers_has_an_id_and_a_cluster() {
        let eds = "static_resources: {clusters: [{name: a, type: EDS, eds_cluster_config: {eds_config: {path: /x}}}]}";
        for asks in [
            eds,
            "dynamic_resources: {cds_config: {path: /x}}",
            "dynamic_resources: {ads_config: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: x}}]}}",
            "layered_runtime: {layers: [{name: a, rtds_layer: {rtds_config: {path: /x}}}]}",
        ] {
            let needed = "value is required: a management server is told who asks";
            let (id, cluster) = (
                format!("node.id: {needed}"),
                format!("node.cluster: {needed}"),
            );
            refused(asks, &format!("{id}\n{cluster}"));
            refused(&format!("node: {{id: i}}\n{asks}"), &cluster);
            refused(&format!("node: {{cluster: c}}\n{asks}"), &id);
            accepted(&format!("node: {{id: i, cluster: c}}\n{asks}"));
        }
        accepted("hds_config: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: x}}]}");
    }
}
