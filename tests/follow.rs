//! How an embedder follows a cluster: its events, why a host is as it is, and what the last attempts came to.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Events, SECOND, Scripted, Step, check, cluster, host, hosts, run, until};
use xds_health::cluster::Last;
use xds_health::config::{ClusterConfig, Discovery};
use xds_health::engine::{Cluster, EligibleChange, Ended, Engine, Options, PastOutcome, Snapshot};
use xds_health::event::{EventKind, FailureType, Mismatch, Outcome, Reason, Transition};
use xds_health::feed::NoEvent;
use xds_health::host::{HealthFlags, Host};
use xds_health::session::{IntervalKind, State};
use xds_health::snapshot::{BalanceRules, Verdict};
use xds_health::stats::Stats;

fn engine(options: Options) -> Engine {
    Engine::start(options.with_seed(1), Arc::new(Stats::default())).unwrap()
}

async fn until_verdict(cluster: &Cluster, verdict: Verdict) {
    until(cluster, |views| {
        !views.is_empty() && views.iter().all(|view| view.verdict() == verdict)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn events_tell_what_changed_and_why() {
    let engine = engine(Options::default());
    let checker = Scripted::default();
    let heard = Reason::Mismatch(Arc::new(Mismatch::note(None, b"pong", b"poxg")));
    let wrong = Step::After(Duration::ZERO, Outcome::network(heard.clone()));
    checker.script(1, [Step::pass(), wrong.clone(), wrong, Step::pass()]);
    let config = ClusterConfig::new("c", Discovery::Dynamic).with_health_check(check());
    let cluster = run(&engine, config, checker, &Events::default()).await;
    let (mut here, mut all) = (cluster.events(), engine.events());
    cluster.reset(hosts([1])).await.unwrap();

    let failed = HealthFlags::FAILED_ACTIVE_HC;
    for (kind, before, after, reason) in [
        (
            EventKind::AddHealthy { first_check: true },
            failed,
            HealthFlags::NONE,
            None,
        ),
        (
            EventKind::EjectUnhealthy {
                failure_type: FailureType::Network,
                http_status_code: 0,
            },
            HealthFlags::NONE,
            failed,
            Some(heard),
        ),
        (
            EventKind::AddHealthy { first_check: false },
            failed,
            HealthFlags::NONE,
            None,
        ),
    ] {
        let event = here.next().await.unwrap();
        assert_eq!(event.kind, kind);
        assert_eq!(event.transition, Transition::Changed);
        assert_eq!((event.before, event.after), (before, after));
        assert_eq!(event.reason, reason);
        assert_eq!((&*event.cluster, &event.host), ("c", &host(1)));
        assert_eq!(all.next().await.unwrap(), event);
    }
    assert_eq!(here.try_next(), Ok(None));

    let mut changes = cluster.changes();
    changes.mark_unchanged();
    engine.remove_cluster("c").await.unwrap();
    assert_eq!(here.next().await, Err(NoEvent::Ended));
    assert!(changes.changed().await.is_err());
    assert_eq!(cluster.reset(hosts([1])).await, Err(Ended));
    assert_eq!(cluster.explain(&host(1).address).await, Err(Ended));
    assert_eq!(all.try_next(), Ok(None), "the engine goes on");
    drop(engine);
    assert_eq!(all.next().await, Err(NoEvent::Ended));
    assert_eq!(cluster.events().next().await, Err(NoEvent::Ended));
    assert!(cluster.changes().changed().await.is_err());
}

fn verdicts(snapshot: &Snapshot) -> Vec<(u16, Verdict)> {
    let views = snapshot.hosts();
    let mut all: Vec<_> = views
        .map(|view| (view.host.address.port().unwrap(), view.verdict()))
        .collect();
    all.sort_by_key(|(port, _)| *port);
    all
}

#[tokio::test(start_paused = true)]
async fn initialized_waits_for_what_was_told_before_it_each_time() {
    for shards in [1, 3] {
        let engine = engine(Options::default().with_shards(shards));
        let checker = Scripted::default();
        for port in 1..=6 {
            checker.script(port, [Step::After(SECOND / 2, Outcome::SUCCESS)]);
        }
        let config = ClusterConfig::new("c", Discovery::Dynamic).with_health_check(check());
        let cluster = run(&engine, config, checker, &Events::default()).await;
        let healthy = |ports: &[u16]| -> Vec<_> {
            ports.iter().map(|port| (*port, Verdict::Healthy)).collect()
        };
        cluster.reset(hosts([1, 2])).await.unwrap();
        let snapshot = cluster.initialized().await.unwrap();
        assert_eq!(verdicts(&snapshot), healthy(&[1, 2]));
        cluster.upsert(hosts([3])).await.unwrap();
        let snapshot = cluster.initialized().await.unwrap();
        assert_eq!(verdicts(&snapshot), healthy(&[1, 2, 3]));
        cluster.upsert(hosts([4])).await.unwrap();
        cluster.upsert(hosts([5, 6])).await.unwrap();
        let snapshot = cluster.initialized().await.unwrap();
        assert_eq!(verdicts(&snapshot), healthy(&[1, 2, 3, 4, 5, 6]));
        assert_eq!(snapshot.unchecked(), 0);
        // One that goes before it was checked is not waited for.
        cluster.upsert(hosts([7])).await.unwrap();
        cluster.remove([host(7).address.clone()]).await.unwrap();
        assert_eq!(cluster.initialized().await.unwrap().len(), 6);
    }
}

#[tokio::test(start_paused = true)]
async fn initialized_shows_a_reset_that_is_done_in_steps() {
    let engine = engine(Options::default().with_shards(2));
    let config = ClusterConfig::new("c", Discovery::Dynamic);
    let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
    for first in [1, 20_001] {
        let ports = first..first + 10_000;
        cluster.reset(hosts(ports.clone())).await.unwrap();
        let snapshot = cluster.initialized().await.unwrap();
        let shown = verdicts(&snapshot);
        assert!(shown.into_iter().map(|(port, _)| port).eq(ports));
    }
}

#[tokio::test(start_paused = true)]
async fn readers_learn_that_the_cluster_or_the_engine_has_ended() {
    for how in ["remove", "stop", "drop"] {
        let engine = engine(Options::default());
        let config = cluster("c", check(), hosts([1, 2]));
        let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
        cluster.initialized().await.unwrap();
        let (reader, mut changes) = (cluster.reader(), cluster.eligible_changes());
        let mut ports = Vec::new();
        for _ in 0..2 {
            match changes.next().await.unwrap() {
                EligibleChange::Enters(host) => ports.push(host.address.port().unwrap()),
                other => panic!("{other:?}"),
            }
        }
        assert!(!reader.ended() && !cluster.ended());
        match how {
            "remove" => engine.remove_cluster("c").await.unwrap(),
            "stop" => engine.stop().await,
            _ => (),
        }
        if how != "drop" {
            assert!(engine.cluster("c").is_none() && engine.clusters().is_empty());
        }
        drop(engine);
        // At once, and not only when the shards have found out.
        assert!(reader.ended() && cluster.ended(), "{how}");
        assert_eq!(cluster.initialized().await.err(), Some(Ended));
        assert_eq!(cluster.set_unhealthy(&host(1).address).await, Err(Ended));
        for _ in 0..2 {
            match changes.next().await.unwrap() {
                EligibleChange::Leaves(host) => {
                    ports.retain(|port| Some(*port) != host.address.port())
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(ports.is_empty());
        assert_eq!(changes.next().await, None);
        assert_eq!(changes.next().await, None);
        assert_eq!(cluster.snapshot().len(), 2, "as it was last");
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_enters_and_leaves_once_however_many_hosts_have_it() {
    let engine = engine(Options::default());
    let checker = Scripted::default();
    let fail = || Step::After(Duration::ZERO, Outcome::network(Reason::Refused));
    checker.script(1, [Step::pass(), fail()]);
    checker.script(
        2,
        [
            Step::pass(),
            Step::pass(),
            Step::pass(),
            Step::pass(),
            fail(),
        ],
    );
    let second = host(2).address.socket_addr().unwrap();
    let twin = Host::clone(&host(1)).with_check_address(second);
    let config = cluster("c", check(), vec![host(1), Arc::new(twin)]);
    let cluster = run(&engine, config, checker, &Events::default()).await;
    let mut changes = cluster.eligible_changes();
    let mut told = Vec::new();
    while let Ok(Some(change)) = tokio::time::timeout(60 * SECOND, changes.next()).await {
        told.push(match change {
            EligibleChange::Enters(host) => (true, host.address.clone()),
            EligibleChange::Leaves(host) => (false, host.address.clone()),
            other => panic!("{other:?}"),
        });
    }
    let address = || host(1).address.clone();
    assert_eq!(told, [(true, address()), (false, address())]);
}

#[tokio::test(start_paused = true)]
async fn set_unhealthy_tells_whether_it_failed_a_host() {
    let engine = engine(Options::default().with_shards(2));
    let config = cluster("c", check(), hosts([1]));
    let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
    cluster.initialized().await.unwrap();
    let mut reader = cluster.reader();
    let address = host(1).address.socket_addr().unwrap();
    assert!(reader.eligible(address));
    assert_eq!(cluster.set_unhealthy(&host(1).address).await, Ok(true));
    assert!(!reader.eligible(address));
    assert_eq!(cluster.set_unhealthy(&host(2).address).await, Ok(false));
    let unchecked = ClusterConfig::new("d", Discovery::Dynamic);
    let unchecked = run(&engine, unchecked, Scripted::default(), &Events::default()).await;
    unchecked.reset(hosts([1])).await.unwrap();
    assert_eq!(unchecked.set_unhealthy(&host(1).address).await, Ok(false));
    let snapshot = unchecked.initialized().await.unwrap();
    assert_eq!(verdicts(&snapshot), [(1, Verdict::Healthy)]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_follower_is_told_how_much_it_missed_and_goes_on() {
    let engine = engine(Options::default().with_events(4));
    let config = cluster("c", check(), hosts(1..=10));
    let mut all = engine.events();
    let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
    until_verdict(&cluster, Verdict::Healthy).await;
    assert_eq!(all.next().await, Err(NoEvent::Missed(6)));
    for _ in 0..4 {
        assert!(all.next().await.is_ok());
    }
    assert_eq!(all.try_next(), Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_host_is_explained_from_its_first_attempt_on() {
    let engine = engine(Options::default().with_shards(2).with_journal(8));
    let checker = Scripted::default();
    let after = |ms, outcome| Step::After(Duration::from_millis(ms), outcome);
    checker.script(
        1,
        [
            after(30, Outcome::SUCCESS),
            after(5, Outcome::network(Reason::Unreachable(113))),
            Step::Silent,
        ],
    );
    let mut check = check();
    check.no_traffic_interval = SECOND * 60;
    check.no_traffic_healthy_interval = SECOND * 30;
    let config = cluster("c", check, hosts([1, 2]));
    let cluster = run(&engine, config, checker, &Events::default()).await;
    cluster.initialized().await.unwrap();
    let address = &host(1).address;
    let told = async || cluster.explain(address).await.unwrap().remove(0);

    let first = told().await;
    assert_eq!(first.view.verdict(), Verdict::Healthy);
    let session = &first.sessions[0];
    assert_eq!(session.last, Some(Last::Success));
    assert_eq!(session.waits_by, IntervalKind::NoTrafficHealthy);
    assert_eq!(session.interval, SECOND * 30);
    assert!(session.round_trip.unwrap() >= Duration::from_millis(30));
    assert!(matches!(session.state, State::Waiting { until } if until > engine.now()));
    assert_eq!(first.attempts.len(), 1);
    let attempt = &first.attempts[0];
    assert_eq!(attempt.outcome, PastOutcome::Success { degraded: false });
    assert_eq!(attempt.took, session.round_trip);
    assert_eq!(attempt.host, Some(host(1)));

    tokio::time::sleep(SECOND * 31).await;
    let second = told().await;
    assert_eq!(second.view.verdict(), Verdict::Healthy);
    let session = &second.sessions[0];
    let reason = Reason::Unreachable(113);
    assert_eq!(session.last, Some(Last::Failure(Some(reason))));
    assert_eq!((session.failures, session.unhealthy_threshold), (1, 2));
    assert_eq!(session.waits_by, IntervalKind::NoTraffic);

    // With traffic, the wait of a minute becomes one of a second.
    cluster.note_traffic().await.unwrap();
    assert_eq!(cluster.try_note_traffic(), Ok(true));
    tokio::time::sleep(SECOND * 3 / 2).await;
    let third = told().await;
    let session = &third.sessions[0];
    assert_eq!(session.waits_by, IntervalKind::UnhealthyEdge);
    assert!(session.attempting());
    let running = engine.now() - session.running_since().unwrap();
    assert!(running >= SECOND / 2 - Duration::from_millis(50) && running < SECOND);
    until(&cluster, |views| {
        views
            .iter()
            .any(|view| view.verdict() == Verdict::Unhealthy)
    })
    .await;
    let outcomes = |attempts: Vec<_>| -> Vec<String> {
        let attempts = attempts.into_iter();
        attempts
            .map(|past: xds_health::engine::PastAttempt| past.outcome.to_string())
            .collect()
    };
    assert_eq!(
        outcomes(told().await.attempts),
        [
            "silent",
            "unreachable: No route to host (os error 113)",
            "success"
        ]
    );
    let all = engine.attempts(100).await.unwrap();
    assert_eq!(all.len(), cluster.attempts(100).await.unwrap().len());
    assert!(all.windows(2).all(|pair| pair[0].at >= pair[1].at));
    assert!(all.iter().any(|past| past.host == Some(host(2))));
    assert_eq!(engine.attempts(1).await.unwrap()[0].at, all[0].at);

    assert_eq!(cluster.explain(&host(9).address).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_noted_unless_asked_for() {
    let engine = engine(Options::default());
    let config = cluster("c", check(), hosts([1]));
    let cluster = run(&engine, config, Scripted::default(), &Events::default()).await;
    cluster.initialized().await.unwrap();
    assert_eq!(engine.attempts(10).await.unwrap(), []);
    let told = cluster.explain(&host(1).address).await.unwrap();
    assert_eq!(told[0].attempts, []);
}

#[tokio::test(start_paused = true)]
async fn hosts_come_and_go_as_the_embedder_says() {
    let engine = engine(Options::default().with_shards(3));
    let checker = Scripted::default();
    checker.script(
        3,
        [Step::After(
            Duration::ZERO,
            Outcome::network(Reason::Refused),
        )],
    );
    let config = ClusterConfig::new("c", Discovery::Dynamic).with_health_check(check());
    let cluster = run(&engine, config, checker, &Events::default()).await;
    let ports = async |wanted: &[u16]| {
        until(&cluster, |views| {
            let known = views.iter().all(|v| v.verdict() != Verdict::Unknown);
            let ports = views
                .iter()
                .map(|v| v.host.address.socket_addr().unwrap().port());
            let mut ports: Vec<u16> = ports.collect();
            ports.sort_unstable();
            known && ports == wanted
        })
        .await
    };
    cluster.reset(hosts([1, 2])).await.unwrap();
    ports(&[1, 2]).await;
    cluster.upsert([host(3), host(4)]).await.unwrap();
    ports(&[1, 2, 3, 4]).await;
    // One that fails goes at once. One that passes stays until it fails, and is marked meanwhile.
    cluster
        .remove([host(3).address.clone(), host(4).address.clone()])
        .await
        .unwrap();
    let views = ports(&[1, 2, 4]).await;
    let pending = views
        .iter()
        .filter(|view| view.flags.intersects(HealthFlags::PENDING_DYNAMIC_REMOVAL));
    assert_eq!(pending.count(), 1);
    cluster.set_unhealthy(&host(4).address).await.unwrap();
    ports(&[1, 2]).await;
}

#[tokio::test(start_paused = true)]
async fn hosts_are_looked_up_as_they_are_now() {
    let engine = engine(Options::default().with_shards(3));
    let checker = Scripted::default();
    let refused = Step::After(Duration::ZERO, Outcome::network(Reason::Refused));
    checker.script(7, [Step::pass(), Step::pass(), refused.clone()]);
    checker.script(8, [refused]);
    let config = ClusterConfig::new("c", Discovery::Dynamic).with_health_check(check());
    let cluster = run(&engine, config, checker, &Events::default()).await;
    let mut reader = cluster.reader();
    let socket = |port| host(port).address.socket_addr().unwrap();
    assert_eq!(
        (reader.at(socket(1)), cluster.verdict(socket(1))),
        (None, None)
    );

    let named = (1..=100).map(|port| {
        let name = if port % 2 == 0 { "even" } else { "odd" };
        Host::clone(&host(port)).with_hostname(name)
    });
    cluster.reset(named).await.unwrap();
    until(&cluster, |views| {
        views.len() == 100 && views.iter().all(|v| v.verdict() != Verdict::Unknown)
    })
    .await;
    assert_eq!(reader.at(socket(7)).unwrap().verdict(), Verdict::Healthy);
    assert_eq!(reader.at(socket(8)).unwrap().verdict(), Verdict::Unhealthy);
    let snapshot = cluster.snapshot();
    assert_eq!(snapshot.at(socket(8)), reader.at(socket(8)));
    assert_eq!(snapshot.named("odd", 7).count(), 1);
    assert_eq!(reader.named("even", 7).count(), 0);
    assert_eq!(
        (snapshot.eligible().count(), reader.hosts().count()),
        (99, 100)
    );
    assert_eq!(snapshot.panic_aware(cluster.balance_rules()).count(), 99);

    until(&cluster, |views| {
        views
            .iter()
            .filter(|v| v.verdict() == Verdict::Unhealthy)
            .count()
            == 2
    })
    .await;
    assert_eq!(cluster.verdict(socket(7)), Some(Verdict::Unhealthy));
    assert_eq!(reader.at(socket(7)).unwrap().verdict(), Verdict::Unhealthy);
    assert_eq!(snapshot.at(socket(7)).unwrap().verdict(), Verdict::Healthy);

    for port in 9..=100 {
        cluster.set_unhealthy(&host(port).address).await.unwrap();
    }
    until(&cluster, |views| {
        views.iter().filter(|v| v.eligible()).count() == 6
    })
    .await;
    let snapshot = cluster.snapshot();
    assert_eq!(snapshot.panic_aware(BalanceRules::default()).count(), 100);
    let never = BalanceRules::default().with_healthy_panic_threshold(0);
    assert_eq!(snapshot.panic_aware(never).count(), 6);
}
