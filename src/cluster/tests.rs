use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::*;
use crate::config::{CheckerConfig, Discovery, TypedConfig};
use crate::event::{EventKind, Failure, FailureType, Outcome, Reason};
use crate::host::{EdsHealth, Health, HealthFlags, Host, Locality};
use crate::session::IntervalKind;
use crate::snapshot::{HostView, Verdict};
use crate::stats::{Counter, Stats};

mod config;
mod hosts;
mod membership;
mod model;
mod oracle;
mod sessions;

const MS: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_millis(300);
const INTERVAL: Duration = Duration::from_millis(500);

/// No port was checked.
const NOWHERE: [u16; 0] = [];

const PENDING: HealthFlags = HealthFlags::PENDING_DYNAMIC_REMOVAL;

fn address(port: u16) -> Address {
    SocketAddr::from(([127, 0, 0, 1], port)).into()
}

fn host(port: u16) -> Host {
    Host::new(address(port))
}

/// A check with both thresholds 2 and the same interval everywhere.
fn check(name: &str) -> HealthCheck {
    let checker = CheckerConfig::Custom(TypedConfig::default());
    HealthCheck {
        name: name.into(),
        no_traffic_interval: INTERVAL,
        no_traffic_healthy_interval: INTERVAL,
        ..HealthCheck::new(checker, TIMEOUT, INTERVAL, 2, 2)
    }
}

/// The cluster `c`, whose hosts are told, under checks of these names.
fn dynamic(checks: &[&str]) -> ClusterConfig {
    let cluster = ClusterConfig::new("c", Discovery::Dynamic);
    let checks = checks.iter().map(|name| check(name));
    checks.fold(cluster, ClusterConfig::with_health_check)
}

fn refused() -> Outcome {
    Outcome::network(Reason::Refused)
}

/// An attempt that runs.
#[derive(Clone, Debug, PartialEq)]
struct Running {
    session: SessionId,
    id: AttemptId,
    cluster: ClusterId,
    check: usize,
    host: Arc<Host>,
}

/// Clusters, and a driver of them that has room for every attempt.
struct World {
    clusters: Clusters,
    stats: Stats,
    now: Instant,
    last_attempt: u32,
    running: Vec<Running>,
    /// Where attempts went since this was last taken.
    checked: Vec<Address>,
    events: Vec<Notice>,
    cancelled: usize,
    /// Updates by which hosts came or went.
    changes: u64,
    parts: BTreeMap<u32, Part>,
}

impl World {
    fn new() -> Self {
        Self::of(Share::ALL)
    }

    fn of(share: Share) -> Self {
        let now = Instant::now();
        Self {
            clusters: Clusters::new(now, share, 7),
            stats: Stats::default(),
            now,
            last_attempt: 0,
            running: Vec::new(),
            checked: Vec::new(),
            events: Vec::new(),
            cancelled: 0,
            changes: 0,
            parts: BTreeMap::new(),
        }
    }

    /// The cluster `c` under one check without a name, its hosts told.
    fn with_hosts(ports: &[u16]) -> Self {
        let mut world = Self::new();
        world.set(dynamic(&[""]));
        world.reset(ports.iter().map(|port| host(*port)));
        world
    }

    /// The same with every host healthy.
    fn healthy(ports: &[u16]) -> Self {
        let mut world = Self::with_hosts(ports);
        world.end_all(&Outcome::SUCCESS);
        world.forget();
        world
    }

    /// Forgets what was noted so far.
    fn forget(&mut self) {
        self.checked.clear();
        self.events.clear();
    }

    fn update(&mut self, update: Update) {
        self.changes += u64::from(self.clusters.handle_update(self.now, update));
        self.act();
    }

    fn set(&mut self, config: ClusterConfig) {
        let stats = self.stats.cluster(&config.name, config.stat_name());
        self.update(Update::Cluster {
            config: Arc::new(config),
            stats,
            traffic: false,
        });
    }

    fn reset(&mut self, hosts: impl IntoIterator<Item = Host>) {
        self.update(Update::Reset {
            cluster: "c".into(),
            hosts: hosts.into_iter().map(Arc::new).collect(),
        });
    }

    fn begin_reset(&mut self, cluster: &str, hosts: Arc<[Arc<Host>]>) -> Reset {
        let cluster = cluster.into();
        let update = Update::Reset { cluster, hosts };
        match self.clusters.begin_update(self.now, update) {
            Begun::Goes(reset) => reset,
            Begun::Done(_) => panic!("no such cluster"),
        }
    }

    fn upsert(&mut self, hosts: impl IntoIterator<Item = Host>) {
        self.update(Update::Upsert {
            cluster: "c".into(),
            hosts: hosts.into_iter().map(Arc::new).collect(),
        });
    }

    fn remove(&mut self, ports: &[u16]) {
        self.update(Update::Remove {
            cluster: "c".into(),
            addresses: ports.iter().map(|port| address(*port)).collect(),
        });
    }

