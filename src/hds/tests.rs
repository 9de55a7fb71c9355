//! Specifiers, sessions and reports together, without a stream.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Instant;

use crate::checker::{Attempt, AttemptIo, Checker, CheckerFactory, HostChecker, Target};
use crate::cluster::{self, Clusters, SessionId, Share};
use crate::engine::{Options as EngineOptions, Snapshot, Traffic};
use crate::event::{HealthCheckerType, Outcome, Reason};
use crate::session::AttemptId;
use crate::snapshot::Part;
use crate::stats::Stats;

use super::state::{Action, Verdict};
use super::*;
use crate::config::text::Document;
use crate::engine::Origin;
use crate::proto::envoy::config::core::v3::address::Address as AnyAddress;
use crate::proto::envoy::config::core::v3::socket_address::PortSpecifier;
use crate::proto::envoy::config::core::v3::{Address, HealthCheck, SocketAddress};
use crate::proto::envoy::config::endpoint::v3::Endpoint;
use crate::proto::envoy::service::health::v3::{
    ClusterHealthCheck, EndpointHealthResponse, HealthCheckSpecifier, LocalityEndpoints,
};
use crate::registry::Change;
use crate::xds::clock;

/// A checker that notes when it is asked and always passes.
#[derive(Clone, Debug, Default)]
struct Noted(Arc<Mutex<Vec<Instant>>>);

impl CheckerFactory for Noted {
    fn message_name(&self) -> &str {
        "google.protobuf.Empty"
    }

    fn create(&self, _: &[u8]) -> Result<Arc<dyn Checker>, ConfigError> {
        Ok(Arc::new(self.clone()))
    }
}

impl Checker for Noted {
    fn health_checker_type(&self) -> HealthCheckerType {
        HealthCheckerType::Udp
    }

    fn for_host(&self, _: Target<'_>) -> Box<dyn HostChecker> {
        Box::new(self.clone())
    }
}

impl HostChecker for Noted {
    fn attempt<'a>(&'a mut self, io: &'a AttemptIo) -> Attempt<'a> {
        self.0.lock().unwrap().push(clock::now());
        io.sent();
        Box::pin(std::future::ready(Outcome::SUCCESS))
    }
}

fn check(interval: u32, threshold: u32) -> HealthCheck {
    let text = format!(
        "{{timeout: 1s, interval: {interval}s, unhealthy_threshold: {threshold}, healthy_threshold: {threshold}, \
         custom_health_check: {{name: noted, typed_config: {{'@type': type.googleapis.com/google.protobuf.Empty}}}}}}"
    );
    Document::from_yaml(&text)
        .unwrap()
        .read::<HealthCheck>()
        .message
}

fn specifier(check: &HealthCheck, ports: &[u16]) -> HealthCheckSpecifier {
    let endpoint = |port: &u16| Endpoint {
        address: Some(Address {
            address: Some(AnyAddress::SocketAddress(SocketAddress {
                address: "127.0.0.1".into(),
                port_specifier: Some(PortSpecifier::PortValue(u32::from(*port))),
                ..SocketAddress::default()
            })),
        }),
        ..Endpoint::default()
    };
    HealthCheckSpecifier {
        cluster_health_checks: vec![ClusterHealthCheck {
            cluster_name: "a".into(),
            health_checks: vec![check.clone()],
            locality_endpoints: vec![LocalityEndpoints {
                endpoints: ports.iter().map(endpoint).collect(),
                ..LocalityEndpoints::default()
            }],
            ..ClusterHealthCheck::default()
        }],
        ..HealthCheckSpecifier::default()
    }
}

