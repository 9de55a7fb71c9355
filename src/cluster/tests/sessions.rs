//! What sessions of a host add up to: initialization, verdicts of several checks, events.

use super::*;

#[test]
fn a_cluster_is_initialized_once_every_host_has_completed_a_check() {
    let mut world = World::with_hosts(&[1, 2]);
    assert_eq!(world.checked(), [1, 2]);
    assert!(!world.part().initialized);
    world.end_at(1, 0, &Outcome::SUCCESS);
    assert!(!world.part().initialized);
    world.end_at(2, 0, &refused());
    assert!(world.part().initialized);
    // And stays so, whoever comes.
    world.upsert([host(3)]);
    assert!(world.part().initialized);
    assert_eq!(world.view(3).verdict(), Verdict::Unknown);
}

/// Envoy counts completions, and would be done here after the second one.
#[test]
fn several_completions_of_one_host_do_not_stand_for_another() {
    let mut world = World::new();
    let slow = HealthCheck {
        timeout: 2000 * MS,
        ..check("")
    };
    world.set(dynamic(&[]).with_health_check(slow));
    world.reset([host(1), host(2)]);
    world.end_at(1, 0, &Outcome::SUCCESS);
    for _ in 0..2 {
        world.pass(INTERVAL);
        world.end_at(1, 0, &Outcome::SUCCESS);
        assert!(!world.part().initialized);
    }
    world.pass(1000 * MS);
    assert!(world.part().initialized, "the silent host timed out");
    assert_eq!(world.flags(2), "/failed_active_hc/active_hc_timeout");
}

#[test]
fn a_cluster_waits_for_its_hosts_to_be_told() {
    let mut world = World::new();
    world.set(dynamic(&[""]));
    assert!(!world.part().initialized);
    world.update(Update::HostsUnavailable("c".into()));
    assert!(world.part().initialized);

    let mut world = World::new();
    world.set(dynamic(&[""]));
    world.reset([]);
    assert!(world.part().initialized, "there is none to wait for");

    let mut world = World::new();
    world.set(dynamic(&[]));
    assert!(!world.part().initialized);
    world.upsert([host(1)]);
    assert!(world.part().initialized, "none is checked");
}

#[test]
fn a_host_that_is_not_checked_or_went_is_not_waited_for() {
    let mut world = World::with_hosts(&[1, 2]);
    world.upsert([host(3).with_check_disabled()]);
    world.end_at(1, 0, &Outcome::SUCCESS);
    assert!(!world.part().initialized);
    world.remove(&[2]);
    assert!(world.part().initialized);

    let mut world = World::with_hosts(&[1]);
    world.upsert([host(1).with_check_disabled()]);
    assert!(world.part().initialized);
}

#[test]
fn each_of_several_checks_is_waited_for() {
    let mut world = World::new();
    world.set(dynamic(&["a", "b"]));
    world.reset([host(1)]);
    world.end_at(1, 0, &Outcome::SUCCESS);
    assert!(!world.part().initialized);
    assert_eq!(world.view(1).verdict(), Verdict::Unknown);
    world.end_at(1, 1, &Outcome::SUCCESS);
    assert!(world.part().initialized);
    assert_eq!(world.view(1).verdict(), Verdict::Healthy);
}

#[test]
fn a_new_host_is_excluded_until_its_first_completion_if_so_configured() {
    let mut world = World::new();
    let config = ClusterConfig {
        ignore_new_hosts_until_first_hc: true,
        ..dynamic(&[""])
    };
    world.set(config);
    world.reset([host(1)]);
    // Not while the cluster warms.
    assert_eq!(world.flags(1), "/failed_active_hc");
    world.end_all(&Outcome::SUCCESS);
    world.upsert([host(2), host(3), host(4).with_check_disabled()]);
    for port in [2, 3] {
        assert_eq!(world.flags(port), "/failed_active_hc/pending_active_hc");
    }
    assert_eq!(world.flags(4), "healthy");
    assert_eq!(world.cluster_stats().membership.excluded.value(), 2);
    world.end_at(2, 0, &Outcome::SUCCESS);
    world.end_at(3, 0, &refused());
    assert_eq!(world.flags(2), "healthy");
    assert_eq!(world.flags(3), "/failed_active_hc");
    assert_eq!(world.cluster_stats().membership.excluded.value(), 0);
}

