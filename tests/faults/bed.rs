//! The daemon, hosts around it, and what is looked at.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longer than anything takes that does happen, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How often bystanders are checked.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
const BYSTANDER_ATTEMPTS: &str = "cluster.bystanders.health_check.attempt";
const BYSTANDERS: u64 = 8;
/// Sockets that shards may keep for what comes next, with the few hosts there are here.
const SPARE: usize = 64;

/// Looks until something is there.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs `body` in a process and a network namespace of its own, with loopback up. `name` is the test's.
pub(crate) fn in_namespace(name: &str, body: fn()) {
    const INSIDE: &str = "XDS_HEALTH_TEST_NAMESPACE";
    if std::env::var(INSIDE).is_ok_and(|inside| inside == name) {
        return body();
    }
    let unshare = |command: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--net", "--mount", "--"]);
        unshare.args(command);
        unshare
    };
    let probe = unshare(&["ip", "link", "set", "lo", "up"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!("skipped: no network namespace can be had, or there is no ip(8)");
        return;
    }
    let own = std::env::current_exe().unwrap();
    let script = format!("ip link set lo up && exec {own:?} --exact {name} --nocapture");
    let mut inside = unshare(&["sh", "-c", &script]);
    let status = inside.env(INSIDE, name).status().unwrap();
    assert!(status.success(), "{name} failed in its namespace");
}

/// Runs a command; tells whether it was there and did well.
pub(crate) fn command(line: &str) -> bool {
    let ran = Command::new("sh").args(["-c", line]).output().unwrap();
    if !ran.status.success() {
        println!("{line}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    ran.status.success()
}

/// A host that answers, as long as it is told to.
pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    pub(crate) answers: Arc<AtomicBool>,
    heard: Arc<AtomicU64>,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::at(Ipv4Addr::LOCALHOST)
    }

    pub(crate) fn at(address: impl Into<IpAddr>) -> Self {
        Self::answering(address, |socket, _, from| {
            // Nobody may be there any more.
            let _ = socket.send_to(b"pong", from);
        })
    }

    /// A host that does as `answer` says with each datagram.
    pub(crate) fn answering(
        address: impl Into<IpAddr>,
        mut answer: impl FnMut(&UdpSocket, &[u8], SocketAddr) + Send + 'static,
    ) -> Self {
        let socket = UdpSocket::bind((address.into(), 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let answers = Arc::new(AtomicBool::new(true));
        let heard = Arc::new(AtomicU64::new(0));
        let (told, counted) = (Arc::clone(&answers), Arc::clone(&heard));
        std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            loop {
                // What is said to a port that has gone shows here too.
                let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                counted.fetch_add(1, Relaxed);
                if told.load(Relaxed) {
                    answer(&socket, &buffer[..length], from);
                }
            }
        });
        Self {
            address,
            answers,
            heard,
        }
    }

    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Relaxed)
    }
}

/// A cluster of the bootstrap, in YAML, under a check that sends `ping` and awaits `pong`.
pub(crate) fn cluster(name: &str, hosts: &[SocketAddr], check: &str, more: &str) -> String {
    let endpoint = |at: &SocketAddr| {
        let (ip, port) = (at.ip(), at.port());
        format!(
            "{{endpoint: {{address: {{socket_address: {{address: \"{ip}\", port_value: {port}}}}}}}}}"
        )
    };
    let endpoints: Vec<_> = hosts.iter().map(endpoint).collect();
    let endpoints = endpoints.join(", ");
    let payloads = "send: {text: \"70696e67\"}, receive: {text: \"706f6e67\"}";
    format!(
        "  - name: {name}
    load_assignment: {{cluster_name: {name}, endpoints: [{{lb_endpoints: [{endpoints}]}}]}}
    {more}
    health_checks:
    - {{{check}, custom_health_check: {{name: u, typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck, {payloads}}}}}}}
"
    )
}

/// A check with a short timeout and interval.
pub(crate) const QUICK: &str =
    "timeout: 0.2s, interval: 0.05s, unhealthy_threshold: 2, healthy_threshold: 1";

/// Hosts that have nothing to do with what happens.
pub(crate) struct Bystanders(Vec<Host>);

impl Bystanders {
    pub(crate) fn new() -> Self {
        Self((0..BYSTANDERS).map(|_| Host::new()).collect())
    }

    fn cluster(&self) -> String {
        let hosts: Vec<_> = self.0.iter().map(|host| host.address).collect();
        let check = "timeout: 5s, interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1";
        cluster("bystanders", &hosts, check, "")
    }
}

/// A daemon in a directory of its own, with bystanders; it ends with its test.
pub(crate) struct Daemon {
    child: Child,
    directory: TempDir,
    admin: SocketAddr,
    _bystanders: Bystanders,
}

/// What a process holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) descriptors: usize,
    pub(crate) memory: usize,
    pub(crate) threads: usize,
}

impl Daemon {
    /// Runs with `clusters` and, after them, `more` of a bootstrap.
    pub(crate) fn start(clusters: &str, more: &str) -> Self {
        Self::start_by(clusters, more, |command| command)
    }

    pub(crate) fn start_by(
        clusters: &str,
        more: &str,
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xds-health"));
        prepare(command.args(["run", "-c", "bootstrap.yaml"]));
        Self::run(command, clusters, more)
    }

    /// Runs under a limit that a shell sets.
    pub(crate) fn start_limited(clusters: &str, limit: &str) -> Self {
        let mut command = Command::new("sh");
        let script = format!("{limit}; exec \"$0\" run -c bootstrap.yaml");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_xds-health")]);
        Self::run(command, clusters, "")
    }

