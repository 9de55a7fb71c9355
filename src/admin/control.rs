//! What an operator tells the process: `/healthcheck/fail` and `/healthcheck/ok`, `/logging`, `/reopen_logs` and
//! `/quitquitquit`. As with Envoy, all of it is asked for by `POST`.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::Shared;
use super::answer::{self, Refused};
use super::query::Posted;

/// What the process that has the admin port can do. All of it is called on the runtime and must not wait.
pub trait Control: Send + Sync + fmt::Debug {
    /// Loggers and their levels, in the order in which they are to be shown.
    fn loggers(&self) -> Vec<(String, LogLevel)>;

    /// Sets the level of one of [`Control::loggers`], or of all.
    fn set_level(&self, logger: Option<&str>, level: LogLevel);

    /// Opens anew the files that are written to, after they were moved away.
    fn reopen_logs(&self);

    /// Ends the process, or begins to. The answer is sent all the same if the port is let end in order.
    fn quit(&self);
}

/// Which log lines are written: those of this level, and of those above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are Envoy's and say all there is")]
pub enum LogLevel {
    Trace,
    Debug,
    Info,
    Warning,
    Error,
    Critical,
    Off,
}

impl LogLevel {
    /// All levels, from the one that writes most.
    pub const ALL: [Self; 7] = [
        Self::Trace,
        Self::Debug,
        Self::Info,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Off,
    ];

    /// Envoy's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Off => "off",
        }
    }

    /// The level of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl Shared {
    fn control(&self) -> Result<&dyn Control, Refused> {
        let missing = || Refused::not_implemented("This process does not offer it.\n");
        self.admin.control.as_deref().ok_or_else(missing)
    }
}

fn ok() -> Response {
    answer::text(StatusCode::OK, "OK\n")
}

pub(super) async fn fail(State(shared): State<Arc<Shared>>, _: Posted) -> Response {
    shared.draining.store(true, Relaxed);
    ok()
}

pub(super) async fn pass(State(shared): State<Arc<Shared>>, _: Posted) -> Response {
    shared.draining.store(false, Relaxed);
    ok()
}

pub(super) async fn reopen_logs(
    State(shared): State<Arc<Shared>>,
    _: Posted,
) -> Result<Response, Refused> {
    shared.control()?.reopen_logs();
    Ok(ok())
}

pub(super) async fn quit(
    State(shared): State<Arc<Shared>>,
    _: Posted,
) -> Result<Response, Refused> {
    shared.control()?.quit();
    Ok(ok())
}

pub(super) async fn logging(
    State(shared): State<Arc<Shared>>,
    Posted(asked): Posted,
) -> Result<Response, Refused> {
    let control = shared.control()?;
    let mut to = String::new();
    let mut status = StatusCode::OK;
    if let Err(reason) = set_levels(control, asked.pairs()) {
        status = StatusCode::BAD_REQUEST;
        let _ = write!(
            to,
            "error: {reason}\n\n\
             usage: /logging?<name>=<level> (change single level)\n\
             usage: /logging?paths=name1:level1,name2:level2,... (change multiple levels)\n\
             usage: /logging?level=<level> (change all levels)\n\
             levels:"
        );
        for level in LogLevel::ALL {
            let _ = write!(to, " {}", level.name());
        }
        to.push('\n');
    }
    to.push_str("active loggers:\n");
    for (name, level) in control.loggers() {
        let _ = writeln!(to, "  {name}: {}", level.name());
    }
    to.push('\n');
    Ok(answer::text(status, to))
}

/// Does what is asked for, or nothing of it.
fn set_levels(control: &dyn Control, asked: &[(String, String)]) -> Result<(), &'static str> {
    let level = |name: &str| LogLevel::from_name(name).ok_or("unknown logger level");
    let (name, value) = match asked {
        [] => return Ok(()),
        [(name, value)] => (&**name, &**value),
        _ => return Err("invalid number of parameters"),
    };
    if value.is_empty() {
        return Ok(());
    }
    let loggers = control.loggers();
    let known = |name: &str| match loggers.iter().any(|(known, _)| known == name) {
        true => Ok(()),
        false => Err("unknown logger name"),
    };
    match name {
        "level" => control.set_level(None, level(value)?),
        "paths" => {
            let mut changes = Vec::new();
            for part in value.split(',') {
                let (name, value) = part.split_once(':').unwrap_or_default();
                if name.is_empty() || value.is_empty() {
                    return Err("empty logger name or empty logger level");
                }
                changes.push((name, level(value)?));
                known(name)?;
            }
            for (name, level) in changes {
                control.set_level(Some(name), level);
            }
        }
        name => {
            let level = level(value)?;
            known(name)?;
            control.set_level(Some(name), level);
        }
    }
    Ok(())
}
