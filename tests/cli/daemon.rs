//! The daemon, and hosts that answer it.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::command::binary;
use crate::http::get;
use crate::peer::Peer;

/// Longer than anything takes that does happen, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks until something is there.
pub async fn eventually<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A daemon in a directory of its own; it ends with its test.
pub struct Daemon {
    pub child: Child,
    pub directory: TempDir,
}

impl Daemon {
    pub fn start(config: &str, args: &[&str]) -> Self {
        Self::start_with(config, args, &[])
    }

    /// Runs what is in `directory` already.
    pub fn start_in(directory: TempDir, config: &str, args: &[&str]) -> Self {
        let mut command = binary();
        command.args(["run", "-c", config]).args(args);
        Self::spawn(command, directory)
    }

    /// The same as [`Daemon::start`], under a limit that a shell sets.
    pub fn start_limited(limit: &str, config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("bootstrap.yaml"), config).unwrap();
        let mut command = Command::new("sh");
        let run = format!("{limit}; exec \"$0\" run -c bootstrap.yaml");
        command.args(["-c", &run]).arg(binary().get_program());
        Self::spawn(command, directory)
    }

    /// The same, with variables in its environment.
    pub fn start_with(config: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("bootstrap.yaml"), config).unwrap();
        let mut command = binary();
        command.args(["run", "-c", "bootstrap.yaml"]).args(args);
        command.envs(env.iter().copied());
        Self::spawn(command, directory)
    }

    fn spawn(mut command: Command, directory: TempDir) -> Self {
        let path = |name: &str| directory.path().join(name);
        let child = command
            .current_dir(directory.path())
            .stdin(std::process::Stdio::null())
            .stdout(File::create(path("out")).unwrap())
            .stderr(File::create(path("err")).unwrap())
            .spawn()
            .unwrap();
        Self { child, directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What a file of its directory holds, if it is there.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// How many whole lines that file has.
    pub fn lines(&self, name: &str) -> usize {
        self.read(name).matches('\n').count()
    }

    pub async fn until_lines(&self, name: &str, wanted: usize) {
        let enough = || (self.lines(name) >= wanted).then_some(());
        eventually(&format!("{wanted} lines in {name}"), enough).await;
    }

    /// Where the admin port is.
    pub async fn admin(&self) -> SocketAddr {
        eventually("admin port", || {
            let log = self.read("err");
            let (_, address) = log.split_once("admin port open address=")?;
            address.lines().next()?.parse().ok()
        })
        .await
    }

    /// The lines of an admin page once they are as wanted.
    pub async fn page(&self, path: &str, wanted: impl Fn(&[&str]) -> bool) -> Vec<String> {
        let address = self.admin().await;
        let began = Instant::now();
        loop {
            let body = get(address, path).await.body;
            let lines: Vec<_> = body.lines().collect();
            if wanted(&lines) {
                return lines.into_iter().map(str::to_owned).collect();
            }
            assert!(began.elapsed() < PATIENCE, "{path} stays {body}");
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How it ended, and after how long.
    pub async fn ended(&mut self) -> (ExitStatus, Duration) {
        let began = Instant::now();
        let child = Mutex::new(&mut self.child);
        let look = || child.lock().unwrap().try_wait().unwrap();
        let status = eventually("its end", look).await;
        (status, began.elapsed())
    }

    /// Ends it as an operator does.
    pub async fn stop(&mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.ended().await.0.code(), Some(0), "{}", self.read("err"));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A host that answers each attempt; it ends with its test.
pub struct Answering {
    pub address: SocketAddr,
    attempts: Arc<Mutex<Vec<Instant>>>,
    task: JoinHandle<()>,
}

impl Answering {
    pub async fn new() -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    pub async fn at(address: SocketAddr) -> Self {
        let peer = Peer::bind(address).await;
        let (address, attempts) = (peer.address(), Arc::<Mutex<Vec<_>>>::default());
        let seen = Arc::clone(&attempts);
        let task = tokio::spawn(async move {
            loop {
                let (payload, from) = peer.next().await;
                assert_eq!(payload, b"ping");
                seen.lock().unwrap().push(Instant::now());
                peer.answer(from, b"pong").await;
            }
        });
        Self {
            address,
            attempts,
            task,
        }
    }

    /// How many attempts came so far.
    pub fn attempts(&self) -> usize {
        self.attempts.lock().unwrap().len()
    }

    /// Waits for `count` attempts from now; tells the time from the first to the last of them.
    pub async fn until_attempts(&self, count: usize) -> Duration {
        let before = self.attempts();
        eventually("attempts", || {
            let attempts = self.attempts.lock().unwrap();
            let new = attempts.get(before..before + count)?;
            Some(*new.last()? - *new.first()?)
        })
        .await
    }

    /// Closes its port.
    pub async fn close(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}
