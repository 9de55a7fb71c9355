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
    /// A stream has lasted if it was there for that long, or for as long as the wait before the next one.
    const LASTED: Duration = Duration::from_secs(10);

    pub(crate) fn new(base: Duration, max: Duration, seed: u64) -> Self {
        Self {
            base,
            max: max.max(base),
            next: base,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// The wait after a stream that lasted for `lived`. It is the first again if the server had `answered`, and the
    /// stream lasted: one that is ended after each answer would be opened again and again.
    pub(crate) fn after(&mut self, lived: Duration, answered: bool) -> Duration {
        if answered && lived >= self.next.min(Self::LASTED) {
            self.next = self.base;
        }
        self.next()
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
        assert!(backoff.after(Backoff::MAX, false) > Backoff::BASE);
        assert!(backoff.after(Backoff::LASTED, true) <= Backoff::BASE);
    }

    #[test]
    fn a_server_that_ends_each_stream_after_an_answer_is_asked_less_and_less() {
        let mut backoff = Backoff::new(Backoff::BASE, Backoff::MAX, 7);
        let answered = |backoff: &mut Backoff, lived| {
            let lived = Duration::from_millis(lived);
            (0..20)
                .map(|_| backoff.after(lived, true))
                .collect::<Vec<_>>()
        };
        let soon = answered(&mut backoff, 100);
        assert!(soon[19] >= Backoff::MAX / 2, "{soon:?}");
        let late = answered(&mut backoff, 10_000);
        assert!(late.iter().all(|wait| *wait <= Backoff::BASE), "{late:?}");
        let as_long = answered(&mut backoff, 800);
        assert!(
            as_long.iter().all(|wait| *wait <= Backoff::BASE * 3 / 2),
            "{as_long:?}"
        );
    }
}
