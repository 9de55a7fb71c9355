//! Gauges of clusters that several drivers share.

use super::*;

#[test]
fn shares_split_hosts_without_overlap_or_loss() {
    for of in [1, 2, 3, 7] {
        let shares: Vec<_> = (0..of).map(|index| Share::new(index, of)).collect();
        let mut taken = vec![0; of];
        for port in 1..=2000 {
            let taker = |share: &Share| share.takes(&address(port));
            assert_eq!(shares.iter().filter(|share| taker(share)).count(), 1);
            taken[shares.iter().position(taker).unwrap()] += 1;
        }
        let fair = 2000 / of;
        assert!(
            taken.iter().all(|n| (fair / 2..=fair * 2).contains(n)),
            "{taken:?}"
        );
    }
    assert!(Share::ALL.takes(&Address::Pipe("p".into())));
    assert_eq!(Share::new(0, 0), Share::ALL);
}

#[test]
fn drivers_with_a_share_each_hold_every_host_once_and_count_together() {
    let stats = Stats::default();
    let config = Arc::new(dynamic(&[""]));
    let counted = stats.cluster(&config.name, config.stat_name());
    let hosts: Arc<[_]> = (1..=100).map(|port| Arc::new(host(port))).collect();
    let mut worlds: Vec<_> = (0..3)
        .map(|index| World::of(Share::new(index, 3)))
        .collect();
    let tell = |world: &mut World, update: Update| {
        world.clusters.handle_update(world.now, update);
        while let Some(action) = world.clusters.poll_action() {
            if let Action::Start(session) = action {
                world.start(session);
            }
        }
        while let Some((id, part)) = world.clusters.poll_part() {
            world.parts.insert(id.0, part);
        }
    };
    for world in &mut worlds {
        let update = Update::Cluster {
            config: Arc::clone(&config),
            stats: Arc::clone(&counted),
            traffic: false,
        };
        tell(world, update);
        let (cluster, hosts) = ("c".into(), Arc::clone(&hosts));
        tell(world, Update::Reset { cluster, hosts });
    }
    let mut ports: Vec<_> = worlds.iter_mut().flat_map(World::checked).collect();
    ports.sort_unstable();
    assert_eq!(ports, Vec::from_iter(1..=100));
    assert_eq!(counted.membership.total.value(), 100);

    for world in &mut worlds {
        for Running { session, id, .. } in world.running.clone() {
            world.tell(session, id, Outcome::SUCCESS);
        }
    }
    assert_eq!(counted.membership.healthy.value(), 100);
    assert_eq!(counted.check(&"".into()).healthy.value(), 100);
    for world in &mut worlds {
        let addresses = (1..=40).map(address).collect();
        tell(
            world,
            Update::Remove {
                cluster: "c".into(),
                addresses,
            },
        );
        tell(world, Update::RemoveCluster("c".into()));
        assert_eq!(world.clusters.sessions(), 0);
    }
    assert_eq!(counted.membership.total.value(), 0);
    assert_eq!(counted.check(&"".into()).healthy.value(), 0);
}

#[test]
fn hosts_that_are_told_in_steps_are_as_if_told_at_once() {
    let mut world = World::healthy(&[1, 2, 3]);
    let told: Arc<[_]> = [2, 3, 4, 5].map(|port| Arc::new(host(port))).into();
    let mut reset = world.begin_reset("c", told);
    let mut steps = 1;
    let changed = loop {
        match world.clusters.continue_reset(world.now, &mut reset, 2) {
            Some(changed) => break changed,
            None => steps += 1,
        }
    };
    // Four hosts, then five slots.
    assert_eq!((changed, steps), (true, 5));
    let mut begun = 0;
    while let Some(action) = world.clusters.poll_action() {
        begun += usize::from(matches!(action, Action::Start(_)));
    }
    assert_eq!(begun, 2);
    let (_, part) = world.clusters.poll_part().unwrap();
    let flags: BTreeMap<_, _> = part
        .hosts
        .iter()
        .map(|view| (view.host.address.clone(), view.flags))
        .collect();
    let failed = HealthFlags::FAILED_ACTIVE_HC;
    let none = HealthFlags::NONE;
    let wanted = [(1, PENDING), (2, none), (3, none), (4, failed), (5, failed)];
    let wanted = wanted.map(|(port, flags)| (address(port), flags));
    assert_eq!(flags, wanted.into());
}