    /// Does what is to be done, until there is nothing.
    fn act(&mut self) {
        let mut expired = Vec::new();
        loop {
            let Some(action) = self.clusters.poll_action() else {
                let Some((session, id)) = expired.pop() else {
                    break;
                };
                self.tell(session, id, Outcome::timeout(Reason::Silent));
                continue;
            };
            match action {
                Action::Start(session) => self.start(session),
                Action::Expire(session, id) => expired.push((session, id)),
                Action::Cancel(session, id) => {
                    let before = self.running.len();
                    self.running.retain(|r| (r.session, r.id) != (session, id));
                    assert_eq!(self.running.len(), before - 1, "what is cancelled ran");
                    self.cancelled += 1;
                }
                Action::Forget(session) => {
                    let runs = self.running.iter().any(|r| r.session == session);
                    assert!(!runs, "what is forgotten does not run");
                }
                Action::Event(notice) => self.events.push(notice),
            }
        }
        while let Some((id, part)) = self.clusters.poll_part() {
            self.parts.insert(id.0, part);
        }
        self.assert_consistent();
    }

    fn start(&mut self, session: SessionId) {
        let id = AttemptId(self.last_attempt + 1);
        let Some(started) = self.clusters.start(self.now, session, id) else {
            return;
        };
        self.last_attempt = id.0;
        self.checked.push(started.host.checked_at().clone());
        self.running.push(Running {
            session,
            id,
            cluster: started.cluster,
            check: started.check,
            host: Arc::clone(started.host),
        });
    }

    fn end(&mut self, session: SessionId, id: AttemptId, outcome: Outcome) {
        self.tell(session, id, outcome);
        self.act();
    }

    fn tell(&mut self, session: SessionId, id: AttemptId, outcome: Outcome) {
        self.running.retain(|r| (r.session, r.id) != (session, id));
        let round_trip = matches!(outcome, Outcome::Success { .. }).then_some(3 * MS);
        let clusters = &mut self.clusters;
        clusters.handle_outcome(self.now, session, id, outcome, round_trip);
    }

    /// Ends every attempt that runs.
    fn end_all(&mut self, outcome: &Outcome) {
        for Running { session, id, .. } in self.running.clone() {
            self.end(session, id, outcome.clone());
        }
    }

    /// Ends the attempts that run at a host under a check.
    #[track_caller]
    fn end_at(&mut self, port: u16, check: usize, outcome: &Outcome) {
        let at = address(port);
        let ending: Vec<_> = self
            .running
            .iter()
            .filter(|r| r.host.address == at && r.check == check)
            .cloned()
            .collect();
        assert!(!ending.is_empty(), "no attempt runs at {at}");
        for Running { session, id, .. } in ending {
            self.end(session, id, outcome.clone());
        }
    }

    /// Lets time pass; attempts whose time is up end as timed out.
    fn pass(&mut self, time: Duration) {
        let target = self.now + time;
        while let Some(next) = self.clusters.poll_timeout().filter(|at| *at <= target) {
            self.now = self.now.max(next);
            self.clusters.handle_timeout(self.now);
            self.act();
        }
        self.now = target;
        self.clusters.handle_timeout(self.now);
        self.act();
    }

    /// One interval, after which every attempt ends so.
    fn round(&mut self, outcome: &Outcome) {
        self.pass(INTERVAL);
        self.end_all(outcome);
    }

    fn part(&self) -> &Part {
        &self.parts[&self.clusters.id("c").unwrap().0]
    }

    /// The only host at an address.
    #[track_caller]
    fn view(&self, port: u16) -> &HostView {
        let at = address(port);
        let mut views = self.part().hosts.iter().filter(|v| v.host.address == at);
        let view = views.next().expect("a host is there");
        assert!(views.next().is_none(), "two hosts are at {at}");
        view
    }

    #[track_caller]
    fn flags(&self, port: u16) -> String {
        self.view(port).flags.to_string()
    }

    /// What the sessions at an address are up to.
    fn explain(&self, port: u16) -> Vec<SessionView> {
        let cluster = self.clusters.id("c").unwrap();
        self.clusters.explain(cluster, &address(port))
    }

    fn hosts(&self) -> usize {
        self.part().hosts.len()
    }

    fn cluster_stats(&self) -> Arc<ClusterStats> {
        let id = self.clusters.id("c").unwrap();
        Arc::clone(&self.clusters.clusters[id.index()].stats)
    }

    /// What `membership_change` amounts to: what updates did, and what followed from checks.
    fn changes(&self) -> u64 {
        self.changes + self.cluster_stats().membership.change.value()
    }

    /// Ports that were checked since it was last asked.
    fn checked(&mut self) -> Vec<u16> {
        let ports = self.checked.drain(..);
        let ports = ports.map(|at| at.socket_addr().unwrap().port());
        ports.collect()
    }

    fn kinds(&mut self) -> Vec<EventKind> {
        self.events.drain(..).map(|event| event.kind).collect()
    }

