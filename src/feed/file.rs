//! Events into files, a line each.
//!
//! One thread writes each file, however many health checks name it. Events wait for it in a bounded queue;
//! when that is full, or the file cannot be written, they are dropped and counted, and checks go on.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use prost::Message;
use rustix::process::{Resource, getrlimit};

use super::{EventSink, EventSinkFactory, json};
use crate::config::{ConfigError, FileSinkConfig};
use crate::event::HealthCheckEvent;
use crate::proto::envoy::extensions::health_check::event_sinks::file::v3::HealthCheckEventFileSink;
use crate::stats::Stats;

/// Lines that may wait for a file.
const QUEUE: usize = 16_384;
/// Files written at once at most: each takes a thread and a descriptor, and control planes may name them.
const FILES: usize = 256;
/// Of so many descriptors one may be a file's. The rest is for attempts and all else.
const DESCRIPTORS: u64 = 4;
/// Bytes written to a file at once at most.
const BATCH: usize = 64 * 1024;
/// How long an ending sink waits for its last lines.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Makes sinks that append to files.
///
/// Source: `envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink`. Lines are flushed
/// as soon as no more are waiting, where Envoy keeps them for up to 10 s.
#[derive(Debug, Default)]
pub struct FileSinkFactory {
    stats: Arc<Stats>,
    files: Mutex<HashMap<PathBuf, Weak<EventFile>>>,
}

impl FileSinkFactory {
    /// The message's full name.
    pub const MESSAGE_NAME: &str =
        "envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink";

    /// Counts what is lost in `stats`.
    pub fn new(stats: Arc<Stats>) -> Self {
        Self {
            stats,
            files: Mutex::default(),
        }
    }

    /// The serialized message for the file at `path`.
    pub fn config(path: &str) -> Vec<u8> {
        HealthCheckEventFileSink {
            event_log_path: path.to_owned(),
        }
        .encode_to_vec()
    }

    fn open(&self, path: &Path) -> io::Result<Arc<EventFile>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(path).and_then(Weak::upgrade) {
            return Ok(file);
        }
        files.retain(|_, file| file.strong_count() > 0);
        let most = most_files();
        if files.len() >= most {
            let reason = format!("{most} event logs are open already, and no more are");
            return Err(io::Error::other(reason));
        }
        let file = Arc::new(EventFile::start(path, Arc::clone(&self.stats))?);
        files.insert(path.to_owned(), Arc::downgrade(&file));
        Ok(file)
    }
}

/// How many files may be written at once in this process.
fn most_files() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let part = usize::try_from(limit / DESCRIPTORS).unwrap_or(usize::MAX);
    part.clamp(1, FILES)
}

impl EventSinkFactory for FileSinkFactory {
    fn message_name(&self) -> &str {
        Self::MESSAGE_NAME
    }

    fn create(&self, value: &[u8]) -> Result<Arc<dyn EventSink>, ConfigError> {
        let config = FileSinkConfig::from_bytes(value)?;
        let file = self.open(&config.path).map_err(|error| {
            let reason = format!("cannot open {:?} for appending: {error}", config.path);
            ConfigError::new("event_log_path", reason)
        })?;
        Ok(file)
    }

    fn reopen(&self) {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        for file in files.values().filter_map(Weak::upgrade) {
            file.tell(Order::Reopen);
        }
    }
}

enum Order {
    Write(String),
    Reopen,
}

/// A file with the thread that writes it.
#[derive(Debug)]
struct EventFile {
    orders: Option<SyncSender<Order>>,
    ended: Mutex<Receiver<()>>,
    stats: Arc<Stats>,
}

impl EventFile {
    fn start(path: &Path, stats: Arc<Stats>) -> io::Result<Self> {
        let file = append(path)?;
        let (orders, to_do) = sync_channel(QUEUE);
        let (end, ended) = sync_channel(1);
        let writer = Writer {
            path: path.to_owned(),
            file,
            torn: false,
            lost: 0,
            tell_at: 1,
            stats: Arc::clone(&stats),
        };
        std::thread::Builder::new()
            .name("event-log".to_owned())
            .spawn(move || {
                writer.run(&to_do);
                // Nobody listens any more if the sink gave up waiting.
                let _ = end.send(());
            })?;
        Ok(Self {
            orders: Some(orders),
            ended: Mutex::new(ended),
            stats,
        })
    }

