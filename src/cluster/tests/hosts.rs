//! Hosts that come, change and go.

use super::*;
use crate::config::{DnsConfig, LookupFamily, Warnings, text::Document};

#[test]
fn a_host_that_comes_is_checked_at_once() {
    let mut world = World::healthy(&[1]);
    world.pass(123 * MS);
    world.upsert([host(2)]);
    assert_eq!(world.checked(), [2]);
    assert_eq!(world.explain(2)[0].due(), Some(world.now + TIMEOUT));
    assert_eq!(world.changes(), 2);
    // Told again, nothing happens.
    world.upsert([host(2)]);
    assert_eq!(world.checked(), NOWHERE);
    assert_eq!(world.changes(), 2);
}

#[test]
fn the_host_of_a_logical_cluster_makes_room_for_the_next() {
    let text = "{name: c, type: LOGICAL_DNS, load_assignment: {cluster_name: c, endpoints: [{lb_endpoints: [
        {endpoint: {address: {socket_address: {address: somewhere, port_value: 80}}}}]}]}}";
    let document = Document::from_yaml(text).unwrap();
    let logical = ClusterConfig::from_document(&document, &mut Warnings::default()).unwrap();
    let mut world = World::new();
    world.set(ClusterConfig {
        discovery: logical.discovery,
        ..dynamic(&[""])
    });
    world.reset([host(1)]);
    world.end_all(&Outcome::SUCCESS);
    world.reset([host(2)]);
    assert_eq!((world.hosts(), world.clusters.sessions()), (1, 1));
    assert_eq!(
        (world.checked(), world.flags(2).as_str()),
        (vec![1, 2], "healthy")
    );
}

#[test]
fn a_healthy_host_that_went_stays_until_its_checks_fail_it() {
    for removal in [(|world| world.reset([])) as fn(&mut World), |world| {
        world.remove(&[1])
    }] {
        let mut world = World::healthy(&[1]);
        world.pass(200 * MS);
        let due = world.explain(1)[0].due();
        removal(&mut world);
        assert_eq!(world.flags(1), "/pending_dynamic_removal");
        let stats = world.cluster_stats();
        let members = |stats: &ClusterStats| {
            let membership = &stats.membership;
            (membership.total.value(), membership.healthy.value())
        };
        assert_eq!(members(&stats), (1, 1));
        assert_eq!(stats.check(&"".into()).healthy.value(), 1);
        assert_eq!(world.explain(1)[0].due(), due, "the schedule goes on");

        world.round(&Outcome::SUCCESS);
        world.round(&refused());
        assert_eq!(world.flags(1), "/pending_dynamic_removal");
        world.forget();
        world.round(&refused());
        assert_eq!((world.hosts(), world.clusters.sessions()), (0, 0));
        assert_eq!(members(&stats), (0, 0));
        assert_eq!(world.clusters.poll_timeout(), None);
        // The ejection is told; it is the last that is.
        assert!(matches!(
            world.kinds()[..],
            [EventKind::EjectUnhealthy { .. }]
        ));
        assert_eq!(world.changes(), 2);
    }
}

#[test]
fn a_pending_host_that_is_told_again_goes_on_as_it_was() {
    let mut world = World::healthy(&[1]);
    world.round(&refused());
    world.pass(200 * MS);
    world.reset([]);
    let before = world.explain(1);
    let session = world.clusters.clusters[0].members.session(0);
    world.reset([host(1)]);
    assert_eq!(world.flags(1), "healthy");
    assert_eq!(world.explain(1), before);
    assert_eq!(world.clusters.clusters[0].members.session(0), session);
    assert_eq!(before[0].failures, 1);
    assert_eq!(world.changes(), 1);
    // The removal is off.
    world.round(&refused());
    assert_eq!(world.flags(1), "/failed_active_hc");
    assert_eq!(world.hosts(), 1);
}

#[test]
fn a_failed_host_that_went_is_gone_at_once() {
    let mut world = World::with_hosts(&[1, 2]);
    world.end_at(1, 0, &refused());
    // One has failed, the other was never checked.
    world.reset([]);
    assert_eq!((world.hosts(), world.clusters.sessions()), (0, 0));
    assert_eq!(world.cancelled, 1);
}

#[test]
fn a_host_that_went_while_told_unhealthy_is_gone_at_once() {
    for (health, stays) in [
        (EdsHealth::Unhealthy, false),
        (EdsHealth::Timeout, false),
        (EdsHealth::Draining, true),
        (EdsHealth::Degraded, true),
        (EdsHealth::Healthy, true),
    ] {
        let mut world = World::healthy(&[1]);
        world.upsert([host(1).with_eds_health(health)]);
        world.remove(&[1]);
        assert_eq!(world.hosts(), usize::from(stays), "{health:?}");
    }
}

