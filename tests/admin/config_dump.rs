//! `/config_dump` and `/init_dump`.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::watch;
use xds_health::admin::{self, Admin, BootstrapDump, Limits};
use xds_health::config::text::Document;
use xds_health::engine::Origin;
use xds_health::proto::envoy::config::bootstrap::v3::Bootstrap as Message;

use crate::common::until_initialized;
use crate::http::get;
use crate::{HELD, PASSING, Served, cluster, engine, held, host, serve, set};

const BOOTSTRAP: &str = "
node: {id: n1}
static_resources:
  clusters:
  - {name: s2, connect_timeout: 1.5s}
  - name: s1
    load_assignment:
      cluster_name: s1
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}]}]
";

async fn dump(served: &Served, query: &str) -> Value {
    let answer = get(served.address, &format!("/config_dump{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.header("content-type"), "application/json");
    serde_json::from_str(&answer.body).unwrap()
}

fn bootstrap() -> Message {
    Document::from_yaml(BOOTSTRAP).unwrap().read().message
}

#[tokio::test]
async fn what_the_process_was_started_with_is_shown() {
    let at = UNIX_EPOCH + Duration::from_micros(1_500_000_000_123_456);
    let admin = Admin::new(engine()).with_bootstrap(BootstrapDump::new(&bootstrap(), at));
    let served = serve(admin::router(admin), Limits::default()).await;
    let all = dump(&served, "").await;
    let configs = all["configs"].as_array().unwrap();
    assert_eq!(configs.len(), 2);
    assert_eq!(
        configs[0]["@type"],
        "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump"
    );
    assert_eq!(configs[0]["bootstrap"]["node"], json!({"id": "n1"}));
    assert_eq!(configs[0]["last_updated"], "2017-07-14T02:40:00.123Z");
    let second = json!({
        "cluster": {
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": "s2",
            "connect_timeout": "1.500s",
        },
        "last_updated": "2017-07-14T02:40:00.123Z",
    });
    let clusters = configs[1]["static_clusters"].as_array().unwrap();
    assert_eq!(clusters[0]["cluster"]["name"], "s1");
    assert_eq!(clusters[1], second);

    let whole = dump(&served, "?include_eds").await;
    let endpoints = &whole["configs"][2]["static_endpoint_configs"];
    assert_eq!(endpoints.as_array().unwrap().len(), 1);
    assert_eq!(endpoints[0]["endpoint_config"]["cluster_name"], "s1");

    let one = dump(&served, "?resource=static_clusters&name_regex=.2").await;
    let mut wanted = second;
    wanted["@type"] = json!("type.googleapis.com/envoy.admin.v3.ClustersConfigDump.StaticCluster");
    assert_eq!(one, json!({"configs": [wanted]}));
    let none = dump(&served, "?resource=static_clusters&name_regex=s").await;
    assert_eq!(none, json!({}));
}

#[tokio::test]
async fn a_mask_says_which_fields_are_shown() {
    let admin = Admin::new(engine()).with_bootstrap(BootstrapDump::new(&bootstrap(), UNIX_EPOCH));
    let served = serve(admin::router(admin), Limits::default()).await;
    let configs = async |query: &str| {
        let mut configs = dump(&served, query).await["configs"].take();
        for config in configs.as_array_mut().unwrap() {
            let kind = config.as_object_mut().unwrap().remove("@type").unwrap();
            assert!(kind.as_str().unwrap().contains(".v3."));
            if let Some(cluster) = config.get_mut("cluster") {
                cluster.as_object_mut().unwrap().remove("@type").unwrap();
            }
        }
        configs
    };
    let at = "1970-01-01T00:00:00Z";
    for (query, wanted) in [
        (
            "?mask=bootstrap.node.id",
            json!([{"bootstrap": {"node": {"id": "n1"}}}]),
        ),
        ("?mask=last_updated", json!([{"last_updated": at}])),
        ("?mask=version_info", json!([{}])),
        (
            "?resource=static_clusters&mask=cluster.name",
            json!([{"cluster": {"name": "s1"}}, {"cluster": {"name": "s2"}}]),
        ),
        (
            "?resource=static_clusters&mask=last_updated,cluster.type&name_regex=s1",
            json!([{"cluster": {}, "last_updated": at}]),
        ),
        (
            "?resource=static_clusters&mask=cluster.load_assignment.cluster_name",
            json!([{"cluster": {"load_assignment": {"cluster_name": "s1"}}}, {"cluster": {}}]),
        ),
    ] {
        assert_eq!(configs(query).await, wanted, "{query}");
    }
    let clusters = configs("?mask=static_clusters").await;
    assert_eq!(clusters[0]["static_clusters"].as_array().unwrap().len(), 2);
    assert_eq!(clusters.as_array().unwrap().len(), 1);
    assert_eq!(configs("?mask=").await, configs("").await);
    let none = dump(&served, "?resource=dynamic_active_clusters&mask=nope").await;
    assert_eq!(none, json!({}));

    let unused = "could not be successfully used.";
    let unfit = "could not be successfully applied to any configs.";
    for (of, mask, why) in [
        ("resource=static_clusters&", "cluster", unused),
        ("resource=static_clusters&", "cluster.name,cluster", unused),
        ("resource=static_clusters&", "cluster.nope", unused),
        ("resource=static_clusters&", "version_info", unused),
        ("resource=static_clusters&", "nope", unused),
        ("", "static_clusters.cluster", unfit),
        ("", "bootstrap.node,static_clusters", unfit),
        ("", "bootstrap.static_resources.clusters.name", unfit),
        ("", "static_endpoint_configs", unfit),
    ] {
        let answer = get(served.address, &format!("/config_dump?{of}mask={mask}")).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.body, format!("FieldMask {mask} {why}\n"));
    }
}

#[tokio::test]
async fn what_cannot_be_asked_for_is_told() {
    let served = serve(admin::router(Admin::new(engine())), Limits::default()).await;
    for (query, status, message) in [
        ("resource=nope", 404, "nope not found in config dump\n"),
        (
            "resource=dynamic_endpoint_configs",
            404,
            "dynamic_endpoint_configs not found in config dump\n",
        ),
        (
            "resource=bootstrap",
            400,
            "bootstrap is not a repeated field. Use ?mask=bootstrap to get only this field\n",
        ),
        (
            "mask=nope",
            400,
            "FieldMask nope could not be successfully applied to any configs.\n",
        ),
        (
            "name_regex=[",
            400,
            "Invalid regex: unclosed character class\n",
        ),
    ] {
        let answer = get(served.address, &format!("/config_dump?{query}")).await;
        assert_eq!((answer.status, &*answer.body), (status, message));
    }
    let bare = dump(&served, "").await;
    let clusters = "type.googleapis.com/envoy.admin.v3.ClustersConfigDump";
    assert_eq!(bare, json!({"configs": [{"@type": clusters}]}));
}

#[tokio::test]
async fn clusters_that_are_waited_for_are_named() {
    let engine = engine();
    let (release, released) = watch::channel(false);
    let script = held(released);
    let waiting = cluster("c1", vec![host(HELD)], &[""]);
    let waiting = set(&engine, waiting, &script, Origin::Static).await;
    let passing = cluster("c2", vec![host(PASSING)], &[""]);
    let passing = set(&engine, passing, &script, Origin::Static).await;
    until_initialized(&passing).await;
    let served = serve(admin::router(Admin::new(engine)), Limits::default()).await;
    let answer = get(served.address, "/init_dump").await;
    let told: Value = serde_json::from_str(&answer.body).unwrap();
    let unready = json!([{"name": "clusters", "target_names": ["c1"]}]);
    assert_eq!(told, json!({ "unready_targets_dumps": unready }));
    release.send(true).unwrap();
    until_initialized(&waiting).await;
    assert_eq!(get(served.address, "/init_dump").await.body, "{}\n");
}

#[cfg(feature = "xds")]
#[tokio::test]
async fn what_a_control_plane_told_is_shown_with_what_was_refused_of_it() {
    use std::time::Instant;

    use xds_health::config::{Bootstrap, Warnings};
    use xds_health::registry::Registry;
    use xds_health::stats::Stats;
    use xds_health::xds::Client;

    /// Longer than it takes on any machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let by_file = |name: &str| format!("{{path_config_source: {{path: {}}}}}", path(name));
    let cluster = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster";
    let told = format!(
        "version_info: v7
resources:
- {{{cluster}, name: d1, connect_timeout: 1s}}
- {{{cluster}, name: e1, type: EDS, eds_cluster_config: {{eds_config: {}}}}}
- {{{cluster}, name: bad, health_checks: [{{timeout: 0s}}]}}
",
        by_file("eds.yaml")
    );
    std::fs::write(path("cds.yaml"), told).unwrap();
    let assignment =
        "\"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
    let told = format!(
        "version_info: e3\nresources: [{{{assignment}, cluster_name: e1, endpoints: [{{locality: {{zone: z1}}}}]}}]\n"
    );
    std::fs::write(path("eds.yaml"), told).unwrap();
    let text = format!(
        "node: {{id: i, cluster: c}}\ndynamic_resources: {{cds_config: {}}}",
        by_file("cds.yaml")
    );
    let bootstrap = Bootstrap::from_yaml(&text, &mut Warnings::default()).unwrap();
    let stats = std::sync::Arc::new(Stats::default());
    let client = Client::new(&bootstrap, Registry::default(), stats).unwrap();
    let engine = engine();
    let admin = Admin::new(engine.clone()).with_dump(client.dump());
    let (changes, mut told) = tokio::sync::mpsc::channel(16);
    tokio::spawn(client.run(changes));
    tokio::spawn(async move {
        while let Some(change) = told.recv().await {
            engine.apply(change).await.unwrap();
        }
    });
    let served = serve(admin::router(admin), Limits::default()).await;
    let began = Instant::now();
    let all = loop {
        let all = dump(&served, "?include_eds").await;
        let active = &all["configs"][0]["dynamic_active_clusters"];
        if active.as_array().is_some_and(|active| active.len() == 2) {
            break all;
        }
        assert!(began.elapsed() < PATIENCE, "never: {all}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let clusters = &all["configs"][0];
    let active = clusters["dynamic_active_clusters"].as_array();
    let active = active.unwrap_or_else(|| panic!("{all}"));
    let names: Vec<_> = active.iter().map(|c| &c["cluster"]["name"]).collect();
    assert_eq!(names, ["d1", "e1"]);
    assert_eq!(active[0]["version_info"], "v7");
    assert!(active[0]["last_updated"].as_str().unwrap().ends_with('Z'));
    assert!(active[0].get("error_state").is_none());
    let refused = &clusters["dynamic_warming_clusters"][0];
    assert!(refused.get("cluster").is_none() && refused.get("last_updated").is_none());
    let error = &refused["error_state"];
    assert_eq!(error["version_info"], "v7");
    assert_eq!(error["failed_configuration"]["name"], "bad");
    assert!(
        error["details"]
            .as_str()
            .unwrap()
            .contains("health_checks[0].timeout")
    );
    assert!(error["last_update_attempt"].is_string());
    let masked = dump(
        &served,
        "?resource=dynamic_warming_clusters&mask=error_state.version_info",
    )
    .await;
    assert_eq!(
        masked["configs"][0]["error_state"],
        json!({"version_info": "v7"})
    );
    let endpoints = &all["configs"][1]["dynamic_endpoint_configs"][0];
    assert_eq!(endpoints["version_info"], "e3");
    assert_eq!(
        endpoints["endpoint_config"]["endpoints"][0]["locality"]["zone"],
        "z1"
    );
}