    fn tell(&self, order: Order) {
        let Some(orders) = &self.orders else {
            return;
        };
        match orders.try_send(order) {
            Ok(()) => (),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.stats.engine.events_dropped.inc();
            }
        }
    }
}

impl EventSink for EventFile {
    fn record(&self, event: &HealthCheckEvent) {
        let mut line = String::with_capacity(384);
        json::write_event(&mut line, event);
        line.push('\n');
        self.tell(Order::Write(line));
    }
}

impl Drop for EventFile {
    fn drop(&mut self) {
        self.orders = None;
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        // A disk that hangs must not hold up the end of the process.
        let _ = ended.recv_timeout(LAST_WORDS);
    }
}

/// Opens a file for appending. A pipe without a reader is refused, not waited for.
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
}

struct Writer {
    path: PathBuf,
    file: File,
    /// The file ends within a line.
    torn: bool,
    /// Lines lost so far, and how many are to be lost until it is told again.
    lost: u64,
    tell_at: u64,
    stats: Arc<Stats>,
}

impl Writer {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut batch = String::new();
        while let Ok(order) = orders.recv() {
            let mut next = Some(order);
            while let Some(order) = next {
                match order {
                    Order::Write(line) => batch.push_str(&line),
                    Order::Reopen => {
                        self.write(&mut batch);
                        self.reopen();
                    }
                }
                next = if batch.len() < BATCH {
                    orders.try_recv().ok()
                } else {
                    None
                };
            }
            self.write(&mut batch);
        }
    }

    /// Writes as much of `batch` as can be written; the rest is lost, and counted.
    fn write(&mut self, batch: &mut String) {
        let mut rest = batch.as_bytes();
        let torn = std::mem::take(&mut self.torn);
        let mut result = Ok(());
        // A file that was emptied meanwhile has no line to be ended. A pipe has no length to tell by.
        let emptied = |file: &File| {
            file.metadata()
                .is_ok_and(|of| of.is_file() && of.len() == 0)
        };
        if torn && !rest.is_empty() && !emptied(&self.file) {
            result = self.file.write_all(b"\n");
            self.torn = result.is_err();
        }
        while result.is_ok() && !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => result = Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.torn = rest[written - 1] != b'\n';
                    rest = &rest[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => result = Err(error),
            }
        }
        if let Err(error) = result {
            let lost = rest.iter().filter(|byte| **byte == b'\n').count();
            let lost = u64::try_from(lost).unwrap_or(u64::MAX);
            self.stats.engine.event_write_errors.add(lost);
            self.tell(&error, lost);
        }
        batch.clear();
    }

    /// Tells of lost lines, now and then.
    fn tell(&mut self, error: &io::Error, lost: u64) {
        self.lost += lost;
        // At the first, the tenth, the hundredth line lost and so on: a full disk must not fill the log too.
        if self.lost >= self.tell_at {
            let (path, lines) = (self.path.display(), self.lost);
            tracing::warn!(%path, %error, lines, "event log not written");
            self.tell_at = self.tell_at.saturating_mul(10);
        }
    }

    fn reopen(&mut self) {
        match append(&self.path) {
            Ok(file) => self.file = file,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "event log not reopened; going on with the old file");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventKind, HealthCheckerType, Transition};
    use crate::host::{HealthFlags, Host};
    use std::net::SocketAddr;
    use std::time::SystemTime;

    fn event() -> HealthCheckEvent {
        HealthCheckEvent {
            health_checker_type: HealthCheckerType::Udp,
            host: Arc::new(Host::new(SocketAddr::from(([127, 0, 0, 1], 1)))),
            cluster: "c".into(),
            check: "".into(),
            kind: EventKind::Success,
            transition: Transition::Unchanged,
            before: HealthFlags::NONE,
            after: HealthFlags::NONE,
            timestamp: SystemTime::UNIX_EPOCH,
            reason: None,
            round_trip: None,
        }
    }

    #[test]
    fn two_sinks_on_one_file_write_each_line_twice_and_append() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        std::fs::write(&path, "before\n").unwrap();
        let factory = FileSinkFactory::default();
        let config = FileSinkFactory::config(path.to_str().unwrap());
        let sinks = [
            factory.create(&config).unwrap(),
            factory.create(&config).unwrap(),
        ];
        for sink in &sinks {
            sink.record(&event());
        }
        drop(sinks);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert!(text.starts_with("before\n{"));
    }

    #[test]
    fn a_moved_file_is_left_behind_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        let factory = FileSinkFactory::default();
        let sink = factory
            .create(&FileSinkFactory::config(path.to_str().unwrap()))
            .unwrap();
        sink.record(&event());
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        factory.reopen();
        sink.record(&event());
        drop(sink);
        let lines = |name: &str| {
            let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
            text.lines().count()
        };
        // Which file the first line went to is the thread's choice of time.
        assert_eq!(lines("old") + lines("events"), 2);
        assert!(lines("events") >= 1);
    }

    #[test]
    fn a_path_that_cannot_be_opened_is_a_fault() {
        let factory = FileSinkFactory::default();
        for (path, reason) in [
            ("/nonexistent/dir/file", "cannot open"),
            ("", "value length must be at least 1 characters"),
        ] {
            let faults = factory.create(&FileSinkFactory::config(path)).unwrap_err();
            assert!(faults.to_string().starts_with("event_log_path: "));
            assert!(faults.to_string().contains(reason), "{faults}");
        }
    }

    #[test]
    fn a_line_that_was_cut_is_ended_before_the_next() {
        // A pipe takes what fits, and cuts a line there.
        let (reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let stats = Arc::new(Stats::default());
        let mut writer = Writer {
            path: PathBuf::from("pipe"),
            file: File::from(std::os::fd::OwnedFd::from(writer)),
            torn: false,
            lost: 0,
            tell_at: 1,
            stats: Arc::clone(&stats),
        };
        let line = format!("{}\n", "x".repeat(999));
        writer.write(&mut line.repeat(1000));
        let lost = stats.engine.event_write_errors.value();
        assert!(writer.torn && lost > 0 && lost < 1000);
        let mut reader = File::from(std::os::fd::OwnedFd::from(reader));
        let mut taken = vec![0; 1 << 20];
        let len = io::Read::read(&mut reader, &mut taken).unwrap();
        writer.write(&mut "next\n".to_owned());
        let more = io::Read::read(&mut reader, &mut taken[len..]).unwrap();
        let text = String::from_utf8(taken[..len + more].to_vec()).unwrap();
        assert!(text.ends_with("x\nnext\n"));
        assert_eq!(text.matches('\n').count() as u64, 1000 - lost + 2);
    }

    #[test]
    fn a_file_that_was_emptied_begins_with_a_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        let mut writer = Writer {
            path: path.clone(),
            file: append(&path).unwrap(),
            torn: false,
            lost: 0,
            tell_at: 1,
            stats: Arc::default(),
        };
        for (emptied, text) in [(false, "cut\nwhole\n"), (true, "whole\n")] {
            std::fs::write(&path, "cut").unwrap();
            writer.torn = true;
            if emptied {
                std::fs::write(&path, "").unwrap();
            }
            writer.write(&mut "whole\n".to_owned());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn only_so_many_files_are_written_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let factory = FileSinkFactory::default();
        let create = |at: usize| {
            let path = dir.path().join(at.to_string());
            factory.create(&FileSinkFactory::config(path.to_str().unwrap()))
        };
        let most = most_files();
        let sinks: Vec<_> = (0..most).map(|at| create(at).unwrap()).collect();
        let refused = create(FILES).unwrap_err().to_string();
        let reason = format!("{most} event logs are open already");
        assert!(refused.contains(&reason), "{refused}");
        create(0).unwrap();
        drop(sinks);
        create(FILES).unwrap();
    }

    #[test]
    fn a_full_disk_is_counted_and_stops_nothing() {
        let stats = Arc::new(Stats::default());
        let factory = FileSinkFactory::new(Arc::clone(&stats));
        let Ok(sink) = factory.create(&FileSinkFactory::config("/dev/full")) else {
            return;
        };
        sink.record(&event());
        drop(sink);
        assert_eq!(stats.engine.event_write_errors.value(), 1);
    }
}
