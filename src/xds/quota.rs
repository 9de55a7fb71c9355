//! How much is logged of what servers say.

use std::time::{Duration, Instant};

/// How much may be logged of what is refused, so that a server which says nothing else fills no disk.
#[derive(Debug, Default)]
pub(crate) struct Quota {
    since: Option<Instant>,
    told: u32,
    left_out: u64,
}

impl Quota {
    /// Lines for each [`Quota::WINDOW`].
    pub(crate) const LINES: u32 = 100;
    const WINDOW: Duration = Duration::from_secs(10);

    /// Whether one more line may be logged.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        let over = |since| now.saturating_duration_since(since) >= Self::WINDOW;
        if self.since.is_none_or(over) {
            if self.left_out > 0 {
                tracing::warn!(lines = self.left_out, "more was wrong than was logged");
            }
            *self = Self {
                since: Some(now),
                ..Self::default()
            };
        }
        let allows = self.told < Self::LINES;
        self.told += u32::from(allows);
        self.left_out += u64::from(!allows);
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_what_is_wrong_have_an_end() {
        let mut quota = Quota::default();
        let start = Instant::now();
        let told = (0..1_000).filter(|_| quota.allows(start)).count();
        assert_eq!(told, 100);
        assert_eq!(quota.left_out, 900);
        assert!(!quota.allows(start + Duration::from_secs(9)));
        assert!(quota.allows(start + Duration::from_secs(10)));
        assert_eq!(quota.left_out, 0);
    }
}