#[test]
fn a_new_host_is_not_excluded_by_default() {
    let mut world = World::healthy(&[1]);
    world.upsert([host(2)]);
    assert_eq!(world.flags(2), "/failed_active_hc");
}

#[test]
fn a_host_whose_checks_went_is_no_longer_pending() {
    let config = |checks: &[&str]| ClusterConfig {
        ignore_new_hosts_until_first_hc: true,
        ..dynamic(checks)
    };
    let pending = || {
        let mut world = World::new();
        world.set(config(&[""]));
        world.reset([]);
        world.upsert([host(1)]);
        assert_eq!(world.flags(1), "/failed_active_hc/pending_active_hc");
        world
    };
    let mut world = pending();
    world.upsert([host(1).with_check_disabled()]);
    assert_eq!(world.flags(1), "healthy");
    let mut world = pending();
    world.set(config(&[]));
    assert_eq!(world.flags(1), "healthy");
}

#[test]
fn a_host_is_failed_while_any_of_its_checks_fails() {
    let mut world = World::new();
    world.set(dynamic(&["a", "b"]));
    world.reset([host(1)]);
    assert_eq!(world.clusters.sessions(), 2);
    let stats = world.cluster_stats();
    let healthy = || {
        let of = |name: &str| stats.check(&name.into()).healthy.value();
        (stats.healthy.value(), of("a"), of("b"))
    };
    world.end_at(1, 0, &Outcome::SUCCESS);
    assert_eq!(
        (world.flags(1).as_str(), healthy()),
        ("/failed_active_hc", (0, 1, 0))
    );
    world.end_at(1, 1, &Outcome::SUCCESS);
    assert_eq!((world.flags(1).as_str(), healthy()), ("healthy", (1, 1, 1)));

    // Each check has its own counts, and its own events.
    world.forget();
    for _ in 0..2 {
        world.pass(INTERVAL);
        world.end_at(1, 0, &Outcome::SUCCESS);
        world.end_at(1, 1, &refused());
    }
    assert_eq!(
        (world.flags(1).as_str(), healthy()),
        ("/failed_active_hc", (0, 1, 0))
    );
    let told: Vec<_> = world
        .events
        .iter()
        .map(|e| (&*e.check_name, e.check))
        .collect();
    assert_eq!(told, [("b", 1)]);
    let counters = |name: &str| {
        let stats = stats.check(&name.into());
        let of = |counter: &Counter| counter.value();
        (
            of(&stats.attempt),
            of(&stats.success),
            of(&stats.network_failure),
        )
    };
    assert_eq!(counters("a"), (3, 3, 0));
    assert_eq!(counters("b"), (3, 1, 2));

    for _ in 0..2 {
        world.round(&Outcome::SUCCESS);
    }
    assert_eq!((world.flags(1).as_str(), healthy()), ("healthy", (1, 1, 1)));
}

#[test]
fn a_failure_that_does_not_fail_the_host_is_not_its_reason() {
    let mut world = World::new();
    world.set(dynamic(&["a", "b"]));
    world.reset([host(1)]);
    world.end_at(1, 0, &Outcome::SUCCESS);
    world.end_at(1, 1, &refused());
    assert_eq!(world.view(1).reason.as_deref(), Some(&Reason::Refused));
    world.pass(INTERVAL);
    // One failure of the check that passes the host.
    world.end_at(1, 0, &Outcome::timeout(Reason::Silent));
    assert_eq!(world.view(1).reason.as_deref(), Some(&Reason::Refused));
    assert_eq!(world.flags(1), "/failed_active_hc");
    world.end_at(1, 1, &Outcome::SUCCESS);
    world.pass(INTERVAL);
    world.end_at(1, 1, &Outcome::SUCCESS);
    assert_eq!(world.view(1).reason, None);
}

