//! Clusters that come, change and go.

use super::*;

fn changed(name: &str) -> HealthCheck {
    HealthCheck {
        unhealthy_threshold: 5,
        healthy_threshold: 5,
        ..check(name)
    }
}

fn of(checks: impl IntoIterator<Item = HealthCheck>) -> ClusterConfig {
    let checks = checks.into_iter();
    checks.fold(dynamic(&[]), ClusterConfig::with_health_check)
}

#[test]
fn the_same_cluster_again_changes_nothing() {
    let mut world = World::healthy(&[1]);
    world.pass(200 * MS);
    let before = world.explain(1);
    world.set(dynamic(&[""]));
    assert_eq!((world.explain(1), world.checked()), (before, vec![]));
    assert_eq!(world.flags(1), "healthy");
}

#[test]
fn what_does_not_bear_on_checks_leaves_them_alone() {
    let mut world = World::healthy(&[1]);
    let before = world.explain(1);
    let config = ClusterConfig {
        ignore_new_hosts_until_first_hc: true,
        ..dynamic(&[""])
    };
    world.set(config);
    assert_eq!(world.explain(1), before);
    world.upsert([host(2)]);
    assert_eq!(world.flags(2), "/failed_active_hc/pending_active_hc");
}

#[test]
fn a_changed_check_begins_anew_and_its_first_completion_decides() {
    for (before, after, flags) in [
        (Outcome::SUCCESS, refused(), "/failed_active_hc"),
        (refused(), Outcome::SUCCESS, "healthy"),
        (Outcome::SUCCESS, Outcome::SUCCESS, "healthy"),
        (refused(), refused(), "/failed_active_hc"),
    ] {
        let mut world = World::with_hosts(&[1]);
        world.end_all(&before);
        let was = world.flags(1);
        world.pass(INTERVAL);
        world.checked.clear();
        world.set(of([changed("")]));
        assert_eq!(world.checked(), [1], "at once");
        assert_eq!(world.cancelled, 1, "the attempt of the earlier session");
        assert_eq!(world.flags(1), was, "the verdict stands");
        assert!(!world.view(1).unchecked);
        assert!(world.explain(1)[0].first_check);
        world.forget();
        world.end_all(&after);
        assert_eq!(world.flags(1), flags);
        let told_first = world.events.iter().all(|event| match event.kind {
            EventKind::AddHealthy { first_check } => first_check,
            EventKind::Failure { first_check, .. } => first_check,
            _ => true,
        });
        assert!(told_first);
    }
}

#[test]
fn a_timeout_stays_until_the_first_completion_under_a_changed_check() {
    let mut world = World::with_hosts(&[1]);
    world.pass(TIMEOUT);
    assert_eq!(world.flags(1), "/failed_active_hc/active_hc_timeout");
    world.set(of([changed("")]));
    assert_eq!(world.flags(1), "/failed_active_hc/active_hc_timeout");
    assert_eq!(world.view(1).reason.as_deref(), Some(&Reason::Silent));
    world.end_all(&Outcome::SUCCESS);
    assert_eq!(world.flags(1), "healthy");
}

#[test]
fn a_host_without_a_verdict_has_none_under_a_changed_check() {
    let mut world = World::with_hosts(&[1]);
    world.set(of([changed("")]));
    assert_eq!(world.view(1).verdict(), Verdict::Unknown);
    assert!(!world.part().initialized);
    world.end_all(&Outcome::SUCCESS);
    assert!(world.part().initialized);
}

#[test]
fn an_unchanged_check_among_changed_ones_goes_on() {
    let mut world = World::new();
    world.set(dynamic(&["a", "b"]));
    world.reset([host(1)]);
    world.end_all(&Outcome::SUCCESS);
    world.round(&refused());
    world.pass(200 * MS);
    let before = world.explain(1);
    assert_eq!(before[0].failures, 1);
    world.checked.clear();
    world.set(of([check("a"), changed("b")]));
    assert_eq!(world.explain(1)[0], before[0]);
    assert!(world.explain(1)[1].first_check);
    assert_eq!(world.checked(), [1]);

    // Its place does not matter, nor what came and went beside it.
    world.end_all(&Outcome::SUCCESS);
    world.set(of([check("new"), check("a")]));
    let after = world.explain(1);
    assert_eq!((&*after[0].check, &after[1]), ("new", &before[0]));
    assert_eq!(
        world.flags(1),
        "healthy",
        "the new check has the verdict there was"
    );
    world.set(of([check("a")]));
    assert_eq!(world.explain(1), [before[0].clone()]);
    // An attempt that runs goes on as well.
    world.pass(INTERVAL);
    let running = world.running.clone();
    world.set(of([check("other"), check("a")]));
    assert_eq!(world.running[0].session, running[0].session);
    assert_eq!(world.running.len(), 2);
    let (session, id) = (running[0].session, running[0].id);
    let cluster = world.clusters.id("c").unwrap();
    assert_eq!(world.clusters.check_of(session), Some((cluster, 1)));
    world.running[0].check = 1;
    world.end(session, id, refused());
    let stats = world.cluster_stats().check(&"a".into());
    assert_eq!(stats.failure.value(), 2);
}

