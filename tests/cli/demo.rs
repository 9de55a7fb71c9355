//! `xds-health demo`, and the configuration that it shows.

use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::command::{binary, ran};
use crate::daemon::{Daemon, eventually};
use crate::http::get;

/// Every upstream, and the state that it comes to.
const STATES: [(&str, &str); 7] = [
    ("healthy", "healthy"),
    ("slow", "healthy"),
    ("flapping", "unhealthy"),
    ("wrong", "unhealthy"),
    ("silent", "unhealthy"),
    ("closed", "unhealthy"),
    ("late", "healthy"),
];

struct Demo {
    child: Child,
    directory: tempfile::TempDir,
}

impl Demo {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let out = std::fs::File::create(directory.path().join("out")).unwrap();
        let child = binary()
            .args(["demo", "--save", "demo.yaml"])
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self { child, directory }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }

    /// Whether a line told of this upstream in this state.
    fn told(&self, upstream: &str, state: &str) -> bool {
        self.read("out").lines().any(|line| {
            let mut words = line.split_whitespace();
            let told = words.nth(1) == Some(upstream);
            told && words
                .nth(1)
                .is_some_and(|word| word.trim_end_matches(':') == state)
        })
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn every_upstream_is_found_as_it_behaves_and_the_page_is_there() {
    let mut demo = Demo::start();
    for (upstream, state) in STATES {
        let what = format!("{upstream} is {state}");
        eventually(&what, || demo.told(upstream, state).then_some(())).await;
    }
    let told = demo.read("out");
    let (_, page) = told.split_once("The admin page: http://").unwrap();
    let address = page.split_once('/').unwrap().0.parse().unwrap();
    assert_eq!(get(address, "/").await.status, 200);
    assert_eq!(get(address, "/logging").await.status, 405);
    let hosts = get(address, "/hosts?cluster=demo&state=unhealthy").await;
    assert!(
        hosts.body.contains("\"hostname\":\"closed\""),
        "{}",
        hosts.body
    );

    // What it shows is what it saved, and can be run beside it.
    let saved = demo.read("demo.yaml");
    let shown = told.lines().skip_while(|line| !line.starts_with(' '));
    let shown = shown
        .take_while(|line| line.starts_with(' '))
        .map(|line| &line[4..]);
    assert_eq!(shown.collect::<Vec<_>>(), saved.lines().collect::<Vec<_>>());
    let mut daemon = Daemon::start(&saved, &[]);
    let healthy = "cluster.demo.health_check.healthy: ";
    daemon
        .page("/stats", |lines| {
            lines.iter().any(|line| {
                let value = line.strip_prefix(healthy);
                value.is_some_and(|value| value.parse::<u32>().unwrap() >= 3)
            })
        })
        .await;
    daemon.stop().await;

    let pid = rustix::process::Pid::from_child(&demo.child);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    assert_eq!(demo.child.wait().unwrap().code(), Some(0));
}

#[test]
fn it_ends_by_itself_when_asked_with_a_table_of_all() {
    let directory = tempfile::tempdir().unwrap();
    let ran = ran(directory.path(), &["demo", "--for", "6s"], "");
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    let (_, table) = ran.out.split_once("\nUPSTREAM").unwrap();
    let names = table
        .lines()
        .skip(1)
        .map(|line| line.split(' ').next().unwrap());
    let names: Vec<_> = names.take(STATES.len()).collect();
    assert_eq!(names, STATES.map(|(name, _)| name));
    assert!(table.trim_end().ends_with(" failed"), "{table}");
    assert!(!ran.out.contains('\x1b'));
}

#[test]
fn a_place_that_cannot_be_written_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let ran = ran(directory.path(), &["demo", "--save", "gone/demo.yaml"], "");
    assert_eq!((ran.code, &*ran.out), (Some(3), ""));
    assert!(
        ran.err.starts_with("error: gone/demo.yaml: "),
        "{}",
        ran.err
    );
}