#[test]
fn degraded_is_counted_for_hosts_and_for_checks() {
    let mut world = World::new();
    world.set(dynamic(&["a", "b"]));
    world.reset([host(1)]);
    world.end_at(1, 0, &Outcome::Success { degraded: true });
    world.end_at(1, 1, &Outcome::SUCCESS);
    assert_eq!(world.flags(1), "/degraded_active_hc");
    assert_eq!(world.view(1).verdict(), Verdict::Degraded);
    let stats = world.cluster_stats();
    assert_eq!((stats.healthy.value(), stats.degraded.value()), (1, 1));
    assert_eq!(stats.membership.healthy.value(), 0);
    assert_eq!(stats.membership.degraded.value(), 1);
    world.round(&Outcome::SUCCESS);
    assert_eq!(world.flags(1), "healthy");
}

#[test]
fn completions_are_counted_and_told() {
    let mut world = World::with_hosts(&[1]);
    let stats = world.cluster_stats().check(&"".into());
    assert_eq!(stats.attempt.value(), 1, "it counts when it starts");
    world.end_all(&Outcome::SUCCESS);
    world.round(&refused());
    world.pass(INTERVAL + TIMEOUT);
    let of = |counter: &Counter| counter.value();
    assert_eq!(
        (of(&stats.attempt), of(&stats.success), of(&stats.failure)),
        (3, 1, 2)
    );
    assert_eq!(
        (of(&stats.network_failure), of(&stats.passive_failure)),
        (2, 0)
    );
    assert_eq!(of(&stats.reasons[Reason::Refused.index()]), 1);
    assert_eq!(of(&stats.reasons[Reason::Silent.index()]), 1);

    let [added, ejected] = &world.events[..] else {
        panic!("{:?}", world.events)
    };
    assert_eq!(added.kind, EventKind::AddHealthy { first_check: true });
    assert_eq!((&*added.name, added.round_trip), ("c", Some(3 * MS)));
    assert_eq!(ejected.reason, Some(Reason::Silent));
    assert_eq!(ejected.host.address, address(1));
}

#[test]
fn an_answered_unhealthy_is_no_network_failure() {
    let mut world = World::healthy(&[1]);
    let active = Failure {
        immediate: true,
        ..Failure::new(FailureType::Active, Reason::Unhealthy)
    };
    world.round(&Outcome::Failure(active));
    let stats = world.cluster_stats().check(&"".into());
    assert_eq!(stats.network_failure.value(), 0);
    assert_eq!(stats.failure.value(), 1);
    let excluded = "/failed_active_hc/excluded_via_immediate_hc_fail";
    assert_eq!(world.flags(1), excluded);
    assert_eq!(world.cluster_stats().membership.excluded.value(), 1);
    world.round(&Outcome::SUCCESS);
    assert_eq!(world.flags(1), excluded);
    world.round(&Outcome::SUCCESS);
    assert_eq!(world.flags(1), "healthy");
}

#[test]
fn an_outcome_of_an_attempt_that_does_not_run_is_ignored() {
    let mut world = World::with_hosts(&[1]);
    let Running { session, id, .. } = world.running[0].clone();
    let stale = AttemptId(id.0 + 5);
    world
        .clusters
        .handle_outcome(world.now, session, stale, Outcome::SUCCESS, None);
    world.act();
    assert_eq!(world.flags(1), "/failed_active_hc");
    world.end_all(&Outcome::SUCCESS);
    world.remove(&[1]);
    world.pass(INTERVAL);
    world.pass(TIMEOUT + INTERVAL + TIMEOUT);
    assert_eq!(world.hosts(), 0);
    for outcome in [Outcome::SUCCESS, refused()] {
        world.end(session, id, outcome);
    }
    world.clusters.handle_sent(world.now, session, id);
    world.clusters.handle_shortage(session, Shortage::Ports);
    assert!(world.clusters.start(world.now, session, stale).is_none());
    assert_eq!(world.clusters.check_of(session), None);
    world.act();
}