#[test]
fn a_host_that_is_not_checked_is_gone_at_once() {
    let mut world = World::healthy(&[]);
    world.upsert([host(1).with_check_disabled()]);
    assert_eq!(world.flags(1), "healthy");
    world.remove(&[1]);
    assert_eq!(world.hosts(), 0);
}

#[test]
fn a_healthy_host_is_gone_at_once_if_its_health_is_to_be_ignored() {
    let mut world = World::new();
    let config = ClusterConfig {
        ignore_health_on_host_removal: true,
        ..dynamic(&[""])
    };
    world.set(config);
    world.reset([host(1), host(2)]);
    world.end_all(&Outcome::SUCCESS);
    world.remove(&[1]);
    world.reset([]);
    assert_eq!((world.hosts(), world.clusters.sessions()), (0, 0));
}

#[test]
fn a_removal_while_an_attempt_runs_cancels_it_and_leaves_nothing() {
    let mut world = World::healthy(&[1, 2]);
    world.round(&refused());
    world.round(&refused());
    world.pass(INTERVAL);
    let running = world.running.clone();
    assert_eq!(running.len(), 2);
    world.clusters.handle_update(
        world.now,
        Update::Remove {
            cluster: "c".into(),
            addresses: [address(1)].into(),
        },
    );
    let gone = &running[0];
    let told: Vec<_> = std::iter::from_fn(|| world.clusters.poll_action()).collect();
    assert_eq!(
        told,
        [
            Action::Cancel(gone.session, gone.id),
            Action::Forget(gone.session)
        ]
    );
    world.running.remove(0);
    world.act();
    let stats = world.cluster_stats().check(&"".into());
    assert_eq!(stats.cancelled.value(), 1);
    world.forget();
    world.remove(&[2]);
    assert_eq!(world.clusters.sessions(), 0);
    assert_eq!(world.clusters.poll_timeout(), None);
    // A late outcome is told to nobody.
    for Running { session, id, .. } in running {
        world.end(session, id, Outcome::SUCCESS);
    }
    world.pass(10 * INTERVAL);
    assert_eq!((world.checked(), world.kinds()), (vec![], vec![]));
    assert_eq!(stats.success.value(), 2);
}

#[test]
fn what_the_control_plane_says_of_health_is_a_flag_beside_the_checks() {
    let mut world = World::healthy(&[1]);
    let due = world.explain(1)[0].due();
    let stats = world.cluster_stats();
    for (health, flags, (healthy, degraded)) in [
        (EdsHealth::Unhealthy, "/failed_eds_health", (0, 0)),
        (EdsHealth::Timeout, "/failed_eds_health", (0, 0)),
        (EdsHealth::Draining, "/eds_status_draining", (0, 0)),
        (EdsHealth::Degraded, "/degraded_eds_health", (0, 1)),
        (EdsHealth::Healthy, "healthy", (1, 0)),
        (EdsHealth::Draining, "/eds_status_draining", (0, 0)),
        (EdsHealth::Unknown, "healthy", (1, 0)),
    ] {
        world.reset([host(1).with_eds_health(health)]);
        assert_eq!(world.flags(1), flags);
        let membership = &stats.membership;
        assert_eq!(membership.healthy.value(), healthy, "{health:?}");
        assert_eq!(membership.degraded.value(), degraded, "{health:?}");
        // The checks pass it all the same.
        assert_eq!(stats.check(&"".into()).healthy.value(), 1);
        assert_eq!(stats.healthy.value(), 1);
        assert_eq!(world.explain(1)[0].due(), due);
    }
    assert_eq!(world.checked(), NOWHERE);
    assert_eq!(world.changes(), 1);
}

#[test]
fn a_host_comes_with_what_the_control_plane_says_of_it() {
    let mut world = World::healthy(&[]);
    world.upsert([host(1).with_eds_health(EdsHealth::Draining)]);
    assert_eq!(world.flags(1), "/failed_active_hc/eds_status_draining");
    world.end_all(&Outcome::SUCCESS);
    assert_eq!(world.flags(1), "/eds_status_draining");
}

#[test]
fn what_does_not_bear_on_checks_changes_in_place() {
    let mut world = World::healthy(&[1]);
    world.pass(200 * MS);
    let before = world.explain(1);
    let locality = Arc::new(Locality {
        region: "r".into(),
        ..Locality::default()
    });
    // Envoy would begin anew for a hostname and for a locality.
    for changed in [
        host(1).with_weight(7),
        host(1).with_priority(3),
        host(1).with_hostname("h"),
        host(1).with_locality(locality),
        host(1).with_metadata("{}"),
    ] {
        let version = world.part().version;
        world.reset([changed.clone()]);
        assert_eq!(*world.view(1).host, changed);
        assert_eq!(world.part().version, version + 1);
        assert_eq!(world.explain(1), before);
        assert_eq!(world.flags(1), "healthy");
    }
    assert_eq!(world.checked(), NOWHERE);
    assert_eq!(world.changes(), 1);
    let version = world.part().version;
    world.reset([world.view(1).host.as_ref().clone()]);
    assert_eq!(world.part().version, version, "nothing has changed");
}

