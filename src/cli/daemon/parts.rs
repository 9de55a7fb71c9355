//! What is to run as long as the daemon does, and whether it still does.

use std::collections::HashMap;
use std::io;

use tokio::task::{Id, JoinSet};

/// Tasks that only end with the engine. One that panics would leave a daemon that looks alive and follows nothing.
#[derive(Default)]
pub(super) struct Parts {
    tasks: JoinSet<Result<(), Lost>>,
    names: HashMap<Id, &'static str>,
}

/// A part that panicked, by what it does.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} has panicked")]
pub(super) struct Lost(pub(super) &'static str);

impl Parts {
    /// Runs a part, which may tell of others that are lost.
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        part: impl Future<Output = Result<(), Lost>> + Send + 'static,
    ) {
        let task = self.tasks.spawn(part);
        self.names.insert(task.id(), name);
    }

    /// Ends them all.
    pub(super) async fn end(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Waits until one is lost.
    pub(super) async fn lost(&mut self) -> io::Error {
        while let Some(ended) = self.tasks.join_next().await {
            let lost = match ended {
                Ok(Ok(())) => continue,
                Ok(Err(lost)) => lost,
                Err(error) => Lost(self.names.get(&error.id()).copied().unwrap_or("a task")),
            };
            return io::Error::other(lost);
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_panics_or_tells_of_another_is_lost_by_name() {
        let mut parts = Parts::default();
        parts.spawn("this", async { Ok(()) });
        parts.spawn("that", async { panic!("as the test says") });
        assert_eq!(parts.lost().await.to_string(), "that has panicked");
        parts.spawn("those", async { Err(Lost("another")) });
        assert_eq!(parts.lost().await.to_string(), "another has panicked");
    }

    #[tokio::test(start_paused = true)]
    async fn parts_that_go_on_or_have_ended_are_not_lost() {
        let mut parts = Parts::default();
        parts.spawn("this", async { Ok(()) });
        parts.spawn("that", std::future::pending());
        let waited = tokio::time::timeout(std::time::Duration::from_secs(9), parts.lost());
        waited.await.unwrap_err();
    }
}