#[test]
fn a_late_start_has_its_whole_timeout_and_says_how_late_it_is() {
    let mut clusters = Clusters::new(Instant::now(), Share::ALL, 1);
    let (stats, start) = (Stats::default(), Instant::now());
    let config = Arc::new(dynamic(&[""]));
    let stats = stats.cluster(&config.name, &config.name);
    let update = Update::Cluster {
        config,
        stats: Arc::clone(&stats),
        traffic: false,
    };
    clusters.handle_update(start, update);
    let update = Update::Upsert {
        cluster: "c".into(),
        hosts: [Arc::new(host(1))].into(),
    };
    clusters.handle_update(start, update);
    let Some(Action::Start(session)) = clusters.poll_action() else {
        panic!("the host is due at once")
    };
    assert_eq!(clusters.poll_timeout(), None, "it waits for its turn");
    let now = start + 40 * MS;
    let started = clusters.start(now, session, AttemptId(1)).unwrap();
    assert_eq!((started.lag, started.check), (40 * MS, 0));
    let due = |clusters: &Clusters| {
        let cluster = clusters.id("c").unwrap();
        clusters.explain(cluster, &address(1))[0].due()
    };
    assert_eq!(due(&clusters), Some(now + TIMEOUT));
    // For want of a port it is sent later still.
    clusters.handle_shortage(session, Shortage::Ports);
    let now = now + 50 * MS;
    clusters.handle_sent(now, session, AttemptId(1));
    assert_eq!(due(&clusters), Some(now + TIMEOUT));
    clusters.handle_timeout(now + TIMEOUT - MS);
    assert_eq!(clusters.poll_action(), None);
    clusters.handle_timeout(now + TIMEOUT + MS);
    let expired = Action::Expire(session, AttemptId(1));
    assert_eq!(clusters.poll_action(), Some(expired));
    let waited = &stats.check(&"".into()).shortages[Shortage::Ports.index()];
    assert_eq!(waited.value(), 1);
}

#[test]
fn set_unhealthy_fails_a_host_under_every_check() {
    let mut world = World::new();
    world.set(dynamic(&["a", "b"]));
    world.reset([host(1), host(2)]);
    world.end_all(&Outcome::SUCCESS);
    world.forget();
    let cluster = world.clusters.id("c").unwrap();
    world
        .clusters
        .set_unhealthy(world.now, cluster, &address(1));
    world.act();
    assert_eq!(world.flags(1), "/failed_active_hc");
    assert_eq!(world.flags(2), "healthy");
    assert_eq!(world.view(1).reason.as_deref(), Some(&Reason::Passive));
    assert_eq!(world.kinds().len(), 2);
    for name in ["a", "b"] {
        let stats = world.cluster_stats().check(&name.into());
        assert_eq!(stats.passive_failure.value(), 1);
        assert_eq!(stats.failure.value(), 0);
    }
    for _ in 0..2 {
        world.round(&Outcome::SUCCESS);
    }
    assert_eq!(world.flags(1), "healthy");
    // Of what is not there, nothing comes.
    world
        .clusters
        .set_unhealthy(world.now, cluster, &address(9));
    world
        .clusters
        .set_unhealthy(world.now, ClusterId(9), &address(1));
    world.act();
}

#[test]
fn set_unhealthy_ends_a_pending_removal() {
    let mut world = World::new();
    world.set(dynamic(&["a", "b"]));
    world.reset([host(1)]);
    world.end_all(&Outcome::SUCCESS);
    world.reset([]);
    assert_eq!(world.flags(1), "/pending_dynamic_removal");
    let cluster = world.clusters.id("c").unwrap();
    world
        .clusters
        .set_unhealthy(world.now, cluster, &address(1));
    world.act();
    assert_eq!((world.hosts(), world.clusters.sessions()), (0, 0));
}