    fn run(mut command: Command, clusters: &str, more: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let bystanders = Bystanders::new();
        let text = format!(
            "node: {{id: faults, cluster: faults}}
admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}}}
static_resources:
  clusters:
{}{clusters}{more}",
            bystanders.cluster()
        );
        std::fs::write(path("bootstrap.yaml"), text).unwrap();
        let mut child = command
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(File::create(path("out")).unwrap())
            .stderr(File::create(path("err")).unwrap())
            .spawn()
            .unwrap();
        let admin = eventually("the admin port", || {
            let log = std::fs::read_to_string(path("err")).unwrap();
            assert!(child.try_wait().unwrap().is_none(), "it ended: {log}");
            let (_, address) = log.split_once("admin port open address=")?;
            address.lines().next()?.parse().ok()
        });
        let daemon = Self {
            child,
            directory,
            admin,
            _bystanders: bystanders,
        };
        eventually("bystanders that are healthy", || {
            let healthy = daemon.stat("cluster.bystanders.membership_healthy");
            (healthy == BYSTANDERS).then_some(())
        });
        daemon
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("err")).unwrap()
    }

    /// A page of the admin port; none while it cannot be had.
    pub(crate) fn page(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect_timeout(&self.admin, PATIENCE).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let host = self.admin;
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {host}\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.contains(" 200 ").then(|| body.to_owned())
    }

    pub(crate) fn stat(&self, name: &str) -> u64 {
        let prefix = format!("{name}: ");
        eventually(name, || {
            let page = self.page("/stats")?;
            let line = page.lines().find_map(|line| line.strip_prefix(&prefix));
            Some(line.map_or(0, |value| value.parse().unwrap()))
        })
    }

    /// Waits until a stat is at least so much.
    pub(crate) fn until(&self, name: &str, least: u64) {
        eventually(&format!("{name} of {least}"), || {
            (self.stat(name) >= least).then_some(())
        });
    }

    /// Waits until a stat is just so much.
    pub(crate) fn until_is(&self, name: &str, value: u64) {
        eventually(&format!("{name} is {value}"), || {
            (self.stat(name) == value).then_some(())
        });
    }

    pub(crate) fn until_logged(&self, text: &str) {
        eventually(text, || self.log().contains(text).then_some(()));
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn held(&self) -> Held {
        let proc = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = std::fs::read_to_string(proc.join("status")).unwrap();
        let number = |key: &str| -> usize {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let value = line.unwrap().split_whitespace().next().unwrap();
            value.parse().unwrap()
        };
        Held {
            descriptors: std::fs::read_dir(proc.join("fd")).unwrap().count(),
            memory: number("VmRSS:") * 1024,
            threads: number("Threads:"),
        }
    }

    /// Seconds of CPU so far.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let field = |at| -> f64 { rest.split_whitespace().nth(at).unwrap().parse().unwrap() };
        (field(11) + field(12)) / rustix::param::clock_ticks_per_second() as f64
    }

    /// What the daemon holds is about what it held.
    pub(crate) fn holds_no_more_than(&self, before: Held) {
        // Attempts run now and then, and each shard keeps some sockets for the next ones.
        eventually("descriptors that are free again", || {
            (self.held().descriptors <= before.descriptors + SPARE).then_some(())
        });
        let now = self.held();
        // What may block has threads for some seconds.
        assert!(now.threads <= before.threads + 4, "{now:?}, {before:?}");
        let room = 24 << 20;
        assert!(now.memory <= before.memory + room, "{now:?}, {before:?}");
    }

    /// Bystanders keep their verdict and their schedule while `fault` lasts, and for some rounds after it, and no
    /// attempt of any cluster is late.
    pub(crate) fn calm_during<T>(&self, fault: impl FnOnce() -> T) -> T {
        const LATE: &str = "xds_health.attempts_late";
        let late = self.stat(LATE);
        let began = Instant::now();
        let mut result = None;
        let attempts = self.bystanders_pass_during(|| {
            let before = self.stat(BYSTANDER_ATTEMPTS);
            result = Some(fault());
            self.until(BYSTANDER_ATTEMPTS, before + 10 * BYSTANDERS);
        });
        // Rounds that an idle machine does in this time; a busy one does a third of them at least.
        let took = began.elapsed();
        let rounds = took.as_secs_f64() / INTERVAL.as_secs_f64();
        let least = rounds * BYSTANDERS as f64 / 3.0;
        assert!(attempts as f64 >= least, "{attempts} attempts in {took:?}");
        assert_eq!(self.stat(LATE), late, "attempts are late");
        result.unwrap()
    }

    /// Bystanders keep their verdict while `fault` lasts. Tells how many attempts they had meanwhile.
    pub(crate) fn bystanders_pass_during(&self, fault: impl FnOnce()) -> u64 {
        const FAILURES: &str = "cluster.bystanders.health_check.failure";
        let (before, failures) = (self.stat(BYSTANDER_ATTEMPTS), self.stat(FAILURES));
        fault();
        let attempts = self.stat(BYSTANDER_ATTEMPTS) - before;
        assert_eq!(self.stat(FAILURES), failures, "bystanders fail");
        assert_eq!(
            self.stat("cluster.bystanders.membership_healthy"),
            BYSTANDERS
        );
        attempts
    }

    /// Ends it as an operator does.
    pub(crate) fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let status = eventually("its end", || self.child.try_wait().unwrap());
        let log = self.log();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(!log.contains("panicked"), "{log}");
        log
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
