use super::*;
use crate::dns::answer::Family;
use crate::dns::testing::cluster;
use crate::stats::Stats;

const SECOND: Duration = Duration::from_secs(1);

struct World {
    names: Names,
    stats: Stats,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            names: Names::new(now, 1),
            stats: Stats::default(),
            now,
        }
    }

    /// A world with one cluster, which is asked for.
    fn with(fields: &str, endpoints: &[&str]) -> Self {
        let mut world = Self::new();
        world.set(fields, endpoints);
        world
    }

    fn stats(&self) -> Arc<ClusterStats> {
        self.stats.cluster(&"c".into(), &"c".into())
    }

    fn set(&mut self, fields: &str, endpoints: &[&str]) {
        let stats = self.stats();
        let config = cluster(fields, endpoints);
        self.names.set_cluster(&config, &stats);
    }

    /// The lookups that are due, as names.
    fn due(&mut self) -> Vec<Lookup> {
        self.names.handle_timeout(self.now);
        std::iter::from_fn(|| self.names.poll_lookup()).collect()
    }

    /// Answers all lookups of `name` that are due; `!` for a failure.
    #[track_caller]
    fn answer(&mut self, lookups: &[Lookup], name: &str, addresses: &[&str]) -> Noted {
        let lookup = lookups.iter().find(|lookup| &*lookup.name == name);
        let answer = (addresses != ["!"]).then(|| Answer {
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            ttl: None,
            missing: None,
        });
        let id = lookup.unwrap().id;
        self.names.handle_answer(self.now, id, answer)
    }

    /// One round of one name.
    #[track_caller]
    fn round(&mut self, name: &str, addresses: &[&str]) -> Noted {
        self.now += SECOND * 5;
        let due = self.due();
        self.answer(&due, name, addresses)
    }

    /// What there is to tell: the hosts, or that there are none to wait for.
    fn told(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.names.poll_change())
            .map(|change| match change {
                Change::Hosts { hosts, .. } => {
                    let hosts = hosts.iter().map(|host| host.address.to_string());
                    hosts.collect::<Vec<_>>().join(" ")
                }
                Change::HostsUnavailable(name) => format!("unavailable: {name}"),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// Attempts, successes, failures and answers that changed nothing.
    fn counts(&self) -> [u64; 4] {
        let updates = &self.stats().updates;
        [
            &updates.attempt,
            &updates.success,
            &updates.failure,
            &updates.no_rebuild,
        ]
        .map(|counter| counter.value())
    }
}

const NONE: [&str; 0] = [];
const LOGICAL: &str = "all_addresses_in_single_endpoint: true";

#[test]
fn every_address_of_every_name_is_a_host() {
    let mut world = World::with("", &["a", "b"]);
    let due = world.due();
    assert_eq!(due.len(), 2);
    assert!(world.told().is_empty());
    world.answer(&due, "a", &["127.0.0.2", "127.0.0.1"]);
    assert_eq!(world.told(), ["127.0.0.1:80 127.0.0.2:80"]);
    world.answer(&due, "b", &["::1"]);
    assert_eq!(world.told(), ["127.0.0.1:80 127.0.0.2:80 [::1]:80"]);
    assert_eq!(world.counts(), [2, 2, 0, 0]);
}

#[test]
fn only_changes_are_told() {
    let mut world = World::with("", &["a"]);
    world.round("a", &["127.0.0.1", "127.0.0.2"]);
    world.told();
    let noted = world.round("a", &["127.0.0.2", "127.0.0.1", "127.0.0.2"]);
    let same = Noted::Resolved {
        count: 2,
        changed: false,
    };
    assert_eq!(noted, same);
    assert_eq!(world.told(), NONE);
    world.round("a", &["127.0.0.2"]);
    assert_eq!(world.told(), ["127.0.0.2:80"]);
    assert_eq!(world.counts(), [3, 3, 0, 1]);
}

#[test]
fn the_next_lookup_follows_the_answer() {
    let mut world = World::with("dns_refresh_rate: 3s", &["a"]);
    let due = world.due();
    world.now += SECOND * 60;
    assert!(world.due().is_empty(), "one lookup of a name at a time");
    world.answer(&due, "a", &["127.0.0.1"]);
    world.now += SECOND * 3 - Duration::from_millis(1);
    assert!(world.due().is_empty());
    world.now += Duration::from_millis(2);
    assert_eq!(world.due().len(), 1);
}

#[test]
fn failures_keep_the_hosts() {
    let mut world = World::with("", &["a"]);
    world.round("a", &["127.0.0.1"]);
    world.told();
    assert_eq!(world.round("a", &["!"]), Noted::Failed { first: true });
    assert_eq!(world.round("a", &["!"]), Noted::Failed { first: false });
    assert_eq!(world.told(), NONE);
    assert_eq!(world.counts(), [3, 1, 2, 0]);
}

#[test]
fn an_empty_answer_takes_the_hosts_away() {
    let mut world = World::with("", &["a"]);
    world.round("a", &["127.0.0.1"]);
    world.told();
    world.round("a", &[]);
    assert_eq!(world.told(), [""]);
    assert_eq!(world.counts(), [2, 2, 0, 0]);
}

#[test]
fn nobody_waits_for_names_that_cannot_be_resolved() {
    let mut world = World::with("", &["a", "b"]);
    let due = world.due();
    world.answer(&due, "a", &["!"]);
    assert_eq!(world.told(), NONE, "the other name may be resolved yet");
    world.answer(&due, "b", &["!"]);
    assert_eq!(world.told(), ["unavailable: c"]);
    world.now += SECOND * 5;
    let due = world.due();
    world.answer(&due, "a", &["!"]);
    world.answer(&due, "b", &["127.0.0.1"]);
    assert_eq!(world.told(), ["127.0.0.1:80"]);
}

#[test]
fn nobody_waits_for_names_without_addresses() {
    let mut world = World::with("", &["a", "b"]);
    let due = world.due();
    world.answer(&due, "a", &["!"]);
    world.answer(&due, "b", &[]);
    assert_eq!(world.told(), [""]);
    assert_eq!(World::with("", &[]).told(), [""]);
}

#[test]
fn a_logical_cluster_has_one_host() {
    let mut world = World::with(LOGICAL, &["a"]);
    world.round("a", &["127.0.0.2", "127.0.0.1"]);
    assert_eq!(world.told(), ["127.0.0.2:80"]);
    world.round("a", &["127.0.0.2", "127.0.0.3"]);
    assert_eq!(world.told(), NONE, "only the first counts");
    world.round("a", &[]);
    assert_eq!(world.told(), NONE, "no address is a failure");
    world.round("a", &["127.0.0.1", "127.0.0.2"]);
    assert_eq!(world.told(), ["127.0.0.1:80"]);
    assert_eq!(world.counts(), [4, 3, 1, 1]);
}

#[test]
fn hosts_carry_what_their_endpoints_say() {
    let address = |name: &str, port| {
        format!("address: {{socket_address: {{address: {name}, port_value: {port}}}}}")
    };
    let one = format!(
        "{{priority: 2, locality: {{zone: z}}, lb_endpoints: [{{load_balancing_weight: 7, endpoint: {{{}, health_check_config: {{port_value: 90}}}}}}]}}",
        address("a", 80)
    );
    let two = format!(
        "{{lb_endpoints: [{{endpoint: {{hostname: h, {}}}}}, {{endpoint: {{{}}}}}]}}",
        address("a", 81),
        address("a", 81)
    );
    let mut world = World::with("", &[&one, &two]);
    let due = world.due();
    assert_eq!(due.len(), 1, "one name, one lookup");
    world.answer(&due, "a", &["127.0.0.1"]);
    let Some(Change::Hosts { hosts, .. }) = world.names.poll_change() else {
        panic!("no hosts");
    };
    let [one, two] = &*hosts else {
        panic!("{hosts:?}");
    };
    assert_eq!((one.priority, one.weight), (2, 7));
    assert_eq!(&*one.locality().zone, "z");
    assert_eq!(one.hostname().map(|name| &**name), Some("a"));
    assert_eq!(one.checked_at().to_string(), "127.0.0.1:90");
    assert_eq!(two.address.to_string(), "127.0.0.1:81");
    assert_eq!(two.hostname().map(|name| &**name), Some("h"));

    let mut world = World::with(LOGICAL, &[&one_of(2)]);
    world.round("a", &["127.0.0.1"]);
    let Some(Change::Hosts { hosts, .. }) = world.names.poll_change() else {
        panic!("no hosts");
    };
    assert_eq!(hosts[0].priority, 0);
}

fn one_of(priority: u32) -> String {
    format!(
        "{{priority: {priority}, lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: a, port_value: 80}}}}}}}}]}}"
    )
}

#[test]
fn names_that_lead_to_one_address_make_one_host() {
    let mut world = World::with("", &["a", "b"]);
    let due = world.due();
    world.answer(&due, "a", &["127.0.0.1", "127.0.0.2"]);
    world.answer(&due, "b", &["127.0.0.2", "127.0.0.3"]);
    assert_eq!(world.told(), ["127.0.0.1:80 127.0.0.2:80 127.0.0.3:80"]);
    world.now += SECOND * 5;
    let due = world.due();
    world.answer(&due, "a", &["127.0.0.1"]);
    world.answer(&due, "b", &["127.0.0.2"]);
    assert_eq!(world.told(), ["127.0.0.1:80 127.0.0.2:80"]);
}

#[test]
fn numeric_addresses_need_no_lookup() {
    let mut world = World::with("dns_lookup_family: V6_ONLY", &["127.0.0.1", "::1"]);
    assert_eq!(world.due(), []);
    assert_eq!(world.told(), ["127.0.0.1:80 [::1]:80"]);
    assert_eq!(world.names.poll_timeout(), None);
    world.set("", &["::1"]);
    assert_eq!(world.due(), []);
    assert_eq!(world.told(), ["[::1]:80"]);
}

#[test]
fn a_family_that_could_not_be_had_stays() {
    let mut world = World::with("dns_lookup_family: ALL", &["a"]);
    world.round("a", &["127.0.0.1", "::1"]);
    world.told();
    world.now += SECOND * 5;
    let id = world.due()[0].id;
    let answer = Answer {
        addresses: vec!["127.0.0.2".parse().unwrap()],
        ttl: None,
        missing: Some(Family::V6),
    };
    world.names.handle_answer(world.now, id, Some(answer));
    assert_eq!(world.told(), ["127.0.0.2:80 [::1]:80"]);
    world.round("a", &["127.0.0.2"]);
    assert_eq!(world.told(), ["127.0.0.2:80"]);
}

#[test]
fn a_cluster_told_again_goes_on() {
    let mut world = World::with("", &["a"]);
    world.round("a", &["127.0.0.1"]);
    world.told();
    let due = world.names.poll_timeout();
    world.set("", &["a"]);
    assert_eq!(world.told(), NONE);
    assert_eq!(world.names.poll_timeout(), due);
    assert_eq!(world.due(), []);
}

#[test]
fn hosts_of_new_names_take_over_when_all_are_known() {
    let mut world = World::with("", &["a"]);
    world.round("a", &["127.0.0.1"]);
    world.told();
    world.set("", &["b", "c"]);
    let due = world.due();
    assert_eq!(due.len(), 2);
    world.answer(&due, "b", &["127.0.0.2"]);
    assert_eq!(world.told(), NONE);
    world.answer(&due, "c", &["!"]);
    assert_eq!(world.told(), ["127.0.0.2:80"]);
    world.set("", &["b", "a"]);
    assert_eq!(world.told(), NONE);
    let due = world.due();
    assert_eq!(due.len(), 1, "one that stays is not asked for anew");
    world.answer(&due, "a", &["127.0.0.1"]);
    assert_eq!(world.told(), ["127.0.0.2:80 127.0.0.1:80"]);
}

#[test]
fn another_way_of_asking_asks_anew_and_keeps_the_hosts() {
    let mut world = World::with("", &["a"]);
    world.round("a", &["::1"]);
    world.told();
    world.set("dns_lookup_family: V4_ONLY", &["a"]);
    let first = world.due();
    assert_eq!(first[0].family, LookupFamily::V4Only);
    world.set("dns_lookup_family: ALL", &["a"]);
    let second = world.due();
    assert_eq!(world.answer(&first, "a", &["127.0.0.1"]), Noted::Stale);
    world.answer(&second, "a", &["!"]);
    assert_eq!(world.told(), ["[::1]:80"]);
    world.round("a", &["127.0.0.1"]);
    assert_eq!(world.told(), ["127.0.0.1:80"]);
}

#[test]
fn what_was_removed_is_not_told() {
    let mut world = World::with("", &["a", "b"]);
    let due = world.due();
    world.answer(&due, "a", &["127.0.0.1"]);
    world.names.remove_cluster("c");
    assert!(!world.names.has_change());
    assert_eq!(world.answer(&due, "b", &["127.0.0.2"]), Noted::Stale);
    assert_eq!(world.names.poll_timeout(), None);
    world.names.remove_cluster("c");

    world.set("", &["a"]);
    let again = world.due();
    assert_eq!(again.len(), 1);
    assert_eq!(world.answer(&due, "a", &["127.0.0.1"]), Noted::Stale);
    world.answer(&again, "a", &["127.0.0.3"]);
    assert_eq!(world.told(), ["127.0.0.3:80"]);
    let other = ClusterConfig::new("c", Discovery::Dynamic);
    world.names.set_cluster(&other, &world.stats());
    world.now += SECOND * 60;
    assert_eq!(world.due(), []);
}
