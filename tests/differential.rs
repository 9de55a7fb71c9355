//! The same random bootstrap and hosts for this daemon and for a real Envoy, which are to tell of the same events, and
//! at last of the same health and the same gauges.
//!
//! Runs where `ENVOY_BIN` names an Envoy; `XDS_HEALTH_DIFFERENTIAL` says how many scenarios, of which five are run
//! otherwise, and `XDS_HEALTH_DIFFERENTIAL_SEED` with which to begin. A scenario that differs is written to a file,
//! whose name is told.
#![cfg(all(feature = "cli", target_os = "linux"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Attempts whose answers are drawn; later ones are all like the last.
const DRAWN: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// How a host takes each attempt: `a` answers, `s` is silent, `w` answers wrongly.
#[derive(Debug)]
struct Manner(Vec<u8>);

/// What Envoy calls the type of a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Eds,
    Static,
    StrictDns,
    LogicalDns,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Eds => "EDS",
            Self::Static => "STATIC",
            Self::StrictDns => "STRICT_DNS",
            Self::LogicalDns => "LOGICAL_DNS",
        }
    }
}

#[derive(Debug)]
struct Scenario {
    kind: Kind,
    unhealthy_threshold: u32,
    healthy_threshold: u32,
    log_failures: bool,
    ignore_new: bool,
    edges: bool,
    hosts: Vec<Manner>,
    /// The `health_status` of each, if it has any.
    statuses: Vec<Option<&'static str>>,
    /// Whether the first host goes and another comes after a while.
    edited: bool,
}

impl Scenario {
    fn random(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let kind = match random.u8(0..6) {
            0 => Kind::Static,
            1 => Kind::StrictDns,
            2 => Kind::LogicalDns,
            _ => Kind::Eds,
        };
        let count = if kind == Kind::LogicalDns {
            1
        } else {
            random.usize(2..6)
        };
        let hosts = (0..count).map(|_| {
            // Runs of one kind are more telling than noise.
            let mut kind = b'a';
            let drawn = (0..DRAWN).map(|_| {
                if random.u8(0..3) == 0 {
                    kind = [b'a', b'a', b's', b'w'][random.usize(0..4)];
                }
                kind
            });
            Manner(drawn.collect())
        });
        let hosts = hosts.collect();
        let statuses = (0..count).map(|_| {
            let said = ["UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED", "HEALTHY"];
            said.get(random.usize(0..12)).copied()
        });
        let statuses = statuses.collect();
        Self {
            kind,
            statuses,
            unhealthy_threshold: random.u32(1..4),
            healthy_threshold: random.u32(1..4),
            log_failures: random.bool(),
            ignore_new: random.bool(),
            edges: random.bool(),
            hosts,
            edited: random.bool() && kind == Kind::Eds,
        }
    }

    /// The assignment of these of the hosts, by their numbers.
    fn assignment(&self, addresses: &[SocketAddr], numbers: Range<usize>) -> String {
        let one = |number: usize| {
            let port = addresses[number].port();
            let status = self.statuses[number];
            let status = status.map_or_else(String::new, |said| format!(", health_status: {said}"));
            format!(
                "{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}{status}}}"
            )
        };
        let all: Vec<_> = numbers.map(one).collect();
        format!("endpoints: [{{lb_endpoints: [{}]}}]", all.join(", "))
    }

    fn endpoints(&self, addresses: &[SocketAddr], numbers: Range<usize>) -> String {
        let assignment = self.assignment(addresses, numbers);
        format!(
            "version_info: v
resources:
- \"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: c
  {assignment}
"
        )
    }

