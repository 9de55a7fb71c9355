//! What a program that embeds the library can count on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use common::{Events, SECOND, Scripted, Step, check, cluster, host, hosts, run, until};
use xds_health::config::{
    CheckerConfig, ClusterConfig, ConfigError, Discovery, HealthCheck, Warnings,
};
use xds_health::engine::{
    Cluster, EligibleChange, EligibleChanges, Ended, Engine, Explanation, Options, Origin,
    PastAttempt, Reader, Snapshot,
};
use xds_health::event::{EventKind, HealthCheckEvent, Outcome, Reason};
use xds_health::feed::{EventSink, NoEvent};
use xds_health::registry::{Change, Registry, Update};
use xds_health::snapshot::{HostView, Verdict};
use xds_health::stats::Stats;

fn engine(options: Options) -> Engine {
    Engine::start(options.with_seed(1), Arc::new(Stats::default())).unwrap()
}

#[test]
fn what_is_handed_around_can_be_sent_and_shared() {
    fn shared<T: Send + Sync + Debug + 'static>() {}
    fn cheap<T: Send + Sync + Clone + Debug + 'static>() {}
    cheap::<Engine>();
    cheap::<Cluster>();
    cheap::<Snapshot>();
    cheap::<HostView>();
    cheap::<Options>();
    cheap::<Registry>();
    cheap::<Update>();
    cheap::<Change>();
    cheap::<ClusterConfig>();
    cheap::<HealthCheckEvent>();
    cheap::<Explanation>();
    cheap::<PastAttempt>();
    cheap::<ConfigError>();
    cheap::<Ended>();
    cheap::<NoEvent>();
    cheap::<Reader>();
    shared::<Stats>();
    shared::<EligibleChanges>();
    shared::<xds_health::feed::Events>();
    shared::<xds_health::cluster::Clusters>();

    fn sent<T: Send>(_: T) {}
    let (engine, update, cluster): (Option<&Engine>, Option<Update>, Option<&Cluster>) =
        (None, None, None);
    if let (Some(engine), Some(update), Some(cluster)) = (engine, update, cluster) {
        sent(engine.set_cluster(update, Origin::Static));
        sent(engine.stop());
        sent(cluster.initialized());
        sent(cluster.reset(Vec::<Arc<xds_health::host::Host>>::new()));
        sent(async { cluster.explain(&host(1).address).await });
        sent(async { cluster.eligible_changes().next().await });
        sent(async { cluster.events().next().await });
    }
}

