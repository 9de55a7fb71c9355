//! Hosts by name, as a real resolver finds them at a name server on loopback.
#![cfg(feature = "dns")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests may panic as tests do"
)]

mod common;

use std::sync::Arc;

use common::dns_server::{Asked, DnsServer, Reply, parse};
use common::{Events, SECOND, Scripted, check, until};
use tokio::sync::mpsc;
use xds_health::config::{ClusterConfig, Warnings, text::Document};
use xds_health::dns::Resolver;
use xds_health::engine::{Engine, Options, Origin};
use xds_health::registry::{Change, Update};
use xds_health::snapshot::Verdict;
use xds_health::stats::{Stats, Value};

/// A resolver, and what it tells.
struct World {
    server: DnsServer,
    stats: Arc<Stats>,
    resolver: Resolver,
    changes: mpsc::Receiver<Change>,
    /// `dns_refresh_rate`.
    rate: &'static str,
}

impl World {
    async fn new() -> Self {
        let stats = Arc::new(Stats::default());
        let (sender, changes) = mpsc::channel(1);
        Self {
            server: DnsServer::start().await,
            resolver: Resolver::start(Arc::clone(&stats), sender),
            stats,
            changes,
            rate: "0.02s",
        }
    }

    /// A world in which a name is asked for once.
    async fn slow() -> Self {
        Self {
            rate: "3600s",
            ..Self::new().await
        }
    }

    /// A cluster of this type, with names and fields.
    async fn set(&self, kind: &str, names: &[&str], fields: &str) -> Arc<ClusterConfig> {
        self.set_asking(kind, names, fields, "").await
    }

