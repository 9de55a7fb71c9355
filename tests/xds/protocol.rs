//! Both variants of the protocol, end to end.

use super::*;
use crate::control_plane::ControlPlane;
use xds_health::xds::{CLUSTER, ENDPOINTS};

#[tokio::test]
async fn clusters_and_endpoints_by_state_of_the_world() {
    let (mut plane, address) = ControlPlane::start().await;
    let daemon = Daemon::start(&bootstrap(&ads("GRPC"), address, H2));
    let mut stream = plane.stream().await;
    assert_eq!(stream.service, "ads");

    let first = stream.sotw().await;
    assert_eq!((&*first.type_url, &*first.version_info), (CLUSTER, ""));
    let node = first.node.unwrap();
    assert_eq!(
        (&*node.id, &*node.cluster, &*node.user_agent_name),
        ("n1", "checkers", "xds-health")
    );
    assert_eq!(first.resource_names, [""; 0]);

    stream.say(CLUSTER, "1", vec![eds("a")]).await;
    let mut requests = [stream.sotw().await, stream.sotw().await];
    requests.sort_by(|a, b| a.type_url.cmp(&b.type_url));
    let [taken, asked] = requests;
    assert_eq!((&*taken.version_info, &*taken.response_nonce), ("1", "n1"));
    assert_eq!((&*asked.type_url, &*asked.version_info), (ENDPOINTS, ""));
    assert_eq!(asked.resource_names, ["a"]);

    stream
        .say(ENDPOINTS, "7", vec![assignment("a", &[1, FAILING])])
        .await;
    let taken = stream.sotw().await;
    assert_eq!((&*taken.version_info, &*taken.response_nonce), ("7", "n7"));
    daemon
        .until("a", |hosts| health(hosts) == [(1, true), (FAILING, false)])
        .await;
    assert_eq!(daemon.stat("cluster_manager.cds.update_success"), 1);
    assert_eq!(daemon.stat("cluster.a.update_success"), 1);
    assert_eq!(daemon.stat("control_plane.connected_state"), 1);

    stream.say(CLUSTER, "2", vec![]).await;
    daemon
        .when(|daemon| daemon.engine.cluster("a").is_none())
        .await;
    let mut requests = [stream.sotw().await, stream.sotw().await];
    requests.sort_by(|a, b| a.type_url.cmp(&b.type_url));
    assert_eq!(requests[0].version_info, "2");
    assert_eq!(requests[1].resource_names, [""; 0]);
}

#[tokio::test]
async fn clusters_and_endpoints_by_what_changed() {
    let (mut plane, address) = ControlPlane::start().await;
    let daemon = Daemon::start(&bootstrap(&ads("DELTA_GRPC"), address, H2));
    let mut stream = plane.stream().await;
    let first = stream.delta().await;
    assert_eq!((&*first.type_url, first.node.is_some()), (CLUSTER, true));
    assert_eq!(first.resource_names_subscribe, [""; 0]);

    stream
        .change(CLUSTER, "x", &[("a", eds("a")), ("b", eds("b"))], &[])
        .await;
    let mut requests = [stream.delta().await, stream.delta().await];
    requests.sort_by(|a, b| a.type_url.cmp(&b.type_url));
    assert_eq!(requests[0].response_nonce, "x");
    assert_eq!(requests[1].resource_names_subscribe, ["a", "b"]);

    stream
        .change(ENDPOINTS, "y", &[("a", assignment("a", &[1]))], &[])
        .await;
    assert_eq!(stream.delta().await.response_nonce, "y");
    daemon
        .until("a", |hosts| health(hosts) == [(1, true)])
        .await;
    stream.change(CLUSTER, "z", &[], &["b"]).await;
    let mut requests = [stream.delta().await, stream.delta().await];
    requests.sort_by(|a, b| a.type_url.cmp(&b.type_url));
    assert_eq!(requests[0].response_nonce, "z");
    assert_eq!(requests[1].resource_names_unsubscribe, ["b"]);

    // A new stream tells what is known.
    stream.fail(tonic::Status::unavailable("moving")).await;
    let mut stream = plane.stream().await;
    let (clusters, endpoints) = (stream.delta().await, stream.delta().await);
    let had =
        |request: &xds_health::proto::envoy::service::discovery::v3::DeltaDiscoveryRequest| {
            request
                .initial_resource_versions
                .clone()
                .into_iter()
                .collect::<Vec<_>>()
        };
    assert_eq!(had(&clusters), [("a".to_owned(), "x".to_owned())]);
    assert_eq!(had(&endpoints), [("a".to_owned(), "y".to_owned())]);
    assert_eq!(endpoints.resource_names_subscribe, ["a"]);
    assert_eq!(clusters.response_nonce, "");
    daemon
        .until("a", |hosts| health(hosts) == [(1, true)])
        .await;
}

