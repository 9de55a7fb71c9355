//! What the engine does with attempts, on a paused clock and with scripted hosts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use common::{
    Events, SECOND, Scripted, Step, check, cluster, host, hosts, run, run_as, until,
    until_initialized,
};
use xds_health::checker::{Attempt, AttemptIo, Checker, HostChecker, Target};
use xds_health::config::{ClusterConfig, Discovery};
use xds_health::engine::{Ended, Engine, Options, Origin};
use xds_health::event::{EventKind, FailureType, HealthCheckerType, Outcome, Reason};
use xds_health::feed::EventSink;
use xds_health::host::{HealthFlags, Host};
use xds_health::registry::{Change, Update};
use xds_health::snapshot::{HostView, Verdict};
use xds_health::stats::{Stats, Value};

fn engine(options: Options) -> Engine {
    Engine::start(options.with_seed(1), Arc::new(Stats::default())).unwrap()
}

fn stat(engine: &Engine, name: &str) -> u64 {
    let samples = engine.stats().samples();
    let sample = samples.iter().find(|sample| sample.name == name);
    match sample.map(|sample| &sample.value) {
        Some(Value::Counter(value) | Value::Gauge(value)) => *value,
        other => panic!("{name}: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_passing_and_a_silent_host_get_their_verdicts() {
    let engine = engine(Options::default());
    let (checker, events) = (Scripted::default(), Events::default());
    checker.script(2, [Step::Silent]);
    let cluster = run(
        &engine,
        cluster("c", check(), hosts([1, 2])),
        checker,
        &events,
    )
    .await;
    let views = until(&cluster, |views| {
        views.len() == 2 && views.iter().all(|v| v.verdict() != Verdict::Unknown)
    })
    .await;
    assert_eq!(views[0].flags, HealthFlags::NONE);
    assert_eq!(
        views[1].flags.to_string(),
        "/failed_active_hc/active_hc_timeout"
    );
    assert_eq!(views[1].reason.as_deref(), Some(&Reason::Silent));
    assert!(cluster.snapshot().initialized());
    let kinds: Vec<_> = events.take().into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds[0], EventKind::AddHealthy { first_check: true });
    assert_eq!(
        kinds[1],
        EventKind::Failure {
            failure_type: FailureType::NetworkTimeout,
            first_check: true,
            http_status_code: 0
        }
    );
}

#[tokio::test(start_paused = true)]
async fn attempts_follow_one_another_by_completion_and_interval() {
    let engine = engine(Options::default());
    let checker = Scripted::default();
    let slow = Step::After(Duration::from_millis(400), Outcome::SUCCESS);
    checker.script(1, [slow]);
    let config = cluster("c", check(), hosts([1]));
    let cluster = run(&engine, config, checker.clone(), &Events::default()).await;
    until(&cluster, |views| {
        views.iter().any(|v| v.verdict() == Verdict::Healthy)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(14_000 - 400)).await;
    // One attempt every 1.4 s, and a millisecond or two of the clock's grain each.
    assert_eq!(checker.attempts(1), 10);
}

#[tokio::test(start_paused = true)]
async fn no_more_attempts_run_than_may_and_all_get_their_turn() {
    let engine = engine(Options::default().with_max_in_flight(3));
    let checker = Scripted::default();
    for port in 1..=20 {
        checker.script(port, [Step::After(SECOND / 10, Outcome::SUCCESS)]);
    }
    let config = cluster("c", check(), hosts(1..=20));
    let cluster = run(&engine, config, checker.clone(), &Events::default()).await;
    until(&cluster, |views| {
        views.len() == 20 && views.iter().all(|v| v.verdict() == Verdict::Healthy)
    })
    .await;
    assert_eq!(checker.most_running(), 3);
    assert_eq!(stat(&engine, "xds_health.attempts_in_flight_limit"), 3);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_turn_is_not_part_of_the_timeout() {
    let engine = engine(Options::default().with_max_in_flight(1));
    let checker = Scripted::default();
    let almost = Step::After(SECOND * 9 / 10, Outcome::SUCCESS);
    for port in 1..=5 {
        checker.script(port, [almost.clone()]);
    }
    let config = cluster("c", check(), hosts(1..=5));
    let cluster = run(&engine, config, checker, &Events::default()).await;
    until(&cluster, |views| {
        views.len() == 5 && views.iter().all(|v| v.verdict() == Verdict::Healthy)
    })
    .await;
    assert_eq!(stat(&engine, "cluster.c.health_check.failure"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_local_error_of_its_attempt_and_nothing_else() {
    let engine = engine(Options::default());
    let checker = Scripted::default();
    checker.script(1, [Step::Panic]);
    let config = cluster("c", check(), hosts([1, 2]));
    let cluster = run(&engine, config, checker, &Events::default()).await;
    let views = until(&cluster, |views| {
        views.len() == 2 && views.iter().all(|v| v.verdict() != Verdict::Unknown)
    })
    .await;
    assert_eq!(views[0].reason.as_deref(), Some(&Reason::Panicked));
    assert_eq!(views[1].verdict(), Verdict::Healthy);
    assert_eq!(stat(&engine, "cluster.c.health_check.failure"), 1);
    assert_eq!(stat(&engine, "xds_health.attempts_in_flight"), 0);
}

/// Panics when it is dropped.
#[derive(Debug)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("as nothing should when it is dropped");
    }
}

/// Panics wherever it can.
#[derive(Debug)]
struct Fragile(Bomb);

impl Checker for Fragile {
    fn health_checker_type(&self) -> HealthCheckerType {
        panic!("as a checker should not");
    }

    fn keeps_connections(&self) -> bool {
        true
    }

    fn for_host(&self, target: Target<'_>) -> Box<dyn HostChecker> {
        let port = target
            .host
            .checked_at()
            .socket_addr()
            .map_or(0, |a| a.port());
        // One that panics while it is dropped by a panic ends the process: Rust's rule.
        Box::new(FragileHost((port != 1).then_some(Bomb)))
    }
}

#[derive(Debug)]
struct FragileHost(Option<Bomb>);

impl HostChecker for FragileHost {
    fn attempt<'a>(&'a mut self, _: &'a AttemptIo) -> Attempt<'a> {
        Box::pin(async {
            if self.0.is_none() {
                std::panic::panic_any(Bomb);
            }
            Outcome::SUCCESS
        })
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_of_a_checker_panics_ends_nothing() {
    let engine = engine(Options::default());
    let other = cluster("other", check(), hosts([3]));
    let other = run(&engine, other, Scripted::default(), &Events::default()).await;
    let config = cluster("c", check(), hosts([1, 2]));
    let checker: Arc<dyn Checker> = Arc::new(Fragile(Bomb));
    let update = Update::new(Arc::new(config), vec![checker], vec![vec![]]);
    let fragile = engine.set_cluster(update, Origin::Static).await.unwrap();
    let snapshot = fragile.initialized().await.unwrap();
    assert_eq!(snapshot.eligible().count(), 1);
    // What it kept goes with its host, the checker with its cluster.
    engine.remove_cluster("c").await.unwrap();
    assert_eq!(other.initialized().await.unwrap().eligible().count(), 1);
    other.upsert(hosts([4])).await.unwrap();
    assert_eq!(other.initialized().await.unwrap().eligible().count(), 2);
    assert!(fragile.ended() && !other.ended());
}

#[tokio::test(start_paused = true)]
async fn removing_a_cluster_cancels_its_attempts_and_leaves_nothing() {
    let engine = engine(Options::default());
    let checker = Scripted::default();
    checker.script(1, [Step::Silent]);
    let config = cluster("c", check(), hosts([1]));
    let events = Events::default();
    let gone = run(&engine, config, checker.clone(), &events).await;
    while checker.running() == 0 {
        tokio::task::yield_now().await;
    }
    engine.remove_cluster("c").await.unwrap();
    while checker.running() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(engine.cluster("c").is_none());
    assert!(
        engine
            .stats()
            .samples()
            .iter()
            .all(|s| !s.name.starts_with("cluster.c."))
    );
    assert_eq!(stat(&engine, "xds_health.attempts_in_flight"), 0);
    assert_eq!(stat(&engine, "cluster_manager.active_clusters"), 0);
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!((checker.attempts(1), events.take().len()), (1, 0));
    drop(gone);
}

#[tokio::test(start_paused = true)]
async fn counts_add_up_at_any_time() {
    let engine = engine(Options::default());
    let checker = Scripted::default();
    checker.script(1, [Step::Silent]);
    checker.script(
        2,
        [Step::After(SECOND / 3, Outcome::network(Reason::Refused))],
    );
    let config = cluster("c", check(), hosts([1, 2, 3]));
    run(&engine, config, checker, &Events::default()).await;
    for _ in 0..200 {
        tokio::time::sleep(SECOND / 7).await;
        let of = |name: &str| stat(&engine, &format!("cluster.c.health_check.{name}"));
        let running = stat(&engine, "xds_health.attempts_in_flight");
        assert_eq!(of("attempt"), of("success") + of("failure") + running);
        assert_eq!(of("network_failure"), of("failure"));
    }
    assert!(stat(&engine, "cluster.c.health_check.failure") > 20);
}

#[tokio::test(start_paused = true)]
async fn hosts_are_spread_over_shards_and_seen_as_one_cluster() {
    let engine = engine(Options::default().with_shards(4));
    let config = cluster("c", check(), hosts(1..=100));
    let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
    let views = until(&cluster, |views| {
        views.len() == 100 && views.iter().all(|v| v.verdict() == Verdict::Healthy)
    })
    .await;
    let mut ports: Vec<u16> = views
        .iter()
        .map(|view| view.host.address.socket_addr().unwrap().port())
        .collect();
    ports.sort_unstable();
    assert_eq!(ports, (1..=100).collect::<Vec<u16>>());
    assert_eq!(stat(&engine, "cluster.c.membership_healthy"), 100);
    assert_eq!(stat(&engine, "cluster_manager.warming_clusters"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_comes_while_running_is_active_once_it_is_warm() {
    let engine = engine(Options::default().with_shards(2));
    let counts = || {
        let of = |name: &str| stat(&engine, &format!("cluster_manager.{name}_clusters"));
        (of("active"), of("warming"))
    };
    let checker = Scripted::default();
    checker.script(1, [Step::Silent]);
    let config = |name: &str| cluster(name, check(), hosts([1, 2]));
    let events = Events::default();
    run(&engine, config("there"), checker.clone(), &events).await;
    assert_eq!(counts(), (1, 0));
    let comes = || {
        run_as(
            &engine,
            config("comes"),
            checker.clone(),
            &events,
            Origin::Dynamic,
        )
    };
    let came = comes().await;
    assert_eq!(counts(), (1, 1));
    until_initialized(&came).await;
    assert_eq!(counts(), (2, 0));
    engine.remove_cluster("comes").await.unwrap();
    assert_eq!(counts(), (1, 0));
    // One that goes before it is warm was never active.
    comes().await;
    engine.remove_cluster("comes").await.unwrap();
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(counts(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_host_set_unhealthy_from_outside_comes_back_by_its_checks() {
    let engine = engine(Options::default());
    let config = cluster("c", check(), hosts([1]));
    let events = Events::default();
    let cluster = run(&engine, config, Scripted::default(), &events).await;
    let healthy = |views: &[_]| views.len() == 1 && is_healthy(&views[0]);
    until(&cluster, healthy).await;
    let address = host(1).address.clone();
    cluster.set_unhealthy(&address).await.unwrap();
    let views = until(&cluster, |views| !healthy(views)).await;
    assert_eq!(views[0].reason.as_deref(), Some(&Reason::Passive));
    let session = &cluster.explain(&address).await.unwrap()[0].sessions[0];
    assert!(session.failed && !session.first_check);
    until(&cluster, healthy).await;
    assert_eq!(stat(&engine, "cluster.c.health_check.passive_failure"), 1);
    assert_eq!(stat(&engine, "cluster.c.health_check.failure"), 0);
}

fn is_healthy(view: &HostView) -> bool {
    view.verdict() == Verdict::Healthy
}

#[tokio::test(start_paused = true)]
async fn dropping_the_engine_ends_its_attempts() {
    let engine = engine(Options::default());
    let checker = Scripted::default();
    checker.script(1, [Step::Silent]);
    let config = cluster("c", check(), hosts([1]));
    let cluster = run(&engine, config, checker.clone(), &Events::default()).await;
    while checker.running() == 0 {
        tokio::task::yield_now().await;
    }
    drop(engine);
    while checker.running() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(cluster.note_traffic().await.is_err());
}

/// A checker that keeps its hosts' checkers. It notes which of them made each attempt, and at which port.
#[derive(Clone, Debug, Default)]
struct Keeping {
    made: Arc<AtomicUsize>,
    attempts: Arc<Mutex<Vec<(usize, u16)>>>,
}

impl Checker for Keeping {
    fn health_checker_type(&self) -> HealthCheckerType {
        HealthCheckerType::Udp
    }

    fn for_host(&self, target: Target<'_>) -> Box<dyn HostChecker> {
        let port = target.host.checked_at().socket_addr().unwrap().port();
        let number = self.made.fetch_add(1, SeqCst);
        Box::new(Kept(self.clone(), number, port))
    }

    fn keeps_connections(&self) -> bool {
        true
    }
}

struct Kept(Keeping, usize, u16);

impl HostChecker for Kept {
    fn attempt<'a>(&'a mut self, _: &'a AttemptIo) -> Attempt<'a> {
        self.0.attempts.lock().unwrap().push((self.1, self.2));
        Box::pin(std::future::ready(Outcome::SUCCESS))
    }
}

#[tokio::test(start_paused = true)]
async fn a_checker_that_keeps_connections_gets_its_host_back_until_that_moves() {
    let engine = engine(Options::default());
    let checker = Keeping::default();
    let take = || std::mem::take(&mut *checker.attempts.lock().unwrap());
    let config = cluster("c", check(), hosts([1]));
    run(&engine, config, checker.clone(), &Events::default()).await;
    tokio::time::sleep(SECOND * 7 / 2).await;
    assert_eq!(take(), [(0, 1); 4]);

    let moved = Host::clone(&host(1)).with_check_address(host(2).address.socket_addr().unwrap());
    let config = cluster("c", check(), vec![Arc::new(moved)]);
    run(&engine, config, checker.clone(), &Events::default()).await;
    tokio::time::sleep(SECOND * 7 / 2).await;
    assert_eq!(take(), [(1, 2); 4]);
    assert_eq!(checker.made.load(SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn what_another_checker_has_kept_is_not_used() {
    let engine = engine(Options::default());
    let checkers = [(); 2].map(|()| Keeping::default());
    let attempts = |checker: &Keeping| std::mem::take(&mut *checker.attempts.lock().unwrap()).len();
    for checker in &checkers {
        let config = cluster("c", check(), hosts([1]));
        run(&engine, config, checker.clone(), &Events::default()).await;
        // Between two attempts.
        tokio::time::sleep(SECOND * 7 / 2).await;
    }
    let told = checkers.each_ref().map(attempts);
    assert!(told == [4, 3] || told == [4, 4], "{told:?}");
    assert_eq!(checkers[1].made.load(SeqCst), 1);
}

/// Attempts that wake themselves each time they are polled, until they were polled very often.
#[derive(Clone, Debug, Default)]
struct Restless(Arc<AtomicUsize>);

impl Restless {
    const POLLS: usize = 1_000_000;
}

impl Checker for Restless {
    fn health_checker_type(&self) -> HealthCheckerType {
        HealthCheckerType::Udp
    }

    fn for_host(&self, _: Target<'_>) -> Box<dyn HostChecker> {
        Box::new(self.clone())
    }
}

impl HostChecker for Restless {
    fn attempt<'a>(&'a mut self, _: &'a AttemptIo) -> Attempt<'a> {
        Box::pin(std::future::poll_fn(|cx| {
            if self.0.fetch_add(1, SeqCst) >= Self::POLLS {
                return Poll::Ready(Outcome::SUCCESS);
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_that_wake_themselves_leave_the_runtime_to_others() {
    let engine = engine(Options::default());
    let checker = Restless::default();
    let polls = || checker.0.load(SeqCst);
    let config = cluster("c", check(), hosts([1]));
    let _cluster = run(&engine, config, checker.clone(), &Events::default()).await;
    while polls() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(polls() < Restless::POLLS, "nobody else had a turn");
}

/// Attempts that await what takes of the runtime's budget: so often, then until a while after they began.
#[derive(Clone, Debug)]
struct Awaiting {
    steps: usize,
    until: Duration,
    polls: Arc<AtomicUsize>,
}

impl Checker for Awaiting {
    fn health_checker_type(&self) -> HealthCheckerType {
        HealthCheckerType::Udp
    }

    fn for_host(&self, _: Target<'_>) -> Box<dyn HostChecker> {
        Box::new(self.clone())
    }
}

impl HostChecker for Awaiting {
    fn attempt<'a>(&'a mut self, _: &'a AttemptIo) -> Attempt<'a> {
        let polls = Arc::clone(&self.polls);
        let (steps, until) = (self.steps, tokio::time::Instant::now() + self.until);
        let mut work = Box::pin(async move {
            for _ in 0..steps {
                tokio::task::consume_budget().await;
            }
            tokio::time::sleep_until(until).await;
            Outcome::SUCCESS
        });
        Box::pin(std::future::poll_fn(move |cx| {
            polls.fetch_add(1, SeqCst);
            work.as_mut().poll(cx)
        }))
    }
}

async fn all_pass(checker: Awaiting, count: u16) {
    let engine = engine(Options::default());
    let config = cluster("c", check(), hosts(1..=count));
    let cluster = run(&engine, config, checker, &Events::default()).await;
    let of = |views: &[HostView], verdict| {
        let all = views.iter();
        all.filter(|view| view.verdict() == verdict).count()
    };
    let views = until(&cluster, |views| {
        views.len() == usize::from(count) && of(views, Verdict::Unknown) == 0
    })
    .await;
    assert_eq!(of(&views, Verdict::Unhealthy), 0);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_not_polled_in_vain_for_want_of_the_runtimes_budget() {
    let polls = Arc::new(AtomicUsize::new(0));
    let checker = Awaiting {
        steps: 20,
        until: Duration::ZERO,
        polls: Arc::clone(&polls),
    };
    all_pass(checker, 500).await;
    // Each once, and once more those that were at it when a turn's budget ended.
    let polls = polls.load(SeqCst);
    assert!(polls < 1500, "{polls} polls");
}

#[tokio::test(start_paused = true)]
async fn the_last_poll_of_an_attempt_has_something_left_of_the_runtimes_budget() {
    let checker = Awaiting {
        steps: 0,
        until: check().timeout,
        polls: Arc::default(),
    };
    all_pass(checker, 500).await;
}

#[tokio::test(start_paused = true)]
async fn each_sink_gets_all_events_in_their_order() {
    let engine = engine(Options::default());
    let checker = Scripted::default();
    let refused = || Step::After(Duration::ZERO, Outcome::network(Reason::Refused));
    let steps = [Step::pass(), refused(), refused(), refused(), Step::pass()];
    checker.script(1, steps);
    let mut check = check();
    check.always_log_failures = true;
    let config = cluster("c", check, hosts([1]));
    let sinks = [Events::default(), Events::default()];
    let boxed = sinks
        .clone()
        .map(|sink| Arc::new(sink) as Arc<dyn EventSink>);
    let update = Update::new(
        Arc::new(config),
        vec![Arc::new(checker)],
        vec![boxed.to_vec()],
    );
    engine.set_cluster(update, Origin::Static).await.unwrap();
    tokio::time::sleep(SECOND * 15 / 2).await;
    let failure = EventKind::Failure {
        failure_type: FailureType::Network,
        first_check: false,
        http_status_code: 0,
    };
    let eject = EventKind::EjectUnhealthy {
        failure_type: FailureType::Network,
        http_status_code: 0,
    };
    let kinds = [
        EventKind::AddHealthy { first_check: true },
        failure,
        eject,
        failure,
        failure,
        EventKind::AddHealthy { first_check: false },
    ];
    for sink in sinks {
        let events = sink.take();
        assert!(events.is_sorted_by_key(|event| event.timestamp));
        let told: Vec<_> = events.into_iter().map(|event| event.kind).collect();
        assert_eq!(told, kinds);
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_check_keeps_verdicts_until_its_first_completion() {
    let engine = engine(Options::default());
    let checker = Scripted::default();
    checker.script(
        2,
        [Step::After(
            Duration::ZERO,
            Outcome::network(Reason::Refused),
        )],
    );
    let config = cluster("c", check(), hosts([1, 2]));
    let events = Events::default();
    let before = run(&engine, config, checker, &events).await;
    let known = |views: &[HostView]| {
        views.len() == 2 && views.iter().all(|view| view.verdict() != Verdict::Unknown)
    };
    let verdicts = |views: Vec<HostView>| views.iter().map(HostView::verdict).collect::<Vec<_>>();
    let were = verdicts(until(&before, known).await);
    assert_eq!(were, [Verdict::Healthy, Verdict::Unhealthy]);
    events.take();

    // Now it is the other host that passes, after half a second.
    let changed = Scripted::default();
    let half = SECOND / 2;
    changed.script(1, [Step::After(half, Outcome::network(Reason::Refused))]);
    changed.script(2, [Step::After(half, Outcome::SUCCESS)]);
    let mut check = check();
    check.interval = SECOND * 2;
    let config = cluster("c", check, hosts([1, 2]));
    let after = run(&engine, config, changed.clone(), &events).await;
    while changed.attempts(1) + changed.attempts(2) < 2 {
        tokio::time::sleep(SECOND / 100).await;
    }
    tokio::time::sleep(SECOND / 5).await;
    let views = || after.snapshot().hosts().cloned().collect();
    assert_eq!(verdicts(views()), were);
    assert!(events.take().is_empty());
    tokio::time::sleep(half).await;
    assert_eq!(verdicts(views()), [Verdict::Unhealthy, Verdict::Healthy]);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_hosts_that_come_change_and_go_hold_up_no_other_cluster() {
    const MANY: usize = 10_000;
    let engine = engine(Options::default().with_shards(2));
    let checker = Scripted::default();
    let steady = cluster("steady", check(), hosts([1]));
    run(&engine, steady, checker.clone(), &Events::default()).await;

    let many = || hosts((0..MANY).map(|i| u16::try_from(10_000 + i).unwrap()));
    let big = ClusterConfig::new("big", Discovery::Dynamic).with_health_check(check());
    let big = run(&engine, big, checker.clone(), &Events::default()).await;
    let tell = |hosts: Vec<Arc<Host>>| {
        let cluster = Arc::clone(big.name());
        let hosts = hosts.into();
        engine.apply(Change::Hosts { cluster, hosts })
    };
    for round in 1..4 {
        tell(many()).await.unwrap();
        let healthy = |views: &[HostView]| views.len() == MANY && views.iter().all(is_healthy);
        until(&big, healthy).await;
        tokio::time::sleep(SECOND * 2).await;
        let changed = many().into_iter().map(|host| {
            let weight = round + 1;
            Arc::new(Host::clone(&host).with_weight(weight))
        });
        tell(changed.collect()).await.unwrap();
        let heavier = |views: &[HostView]| views.iter().all(|v| v.host.weight == round + 1);
        until(&big, heavier).await;
        assert_eq!(stat(&engine, "cluster.big.membership_total"), 10_000);
        // Healthy hosts that are told no longer stay until they fail; these are told unhealthy first.
        let unhealthy = many().into_iter().map(|host| {
            let host = Host::clone(&host);
            Arc::new(host.with_eds_health(xds_health::host::EdsHealth::Unhealthy))
        });
        tell(unhealthy.collect()).await.unwrap();
        until(&big, |views| views.iter().all(|host| !is_healthy(host))).await;
        tell(Vec::new()).await.unwrap();
        until(&big, <[HostView]>::is_empty).await;
        tokio::time::sleep(SECOND).await;
    }
    engine.remove_cluster("big").await.unwrap();
    tokio::time::sleep(SECOND * 3).await;

    let began = checker.began(1);
    assert!(began.len() >= 12);
    for pair in began.windows(2) {
        let gap = pair[1] - pair[0];
        assert!((SECOND..SECOND + SECOND / 100).contains(&gap), "{gap:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn engines_of_one_process_do_not_know_each_other() {
    let engines = [1, 2, 3].map(|shards| engine(Options::default().with_shards(shards)));
    let checkers = [(); 3].map(|()| Scripted::default());
    let refused = Step::After(Duration::ZERO, Outcome::network(Reason::Refused));
    checkers[1].script(1, [refused]);
    let mut clusters = Vec::new();
    for (engine, checker) in engines.iter().zip(&checkers) {
        let config = cluster("c", check(), hosts([1]));
        clusters.push(run(engine, config, checker.clone(), &Events::default()).await);
    }
    let known = |views: &[HostView]| views.len() == 1 && views[0].verdict() != Verdict::Unknown;
    let mut verdicts = Vec::new();
    for cluster in &clusters {
        verdicts.push(until(cluster, known).await[0].verdict());
    }
    let (healthy, unhealthy) = (Verdict::Healthy, Verdict::Unhealthy);
    assert_eq!(verdicts, [healthy, unhealthy, healthy]);
    let failures = engines
        .each_ref()
        .map(|e| stat(e, "cluster.c.health_check.failure"));
    assert_eq!(failures, [0, 1, 0]);

    let [first, second, third] = engines;
    first.stop().await;
    second.remove_cluster("c").await.unwrap();
    let before = checkers.each_ref().map(|checker| checker.attempts(1));
    tokio::time::sleep(SECOND * 5).await;
    let after = checkers.each_ref().map(|checker| checker.attempts(1));
    assert_eq!(after[..2], before[..2]);
    assert!(after[2] >= before[2] + 4);
    drop(third);
}

#[tokio::test]
async fn a_stopped_engine_has_let_go_of_sinks_and_takes_nothing_more() {
    for threads in [false, true] {
        let options = Options::default().with_shards(3).with_seed(1);
        let stats = Arc::new(Stats::default());
        let engine = match threads {
            true => Engine::start_threads(options, stats).unwrap(),
            false => Engine::start(options, stats).unwrap(),
        };
        let other = engine.clone();
        let events = Arc::new(Events::default());
        let checker = Scripted::default();
        checker.script(1, [Step::Silent]);
        let sinks = vec![vec![Arc::clone(&events) as Arc<dyn EventSink>]];
        let config = Arc::new(cluster("c", check(), hosts(1..=30)));
        let update = Update::new(config, vec![Arc::new(checker.clone())], sinks);
        let cluster = engine.set_cluster(update, Origin::Static).await.unwrap();
        engine.stop().await;
        assert_eq!(Arc::strong_count(&events), 1);
        assert_eq!(
            (
                checker.running(),
                stat(&other, "xds_health.attempts_in_flight")
            ),
            (0, 0)
        );
        assert_eq!(cluster.note_traffic().await, Err(Ended));
        assert_eq!(other.remove_cluster("c").await, Err(Ended));
        // Once more does nothing.
        other.stop().await;
    }
}

#[tokio::test]
async fn readers_on_other_threads_see_whole_snapshots_while_hosts_change() {
    let options = Options::default().with_shards(3).with_seed(1);
    let engine = Engine::start_threads(options, Arc::new(Stats::default())).unwrap();
    let config = ClusterConfig::new("c", Discovery::Dynamic).with_health_check(check());
    let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let cluster = cluster.clone();
            std::thread::spawn(move || {
                for _ in 0..1000 {
                    let snapshot = cluster.snapshot();
                    let mut addresses = HashSet::new();
                    for view in snapshot.hosts() {
                        assert!(
                            addresses.insert(view.host.address.clone()),
                            "each host once"
                        );
                        assert_eq!(view.verdict() != Verdict::Healthy, view.failed());
                    }
                    assert_eq!(addresses.len(), snapshot.len());
                    assert!(addresses.len() <= 300);
                }
            })
        })
        .collect();
    let mut round = 0;
    while round < 100 || readers.iter().any(|reader| !reader.is_finished()) {
        let (from, weight) = (u16::try_from(round % 3).unwrap() * 100, 1 + round % 2);
        let hosts = hosts(1 + from..=100 + from).into_iter();
        let hosts = hosts.map(|host| Arc::new(Host::clone(&host).with_weight(weight)));
        let change = Change::Hosts {
            cluster: Arc::clone(cluster.name()),
            hosts: hosts.collect(),
        };
        engine.apply(change).await.unwrap();
        round += 1;
    }
    for reader in readers {
        reader.join().unwrap();
    }
    engine.stop().await;
}
