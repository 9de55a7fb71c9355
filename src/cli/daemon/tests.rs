use std::io::Write as _;

use super::*;
use crate::admin::LogLevel;
use crate::cli::load::Source;
use crate::registry::Registry;

#[path = "../../../tests/common/panics.rs"]
mod panics;

#[derive(Debug)]
struct NoControl;

impl Control for NoControl {
    fn loggers(&self) -> Vec<(String, LogLevel)> {
        Vec::new()
    }

    fn set_level(&self, _: Option<&str>, _: LogLevel) {}

    fn reopen_logs(&self) {}

    fn quit(&self) {}
}

/// What a daemon says that it has lost, once whoever logs `event` has panicked.
async fn lost(bootstrap: &str, event: &'static str) -> String {
    let _panics = panics::at(event);
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    file.write_all(bootstrap.as_bytes()).unwrap();
    let stats = Arc::new(Stats::default());
    let source = Source::read(file.path()).unwrap();
    let loaded = source.load(&Registry::default(), &stats).unwrap();
    let options = Options::default().with_shards(1);
    let started = Daemon::start(loaded, options, stats, Arc::new(NoControl)).await;
    let mut daemon = started.unwrap();
    let broken = tokio::time::timeout(Duration::from_secs(60), daemon.broken()).await;
    broken.expect("it goes on").to_string()
}

/// A server that nobody is: each stream is refused, and that is logged.
const NOBODY: &str = "{api_type: GRPC, transport_api_version: V3, grpc_services: [{google_grpc: \
    {target_uri: 'unix:/no/such/socket', stat_prefix: x}}]}";

#[tokio::test]
async fn a_client_that_panics_is_lost() {
    let ads = format!(
        "{{node: {{id: one, cluster: c}}, dynamic_resources: {{ads_config: {NOBODY}, cds_config: {{ads: {{}}}}}}}}"
    );
    assert_eq!(
        lost(&ads, "cannot connect").await,
        "the client of the control planes has panicked"
    );
    let hds = format!("{{node: {{id: one, cluster: c}}, hds_config: {NOBODY}}}");
    assert_eq!(
        lost(&hds, "cannot connect").await,
        "the client of the health discovery service has panicked"
    );
}

#[tokio::test]
async fn a_resolver_that_panics_is_lost() {
    let named = "{static_resources: {clusters: [{name: c, type: STRICT_DNS, load_assignment: {cluster_name: c, \
        endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: localhost, port_value: 1}}}}]}]}}]}}";
    assert_eq!(
        lost(named, "resolved").await,
        "the resolver of names has panicked"
    );
}