#[test]
fn an_event_shows_the_host_as_it_is_now() {
    let mut world = World::healthy(&[1]);
    world.pass(INTERVAL);
    world.upsert([host(1).with_hostname("new")]);
    world.end_all(&Outcome::Success { degraded: true });
    assert_eq!(
        world.events[0].host.hostname().map(|name| &**name),
        Some("new")
    );
}

#[test]
fn a_moved_health_check_address_replaces_the_session_and_leaves_no_ghost() {
    let mut world = World::healthy(&[1]);
    world.pass(INTERVAL);
    let old = world.running[0].clone();
    world.checked.clear();
    world.reset([host(1).with_check_address(address(91))]);
    assert_eq!(world.checked(), [91], "at once, at the new address");
    assert_eq!(world.cancelled, 1);
    assert_ne!(world.running[0].session, old.session);
    assert_eq!((world.hosts(), world.clusters.sessions()), (1, 1));
    assert_eq!(world.flags(1), "healthy", "the verdict stands");
    world.end(old.session, old.id, refused());
    assert_eq!(world.flags(1), "healthy");
    // The first completion decides.
    world.end_at(1, 0, &refused());
    assert_eq!(world.flags(1), "/failed_active_hc");
    world.pass(4 * INTERVAL);
    assert!(world.checked().iter().all(|port| *port == 91));
}

#[test]
fn an_address_that_says_the_same_in_other_words_moves_nothing() {
    let mut world = World::healthy(&[1]);
    let before = world.explain(1);
    world.reset([host(1).with_check_address(address(1))]);
    assert_eq!((world.checked(), world.explain(1)), (vec![], before));
}

#[test]
fn a_pending_host_told_again_with_another_health_check_address_moves() {
    let mut world = World::healthy(&[1]);
    world.remove(&[1]);
    world.upsert([host(1).with_check_address(address(91))]);
    assert_eq!(world.checked(), [91]);
    assert_eq!(
        (world.flags(1).as_str(), world.clusters.sessions()),
        ("healthy", 1)
    );
}

#[test]
fn a_host_whose_checks_are_disabled_is_healthy_until_they_are_enabled() {
    let mut world = World::with_hosts(&[1]);
    world.end_all(&refused());
    world.pass(INTERVAL);
    assert_eq!(world.flags(1), "/failed_active_hc");
    world.checked.clear();
    world.reset([host(1).with_check_disabled()]);
    assert_eq!(world.flags(1), "healthy");
    assert_eq!(world.view(1).reason, None);
    assert_eq!((world.clusters.sessions(), world.cancelled), (0, 1));
    let stats = world.cluster_stats();
    assert_eq!(stats.membership.healthy.value(), 1);
    assert_eq!(
        (
            stats.healthy.value(),
            stats.check(&"".into()).healthy.value()
        ),
        (0, 0)
    );
    world.pass(3 * INTERVAL);
    assert_eq!(world.checked(), NOWHERE);
    world.reset([host(1)]);
    assert_eq!(world.flags(1), "/failed_active_hc");
    assert_eq!(world.view(1).verdict(), Verdict::Unknown);
    assert_eq!(world.checked(), [1]);
    world.end_all(&Outcome::SUCCESS);
    assert_eq!(world.flags(1), "healthy");
}

/// The sequence of updates that ends an Envoy.
#[test]
fn a_health_check_port_changed_and_back_then_disabled_then_enabled_leaves_one_session() {
    for end in [Outcome::SUCCESS, refused()] {
        let mut world = World::healthy(&[1]);
        let steps = [
            (host(1).with_check_address(address(91)), Some(91)),
            (host(1), Some(1)),
            (host(1).with_check_disabled(), None),
            (host(1), Some(1)),
        ];
        for (told, port) in steps {
            world.pass(800 * MS);
            world.checked.clear();
            world.reset([told]);
            assert_eq!(world.hosts(), 1);
            assert_eq!(world.clusters.sessions(), usize::from(port.is_some()));
            assert_eq!(world.checked(), Vec::from_iter(port));
            world.end_all(&end);
            world.pass(INTERVAL);
            assert!(world.checked().iter().all(|at| Some(*at) == port));
        }
        assert_eq!(world.running.len(), 1);
        assert_eq!(world.running[0].host.checked_at(), &address(1));
    }
}

