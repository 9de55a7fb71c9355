//! Where the daemon's log lines go, and which are written.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::{Mutex, PoisonError};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::{LogArgs, LogFormat};
use crate::admin::LogLevel;

mod lines;

use lines::Lines;

/// Modules whose log lines can be chosen by themselves.
const MODULES: [&str; 7] = ["admin", "cli", "dns", "engine", "feed", "hds", "xds"];
/// Lines that may wait to be written.
const BUFFERED: usize = 8_192;
/// All other log lines.
const OTHER: &str = "other";

/// Sends log lines to standard error. What is left of them is written when the guard goes.
///
/// # Errors
///
/// A level that cannot be understood, in words.
pub(super) fn install(args: &LogArgs) -> Result<(Logs, WorkerGuard), String> {
    let wrong = |reason: &dyn Display| format!("--log-level {:?}: {reason}", args.log_level);
    if let Some(word) = misspelled(&args.log_level) {
        return Err(wrong(&format_args!(
            "{word:?} is not off, error, warn, info, debug, trace or module=level"
        )));
    }
    let filter = EnvFilter::try_new(&args.log_level).map_err(|error| wrong(&error))?;
    let most = filter.max_level_hint();
    // A thread of its own: checks do not wait for whoever reads the log, and lines that find no room are dropped.
    let (writer, flush) = NonBlockingBuilder::default()
        .buffered_lines_limit(BUFFERED)
        .thread_name("log")
        .finish(std::io::stderr());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Lines::new(writer, args.log_format))
        // It would tell of a line that could not be written by writing another, and panics if that fails as well.
        .log_internal_errors(false)
        .with_ansi(false);
    // In one process with others, as in tests, there can be a logger already; it does as well. Then there is
    // none whose filter could be set.
    let set: SetFilter = match args.log_format {
        LogFormat::Text => {
            let lines = lines.with_filter_reloading();
            let handle = lines.reload_handle();
            drop(lines.try_init());
            Box::new(move |filter| drop(handle.reload(filter)))
        }
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_filter_reloading();
            let handle = lines.reload_handle();
            drop(lines.try_init());
            Box::new(move |filter| drop(handle.reload(filter)))
        }
    };
    let logs = Logs {
        levels: Mutex::new(Levels::read(&args.log_level, most)),
        set,
    };
    Ok((logs, flush))
}

type SetFilter = Box<dyn Fn(EnvFilter) + Send + Sync>;

/// Which log lines are written.
pub(super) struct Logs {
    levels: Mutex<Levels>,
    set: SetFilter,
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs").finish_non_exhaustive()
    }
}

impl Logs {
    /// Loggers with their levels.
    pub(super) fn levels(&self) -> Vec<(String, LogLevel)> {
        let levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let all = levels.0.iter();
        all.map(|(name, level)| ((*name).to_owned(), *level))
            .collect()
    }

    /// Sets the level of one logger, or of all.
    pub(super) fn set(&self, logger: Option<&str>, level: LogLevel) {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, of) in &mut levels.0 {
            if logger.is_none_or(|logger| logger == *name) {
                *of = level;
            }
        }
        // What is written here is a filter, always.
        if let Ok(filter) = EnvFilter::try_new(levels.filter()) {
            (self.set)(filter);
        }
    }
}

/// The level of each logger.
#[derive(Debug)]
struct Levels(BTreeMap<&'static str, LogLevel>);

impl Levels {
    /// As a filter has them, or, if it names more than modules, the level beyond which it lets nothing pass.
    fn read(filter: &str, most: Option<LevelFilter>) -> Self {
        let targets: Option<Targets> = filter.parse().ok();
        let level = |target: &str| match &targets {
            Some(targets) => {
                let writes = |level: &LogLevel| {
                    let level = directive(*level).into_level();
                    level.is_some_and(|level| targets.would_enable(target, &level))
                };
                LogLevel::ALL.into_iter().find(writes)
            }
            None => LogLevel::ALL
                .into_iter()
                .find(|level| Some(directive(*level)) == most),
        };
        let of = |name, target: &str| (name, level(target).unwrap_or(LogLevel::Off));
        let modules = MODULES.map(|name| of(name, &target(name)));
        Self(modules.into_iter().chain([of(OTHER, "other")]).collect())
    }

    fn filter(&self) -> String {
        let directives = self.0.iter().map(|(name, level)| {
            let level = directive(*level);
            match *name {
                OTHER => level.to_string(),
                name => format!("{}={level}", target(name)),
            }
        });
        directives.collect::<Vec<_>>().join(",")
    }
}

fn target(module: &str) -> String {
    format!("xds_health::{module}")
}

/// There are no lines above errors here: at `critical` none is written.
fn directive(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Trace => LevelFilter::TRACE,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Critical | LogLevel::Off => LevelFilter::OFF,
    }
}

/// A word in `filter` that stands for a level and is none. Without this, it would be the name of a module that
/// nothing has, and all others would be silent.
fn misspelled(filter: &str) -> Option<&str> {
    let words = filter.split(',').map(str::trim);
    let mut plain = words.filter(|word| !word.contains(['=', '[', ']', '{', '}', ':']));
    plain.find(|word| word.parse::<LevelFilter>().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(filter: &str) -> Levels {
        let most = EnvFilter::new(filter).max_level_hint();
        Levels::read(filter, most)
    }

    #[test]
    fn a_filter_tells_the_level_of_each_logger() {
        let read =
            levels("info,xds_health::engine=trace,xds_health::dns=off,xds_health::xds::ads=debug");
        for (name, level) in read.0 {
            let wanted = match name {
                "engine" => LogLevel::Trace,
                "dns" => LogLevel::Off,
                _ => LogLevel::Info,
            };
            assert_eq!(level, wanted, "{name}");
        }
        assert_eq!(levels("xds_health=warn").0[OTHER], LogLevel::Off);
        assert_eq!(levels("xds_health=warn").0["xds"], LogLevel::Warning);
        assert_eq!(levels("debug,[span]=debug").0["xds"], LogLevel::Debug);
    }

    #[test]
    fn levels_are_read_as_they_are_written() {
        let mut read = levels("warn,xds_health::engine=trace");
        *read.0.get_mut("hds").unwrap() = LogLevel::Off;
        let again = levels(&read.filter());
        assert_eq!(again.0, read.0);
    }
}