#[test]
fn a_check_of_another_name_takes_over_the_verdict_of_the_host() {
    let mut world = World::healthy(&[1]);
    world.set(dynamic(&["named"]));
    assert_eq!(world.flags(1), "healthy");
    assert_eq!(world.clusters.sessions(), 1);
    let stats = world.cluster_stats();
    assert_eq!(stats.check(&"".into()).healthy.value(), 0);
    assert_eq!(stats.check(&"named".into()).healthy.value(), 1);
}

#[test]
fn removed_checks_leave_hosts_healthy() {
    let mut world = World::new();
    world.set(dynamic(&["a", "b"]));
    world.reset([host(1), host(2).with_eds_health(EdsHealth::Degraded)]);
    world.end_at(1, 0, &refused());
    world.set(dynamic(&["a"]));
    assert_eq!(world.flags(1), "/failed_active_hc");
    world.set(dynamic(&[]));
    assert_eq!(world.flags(1), "healthy");
    assert_eq!(world.flags(2), "/degraded_eds_health");
    assert_eq!((world.clusters.sessions(), world.running.len()), (0, 0));
    assert_eq!(world.view(1).reason, None);
    assert!(world.part().initialized);
    assert_eq!(world.cluster_stats().healthy.value(), 0);
    world.forget();
    world.pass(5 * INTERVAL);
    assert_eq!(world.checked(), NOWHERE);

    // And checks that come fail them until they pass.
    world.set(dynamic(&["a"]));
    assert_eq!(world.flags(1), "/failed_active_hc");
    assert_eq!(world.checked(), [1, 2]);
}

#[test]
fn a_check_that_fails_and_is_removed_fails_the_host_no_longer() {
    let mut world = World::new();
    world.set(dynamic(&["a", "b"]));
    world.reset([host(1)]);
    world.end_at(1, 0, &Outcome::SUCCESS);
    world.end_at(1, 1, &refused());
    assert_eq!(world.flags(1), "/failed_active_hc");
    world.set(dynamic(&["a"]));
    assert_eq!(world.flags(1), "healthy");
}

#[test]
fn a_pending_host_goes_with_what_it_was_kept_for() {
    let pending = || {
        let mut world = World::healthy(&[1, 2]);
        world.remove(&[1]);
        assert_eq!(world.flags(1), "/pending_dynamic_removal");
        world
    };
    let mut world = pending();
    world.set(dynamic(&[]));
    assert_eq!((world.hosts(), world.flags(2).as_str()), (1, "healthy"));
    assert_eq!(world.changes(), 2);

    let mut world = pending();
    let config = ClusterConfig {
        ignore_health_on_host_removal: true,
        ..dynamic(&[""])
    };
    world.set(config);
    assert_eq!((world.hosts(), world.clusters.sessions()), (1, 1));

    // A changed check keeps it, and decides at its first completion.
    let mut world = pending();
    world.set(of([changed("")]));
    assert_eq!(world.flags(1), "/pending_dynamic_removal");
    world.end_at(1, 0, &refused());
    assert_eq!(world.hosts(), 1);
}

#[test]
fn checks_without_a_name_may_be_alike() {
    let mut world = World::new();
    world.set(dynamic(&[""]));
    world.reset([host(1)]);
    world.end_all(&Outcome::SUCCESS);
    let before = world.explain(1);
    world.set(dynamic(&["", "", ""]));
    assert_eq!(world.explain(1)[0], before[0]);
    assert_eq!(world.clusters.sessions(), 3);
    assert_eq!(world.running.len(), 2);
    let before = world.explain(1);
    world.set(of([changed(""), check("")]));
    assert_eq!(
        world.explain(1)[1],
        before[1],
        "each follows one, in its place if it can"
    );
    assert_eq!(world.clusters.sessions(), 2);
}

