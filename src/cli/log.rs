//! Where the daemon's log lines go.

use std::fmt::Display;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::{LogArgs, LogFormat};

/// Sends log lines to standard error.
///
/// # Errors
///
/// A level that cannot be understood, in words.
pub(super) fn install(args: &LogArgs) -> Result<(), String> {
    let wrong = |reason: &dyn Display| format!("--log-level {:?}: {reason}", args.log_level);
    if let Some(word) = misspelled(&args.log_level) {
        return Err(wrong(&format_args!(
            "{word:?} is not off, error, warn, info, debug, trace or module=level"
        )));
    }
    let filter = EnvFilter::try_new(&args.log_level).map_err(|error| wrong(&error))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    let installed = match args.log_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    // Only in one process with others, as in tests, there can be a logger already; it does as well.
    drop(installed);
    Ok(())
}

/// A word in `filter` that stands for a level and is none. Without this, it would be the name of a module that
/// nothing has, and all others would be silent.
fn misspelled(filter: &str) -> Option<&str> {
    let words = filter.split(',').map(str::trim);
    let mut plain = words.filter(|word| !word.contains(['=', '[', ']', '{', '}', ':']));
    plain.find(|word| word.parse::<LevelFilter>().is_err())
}
