//! What the engine does with attempts, on a paused clock and with scripted hosts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Events, SECOND, Scripted, Step, check, cluster, host, hosts, run, until};
use xds_health::engine::{Engine, Options};
use xds_health::event::{EventKind, FailureType, Outcome, Reason};
use xds_health::host::HealthFlags;
use xds_health::snapshot::Verdict;
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
    let session = &cluster.explain(&address).await.unwrap()[0];
    assert!(session.failed && !session.first_check);
    until(&cluster, healthy).await;
    assert_eq!(stat(&engine, "cluster.c.health_check.passive_failure"), 1);
    assert_eq!(stat(&engine, "cluster.c.health_check.failure"), 0);
}

fn is_healthy(view: &xds_health::snapshot::HostView) -> bool {
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