#[tokio::test]
async fn the_good_one_of_two_is_taken_and_the_answer_refused() {
    let (mut plane, address) = ControlPlane::start().await;
    let daemon = Daemon::start(&bootstrap(&ads("GRPC"), address, H2));
    let mut stream = plane.stream().await;
    stream.sotw().await;
    let bad = eds_from("bad", "xyz", "ads: {}");
    stream
        .say(CLUSTER, "1", vec![eds("good"), bad.clone()])
        .await;
    let mut requests = [stream.sotw().await, stream.sotw().await];
    requests.sort_by(|a, b| a.type_url.cmp(&b.type_url));
    let refused = &requests[0];
    assert_eq!(
        (&*refused.version_info, &*refused.response_nonce),
        ("", "n1")
    );
    let detail = refused.error_detail.as_ref().unwrap();
    let at = "bad: health_checks[0].custom_health_check.typed_config.send.text: ";
    assert!(detail.message.starts_with(at), "{}", detail.message);
    assert_eq!(requests[1].resource_names, ["good"]);
    daemon
        .when(|daemon| daemon.engine.cluster("good").is_some())
        .await;
    assert!(daemon.engine.cluster("bad").is_none());
    assert_eq!(daemon.stat("cluster_manager.cds.update_rejected"), 1);
    assert_eq!(daemon.stat("cluster_manager.cds.update_success"), 0);

    let records = daemon.dump.clusters();
    assert_eq!(records.len(), 2);
    let error = records[0].error_state.as_ref().unwrap();
    assert_eq!(
        (&*records[0].name, &error.failed_configuration),
        ("bad", &bad)
    );
    assert_eq!(records[1].version_info.as_deref(), Some("1"));
}

#[tokio::test]
async fn streams_of_their_own_for_clusters_and_for_endpoints() {
    for api_type in ["GRPC", "DELTA_GRPC"] {
        let (mut plane, address) = ControlPlane::start().await;
        let source = format!(
            "api_config_source: {{api_type: {api_type}, set_node_on_first_message_only: true, \
             grpc_services: [{{envoy_grpc: {{cluster_name: plane}}, \
             initial_metadata: [{{key: X-Token, value: t}}]}}]}}"
        );
        let resources = format!("cds_config: {{{source}}}");
        let daemon = Daemon::start(&bootstrap(&resources, address, H2));
        let mut clusters = plane.stream().await;
        assert_eq!(clusters.service, "cds");
        assert_eq!(clusters.metadata.get("x-token").unwrap(), "t");
        clusters.request().await;
        let own = [
            ("a", eds_from("a", "00", &source)),
            ("b", eds_from("b", "00", "self: {}")),
        ];
        if api_type == "GRPC" {
            clusters
                .say(
                    CLUSTER,
                    "1",
                    own.into_iter().map(|(_, body)| body).collect(),
                )
                .await;
        } else {
            clusters.change(CLUSTER, "1", &own, &[]).await;
        }
        for _ in 0..2 {
            let mut endpoints = plane.stream().await;
            assert_eq!(endpoints.service, "eds");
            let name = if api_type == "GRPC" {
                let request = endpoints.sotw().await;
                endpoints
                    .say(
                        ENDPOINTS,
                        "2",
                        vec![assignment(&request.resource_names[0], &[1])],
                    )
                    .await;
                let taken = endpoints.sotw().await;
                assert!(request.node.is_some() && taken.node.is_none());
                request.resource_names[0].clone()
            } else {
                let request = endpoints.delta().await;
                let name = &*request.resource_names_subscribe[0];
                endpoints
                    .change(ENDPOINTS, "2", &[(name, assignment(name, &[1]))], &[])
                    .await;
                name.to_owned()
            };
            daemon
                .until(&name, |hosts| health(hosts) == [(1, true)])
                .await;
        }
    }
}

#[tokio::test]
async fn endpoints_of_a_cluster_of_the_bootstrap() {
    let (mut plane, address) = ControlPlane::start().await;
    let cluster = "
  - name: a
    type: EDS
    eds_cluster_config: {service_name: svc, eds_config: {ads: {}}}";
    let resources =
        "ads_config: {api_type: GRPC, grpc_services: [{envoy_grpc: {cluster_name: plane}}]}";
    let daemon = Daemon::start(&bootstrap(resources, address, &format!("{H2}{cluster}")));
    let mut stream = plane.stream().await;
    assert_eq!(stream.sotw().await.resource_names, ["svc"]);
    stream
        .say(ENDPOINTS, "1", vec![assignment("svc", &[1])])
        .await;
    daemon
        .until("a", |hosts| health(hosts) == [(1, true)])
        .await;
}

