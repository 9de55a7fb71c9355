//! How long a name waits for its next lookup.

use std::time::Duration;

use super::answer::Answer;
use crate::config::DnsConfig;

/// The wait after an answer: its time to live if that is respected, or the refresh rate, and a part of the
/// jitter. A time to live of zero says nothing, as with Envoy.
pub(super) fn after_answer(
    dns: &DnsConfig,
    answer: &Answer,
    random: &mut fastrand::Rng,
) -> Duration {
    let ttl = answer
        .ttl
        .filter(|ttl| dns.respect_ttl && !answer.addresses.is_empty() && !ttl.is_zero());
    let rate = match ttl {
        Some(ttl) => ttl.max(dns.min_refresh_rate.unwrap_or_default()),
        None => dns.refresh_rate,
    };
    rate.saturating_add(part(dns.jitter, random))
}

/// The waits after failures in a row.
///
/// Each is a random part of a time that doubles from the base to the longest: Envoy's back-off. Unlike
/// there, each name has one of its own, so that one name that fails does not slow the others down, and one
/// that succeeds does not spur the failing ones.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    next: Option<Duration>,
}

impl Backoff {
    /// The wait after one more failure.
    pub(super) fn next(&mut self, dns: &DnsConfig, random: &mut fastrand::Rng) -> Duration {
        let Some((base, longest)) = dns.failure_refresh_rate else {
            return dns.refresh_rate;
        };
        let whole = self.next.unwrap_or(base).min(longest);
        self.next = Some(whole.saturating_mul(2));
        part(whole, random).max(Duration::from_millis(1))
    }

    /// A lookup succeeded.
    pub(super) fn reset(&mut self) {
        self.next = None;
    }
}

/// From nothing to almost all of `whole`, at random.
fn part(whole: Duration, random: &mut fastrand::Rng) -> Duration {
    let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
    match nanos {
        0 => Duration::ZERO,
        nanos => Duration::from_nanos(random.u64(..nanos)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dns::testing::config;

    const SECOND: Duration = Duration::from_secs(1);

    fn rng() -> fastrand::Rng {
        fastrand::Rng::with_seed(7)
    }

    fn answer(ttl: u64) -> Answer {
        Answer {
            addresses: vec!["127.0.0.1".parse().unwrap()],
            ttl: Some(SECOND * u32::try_from(ttl).unwrap()),
            missing: None,
        }
    }

    #[test]
    fn a_time_to_live_counts_if_it_is_respected() {
        let wait = |fields: &str, answer: &Answer| {
            after_answer(&config(fields, &["a"]), answer, &mut rng()).as_secs()
        };
        let respect = "respect_dns_ttl: true";
        let least = "respect_dns_ttl: true, dns_min_refresh_rate: 3s";
        assert_eq!(wait("", &answer(30)), 5);
        assert_eq!(wait(respect, &answer(30)), 30);
        assert_eq!(wait(respect, &answer(1)), 1);
        assert_eq!(wait(respect, &answer(0)), 5);
        assert_eq!(wait(least, &answer(1)), 3);
        assert_eq!(wait(least, &answer(30)), 30);
        assert_eq!(wait(least, &answer(0)), 5);
        let without = Answer {
            addresses: Vec::new(),
            ..answer(30)
        };
        assert_eq!(wait(respect, &without), 5);
        let untold = Answer {
            ttl: None,
            ..answer(30)
        };
        assert_eq!(wait(respect, &untold), 5);
    }

    #[test]
    fn failures_without_a_rate_of_their_own_are_followed_by_the_refresh_rate() {
        let dns = config("dns_refresh_rate: 7s, dns_jitter: 1s", &["a"]);
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            assert_eq!(backoff.next(&dns, &mut rng()), SECOND * 7);
        }
    }

    proptest! {
        #[test]
        fn jitter_stays_in_range(seed: u64) {
            let dns = config("dns_jitter: 2s", &["a"]);
            let wait = after_answer(&dns, &answer(1), &mut fastrand::Rng::with_seed(seed));
            prop_assert!((SECOND * 5..SECOND * 7).contains(&wait));
        }

        #[test]
        fn back_off_doubles_up_to_the_longest(seed: u64) {
            let rate = "dns_failure_refresh_rate: {base_interval: 2s, max_interval: 10s}";
            let dns = config(rate, &["a"]);
            let (mut backoff, mut random) = (Backoff::default(), fastrand::Rng::with_seed(seed));
            for round in 0..2 {
                for longest in [2, 4, 8, 10, 10] {
                    let wait = backoff.next(&dns, &mut random);
                    prop_assert!(!wait.is_zero() && wait < SECOND * longest, "{round}: {wait:?}");
                }
                backoff.reset();
            }
        }
    }
}
