//! An Envoy that checks the same hosts, for a look side by side.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::fleet::{self, CLUSTER, TIMEOUT};
use super::process::Cpu;
use super::responder::{ANSWER, ASK};

/// Names the binary.
pub(crate) const BINARY: &str = "ENVOY_BIN";

/// Clock ticks of `/proc/PID/stat` in a second.
const TICKS: u64 = 100;

/// A running Envoy; ended when dropped.
pub(crate) struct Envoy {
    child: Child,
    admin: u16,
    bootstrap: PathBuf,
}

impl Envoy {
    /// The binary that [`BINARY`] names, checking `hosts` every `interval`.
    pub(crate) fn start(hosts: usize, interval: Duration, port: u16) -> Option<Self> {
        let binary = std::env::var_os(BINARY)?;
        // Free a moment ago; Envoy cannot tell which it took by itself without a file.
        let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let admin = admin.local_addr().unwrap().port();
        let name = format!("xds-health-bench-{}.json", std::process::id());
        let bootstrap = std::env::temp_dir().join(name);
        std::fs::write(&bootstrap, config(hosts, interval, port, admin)).unwrap();
        let child = Command::new(binary)
            .arg("-c")
            .arg(&bootstrap)
            .args(["--concurrency", "1", "--log-level", "error"])
            .arg("--disable-hot-restart")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self {
            child,
            admin,
            bootstrap,
        })
    }

    /// A counter of the cluster's health check; 0 while the admin port does not answer.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let name = format!("cluster.{CLUSTER}.health_check.{name}");
        let stats = self.get(&format!("/stats?filter=^{name}$"));
        let line = stats.as_deref().and_then(|text| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(&name)?.strip_prefix(": "))
        });
        line.map_or(0, |value| value.trim().parse().unwrap())
    }

    /// Waits until so many attempts have been made.
    pub(crate) fn wait_for_attempts(&mut self, count: u64) {
        let begun = Instant::now();
        while self.counter("attempt") < count {
            assert!(self.child.try_wait().unwrap().is_none(), "Envoy has ended");
            assert!(begun.elapsed() < Duration::from_secs(120), "Envoy is slow");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// CPU time of all its threads, user and system.
    pub(crate) fn cpu(&self) -> Cpu {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // The name, in parentheses, may hold spaces.
        let fields = stat.rsplit(')').next().unwrap();
        let mut fields = fields.split_whitespace().skip(11);
        let [user, system] = [(); 2].map(|()| {
            let ticks: u64 = fields.next().unwrap().parse().unwrap();
            Duration::from_millis(ticks * 1000 / TICKS)
        });
        Cpu { user, system }
    }

    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.admin)).ok()?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // It may have ended by itself, and the file may be gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.bootstrap);
    }
}

fn config(hosts: usize, interval: Duration, port: u16, admin: u16) -> String {
    let mut endpoints = String::new();
    for index in 0..hosts {
        let address = fleet::address(index, port);
        let comma = if index == 0 { "" } else { "," };
        write!(
            endpoints,
            r#"{comma}{{"endpoint":{{"address":{{"socket_address":{{"address":"{}","port_value":{port}}}}}}}}}"#,
            address.ip()
        )
        .unwrap();
    }
    let seconds = |duration: Duration| format!("{}s", duration.as_secs_f64());
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(String::new(), |s, b| s + &format!("{b:02x}"))
    };
    let (every, timeout) = (seconds(interval), seconds(TIMEOUT));
    let (ask, answer) = (hex(ASK), hex(ANSWER));
    format!(
        r#"{{
"admin":{{"address":{{"socket_address":{{"address":"127.0.0.1","port_value":{admin}}}}}}},
"static_resources":{{"clusters":[{{
  "name":"{CLUSTER}","type":"STATIC","connect_timeout":"5s",
  "health_checks":[{{
    "timeout":"{timeout}","interval":"{every}","no_traffic_interval":"{every}",
    "initial_jitter":"{every}","unhealthy_threshold":2,"healthy_threshold":2,
    "custom_health_check":{{"name":"envoy.health_checkers.udp","typed_config":{{
      "@type":"type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck",
      "send":{{"text":"{ask}"}},"receive":{{"text":"{answer}"}}}}}}
  }}],
  "load_assignment":{{"cluster_name":"{CLUSTER}","endpoints":[{{"lb_endpoints":[{endpoints}]}}]}}
}}]}}}}"#
    )
}