    /// The same, with fields of how the server is asked.
    async fn set_asking(
        &self,
        kind: &str,
        names: &[&str],
        fields: &str,
        asking: &str,
    ) -> Arc<ClusterConfig> {
        let endpoints: Vec<_> = names
            .iter()
            .map(|name| format!("{{endpoint: {{address: {{socket_address: {{address: {name}, port_value: 80}}}}}}}}"))
            .collect();
        let text = format!(
            "{{name: c, type: {kind}, dns_refresh_rate: {}, {fields}
             load_assignment: {{cluster_name: c, endpoints: [{{lb_endpoints: [{}]}}]}},
             typed_dns_resolver_config: {{name: cares, typed_config: {{
               \"@type\": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig, {asking}
               resolvers: [{{socket_address: {{address: 127.0.0.1, port_value: {}}}}}]}}}}}}",
            self.rate,
            endpoints.join(", "),
            self.server.address.port(),
        );
        let document = Document::from_yaml(&text).unwrap();
        let config = ClusterConfig::from_document(&document, &mut Warnings::default()).unwrap();
        let config = Arc::new(config);
        self.resolver.set_cluster(&config).await;
        config
    }

    /// What is told next.
    async fn told(&mut self) -> String {
        let next = tokio::time::timeout(SECOND * 20, self.changes.recv());
        match next.await.expect("nothing was told").unwrap() {
            Change::Hosts { hosts, .. } => {
                let hosts = hosts.iter().map(|host| host.address.to_string());
                hosts.collect::<Vec<_>>().join(" ")
            }
            Change::HostsUnavailable(name) => format!("unavailable: {name}"),
            other => panic!("{other:?}"),
        }
    }

    fn stat(&self, name: &str) -> u64 {
        let samples = self.stats.samples();
        let name = format!("cluster.c.{name}");
        match samples.iter().find(|s| s.name == name).map(|s| &s.value) {
            Some(Value::Counter(value) | Value::Gauge(value)) => *value,
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn hosts_follow_the_answers() {
    let mut world = World::new().await;
    let server = world.server.clone();
    server.say("a.test", Reply::addresses(["127.0.0.2", "127.0.0.1"]));
    server.say("b.test", Reply::addresses(["127.0.0.3"]));
    world.set("STRICT_DNS", &["a.test"], "").await;
    assert_eq!(world.told().await, "127.0.0.1:80 127.0.0.2:80");
    // Answers hold for minutes, yet the server is asked again and again.
    server.until_asked("a.test", 6).await;
    server.say("a.test", Reply::addresses(["127.0.0.2"]));
    assert_eq!(world.told().await, "127.0.0.2:80");
    server.say("a.test", Reply::ServFail);
    server.until_asked("a.test", 8).await;
    server.say("a.test", Reply::NxDomain);
    assert_eq!(world.told().await, "", "failures have changed nothing");
    server.say("a.test", Reply::addresses(["::1"]));
    assert_eq!(world.told().await, "[::1]:80");
    world.set("STRICT_DNS", &["a.test", "b.test"], "").await;
    assert_eq!(world.told().await, "[::1]:80 127.0.0.3:80");
    assert!(world.stat("update_failure") > 0);
    assert!(world.stat("update_no_rebuild") > 0);
    assert!(world.stat("update_success") > world.stat("update_no_rebuild"));
}

#[tokio::test]
async fn a_logical_cluster_has_the_first_address() {
    let mut world = World::new().await;
    let server = world.server.clone();
    server.say("a.test", Reply::addresses(["127.0.0.2", "127.0.0.1"]));
    world.set("LOGICAL_DNS", &["a.test"], "").await;
    assert_eq!(world.told().await, "127.0.0.2:80");
    for reply in [Reply::NxDomain, Reply::addresses([])] {
        server.say("a.test", reply);
        server.until_asked("a.test", 6).await;
    }
    server.say("a.test", Reply::addresses(["127.0.0.1", "127.0.0.2"]));
    assert_eq!(world.told().await, "127.0.0.1:80");
    assert!(world.stat("update_failure") > 0);
}

#[tokio::test]
async fn each_family_asks_for_what_it_wants() {
    let both = || Reply::addresses(["127.0.0.1", "::1"]);
    let v4 = || Reply::addresses(["127.0.0.1"]);
    let broken = || Reply::FailsV6(parse(["127.0.0.1"]));
    let (a, aaaa) = (Asked("A", "udp"), Asked("AAAA", "udp"));
    for (family, reply, hosts, questions) in [
        ("AUTO", both(), "[::1]:80", vec![aaaa]),
        ("AUTO", v4(), "127.0.0.1:80", vec![aaaa, a]),
        ("V4_ONLY", both(), "127.0.0.1:80", vec![a]),
        ("V6_ONLY", both(), "[::1]:80", vec![aaaa]),
        ("V6_ONLY", v4(), "", vec![aaaa]),
        ("V4_PREFERRED", both(), "127.0.0.1:80", vec![a]),
        (
            "V4_PREFERRED",
            Reply::addresses(["::1"]),
            "[::1]:80",
            vec![a, aaaa],
        ),
        ("ALL", both(), "127.0.0.1:80 [::1]:80", vec![a, aaaa]),
        ("ALL", v4(), "127.0.0.1:80", vec![a, aaaa]),
        ("AUTO", broken(), "127.0.0.1:80", vec![aaaa, a]),
        ("ALL", broken(), "127.0.0.1:80", vec![a, aaaa]),
        ("V6_ONLY", broken(), "unavailable: c", vec![aaaa]),
    ] {
        let mut world = World::slow().await;
        world.server.say("a.test", reply.clone());
        let fields = format!("dns_lookup_family: {family},");
        world
            .set_asking("STRICT_DNS", &["a.test."], &fields, "query_tries: 1,")
            .await;
        assert_eq!(world.told().await, hosts, "{family} {reply:?}");
        let mut asked = world.server.asked("a.test");
        if family == "ALL" {
            // Both are asked for at once.
            asked.sort_by_key(|asked| asked.0);
        }
        assert_eq!(asked, questions, "{family} {reply:?}");
    }
}

#[tokio::test]
async fn what_does_not_fit_comes_over_tcp() {
    let tcp = "dns_resolver_options: {use_tcp_for_dns_lookups: true},";
    let (a, over_tcp) = (Asked("A", "udp"), Asked("A", "tcp"));
    for (asking, questions) in [("", vec![a, over_tcp]), (tcp, vec![over_tcp])] {
        let mut world = World::slow().await;
        let reply = Reply::Truncated(parse(["127.0.0.1"]));
        world.server.say("a.test", reply);
        let fields = "dns_lookup_family: V4_ONLY,";
        world
            .set_asking("STRICT_DNS", &["a.test."], fields, asking)
            .await;
        assert_eq!(world.told().await, "127.0.0.1:80");
        assert_eq!(world.server.asked("a.test"), questions);
    }
}

#[tokio::test]
async fn silence_is_a_failure_and_holds_no_other_name_up() {
    let mut world = World::slow().await;
    world.server.say("a.test", Reply::Silence);
    world.server.say("b.test", Reply::addresses(["127.0.0.1"]));
    let fields = "dns_lookup_family: V4_ONLY,";
    let asking = "query_timeout_seconds: 1, query_tries: 1,";
    let names = ["a.test", "b.test"];
    world.set_asking("STRICT_DNS", &names, fields, asking).await;
    assert_eq!(world.told().await, "127.0.0.1:80");
    assert_eq!(world.stat("update_failure"), 0);
    world
        .set_asking("STRICT_DNS", &["a.test"], fields, asking)
        .await;
    assert_eq!(world.told().await, "", "b.test is no longer asked for");
    assert_eq!(world.stat("update_failure"), 1);

    let mut world = World::slow().await;
    world.server.say("a.test", Reply::Silence);
    world
        .set_asking("LOGICAL_DNS", &["a.test"], fields, asking)
        .await;
    assert_eq!(world.told().await, "unavailable: c");
}

#[tokio::test]
async fn answers_are_asked_for_anew_when_they_have_run_out() {
    let mut world = World::slow().await;
    let server = world.server.clone();
    // An alias can run out before the addresses do.
    server.say("a.test", Reply::Alias(1, parse(["127.0.0.1"])));
    let fields = "respect_dns_ttl: true, dns_lookup_family: V4_ONLY,";
    world.set("STRICT_DNS", &["a.test"], fields).await;
    assert_eq!(world.told().await, "127.0.0.1:80");
    let answered = tokio::time::Instant::now();
    server.until_asked("a.test", 1).await;
    let waited = answered.elapsed();
    assert!(waited > SECOND * 3 / 4, "{waited:?}");
}

#[tokio::test]
async fn a_cluster_that_went_is_not_asked_for() {
    let mut world = World::new().await;
    let server = world.server.clone();
    server.say("a.test", Reply::addresses(["127.0.0.1"]));
    let config = world.set("STRICT_DNS", &["a.test"], "").await;
    assert_eq!(world.told().await, "127.0.0.1:80");
    world.resolver.remove_cluster(&config.name).await;
    world.set("STRICT_DNS", &["b.test"], "").await;
    assert_eq!(world.told().await, "");
    let asked = server.asked("a.test").len();
    server.until_asked("b.test", 20).await;
    assert_eq!(server.asked("a.test").len(), asked);
    drop(world.resolver);
    assert!(world.changes.recv().await.is_none(), "it has ended");
}

#[tokio::test]
async fn names_are_checked_by_the_engine() {
    let World {
        server,
        stats,
        resolver,
        mut changes,
        ..
    } = World::new().await;
    server.say("a.test", Reply::addresses(["127.0.0.1"]));
    let engine = Engine::start(Options::default().with_seed(1), stats).unwrap();
    let world = World {
        server: server.clone(),
        stats: Arc::clone(engine.stats()),
        resolver: resolver.clone(),
        changes: mpsc::channel(1).1,
        rate: "0.02s",
    };
    let config = world.set("LOGICAL_DNS", &["a.test"], "").await;
    let config = ClusterConfig::clone(&config).with_health_check(check());
    let update = Update::new(
        Arc::new(config),
        vec![Arc::new(Scripted::default())],
        vec![vec![Arc::new(Events::default())]],
    );
    let cluster = engine.set_cluster(update, Origin::Dynamic).await.unwrap();
    let applied = engine.clone();
    tokio::spawn(async move {
        while let Some(change) = changes.recv().await {
            applied.apply(change).await.unwrap();
        }
    });
    let healthy_at = |address: &'static str| {
        until(&cluster, move |views| {
            views.len() == 1
                && views[0].verdict() == Verdict::Healthy
                && views[0].host.address.to_string() == address
        })
    };
    healthy_at("127.0.0.1:80").await;
    // The one host makes room for the next, healthy as it is.
    server.say("a.test", Reply::addresses(["127.0.0.2"]));
    let views = healthy_at("127.0.0.2:80").await;
    assert_eq!(views[0].host.hostname().map(|name| &**name), Some("a.test"));
}