fn decoded(report: &[u8]) -> EndpointHealthResponse {
    let message = HealthCheckRequestOrEndpointHealthResponse::decode(report).unwrap();
    match message.request_type {
        Some(RequestType::EndpointHealthResponse(response)) => response,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_specifier_resent_every_second_does_not_disturb_checks_every_three() {
    let noted = Noted::default();
    let registry = Registry::empty().with_checker(noted.clone());
    let options = EngineOptions::default()
        .with_seed(1)
        .with_traffic(Traffic::Always);
    let engine = Engine::start(options, Arc::new(Stats::default())).unwrap();
    let mut state = State::new(registry, Limits::default());
    let text = specifier(&check(3, 3), &[1]);
    for _ in 0..30 {
        let verdict = state.handle_specifier(clock::time(), &text);
        assert!(!matches!(verdict, Verdict::Refused(_)), "{verdict:?}");
        while let Some(Action::Apply(Change::Cluster(update))) = state.poll_action() {
            engine.set_cluster(update, Origin::Hds).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let times = noted.0.lock().unwrap().clone();
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((9..=10).contains(&gaps.len()), "{gaps:?}");
    for gap in &gaps {
        assert!((3000..=3010).contains(&gap.as_millis()), "{gaps:?}");
    }
    let layout = state.layouts().remove(0);
    let snapshot = engine.cluster(&layout.key).unwrap().snapshot();
    let mut reporter = Reporter::new(true, usize::MAX);
    let report = decoded(&reporter.report(&[(layout, Some(snapshot))]));
    assert_eq!(
        report.endpoints_health[0].health_status().as_str_name(),
        "HEALTHY"
    );
}

/// All pure parts, driven by hand.
struct Model {
    state: State,
    reporter: Reporter,
    clusters: Clusters,
    stats: Stats,
    now: Instant,
    running: Vec<(SessionId, AttemptId, u16)>,
    attempts: u32,
    parts: std::collections::HashMap<cluster::ClusterId, Part>,
}

impl Model {
    fn new() -> Self {
        let now = clock::now();
        let registry = Registry::empty().with_checker(Noted::default());
        Self {
            state: State::new(registry, Limits::default()),
            reporter: Reporter::new(true, usize::MAX),
            clusters: Clusters::new(now, Share::ALL, 1),
            stats: Stats::default(),
            now,
            running: Vec::new(),
            attempts: 0,
            parts: std::collections::HashMap::new(),
        }
    }

    fn specify(&mut self, specifier: &HealthCheckSpecifier) {
        let verdict = self.state.handle_specifier(clock::time(), specifier);
        assert!(!matches!(verdict, Verdict::Refused(_)), "{verdict:?}");
        while let Some(action) = self.state.poll_action() {
            let update = match action {
                Action::Remember(_) => continue,
                Action::Apply(Change::Cluster(update)) => cluster::Update::Cluster {
                    stats: self
                        .stats
                        .cluster(update.config.key(), update.config.stat_name()),
                    config: update.config,
                    traffic: true,
                },
                Action::Apply(Change::RemoveCluster(key)) => cluster::Update::RemoveCluster(key),
                Action::Apply(other) => panic!("{other:?}"),
            };
            self.clusters.handle_update(self.now, update);
            self.act();
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.clusters.poll_action() {
            match action {
                cluster::Action::Start(id) => {
                    self.attempts += 1;
                    let attempt = AttemptId(self.attempts);
                    if let Some(started) = self.clusters.start(self.now, id, attempt) {
                        let port = started
                            .host
                            .address
                            .socket_addr()
                            .as_ref()
                            .map(SocketAddr::port);
                        self.running.push((id, attempt, port.unwrap()));
                    }
                }
                cluster::Action::Expire(_, attempt) => {
                    let place = self.running.iter().position(|running| running.1 == attempt);
                    self.end(place.unwrap(), Outcome::timeout(Reason::Silent));
                }
                cluster::Action::Cancel(_, attempt) => {
                    self.running.retain(|running| running.1 != attempt);
                }
                _ => (),
            }
        }
    }

    fn end(&mut self, place: usize, outcome: Outcome) {
        let (id, attempt, _) = self.running.remove(place);
        self.clusters
            .handle_outcome(self.now, id, attempt, outcome, None);
        self.act();
    }

    fn advance(&mut self) {
        if let Some(at) = self.clusters.poll_timeout() {
            self.now = self.now.max(at);
            self.clusters.handle_timeout(self.now);
            self.act();
        }
    }

    /// What is reported, as ports.
    fn reported(&mut self) -> Vec<u16> {
        while let Some((id, part)) = self.clusters.poll_part() {
            self.parts.insert(id, part);
        }
        let clusters: Vec<_> = self
            .state
            .layouts()
            .into_iter()
            .map(|layout| {
                let id = self.clusters.id(&layout.key);
                let part = id.and_then(|id| self.parts.get(&id)).cloned();
                (layout, part.map(|part| Snapshot::of([part])))
            })
            .collect();
        let report = decoded(&self.reporter.report(&clusters));
        let port = |health: &crate::proto::envoy::service::health::v3::EndpointHealth| {
            let endpoint = health.endpoint.clone().unwrap();
            match endpoint.address.unwrap().address {
                Some(AnyAddress::SocketAddress(socket)) => match socket.port_specifier {
                    Some(PortSpecifier::PortValue(port)) => u16::try_from(port).unwrap(),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        };
        report.endpoints_health.iter().map(port).collect()
    }
}

#[test]
fn an_endpoint_may_be_dropped_at_the_instant_its_check_fails() {
    let mut model = Model::new();
    let mut random = fastrand::Rng::with_seed(7);
    let checks = [check(1, 1), check(1, 2)];
    let (mut ports, mut dropped) = (vec![1, 2, 3], 0);
    for _ in 0..10_000 {
        while model.running.is_empty() && !ports.is_empty() {
            model.specify(&specifier(&checks[0], &ports));
            model.advance();
        }
        let outcome = match random.u8(..4) {
            0 => Outcome::SUCCESS,
            1 => Outcome::network(Reason::Refused),
            _ => Outcome::timeout(Reason::Silent),
        };
        let place = random.usize(..model.running.len().max(1));
        let chosen = model.running.get(place).copied();
        let fails_first = random.bool();
        if let Some((.., port)) = chosen {
            if fails_first {
                model.end(place, outcome.clone());
            }
            ports.retain(|other| *other != port);
            dropped += 1;
        }
        // Others come, go and change their places at the same instant.
        ports.retain(|_| random.u8(..8) > 0);
        for port in 1..=6 {
            if !ports.contains(&port)
                && chosen.is_none_or(|(.., gone)| gone != port)
                && random.u8(..4) == 0
            {
                ports.insert(random.usize(..=ports.len()), port);
            }
        }
        if random.u8(..16) == 0 {
            ports.clear();
        }
        let check = &checks[usize::from(random.u8(..8) == 0)];
        let mut next = specifier(check, &ports);
        if ports.is_empty() && random.bool() {
            next.cluster_health_checks.clear();
        }
        model.specify(&next);
        if let Some((id, attempt, _)) = chosen
            && !fails_first
        {
            // The outcome of an attempt that was cancelled comes late.
            assert!(model.running.iter().all(|running| running.1 != attempt));
            model
                .clusters
                .handle_outcome(model.now, id, attempt, outcome, None);
            model.act();
        }
        assert_eq!(model.reported(), ports);
        assert_eq!(model.clusters.sessions(), ports.len());
        assert!(model.running.iter().all(|(.., port)| ports.contains(port)));
        let stats = model.stats.cluster(&"hds\0a".into(), &"a".into());
        assert!(stats.membership.total.value() == ports.len() as u64);
        if random.bool() {
            model.advance();
        }
        if ports.is_empty() {
            ports.push(1);
        }
    }
    assert!(dropped > 5_000, "{dropped}");
}
