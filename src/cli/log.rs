//! Where the daemon's log lines go.

use tracing_subscriber::EnvFilter;

use super::{LogArgs, LogFormat};

/// Sends log lines to standard error.
///
/// # Errors
///
/// A level that cannot be understood, in words.
pub(super) fn install(args: &LogArgs) -> Result<(), String> {
    let filter = EnvFilter::try_new(&args.log_level)
        .map_err(|error| format!("--log-level {:?}: {error}", args.log_level))?;
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