#[test]
fn an_address_told_twice_is_one_host() {
    let mut world = World::healthy(&[]);
    let elsewhere = || host(1).with_check_address(address(91));
    world.reset([host(1), host(1), elsewhere()]);
    assert_eq!(world.checked(), [1], "the first is kept");
    assert_eq!(world.hosts(), 1);
    world.upsert([host(2), host(2).with_weight(5)]);
    assert_eq!(world.view(2).host.weight, 1);
    world.reset([elsewhere(), host(1)]);
    assert_eq!(world.checked(), [2, 91]);
    assert_eq!(world.hosts(), 1);
}

#[test]
fn an_address_twice_in_a_static_cluster_is_two_hosts() {
    let mut world = World::new();
    let of = |hosts: &[Host]| {
        let hosts = hosts.iter().cloned().map(Arc::new).collect();
        ClusterConfig::new("c", Discovery::Static(hosts)).with_health_check(check(""))
    };
    world.set(of(&[host(1), host(2), host(1)]));
    assert_eq!(world.checked(), [1, 2, 1]);
    assert_eq!((world.hosts(), world.clusters.sessions()), (3, 3));
    assert_eq!(world.explain(1).len(), 2);
    world.end_all(&Outcome::SUCCESS);
    world.pass(INTERVAL);
    assert_eq!(world.checked(), [1, 2, 1]);
    world.end_all(&Outcome::SUCCESS);
    // Told again, each finds its own.
    world.set(of(&[host(1), host(1), host(2)]));
    assert_eq!((world.hosts(), world.checked()), (3, vec![]));
    // One of the two goes, at once though it passes, and nothing is asked of the others.
    world.set(of(&[host(1), host(2)]));
    assert_eq!((world.hosts(), world.clusters.sessions()), (2, 2));
    assert_eq!(world.checked(), NOWHERE);
}

#[test]
fn the_host_of_a_logical_name_is_healthy_until_its_checks_fail_it() {
    let mut world = World::new();
    let logical = Discovery::LogicalDns(Arc::new(DnsConfig {
        endpoints: Vec::new(),
        refresh_rate: INTERVAL,
        min_refresh_rate: None,
        failure_refresh_rate: None,
        respect_ttl: false,
        jitter: Duration::ZERO,
        lookup_family: LookupFamily::Auto,
        resolver: None,
    }));
    let config = ClusterConfig::new("c", logical).with_health_check(check(""));
    world.set(ClusterConfig {
        ignore_new_hosts_until_first_hc: true,
        ..config
    });
    world.reset([host(1)]);
    let stats = world.cluster_stats();
    let healthy = || {
        let check = stats.check(&"".into());
        (stats.membership.healthy.value(), check.healthy.value())
    };
    assert_eq!((world.flags(1).as_str(), healthy()), ("healthy", (1, 1)));
    assert!(!world.part().initialized);
    // Nothing changes with the first success, so nothing is told.
    world.end_all(&Outcome::SUCCESS);
    assert_eq!(world.kinds(), []);
    assert!(world.part().initialized);
    world.round(&refused());
    assert_eq!((world.flags(1).as_str(), healthy()), ("healthy", (1, 1)));
    world.round(&refused());
    assert_eq!(
        (world.flags(1).as_str(), healthy()),
        ("/failed_active_hc", (0, 0))
    );
}

#[test]
fn a_slot_is_used_again_and_its_ids_are_not_mistaken() {
    let mut world = World::with_hosts(&[1, 2, 3]);
    let old = world.running.clone();
    world.reset([host(4), host(5), host(6)]);
    assert_eq!((world.hosts(), world.cancelled), (3, 3));
    assert_eq!(world.running.len(), 3);
    for Running { session, id, .. } in old {
        world.end(session, id, Outcome::SUCCESS);
    }
    assert!(world.part().hosts.iter().all(HostView::failed));
    world.end_all(&Outcome::SUCCESS);
    assert!(world.part().hosts.iter().all(HostView::eligible));
}

#[test]
fn a_removed_address_that_is_not_there_changes_nothing() {
    let mut world = World::healthy(&[1]);
    let version = world.part().version;
    world.remove(&[9]);
    world.update(Update::Remove {
        cluster: "other".into(),
        addresses: [address(1)].into(),
    });
    world.update(Update::RemoveCluster("other".into()));
    world.update(Update::HostsUnavailable("other".into()));
    assert_eq!((world.part().version, world.hosts()), (version, 1));
    assert_eq!(world.changes(), 1);
}

#[test]
fn pipes_are_hosts_too() {
    let mut world = World::healthy(&[]);
    let pipe = Address::Pipe("/run/a".into());
    world.upsert([Host::new(pipe.clone())]);
    world.end_all(&Outcome::SUCCESS);
    let view = world.part().hosts.iter().next().unwrap();
    assert_eq!((&view.host.address, view.eligible()), (&pipe, true));
}
