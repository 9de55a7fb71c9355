//! Clusters that a health discovery service asks for.

use std::collections::HashSet;
use std::sync::Arc;

use super::cluster::MOST_CHECKS;
use super::error::Report;
use super::{
    BindConfig, ClusterConfig, ConfigError, Discovery, HealthCheck, Warnings, endpoint, wire,
};
use crate::host::Host;
use crate::proto::envoy::service::health::v3::ClusterHealthCheck;
use crate::validate::FieldPath;

impl ClusterConfig {
    /// Checks a message of the health discovery service. The endpoints become the hosts of a static cluster, in
    /// their order; the same address twice is two hosts. An endpoint that is no longer named goes at once, even
    /// while it passes.
    ///
    /// Unlike those of other clusters, several checks may be without names; each is then named by its position,
    /// so that all names differ. `transport_socket_matches` are passed over, since no checker here opens a connection
    /// that could be secured.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, with paths such as `locality_endpoints[0].endpoints[1].address`. What a
    /// checker or an event sink is told is not looked at.
    pub fn from_health_check(
        message: &ClusterHealthCheck,
        warnings: &mut Warnings,
    ) -> Result<Self, ConfigError> {
        wire::convert(message, warnings, read)
    }
}

fn read(
    message: &ClusterHealthCheck,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<ClusterConfig> {
    let health_checks = read_checks(message, at, report);
    let hosts = read_hosts(message, at, report);
    let bind = message.upstream_bind_config.as_ref();
    let bind = bind.map(|bind| BindConfig::read(bind, &at.field("upstream_bind_config"), report));

    let mut cluster = ClusterConfig::new(message.cluster_name.as_str(), Discovery::Static(hosts));
    cluster.health_checks = health_checks?;
    cluster.ignore_health_on_host_removal = true;
    if let Some(bind) = bind {
        cluster.bind = Some(Arc::new(bind?));
    }
    Some(cluster)
}

fn read_checks(
    message: &ClusterHealthCheck,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Option<Vec<Arc<HealthCheck>>> {
    let count = message.health_checks.len();
    if count > MOST_CHECKS {
        let reason = format!("{count} checks, but at most {MOST_CHECKS} are taken");
        return report.fault(&at.field("health_checks"), reason);
    }
    let mut names = HashSet::new();
    let mut checks = Vec::with_capacity(count);
    for (index, check) in message.health_checks.iter().enumerate() {
        let Some(mut check) = HealthCheck::read(check, &at.item("health_checks", index), report)
        else {
            continue;
        };
        if count > 1 && (check.name.is_empty() || names.contains(&check.name)) {
            let mut name = index.to_string();
            while names.contains(&*name) {
                name.push('_');
            }
            check.name = name.into();
        }
        names.insert(Arc::clone(&check.name));
        checks.push(Arc::new(check));
    }
    Some(checks)
}

fn read_hosts(
    message: &ClusterHealthCheck,
    at: &FieldPath<'_>,
    report: &mut Report,
) -> Vec<Arc<Host>> {
    let checked = !message.health_checks.is_empty();
    let groups = message.locality_endpoints.iter();
    let mut hosts = Vec::with_capacity(groups.map(|group| group.endpoints.len()).sum());
    for (index, group) in message.locality_endpoints.iter().enumerate() {
        let at = at.item("locality_endpoints", index);
        let locality = group.locality.as_ref().map(endpoint::read_locality);
        let locality = Arc::new(locality.unwrap_or_default());
        for (index, endpoint) in group.endpoints.iter().enumerate() {
            let at = at.item("endpoints", index);
            let host = endpoint::read_endpoint(endpoint, &locality, checked, &at, report);
            hosts.extend(host.map(Arc::new));
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing;

    const CHECK: &str = "{timeout: 1s, interval: 1s, unhealthy_threshold: 2, healthy_threshold: 2, \
         custom_health_check: {name: u, typed_config: {'@type': type.googleapis.com/google.protobuf.Empty}}}";
    const AT_80: &str = "address: {socket_address: {address: 127.0.0.1, port_value: 80}}";

    fn parse(fields: &str) -> ClusterConfig {
        let text = format!("cluster_name: c\n{fields}");
        testing::parse(&text, read).unwrap().0
    }

    #[track_caller]
    fn refused(fields: &str, faults: &str) {
        assert_eq!(
            testing::faults(&format!("cluster_name: c\n{fields}"), read),
            faults
        );
    }

    fn hosts(config: &ClusterConfig) -> &[Arc<Host>] {
        match &config.discovery {
            Discovery::Static(hosts) => hosts,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn endpoints_are_hosts_in_their_order_and_doubles_are_two() {
        let config = parse(&format!(
            "locality_endpoints:
             - {{locality: {{region: r, zone: z}}, endpoints: [{{{AT_80}}}, {{{AT_80}, health_check_config: {{port_value: 81}}}}]}}
             - {{endpoints: [{{{AT_80}, health_check_config: {{disable_active_health_check: true}}}}]}}
             - {{locality: {{zone: empty}}}}"
        ));
        let [first, second, third] = hosts(&config) else {
            panic!("{config:?}");
        };
        assert_eq!(
            (&*first.locality().region, &*first.locality().zone),
            ("r", "z")
        );
        assert_eq!(second.checked_at().to_string(), "127.0.0.1:81");
        assert!(third.check_disabled && third.locality().zone.is_empty());
        assert!(config.ignore_health_on_host_removal);
    }

    #[test]
    fn checks_without_names_are_named_by_position_where_there_are_several() {
        let names = |config: &ClusterConfig| {
            let names = config
                .health_checks
                .iter()
                .map(|check| check.name.to_string());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&parse(&format!("health_checks: [{CHECK}]"))), [""]);
        let named = CHECK.replacen('{', "{name: a, ", 1);
        let text = format!("health_checks: [{named}, {CHECK}, {CHECK}, {named}]");
        assert_eq!(names(&parse(&text)), ["a", "1", "2", "3"]);
        let one = CHECK.replacen('{', "{name: '1', ", 1);
        let text = format!("health_checks: [{one}, {CHECK}, {one}]");
        assert_eq!(names(&parse(&text)), ["1", "1_", "2"]);
    }

    #[test]
    fn all_faults_of_a_cluster_are_told_with_their_paths() {
        refused(
            &format!(
                "health_checks: [{}]
locality_endpoints: [{{endpoints: [{{{AT_80}}}, {{}}, {{address: {{socket_address: {{address: a.example, port_value: 1}}}}}}]}}]",
                CHECK.replace("timeout: 1s, interval: 1s", "interval: -1s")
            ),
            "health_checks[0].timeout: value is required\n\
             health_checks[0].interval: Invalid duration: Expected positive duration, but is -1s\n\
             locality_endpoints[0].endpoints[1].address: value is required\n\
             locality_endpoints[0].endpoints[2].address.socket_address.address: malformed IP address \"a.example\"; \
             names are resolved in clusters of type STRICT_DNS and LOGICAL_DNS only",
        );
    }
}