#[tokio::test]
async fn requests_keep_to_the_rate() {
    let (mut plane, address) = ControlPlane::start().await;
    let resources = "cds_config: {ads: {}}, ads_config: {api_type: GRPC, \
        rate_limit_settings: {max_tokens: 2, fill_rate: 20}, \
        grpc_services: [{envoy_grpc: {cluster_name: plane}}]}";
    let daemon = Daemon::start(&bootstrap(resources, address, H2));
    let mut stream = plane.stream().await;
    stream.sotw().await;
    for version in ["1", "2", "3", "4"] {
        stream.say(CLUSTER, version, vec![]).await;
        assert_eq!(stream.sotw().await.version_info, version);
    }
    assert!(daemon.stat("control_plane.rate_limit_enforced") > 0);
    assert_eq!(daemon.stat("control_plane.pending_requests"), 0);
}

#[tokio::test]
async fn what_cannot_be_followed_is_refused_by_name() {
    let refused = |resources: &str, wanted: &str| {
        let text = bootstrap(resources, "127.0.0.1:1".parse().unwrap(), "");
        let bootstrap = Bootstrap::from_yaml(&text, &mut Warnings::default()).unwrap();
        let error = Client::new(&bootstrap, Registry::default(), Arc::default()).unwrap_err();
        assert_eq!(error.to_string(), wanted);
    };
    refused(
        "cds_config: {ads: {}}",
        "dynamic_resources.cds_config.ads: there is no ads_config in dynamic_resources",
    );
    refused(
        "cds_config: {api_config_source: {api_type: REST, cluster_names: [plane]}}",
        "dynamic_resources.cds_config.api_config_source.api_type: REST is not supported: give GRPC or DELTA_GRPC",
    );
    refused(
        &ads("GRPC"),
        "dynamic_resources.ads_config.grpc_services[0].envoy_grpc.cluster_name: there is no static cluster \
         \"plane\" that HTTP/2 is spoken to: see http2_protocol_options",
    );
    refused(
        "ads_config: {api_type: GRPC, grpc_services: [{google_grpc: {target_uri: x, stat_prefix: x, \
         call_credentials: [{access_token: t}]}}]}",
        "dynamic_resources.ads_config.grpc_services[0].google_grpc.call_credentials: are not supported",
    );
    refused(
        "ads_config: {api_type: GRPC, transport_api_version: V2}",
        "dynamic_resources.ads_config.transport_api_version: V2 is not supported: give V3",
    );
    refused(
        "ads_config: {api_type: GRPC}",
        "dynamic_resources.ads_config.grpc_services: one is required, but here are 0",
    );
    let ads_with = |fields: &str, service: &str| {
        format!(
            "ads_config: {{api_type: GRPC, {fields}, grpc_services: [{{envoy_grpc: {{cluster_name: x, {service}}}}}]}}"
        )
    };
    refused(
        &ads_with("cluster_names: [plane]", ""),
        "dynamic_resources.ads_config.cluster_names: cannot be set for a source over gRPC: give grpc_services",
    );
    refused(
        &ads_with(
            "set_node_on_first_message_only: true",
            "retry_policy: {retry_back_off: {base_interval: 1s, max_interval: 0.5s}}",
        ),
        "dynamic_resources.ads_config.grpc_services[0].envoy_grpc.retry_policy.retry_back_off.max_interval: \
         must be at least base_interval, 1s, but is 500ms",
    );
    refused(
        "ads_config: {api_type: GRPC, rate_limit_settings: {fill_rate: Infinity}, grpc_services: \
         [{google_grpc: {target_uri: \"127.0.0.1:1\", stat_prefix: x}}]}",
        "dynamic_resources.ads_config.rate_limit_settings.fill_rate: must be a finite number",
    );
    refused(
        "cds_config: {path_config_source: {path: /, watched_directory: {path: /no/such}}}",
        "dynamic_resources.cds_config.path_config_source.watched_directory.path: \"/no/such\" does not exist",
    );
    refused(
        "cds_config: {path_config_source: {path: /no/such}}",
        "dynamic_resources.cds_config.path_config_source.path: \"/no/such\" does not exist",
    );
}

#[tokio::test]
async fn a_factory_that_panics_spoils_what_it_was_given_and_nothing_else() {
    let (mut plane, address) = ControlPlane::start().await;
    let daemon = Daemon::start(&bootstrap(&ads("GRPC"), address, H2));
    let mut stream = plane.stream().await;
    stream.sotw().await;
    let bad = eds_from("bad", PANICS, "ads: {}");
    stream.say(CLUSTER, "1", vec![bad, eds("good")]).await;
    let refused = loop {
        let request = stream.sotw().await;
        if let Some(detail) = request.error_detail {
            break detail.message;
        }
    };
    assert_eq!(
        refused,
        "bad: health_checks[0].custom_health_check.typed_config: its factory panicked: as the test says"
    );
    daemon
        .when(|daemon| daemon.engine.cluster("good").is_some())
        .await;
    // On the same stream.
    stream
        .say(CLUSTER, "2", vec![eds("good"), eds("more")])
        .await;
    daemon
        .when(|daemon| daemon.engine.cluster("more").is_some())
        .await;
}