    fn bootstrap(&self, directory: &Path, addresses: &[SocketAddr]) -> String {
        let at = directory.display();
        let kind = self.kind.name();
        let discovery = if self.kind == Kind::Eds {
            format!(
                "eds_cluster_config: {{eds_config: {{resource_api_version: V3, path_config_source: {{path: {at}/eds.yaml}}}}}}"
            )
        } else {
            let assignment = self.assignment(addresses, 0..addresses.len());
            format!("load_assignment: {{cluster_name: c, {assignment}}}")
        };
        let edges = if self.edges {
            "unhealthy_interval: 0.15s, unhealthy_edge_interval: 0.05s, healthy_edge_interval: 0.05s,"
        } else {
            ""
        };
        let Self {
            unhealthy_threshold,
            healthy_threshold,
            log_failures,
            ignore_new,
            ..
        } = self;
        format!(
            "node: {{id: differential, cluster: differential}}
admin: {{address: {{pipe: {{path: {at}/admin}}}}}}
static_resources:
  clusters:
  - name: c
    type: {kind}
    connect_timeout: 1s
    {discovery}
    common_lb_config: {{ignore_new_hosts_until_first_hc: {ignore_new}}}
    health_checks:
    - timeout: 0.1s
      interval: 0.1s
      no_traffic_interval: 0.1s
      {edges_lines}
      unhealthy_threshold: {unhealthy_threshold}
      healthy_threshold: {healthy_threshold}
      always_log_health_check_failures: {log_failures}
      event_log_path: {at}/events
      custom_health_check:
        name: envoy.health_checkers.udp
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck
          send: {{text: \"70696e67\"}}
          receive: {{text: \"706f6e67\"}}
",
            edges_lines = edges.replace(", ", "\n      ").replace(',', ""),
        )
    }
}

/// Hosts that answer by their manners.
struct Hosts {
    addresses: Vec<SocketAddr>,
    heard: Vec<Arc<AtomicUsize>>,
    stop: Arc<AtomicBool>,
}

impl Hosts {
    fn new(manners: &[Manner]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut addresses, mut heard) = (Vec::new(), Vec::new());
        for Manner(manner) in manners {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket
                .set_read_timeout(Some(Duration::from_millis(100)))
                .unwrap();
            addresses.push(socket.local_addr().unwrap());
            let count = Arc::new(AtomicUsize::new(0));
            heard.push(Arc::clone(&count));
            let (manner, stop) = (manner.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while !stop.load(Relaxed) {
                    let Ok((_, from)) = socket.recv_from(&mut buffer) else {
                        continue;
                    };
                    let number = count.fetch_add(1, Relaxed);
                    let answer: &[u8] = match manner[number.min(manner.len() - 1)] {
                        b'a' => b"pong",
                        b'w' => b"wrong",
                        _ => continue,
                    };
                    let _ = socket.send_to(answer, from);
                }
            });
        }
        Self {
            addresses,
            heard,
            stop,
        }
    }

    /// Waits until each of `which` has had so many attempts.
    fn until(&self, which: impl Iterator<Item = usize> + Clone, attempts: usize) {
        let began = Instant::now();
        while which
            .clone()
            .any(|at| self.heard[at].load(Relaxed) < attempts)
        {
            assert!(began.elapsed() < PATIENCE, "attempts do not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of an answer of the admin socket.
fn ask(directory: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(directory.join("admin")).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    if !head.to_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    whole
}

/// The gauges that hosts are counted in.
fn gauges(directory: &Path) -> Vec<String> {
    let wanted = "^cluster.c.(membership_(total|healthy|degraded|excluded)|health_check.(healthy|degraded))$";
    let path = format!(
        "/stats?filter={}",
        wanted.replace('^', "%5E").replace('|', "%7C")
    );
    ask(directory, &path).lines().map(str::to_owned).collect()
}

/// What each host's events were, by its number: without the failures that go on and on at the end. Then its health, and
/// after the last host the gauges.
type Told = BTreeMap<usize, Vec<String>>;

fn run(scenario: &Scenario, start: impl FnOnce(&Path) -> Command) -> (String, Told) {
    let directory = tempfile::tempdir().unwrap();
    let hosts = Hosts::new(&scenario.hosts);
    let path = |name: &str| directory.path().join(name);
    // The last host comes in place of the first, if there is an edit.
    let last = scenario.hosts.len() - 1;
    let first = if scenario.edited {
        0..last
    } else {
        0..scenario.hosts.len()
    };
    let endpoints = |numbers| scenario.endpoints(&hosts.addresses, numbers);
    std::fs::write(path("eds.yaml"), endpoints(first.clone())).unwrap();
    let text = scenario.bootstrap(directory.path(), &hosts.addresses);
    std::fs::write(path("bootstrap.yaml"), &text).unwrap();
    let mut command = start(&path("bootstrap.yaml"));
    let log = std::fs::File::create(path("log")).unwrap();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    let mut running = Running(command.spawn().unwrap());
    let enough = DRAWN + 6;
    hosts.until(first, enough);
    if scenario.edited {
        std::fs::write(path("new.yaml"), endpoints(1..last + 1)).unwrap();
        std::fs::rename(path("new.yaml"), path("eds.yaml")).unwrap();
        hosts.until(last..=last, enough);
    }
    let clusters = ask(directory.path(), "/clusters?format=json");
    let gauges = gauges(directory.path());
    let pid = rustix::process::Pid::from_child(&running.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let began = Instant::now();
    while running.0.try_wait().unwrap().is_none() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let events = std::fs::read_to_string(path("events")).unwrap();
    let mut told = Told::new();
    for line in events.lines() {
        let Some((number, event)) = shown(line, &hosts.addresses) else {
            panic!("{line}");
        };
        told.entry(number).or_default().push(event);
    }
    if scenario.kind != Kind::LogicalDns {
        assert_eq!(
            told.len(),
            scenario.hosts.len(),
            "each host has its first check"
        );
    }
    for events in told.values_mut() {
        while events.len() > 1 && events[events.len() - 1] == events[events.len() - 2] {
            events.pop();
        }
    }
    let clusters: serde_json::Value = serde_json::from_str(&clusters).unwrap();
    for host in clusters["cluster_statuses"][0]["host_statuses"]
        .as_array()
        .unwrap()
    {
        let number = number(&host["address"], &hosts.addresses).unwrap();
        let health = format!("at last {}", host["health_status"]);
        told.entry(number).or_default().push(health);
    }
    told.insert(scenario.hosts.len(), gauges);
    (text, told)
}

/// Which host is at an address.
fn number(address: &serde_json::Value, hosts: &[SocketAddr]) -> Option<usize> {
    let port = address["socket_address"]["port_value"].as_u64()?;
    hosts.iter().position(|at| u64::from(at.port()) == port)
}

/// The host's number, and the event in short.
fn shown(line: &str, hosts: &[SocketAddr]) -> Option<(usize, String)> {
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    let number = number(&event["host"], hosts)?;
    let kinds = event.as_object()?.iter();
    let (kind, body) = kinds.into_iter().find(|(key, _)| {
        key.ends_with("_event") || key.ends_with("_host") || key.starts_with("successful")
    })?;
    Some((number, format!("{kind} {body}")))
}

#[test]
fn random_scenarios_are_told_of_as_by_envoy() {
    let Some(envoy) = std::env::var_os("ENVOY_BIN") else {
        println!("skipped: ENVOY_BIN names no Envoy");
        return;
    };
    let number =
        |name: &str, usual: u64| std::env::var(name).map_or(usual, |value| value.parse().unwrap());
    let (count, first) = (
        number("XDS_HEALTH_DIFFERENTIAL", 5),
        number("XDS_HEALTH_DIFFERENTIAL_SEED", 1),
    );
    let mut differing = Vec::new();
    for seed in first..first + count {
        let scenario = Scenario::random(seed);
        let (text, theirs) = run(&scenario, |path| {
            let mut command = Command::new(&envoy);
            command.arg("-c").arg(path);
            command.args([
                "--disable-hot-restart",
                "--log-level",
                "warn",
                "--concurrency",
                "1",
            ]);
            command
        });
        let (_, ours) = run(&scenario, |path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_xds-health"));
            command
                .arg("run")
                .arg("-c")
                .arg(path)
                .args(["--traffic", "never"]);
            command
        });
        if ours == theirs {
            continue;
        }
        let mut report = format!("# seed {seed}: {scenario:?}\n");
        for (name, told) in [("envoy", &theirs), ("xds-health", &ours)] {
            for (host, events) in told {
                let _ = writeln!(report, "# {name}, host {host}:");
                events
                    .iter()
                    .for_each(|event| report.push_str(&format!("#   {event}\n")));
            }
        }
        report.push_str(&text);
        let path = std::env::temp_dir().join(format!("xds-health-differs-{seed}.yaml"));
        std::fs::write(&path, &report).unwrap();
        println!("{report}");
        differing.push(path);
    }
    assert!(differing.is_empty(), "differences: {differing:?}");
}