#[test]
fn a_changed_name_of_its_stats_moves_all_that_is_counted() {
    let mut world = World::new();
    world.set(dynamic(&["a", "b"]));
    world.reset([host(1), host(2)]);
    world.end_at(1, 0, &Outcome::SUCCESS);
    world.end_at(1, 1, &Outcome::SUCCESS);
    world.end_at(2, 0, &Outcome::Success { degraded: true });
    let old = world.cluster_stats();
    let config = ClusterConfig {
        alt_stat_name: Some("other".into()),
        ..dynamic(&["a", "b"])
    };
    world.set(config);
    let new = world.cluster_stats();
    assert_eq!((&**old.name(), &**new.name()), ("c", "other"));
    let gauges = |stats: &ClusterStats| {
        let membership = &stats.membership;
        let checks = ["a", "b"].map(|name| stats.check(&name.into()).healthy.value());
        (
            membership.total.value(),
            membership.healthy.value(),
            stats.healthy.value(),
            checks,
        )
    };
    assert_eq!(gauges(&old), (0, 0, 0, [0, 0]));
    assert_eq!(gauges(&new), (2, 1, 1, [2, 1]));
    let b = old.check(&"b".into());
    let counted = (b.attempt.value(), b.success.value(), b.cancelled.value());
    assert_eq!(counted, (2, 1, 1));
    world.end_all(&refused());
    assert_eq!(gauges(&new), (2, 0, 0, [0, 0]));
}

#[test]
fn a_cluster_that_went_leaves_nothing() {
    let mut world = World::healthy(&[1, 2]);
    world.remove(&[2]);
    world.pass(INTERVAL);
    let (stats, running) = (world.cluster_stats(), world.running.clone());
    world.forget();
    world.update(Update::RemoveCluster("c".into()));
    assert_eq!(world.clusters.id("c"), None);
    assert_eq!((world.clusters.sessions(), world.cancelled), (0, 2));
    assert_eq!(stats.membership.total.value(), 0);
    assert_eq!(stats.membership.healthy.value(), 0);
    assert_eq!(
        (
            stats.healthy.value(),
            stats.check(&"".into()).healthy.value()
        ),
        (0, 0)
    );
    for Running { session, id, .. } in running {
        world.end(session, id, refused());
    }
    world.reset([host(3)]);
    assert_eq!((world.checked(), world.kinds()), (vec![], vec![]));
    assert_eq!(world.clusters.poll_timeout(), None);

    // Its name may come again, as another cluster.
    world.set(dynamic(&[""]));
    assert_eq!(world.hosts(), 0);
    assert!(!world.part().initialized);
}

#[test]
fn a_static_cluster_brings_its_hosts() {
    let mut world = World::new();
    let of = |check: HealthCheck, ports: &[u16]| {
        let hosts = ports.iter().map(|port| Arc::new(host(*port))).collect();
        ClusterConfig::new("c", Discovery::Static(hosts)).with_health_check(check)
    };
    world.set(of(check(""), &[1, 2]));
    assert_eq!(world.checked(), [1, 2]);
    world.end_all(&refused());
    assert!(world.part().initialized);
    // Hosts and check change at once: the check of a host that goes is begun and ended in one.
    world.set(of(changed(""), &[2, 3]));
    assert_eq!(world.hosts(), 2);
    let mut ports = world.checked();
    ports.sort_unstable();
    assert_eq!(ports, [2, 3]);
    assert_eq!((world.running.len(), world.clusters.sessions()), (2, 2));
}

#[test]
fn the_ends_of_an_update_are_told_before_its_beginnings() {
    let mut clusters = World::new();
    let of = |check: HealthCheck, port: u16| {
        let hosts = vec![Arc::new(host(port))];
        ClusterConfig::new("c", Discovery::Static(hosts)).with_health_check(check)
    };
    clusters.set(of(check(""), 1));
    clusters.end_all(&refused());
    let config = of(changed(""), 2);
    let stats = clusters.stats.cluster(&config.name, config.stat_name());
    let update = Update::Cluster {
        config: Arc::new(config),
        stats,
        traffic: false,
    };
    clusters.clusters.handle_update(clusters.now, update);
    let told: Vec<_> = std::iter::from_fn(|| clusters.clusters.poll_action()).collect();
    let begins = |action: &Action| matches!(action, Action::Start(_));
    let first = told.iter().position(begins).unwrap();
    assert!(told[first..].iter().all(begins), "{told:?}");
}

#[test]
fn clusters_do_not_touch_each_other() {
    let mut world = World::healthy(&[1]);
    let other = ClusterConfig {
        name: "d".into(),
        ..dynamic(&[""])
    };
    world.set(other);
    world.update(Update::Reset {
        cluster: "d".into(),
        hosts: [Arc::new(host(1))].into(),
    });
    assert_eq!(world.checked(), [1]);
    assert_eq!(world.clusters.sessions(), 2);
    world.end_all(&refused());
    assert_eq!(world.flags(1), "healthy");
    world.update(Update::RemoveCluster("d".into()));
    assert_eq!(
        (world.flags(1).as_str(), world.clusters.sessions()),
        ("healthy", 1)
    );
}
