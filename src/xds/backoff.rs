//! How long to wait before a stream is opened again.

use std::time::Duration;

/// Waits that grow by half each time, up to a cap, each by chance within its upper half.
#[derive(Debug)]
pub(crate) struct Backoff {
    base: Duration,
    max: Duration,
    next: Duration,
    random: fastrand::Rng,
}

impl Backoff {
    /// The first wait, unless `retry_back_off` says otherwise.
    pub(crate) const BASE: Duration = Duration::from_millis(500);
    /// The longest wait, unless `retry_back_off` says otherwise.
    pub(crate) const MAX: Duration = Duration::from_secs(30);

    pub(crate) fn new(base: Duration, max: Duration, seed: u64) -> Self {
        Self {
            base,
            max: max.max(base),
            next: base,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The server has answered: the next wait is the first again.
    pub(crate) fn reset(&mut self) {
        self.next = self.base;
    }

    pub(crate) fn next(&mut self) -> Duration {
        let ceiling = self.next;
        self.next = (ceiling * 3 / 2).min(self.max);
        ceiling.mul_f64(0.5 + self.random.f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_the_cap_and_begin_anew() {
        let mut backoff = Backoff::new(Backoff::BASE, Backoff::MAX, 7);
        let mut ceiling = Backoff::BASE;
        for _ in 0..20 {
            let wait = backoff.next();
            assert!(
                ceiling / 2 <= wait && wait <= ceiling,
                "{wait:?} of {ceiling:?}"
            );
            ceiling = (ceiling * 3 / 2).min(Backoff::MAX);
        }
        assert_eq!(ceiling, Backoff::MAX);
        backoff.reset();
        assert!(backoff.next() <= Backoff::BASE);
    }
}