fn ports(changes: &[EligibleChange]) -> Vec<i32> {
    let port = |host: &xds_health::host::Host| i32::from(host.address.port().unwrap());
    changes
        .iter()
        .map(|change| match change {
            EligibleChange::Enters(host) => port(host),
            EligibleChange::Leaves(host) => -port(host),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_host_enters_at_its_first_healthy_verdict_and_leaves_at_ejection() {
    let engine = engine(Options::default());
    let checker = Scripted::default();
    let refused = Step::After(Duration::ZERO, Outcome::network(Reason::Refused));
    checker.script(
        1,
        [Step::pass(), refused.clone(), refused.clone(), Step::pass()],
    );
    checker.script(2, [refused.clone(), Step::pass()]);
    let config = ClusterConfig::new("c", Discovery::Dynamic).with_health_check(check());
    let cluster = run(&engine, config, checker, &Events::default()).await;
    let mut changes = cluster.eligible_changes();
    cluster.reset(hosts([1, 2])).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(changes.next().await.unwrap());
    }
    // 1 at once; then in the same round 1 is ejected and 2 brought back, who leaves being told first.
    assert_eq!(ports(&seen), [1, -1, 2, 1]);
    cluster.remove([host(2).address.clone()]).await.unwrap();
    cluster.set_unhealthy(&host(2).address).await.unwrap();
    assert_eq!(ports(&[changes.next().await.unwrap()]), [-2]);
    engine.remove_cluster("c").await.unwrap();
    assert_eq!(ports(&[changes.next().await.unwrap()]), [-1]);
    assert_eq!(changes.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_lags_is_told_the_net_difference() {
    let engine = engine(Options::default().with_shards(3));
    let config = ClusterConfig::new("c", Discovery::Dynamic).with_health_check(check());
    let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
    cluster.reset(hosts(1..=300)).await.unwrap();
    let healthy = |count| {
        move |views: &[HostView]| {
            views
                .iter()
                .filter(|v| v.verdict() == Verdict::Healthy)
                .count()
                == count
        }
    };
    until(&cluster, healthy(300)).await;
    let mut changes = cluster.eligible_changes();
    for _ in 0..300 {
        assert!(matches!(
            changes.next().await,
            Some(EligibleChange::Enters(_))
        ));
    }
    // Out and in again while nobody reads, and one out for good.
    for port in 1..=100 {
        cluster.set_unhealthy(&host(port).address).await.unwrap();
    }
    until(&cluster, healthy(200)).await;
    until(&cluster, healthy(300)).await;
    cluster.set_unhealthy(&host(7).address).await.unwrap();
    until(&cluster, healthy(299)).await;
    assert_eq!(ports(&[changes.next().await.unwrap()]), [-7]);
    assert_eq!(ports(&[changes.next().await.unwrap()]), [7]);
}

#[cfg(feature = "tower")]
#[tokio::test(start_paused = true)]
async fn tower_discovers_the_hosts_that_pass() {
    use std::pin::pin;
    use tower::discover::{Change, Discover};

    let engine = engine(Options::default());
    let checker = Scripted::default();
    let refused = Step::After(Duration::ZERO, Outcome::network(Reason::Refused));
    checker.script(1, [Step::pass(), refused.clone()]);
    checker.script(2, [refused]);
    let cluster = cluster("c", check(), hosts([1, 2]));
    let cluster = run(&engine, cluster, checker, &Events::default()).await;
    let hosts = xds_health::tower::Hosts::new(&cluster, |_, address| address.port());
    let mut hosts = pin!(hosts);
    let mut next = async || std::future::poll_fn(|cx| hosts.as_mut().poll_discover(cx)).await;
    let first = host(1).address.socket_addr().unwrap();
    assert!(matches!(next().await, Some(Ok(Change::Insert(at, 1))) if at == first));
    assert!(matches!(next().await, Some(Ok(Change::Remove(at))) if at == first));
    drop(engine);
    assert!(next().await.is_none());
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn stats_reach_the_recorder_of_the_metrics_facade() {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};

    #[derive(Default)]
    struct Recorder(Arc<Mutex<BTreeMap<String, f64>>>);

    struct Cell(Arc<Mutex<BTreeMap<String, f64>>>, String);

    impl metrics::CounterFn for Cell {
        fn increment(&self, value: u64) {
            *self.0.lock().unwrap().entry(self.1.clone()).or_default() += value as f64;
        }
        fn absolute(&self, value: u64) {
            self.0.lock().unwrap().insert(self.1.clone(), value as f64);
        }
    }

    impl metrics::GaugeFn for Cell {
        fn increment(&self, value: f64) {
            *self.0.lock().unwrap().entry(self.1.clone()).or_default() += value;
        }
        fn decrement(&self, value: f64) {
            self.increment(-value);
        }
        fn set(&self, value: f64) {
            self.0.lock().unwrap().insert(self.1.clone(), value);
        }
    }

    impl metrics::HistogramFn for Cell {
        fn record(&self, _: f64) {
            *self.0.lock().unwrap().entry(self.1.clone()).or_default() += 1.0;
        }
    }

    impl Recorder {
        fn cell(&self, key: &Key) -> Arc<Cell> {
            let mut name = key.name().to_owned();
            for label in key.labels() {
                name.push_str(&format!(" {}={}", label.key(), label.value()));
            }
            Arc::new(Cell(Arc::clone(&self.0), name))
        }
    }

    impl metrics::Recorder for Recorder {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.cell(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.cell(key))
        }
        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(self.cell(key))
        }
    }

    let engine = engine(Options::default());
    let config = cluster("c", check(), hosts([1, 2]));
    let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
    cluster.initialized().await.unwrap();
    let recorder = Recorder::default();
    let mut facade = xds_health::metrics::Facade::default();
    let mut export =
        || metrics::with_local_recorder(&recorder, || engine.stats().export(&mut facade));
    export();
    // What was told before is not told again.
    export();
    let values = recorder.0.lock().unwrap();
    let value = |name: &str| values.get(name).copied();
    let of = "envoy_cluster_name=c";
    assert_eq!(
        value(&format!("xds_health_cluster_health_check_attempt {of}")),
        Some(2.0)
    );
    assert_eq!(
        value(&format!("xds_health_cluster_membership_healthy {of}")),
        Some(2.0)
    );
    assert_eq!(value("xds_health_round_trip_ms"), Some(2.0));
}

/// Takes events until it has had enough.
#[derive(Debug)]
struct Fragile(Events);

impl EventSink for Fragile {
    fn record(&self, event: &HealthCheckEvent) {
        self.0.record(event);
        panic!("as a sink should not");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_sink_ends_nothing() {
    let engine = engine(Options::default());
    let (first, second) = (Events::default(), Events::default());
    let sinks: Vec<Arc<dyn EventSink>> =
        vec![Arc::new(Fragile(first.clone())), Arc::new(second.clone())];
    let config = Arc::new(cluster("c", check(), hosts([1, 2])));
    let update = Update::new(config, vec![Arc::new(Scripted::default())], vec![sinks]);
    let cluster = engine.set_cluster(update, Origin::Static).await.unwrap();
    let snapshot = cluster.initialized().await.unwrap();
    assert_eq!(snapshot.eligible().count(), 2);
    assert_eq!((first.take().len(), second.take().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_it_ends_has_done_nothing() {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    // Without tokio's own bound of what a task does at once.
    use tokio::task::unconstrained;

    // No shard takes anything as long as nothing is awaited here.
    let engine = engine(Options::default().with_shards(2));
    let config = ClusterConfig::new("c", Discovery::Dynamic).with_health_check(check());
    let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
    let mut cx = Context::from_waker(Waker::noop());
    let mut told = 0;
    loop {
        let tell = pin!(unconstrained(cluster.upsert(hosts([1]))));
        match tell.poll(&mut cx) {
            Poll::Ready(done) => done.unwrap(),
            // The shards have no room, and this is dropped here.
            Poll::Pending => break,
        }
        told += 1;
        assert!(told < 1000);
    }
    let update = Registry::empty()
        .build(ClusterConfig::new("d", Discovery::Dynamic))
        .unwrap();
    assert!(
        pin!(unconstrained(engine.set_cluster(update, Origin::Static)))
            .poll(&mut cx)
            .is_pending()
    );
    assert!(
        pin!(unconstrained(engine.remove_cluster("c")))
            .poll(&mut cx)
            .is_pending()
    );
    assert!(
        pin!(unconstrained(cluster.reset(hosts([2]))))
            .poll(&mut cx)
            .is_pending()
    );
    // Questions have room of their own; these are answered to nobody.
    for _ in 0..100 {
        let address = &host(1).address;
        assert!(
            pin!(unconstrained(cluster.explain(address)))
                .poll(&mut cx)
                .is_pending()
        );
    }
    assert_eq!(cluster.try_note_traffic(), Ok(false));
    assert!(engine.cluster("c").is_some() && engine.cluster("d").is_none());

    cluster.initialized().await.unwrap();
    tokio::time::sleep(SECOND / 2).await;
    let ports: Vec<_> = cluster
        .snapshot()
        .hosts()
        .map(|v| v.host.address.port())
        .collect();
    assert_eq!(ports, [Some(1)]);
    assert_eq!(cluster.try_note_traffic(), Ok(true));
}

#[tokio::test(start_paused = true)]
async fn readers_and_followers_do_not_keep_the_engine() {
    let engine = engine(Options::default());
    let checker = Scripted::default();
    let config = cluster("c", check(), hosts([1]));
    let cluster = run(&engine, config, checker.clone(), &Events::default()).await;
    cluster.initialized().await.unwrap();
    let (mut reader, mut events) = (cluster.reader(), cluster.events());
    let mut eligible = cluster.eligible_changes();
    drop(engine);
    assert_eq!(events.next().await, Err(NoEvent::Ended));
    // What was known is still there to be read; first what it was, then that there will be no more.
    let address = host(1).address.socket_addr().unwrap();
    assert_eq!(reader.at(address).unwrap().verdict(), Verdict::Healthy);
    let before = checker.attempts(1);
    while eligible.next().await.is_some() {}
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(checker.attempts(1), before);
}

#[tokio::test(start_paused = true)]
async fn intervals_are_bounded_while_running() {
    use xds_health::config::IntervalLimits;

    let engine = engine(Options::default());
    let checker = Scripted::default();
    let config = cluster("c", check(), hosts([1]));
    let cluster = run(&engine, config, checker.clone(), &Events::default()).await;
    cluster.initialized().await.unwrap();
    let in_a_minute = async || {
        let before = checker.attempts(1);
        tokio::time::sleep(SECOND * 60).await;
        checker.attempts(1) - before
    };
    assert!((58..=60).contains(&in_a_minute().await));
    let limits = |min, max| engine.set_limits(IntervalLimits::new(min, max));
    limits(SECOND * 10, Duration::MAX).await.unwrap();
    assert!((5..=7).contains(&in_a_minute().await));
    limits(Duration::ZERO, SECOND / 2).await.unwrap();
    tokio::time::sleep(SECOND * 10).await;
    assert!((115..=120).contains(&in_a_minute().await));
}

#[tokio::test]
async fn the_same_seed_gives_the_same_schedule() {
    async fn schedule(seed: u64) -> Vec<Duration> {
        tokio::time::pause();
        let stats = Arc::new(Stats::default());
        let engine = Engine::start(Options::default().with_seed(seed), stats).unwrap();
        let checker = Scripted::default();
        let mut check = check();
        check.interval_jitter = SECOND;
        let start = tokio::time::Instant::now();
        let config = cluster("c", check, hosts([1, 2]));
        run(&engine, config, checker.clone(), &Events::default()).await;
        tokio::time::sleep(SECOND * 20).await;
        tokio::time::resume();
        checker.began(2).into_iter().map(|at| at - start).collect()
    }
    let (first, same, other) = (schedule(7).await, schedule(7).await, schedule(8).await);
    let close = |a: &[Duration], b: &[Duration]| {
        a.iter()
            .zip(b)
            .all(|(a, b)| a.abs_diff(*b) < Duration::from_millis(5))
    };
    assert!(close(&first, &same), "{first:?} {same:?}");
    assert!(!close(&first, &other), "{first:?} {other:?}");
}

#[tokio::test]
async fn a_cluster_can_be_put_together_without_any_text() {
    let peer = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = peer.local_addr().unwrap();
    tokio::spawn(async move {
        let mut ping = [0; 16];
        while let Ok((len, from)) = peer.recv_from(&mut ping).await {
            assert_eq!(&ping[..len], b"ping");
            peer.send_to(b"pong", from).await.unwrap();
        }
    });
    let checker = CheckerConfig::udp(b"ping", b"pong").unwrap();
    let check = HealthCheck::new(checker, SECOND * 5, SECOND, 3, 2);
    let config = ClusterConfig::new("games", Discovery::Dynamic).with_health_check(check);
    let update = Registry::default().build(config).unwrap();
    let engine = engine(Options::default());
    let cluster = engine.set_cluster(update, Origin::Dynamic).await.unwrap();
    let mut events = cluster.events();
    cluster
        .reset([xds_health::host::Host::new(address)])
        .await
        .unwrap();
    let event = events.next().await.unwrap();
    assert_eq!(event.kind, EventKind::AddHealthy { first_check: true });
    let snapshot = cluster.initialized().await.unwrap();
    assert!(snapshot.at(address).unwrap().eligible());
    assert!(CheckerConfig::udp(&[0; 65_508], b"").is_err());
    let text = "{name: games, health_checks: [{timeout: 1s}]}";
    let warnings = &mut Warnings::default();
    assert!(ClusterConfig::from_yaml(text, warnings).is_err());
    assert!(ClusterConfig::from_json(r#"{"name": "games"}"#, warnings).is_ok());
}

/// Of a message that no descriptors are given for, or those of another one.
struct Factory(Option<&'static [u8]>);

impl xds_health::checker::CheckerFactory for Factory {
    fn message_name(&self) -> &'static str {
        "my.Check"
    }

    fn create(&self, _: &[u8]) -> Result<Arc<dyn xds_health::checker::Checker>, ConfigError> {
        Ok(Arc::new(Scripted::default()))
    }

    fn descriptor_set(&self) -> Option<&[u8]> {
        self.0
    }
}

#[test]
fn a_checker_without_descriptors_says_what_is_missing_to_tell_it_as_text() {
    let text = "{name: games, health_checks: [{timeout: 1s, interval: 1s, unhealthy_threshold: 1, \
        healthy_threshold: 1, custom_health_check: {name: my, typed_config: \
        {'@type': type.googleapis.com/my.Check, to: 7}}}]}";
    let config = ClusterConfig::from_yaml(text, &mut Warnings::default()).unwrap();
    let at = "health_checks[0].custom_health_check.typed_config: ";
    for (set, fault) in [
        (
            None,
            "\"my.Check\" is registered without descriptors, so it cannot be told as text or in a TypedStruct: its \
             factory's descriptor_set() is to give them, or it is to be told as bytes",
        ),
        (
            Some(&b""[..]),
            "what descriptor_set() gives does not hold \"my.Check\"",
        ),
    ] {
        let registry = Registry::empty().with_checker(Factory(set));
        let error = registry.build(config.clone()).unwrap_err();
        assert_eq!(error.to_string(), format!("{at}{fault}"));
    }
}

#[test]
fn checks_that_were_put_together_by_hand_are_told_apart() {
    let check = |name: &str| {
        let checker = CheckerConfig::udp(b"ping", b"pong").unwrap();
        let mut check = HealthCheck::new(checker, SECOND, SECOND, 3, 2);
        check.name = name.into();
        check
    };
    let build = |names: &[&str]| {
        let mut config = ClusterConfig::new("games", Discovery::Dynamic);
        for name in names {
            config = config.with_health_check(check(name));
        }
        let error = Registry::default().build(config).err();
        let faults = error.iter().flat_map(|error| error.faults());
        faults.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(build(&[""]).is_empty() && build(&["a", "b"]).is_empty());
    assert_eq!(
        build(&["a", "", "a"]),
        [
            "health_checks[1].name: value is required where a cluster has several health checks",
            "health_checks[2].name: \"a\" is the name of health_checks[0] too",
        ]
    );
    let names: Vec<String> = (0..65).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(build(&names[..64]).is_empty());
    assert_eq!(
        build(&names),
        ["health_checks: 65 checks, but at most 64 are taken"]
    );
}

#[test]
fn durations_that_no_message_could_have_are_refused() {
    let checker = CheckerConfig::udp(b"ping", b"pong").unwrap();
    let mut check = HealthCheck::new(checker, Duration::ZERO, SECOND, 3, 2);
    assert_eq!(check.timeout, Duration::from_millis(1));
    check.timeout = Duration::ZERO;
    check.healthy_edge_interval = Duration::from_micros(999);
    let config = ClusterConfig::new("games", Discovery::Dynamic).with_health_check(check);
    let error = Registry::default().build(config).unwrap_err();
    let faults: Vec<_> = error.faults().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "health_checks[0].timeout: must be at least 1ms",
            "health_checks[0].healthy_edge_interval: must be at least 1ms",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_check_that_was_given_no_checker_fails_its_hosts() {
    let engine = engine(Options::default());
    let config = Arc::new(cluster("c", check(), hosts([1])));
    let update = Update::new(config, Vec::new(), Vec::new());
    let cluster = engine.set_cluster(update, Origin::Static).await.unwrap();
    let snapshot = cluster.initialized().await.unwrap();
    assert_eq!((snapshot.len(), snapshot.eligible().count()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_removed_host_that_passes_goes_at_once_only_if_so_configured() {
    let engine = engine(Options::default());
    for (name, ignore, left) in [("stays", false, 1), ("goes", true, 0)] {
        let config = ClusterConfig::new(name, Discovery::Dynamic)
            .with_health_check(check())
            .with_ignore_health_on_host_removal(ignore);
        let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
        cluster.reset(hosts([1])).await.unwrap();
        cluster.initialized().await.unwrap();
        cluster.remove([host(1).address.clone()]).await.unwrap();
        let snapshot = cluster.initialized().await.unwrap();
        assert_eq!(snapshot.eligible().count(), left, "{name}");
    }
}

/// Logs something in each attempt.
#[cfg(feature = "cli")]
#[derive(Clone, Debug)]
struct Logging;

#[cfg(feature = "cli")]
impl xds_health::checker::Checker for Logging {
    fn health_checker_type(&self) -> xds_health::event::HealthCheckerType {
        xds_health::event::HealthCheckerType::Udp
    }

    fn for_host(
        &self,
        _: xds_health::checker::Target<'_>,
    ) -> Box<dyn xds_health::checker::HostChecker> {
        Box::new(self.clone())
    }
}

#[cfg(feature = "cli")]
impl xds_health::checker::HostChecker for Logging {
    fn attempt<'a>(
        &'a mut self,
        _: &'a xds_health::checker::AttemptIo,
    ) -> xds_health::checker::Attempt<'a> {
        Box::pin(async {
            tokio::time::sleep(SECOND / 10).await;
            tracing::info!("asked");
            Outcome::SUCCESS
        })
    }
}

#[cfg(feature = "cli")]
#[tokio::test(start_paused = true)]
async fn what_a_checker_logs_is_within_its_attempt() {
    use std::io::Write;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let engine = engine(Options::default());
    let config = cluster("c", check(), hosts([7]));
    let cluster = run(&engine, config, Logging, &Events::default()).await;
    cluster.initialized().await.unwrap();
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    for expected in [
        r#"attempt{cluster="c" host=127.0.0.1:7}: embed: asked"#,
        r#"attempt{cluster="c" host=127.0.0.1:7}: xds_health::engine::shard::attempts: attempt ended outcome=Success"#,
        "host healthy",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

#[tokio::test]
async fn more_shards_than_there_can_be_are_an_error() {
    for shards in [1025, usize::MAX] {
        let options = || Options::default().with_shards(shards);
        for tried in [
            Engine::start(options(), Arc::default()),
            Engine::start_threads(options(), Arc::default()),
        ] {
            let error = tried.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        }
    }
}

#[test]
fn a_runtime_without_time_or_io_is_told_of_at_once() {
    use tokio::runtime::Builder;
    let runtimes = [
        Builder::new_current_thread().build(),
        Builder::new_current_thread().enable_time().build(),
        Builder::new_current_thread().enable_io().build(),
    ];
    for runtime in runtimes {
        let runtime = runtime.unwrap();
        let start = || runtime.block_on(async { engine(Options::default()) });
        let started = std::panic::catch_unwind(std::panic::AssertUnwindSafe(start));
        assert!(started.is_err());
    }
}

#[tokio::test]
async fn an_engine_is_broken_when_its_runtime_goes_and_not_when_it_was_stopped() {
    for stopped in [false, true] {
        let mut own = tokio::runtime::Builder::new_multi_thread();
        let own = own.worker_threads(1).enable_all().build().unwrap();
        let (engine, cluster) = own
            .spawn(async {
                let engine = engine(Options::default().with_shards(2));
                let config = cluster("c", check(), hosts([1, 2]));
                let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
                (engine, cluster)
            })
            .await
            .unwrap();
        let mut changes = cluster.changes();
        if stopped {
            engine.stop().await;
        }
        own.shutdown_background();
        while changes.changed().await.is_ok() {}
        assert!(cluster.ended() && engine.clusters().is_empty());
        assert_eq!(cluster.initialized().await.err(), Some(Ended));
        // Comes back at once, as its shards are gone.
        engine.stop().await;
        let broken = tokio::time::timeout(SECOND / 10, engine.broken()).await;
        assert_eq!(broken.is_ok(), !stopped);
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_hosts_at_one_address_the_first_counts() {
    let engine = engine(Options::default());
    let config = ClusterConfig::new("c", Discovery::Dynamic).with_health_check(check());
    let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
    let weighing = |weight| Arc::new(xds_health::host::Host::clone(&host(1)).with_weight(weight));
    let weights = async || {
        let snapshot = cluster.initialized().await.unwrap();
        let weights = snapshot.hosts().map(|view| view.host.weight);
        weights.collect::<Vec<_>>()
    };
    cluster.reset([2, 3].map(weighing)).await.unwrap();
    assert_eq!(weights().await, [2]);
    cluster.upsert([4, 5].map(weighing)).await.unwrap();
    assert_eq!(weights().await, [4]);
}
