//! How many requests may be sent: `rate_limit_settings`.

use std::time::{Duration, Instant};

/// A bucket of tokens, of which each request takes one.
#[derive(Debug)]
pub(super) struct Bucket {
    most: f64,
    per_second: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub(super) fn new(most: u32, per_second: f64, now: Instant) -> Self {
        let most = f64::from(most);
        Self {
            most,
            per_second,
            tokens: most,
            filled: now,
        }
    }

    /// Takes a token, or tells when there will be one.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let since = now.saturating_duration_since(self.filled);
        self.tokens = (self.tokens + since.as_secs_f64() * self.per_second).min(self.most);
        self.filled = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        let wait = Duration::try_from_secs_f64((1.0 - self.tokens) / self.per_second);
        // A little late rather than early, where nothing would have changed.
        let wait = wait
            .unwrap_or(Duration::MAX)
            .saturating_add(Duration::from_millis(1));
        Err(now
            .checked_add(wait)
            .unwrap_or(now + Duration::from_secs(3600)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_there_is_room_for_and_then_as_they_come() {
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        let start = Instant::now();
        let mut bucket = Bucket::new(2, 4.0, start);
        assert_eq!(bucket.take(start), Ok(()));
        assert_eq!(bucket.take(start), Ok(()));
        let next = bucket.take(start).unwrap_err();
        assert_eq!(next, start + Duration::from_millis(251));
        assert_eq!(bucket.take(next), Ok(()));
        bucket.take(next).unwrap_err();
        let later = start + Duration::from_secs(60);
        assert_eq!(bucket.take(later), Ok(()));
        assert_eq!(bucket.take(later), Ok(()));
        bucket.take(later).unwrap_err();
    }
}