#[test]
fn traffic_cuts_waits_short_and_limits_rule_from_the_next_wait_on() {
    let mut world = World::new();
    let config = dynamic(&[]).with_health_check(HealthCheck {
        no_traffic_healthy_interval: 1500 * MS,
        ..check("")
    });
    world.set(config);
    world.reset([host(1)]);
    world.end_all(&Outcome::SUCCESS);
    let cluster = world.clusters.id("c").unwrap();
    let wait = |world: &World| world.explain(1)[0].due().unwrap() - world.now;
    assert_eq!(wait(&world), 1500 * MS);
    world.clusters.note_traffic(world.now, cluster);
    assert_eq!(wait(&world), INTERVAL);
    world.pass(INTERVAL / 2);
    // To say so once more does nothing.
    world.clusters.note_traffic(world.now, cluster);
    assert_eq!(wait(&world), INTERVAL / 2);
    world.pass(INTERVAL / 2);
    world.end_all(&Outcome::SUCCESS);
    assert_eq!(wait(&world), INTERVAL);
    world
        .clusters
        .set_limits(IntervalLimits::new(700 * MS, Duration::MAX));
    assert_eq!(wait(&world), INTERVAL);
    world.pass(INTERVAL);
    world.end_all(&Outcome::SUCCESS);
    assert_eq!(wait(&world), 700 * MS);
}

#[test]
fn what_a_session_is_up_to_can_be_asked() {
    let mut world = World::new();
    world.set(dynamic(&["a", "b"]));
    world.reset([host(1)]);
    world.end_at(1, 0, &Outcome::SUCCESS);
    let [a, b] = &world.explain(1)[..] else {
        panic!("two checks")
    };
    assert_eq!((&*a.check, &*b.check), ("a", "b"));
    assert!(!a.failed && !a.first_check && !a.attempting());
    assert_eq!(a.round_trip, Some(3 * MS));
    assert_eq!(
        (a.due(), a.waits_by),
        (Some(world.now + INTERVAL), IntervalKind::NoTrafficHealthy)
    );
    assert!(b.failed && b.first_check && b.attempting());
    assert_eq!((b.due(), b.round_trip), (Some(world.now + TIMEOUT), None));
    assert_eq!((&a.last, &b.last), (&Some(Last::Success), &None));
    assert_eq!(
        (a.running_since(), b.running_since()),
        (None, Some(world.now))
    );
    assert_eq!((a.interval, a.jitter), (INTERVAL, Duration::ZERO));
    world.end_at(1, 1, &refused());
    let last = |world: &World, check: usize| world.explain(1)[check].last.clone();
    assert_eq!(last(&world, 1), Some(Last::Failure(Some(Reason::Refused))));
    world.round(&Outcome::SUCCESS);
    let b = &world.explain(1)[1];
    assert_eq!((b.successes, b.healthy_threshold), (1, 2));
    assert_eq!(b.last, Some(Last::Success));
    // A failure below the threshold is told too, though the host's view does not have it.
    world.pass(INTERVAL);
    world.end_at(1, 0, &Outcome::timeout(Reason::Silent));
    world.end_at(1, 1, &Outcome::SUCCESS);
    let a = &world.explain(1)[0];
    assert!(!a.failed);
    assert_eq!((a.failures, a.unhealthy_threshold), (1, 2));
    assert_eq!(a.last, Some(Last::Failure(Some(Reason::Silent))));
    world.round(&Outcome::SUCCESS);
    assert_eq!(last(&world, 0), Some(Last::Success));
    assert!(world.clusters.failures.is_empty());
    assert_eq!(world.explain(9), []);
    assert_eq!(world.clusters.explain(ClusterId(9), &address(1)), []);
}

#[test]
fn a_transition_is_seen_in_the_view_once_it_is_made() {
    let mut world = World::healthy(&[1]);
    let (version, since) = (world.part().version, world.view(1).since);
    world.round(&refused());
    assert_eq!(
        world.part().version,
        version,
        "nothing that is seen has changed"
    );
    world.round(&refused());
    assert_eq!(world.part().version, version + 1);
    assert!(world.view(1).since > since);
    assert_eq!(world.view(1).since, world.now);
    let kinds = world.kinds();
    assert!(matches!(kinds[..], [EventKind::EjectUnhealthy { .. }]));
}
