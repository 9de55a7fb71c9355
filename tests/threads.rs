//! Shards that are threads are woken by changes, by futures of a runtime, and by their end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use xds_health::checker::{Attempt, AttemptIo, Checker, HostChecker, Target};
use xds_health::config::{CheckerConfig, ClusterConfig, Discovery, HealthCheck, TypedConfig};
use xds_health::engine::{Engine, Options, Origin, Traffic};
use xds_health::event::{HealthCheckerType, Outcome};
use xds_health::host::Host;
use xds_health::registry::{Registry, Update};
use xds_health::snapshot::HostView;
use xds_health::stats::Stats;

const PATIENCE: Duration = Duration::from_secs(30);

/// Attempts that wake themselves each time they are polled, and never end.
#[derive(Debug)]
struct Restless;

impl Checker for Restless {
    fn health_checker_type(&self) -> HealthCheckerType {
        HealthCheckerType::Udp
    }

    fn for_host(&self, _target: Target<'_>) -> Box<dyn HostChecker> {
        Box::new(Self)
    }
}

impl HostChecker for Restless {
    fn attempt<'a>(&'a mut self, _io: &'a AttemptIo) -> Attempt<'a> {
        Box::pin(std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        }))
    }
}

#[tokio::test]
async fn an_attempt_that_wakes_itself_keeps_no_answer_waiting() {
    let hour = Duration::from_secs(3600);
    let peer = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let host = Host::new(peer.local_addr().unwrap());
    let options = Options::default().with_shards(1);
    let engine = Engine::start_threads(options, Arc::new(Stats::default())).unwrap();
    let udp = CheckerConfig::udp(b"ping", b"pong").unwrap();
    let checks: [(_, Arc<dyn Checker>); 2] = [
        ("restless", Arc::new(Restless)),
        (
            "udp",
            Registry::default()
                .checker(&HealthCheck::new(udp, hour, hour, 1, 1))
                .unwrap(),
        ),
    ];
    let mut clusters = Vec::new();
    for (name, checker) in checks {
        let any = CheckerConfig::Custom(TypedConfig::default());
        let check = HealthCheck::new(any, hour, hour, 1, 1);
        let hosts = Discovery::Static(vec![Arc::new(host.clone())]);
        let config = ClusterConfig::new(name, hosts).with_health_check(check);
        let update = Update::new(Arc::new(config), vec![checker], vec![Vec::new()]);
        clusters.push(engine.set_cluster(update, Origin::Static).await.unwrap());
    }
    let answered = async {
        let (_, from) = peer.recv_from(&mut [0; 8]).await.unwrap();
        // By now its attempt waits for the poller to tell of this.
        peer.send_to(b"pong", from).await.unwrap();
        let mut changes = clusters[1].changes();
        while !clusters[1].snapshot().hosts().all(HostView::eligible) {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap();
}

/// Passes every host a little later, by a timer of the runtime.
#[derive(Debug)]
struct Later;

impl Checker for Later {
    fn health_checker_type(&self) -> HealthCheckerType {
        HealthCheckerType::Udp
    }

    fn for_host(&self, _target: Target<'_>) -> Box<dyn HostChecker> {
        Box::new(Self)
    }
}

impl HostChecker for Later {
    fn attempt<'a>(&'a mut self, _io: &'a AttemptIo) -> Attempt<'a> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Outcome::SUCCESS
        })
    }
}

#[tokio::test]
async fn a_thread_that_waits_is_woken() {
    let stats = Arc::new(Stats::default());
    let options = Options::default()
        .with_shards(2)
        .with_traffic(Traffic::Always);
    let engine = Engine::start_threads(options, Arc::clone(&stats)).unwrap();
    let checker = CheckerConfig::Custom(TypedConfig::default());
    let hour = Duration::from_secs(3600);
    let check = HealthCheck::new(checker, PATIENCE, hour, 1, 1);
    let config = ClusterConfig::new("c", Discovery::Dynamic).with_health_check(check);
    let update = Update::new(Arc::new(config), vec![Arc::new(Later)], vec![Vec::new()]);
    let cluster = engine.set_cluster(update, Origin::Static).await.unwrap();
    let mut changes = cluster.changes();
    // Each round finds the threads waiting, with nothing due for an hour.
    for hosts in 1..20 {
        let hosts: Arc<[_]> = (0..hosts)
            .map(|port| Arc::new(Host::new(SocketAddr::from(([127, 0, 0, 1], 1000 + port)))))
            .collect();
        let count = hosts.len();
        engine.reset_hosts(cluster.name(), hosts).await.unwrap();
        let all_pass = async {
            while cluster
                .snapshot()
                .hosts()
                .filter(|h| HostView::eligible(h))
                .count()
                < count
            {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, all_pass).await.unwrap();
    }
    drop((engine, cluster));
    let all_ended = async {
        while Arc::strong_count(&stats) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all_ended).await.unwrap();
    assert_eq!(stats.engine.attempts_in_flight.value(), 0);
}

/// How many threads this process has.
#[cfg(target_os = "linux")]
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Runs itself again in a process of its own, which has room for the stacks of a few more threads only.
#[cfg(target_os = "linux")]
#[test]
fn an_engine_for_which_there_are_not_enough_threads_is_an_error() {
    use rustix::process::{Resource, Rlimit, setrlimit};

    const NAME: &str = "an_engine_for_which_there_are_not_enough_threads_is_an_error";
    const INSIDE: &str = "XDS_HEALTH_TEST_FEW_THREADS";
    const ROOM: u64 = 25 << 20;
    if std::env::var_os(INSIDE).is_none() {
        let mut inside = std::process::Command::new(std::env::current_exe().unwrap());
        inside
            .args(["--exact", NAME, "--nocapture"])
            .env(INSIDE, "1");
        assert!(inside.status().unwrap().success());
        return;
    }
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let most = Some(pages * rustix::param::page_size() as u64 + ROOM);
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::As, limit).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // So that each thread is once the one that cannot be had.
    let (mut started, mut refused) = (0, 0);
    let before = threads();
    for shards in 1..=30 {
        let options = Options::default().with_shards(shards);
        runtime.block_on(async {
            match Engine::start_threads(options, Arc::default()) {
                Ok(engine) => {
                    started += 1;
                    engine.stop().await;
                }
                Err(_) => refused += 1,
            }
        });
        let began = std::time::Instant::now();
        while threads() > before {
            assert!(began.elapsed() < PATIENCE, "threads go on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(started > 0 && refused > 0, "{started}, {refused}");
}
