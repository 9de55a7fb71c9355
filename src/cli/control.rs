//! What the daemon does when the admin port is told to.

use tokio::sync::Notify;

use super::log::Logs;
use crate::admin::{Control, LogLevel};
use crate::registry::Registry;

/// The daemon, as the admin port sees it.
#[derive(Debug)]
pub(super) struct Controls {
    logs: Logs,
    registry: Registry,
    quit: Notify,
}

impl Controls {
    pub(super) fn new(logs: Logs, registry: Registry) -> Self {
        Self {
            logs,
            registry,
            quit: Notify::new(),
        }
    }

    /// Completes when the daemon is told to end.
    pub(super) async fn told_to_quit(&self) {
        self.quit.notified().await;
    }
}

impl Control for Controls {
    fn loggers(&self) -> Vec<(String, LogLevel)> {
        self.logs.levels()
    }

    fn set_level(&self, logger: Option<&str>, level: LogLevel) {
        self.logs.set(logger, level);
    }

    fn reopen_logs(&self) {
        self.registry.reopen();
    }

    fn quit(&self) {
        self.quit.notify_one();
    }
}