    fn assert_consistent(&self) {
        let running = |id| self.running.iter().filter(|r| r.session == id).count();
        let mut sessions = 0;
        for (key, cluster) in &self.clusters.clusters {
            let part = &self.parts[&u32::try_from(key).unwrap()];
            assert_eq!(part.initialized, cluster.part.initialized);
            assert_eq!(part.unchecked, cluster.unchecked);
            assert!(part.hosts.iter().eq(cluster.part.hosts.iter()));
            sessions += recount(&self.clusters, cluster, &running);
        }
        assert_eq!(
            self.clusters.sessions(),
            sessions,
            "no session is left over"
        );

        let deadlines = self.clusters.sessions.iter();
        let due = deadlines.filter_map(|(_, slot)| slot.session.poll_timeout());
        // The wheel rounds up to its tick, and looks at what is far away before it is due.
        match (due.min(), self.clusters.poll_timeout()) {
            (Some(due), Some(at)) => assert!(at <= due + MS),
            (due, at) => assert_eq!(due, at),
        }
        assert!(self.clusters.begun.is_empty());
    }
}

/// Holds a cluster's flags and gauges against its sessions; tells how many those are.
fn recount(clusters: &Clusters, cluster: &Cluster, running: &dyn Fn(SessionId) -> usize) -> usize {
    let count = |what: &dyn Fn(&HostView) -> bool| {
        let views = cluster.part.hosts.iter();
        views.filter(|view| what(view)).count() as u64
    };
    let membership = &cluster.stats.membership;
    assert_eq!(membership.total.value(), count(&|_| true));
    let is = |health| count(&|view| view.flags.health() == health);
    assert_eq!(membership.healthy.value(), is(Health::Healthy));
    assert_eq!(membership.degraded.value(), is(Health::Degraded));
    assert_eq!(
        membership.excluded.value(),
        count(&|view| view.flags.excluded())
    );

    let width = cluster.checks.len();
    let (mut sessions, mut unchecked) = (0, 0);
    let mut by_check = vec![(0, 0, 0); width];
    let (mut healthy, mut degraded) = (0, 0);
    for slot in 0..cluster.part.hosts.slots() {
        let first = cluster.members.session(u32::try_from(slot).unwrap());
        let Some(view) = cluster.part.hosts.get(slot) else {
            assert_eq!(first, None);
            continue;
        };
        let mut chain = Vec::new();
        let mut next = first;
        while let Some(id) = next {
            let slot = &clusters.sessions[id.index()];
            assert_eq!(usize::from(slot.check), chain.len(), "one for each check");
            next = slot.next;
            chain.push((id, &slot.session));
        }
        let checked = cluster.config.checks(&view.host);
        assert_eq!(chain.len(), if checked { width } else { 0 });
        sessions += chain.len();
        for (position, (id, session)) in chain.iter().enumerate() {
            let runs = usize::from(session.attempting().is_some());
            assert_eq!(running(*id), runs);
            by_check[position].0 += u64::from(!session.failed());
            by_check[position].1 += u64::from(session.degraded());
            by_check[position].2 += runs as u64;
            unchecked += usize::from(session.first_check());
        }
        let any = |what: fn(&Session) -> bool| chain.iter().any(|(_, session)| what(session));
        assert_eq!(view.failed(), any(Session::failed));
        assert_eq!(view.degraded(), any(Session::degraded));
        let timed_out = view.flags.intersects(HealthFlags::ACTIVE_HC_TIMEOUT);
        assert_eq!(timed_out, any(Session::timed_out));
        assert_eq!(view.unchecked, any(|session| !session.known()));
        assert!(view.reason.is_none() || view.failed());
        if view.flags.intersects(PENDING) {
            assert!(checked && !view.failed());
        }
        healthy += u64::from(checked && !view.failed());
        degraded += u64::from(view.degraded());
    }
    assert_eq!(cluster.unchecked, unchecked);
    assert_eq!(cluster.stats.healthy.value(), healthy);
    assert_eq!(cluster.stats.degraded.value(), degraded);
    let mut names: Vec<_> = cluster.checks.iter().map(|c| &c.config.name).collect();
    names.sort();
    names.dedup();
    for name in names {
        // Checks without a name count together.
        let stats = cluster.stats.check(name);
        let checks = cluster.checks.iter().zip(&by_check);
        let of_name = checks.filter(|(check, _)| check.config.name == *name);
        let (mut healthy, mut degraded, mut running) = (0, 0, 0);
        for (check, counts) in of_name {
            assert!(Arc::ptr_eq(&check.stats, &stats));
            healthy += counts.0;
            degraded += counts.1;
            running += counts.2;
        }
        assert_eq!(stats.healthy.value(), healthy);
        assert_eq!(stats.degraded.value(), degraded);
        let ended = [&stats.success, &stats.failure, &stats.cancelled];
        let ended: u64 = ended.into_iter().map(Counter::value).sum();
        assert_eq!(stats.attempt.value(), ended + running);
    }
    sessions
}
