//! Jitter, and the bounds of waits.

use super::*;

#[test]
fn jitter_only_adds_and_its_upper_end_is_open() {
    let jittered = |percent, interval_jitter: Duration, random| {
        let check = HealthCheck {
            interval_jitter_percent: percent,
            interval_jitter,
            ..check(2, 2)
        };
        Driven::with(check, IntervalLimits::default(), random)
            .all("S")
            .wait()
    };
    let micro = Duration::from_micros(1);
    assert_eq!(jittered(0, Duration::ZERO, u64::MAX), 400 * MS);
    assert_eq!(jittered(0, 200 * MS, 0), 400 * MS);
    assert_eq!(jittered(0, 200 * MS, 199_999), 600 * MS - micro);
    assert_eq!(jittered(0, 200 * MS, 200_000), 400 * MS);
    assert_eq!(jittered(25, Duration::ZERO, 99_999), 500 * MS - micro);
    assert_eq!(jittered(25, Duration::ZERO, 100_000), 400 * MS);
    // Both: a part of each.
    assert_eq!(jittered(50, 100 * MS, 50_000), 500 * MS);
    // Below a millisecond there is none.
    assert_eq!(jittered(0, 999 * micro, 500), 400 * MS);
}

#[test]
fn jitter_is_added_to_every_interval() {
    for (letters, traffic, base) in [
        ("S", true, 400),
        ("T", true, 700),
        ("ST", true, 250),
        ("TS", true, 150),
        ("S", false, 1500),
        ("T", false, 1100),
    ] {
        let check = HealthCheck {
            interval_jitter: 100 * MS,
            ..check(2, 2)
        };
        let mut driven = Driven::with(check, IntervalLimits::default(), 40_000);
        driven.traffic = traffic.into();
        assert_eq!(driven.all(letters).wait(), (base + 40) * MS, "{letters}");
    }
}

#[test]
fn the_first_attempt_waits_for_part_of_the_initial_jitter_alone() {
    let first = |initial_jitter, limits, random| {
        let check = HealthCheck {
            initial_jitter,
            interval_jitter: 2000 * MS,
            interval_jitter_percent: 100,
            ..check(2, 2)
        };
        Driven::with(check, limits, random).wait()
    };
    let unbound = IntervalLimits::default();
    assert_eq!(first(500 * MS, unbound, 123_000), 123 * MS);
    assert_eq!(first(500 * MS, unbound, 623_000), 123 * MS);
    assert_eq!(first(500 * MS, unbound, 0), MS);
    assert_eq!(first(Duration::ZERO, unbound, 77), Duration::ZERO);
    // The bounds hold for it, but not where there is none.
    let bound = IntervalLimits::new(700 * MS, 800 * MS);
    assert_eq!(first(500 * MS, bound, 123_000), 700 * MS);
    assert_eq!(first(9000 * MS, bound, 8_000_000), 800 * MS);
    assert_eq!(first(Duration::ZERO, bound, 77), Duration::ZERO);
}

#[test]
fn limits_bound_a_wait_and_the_lower_one_wins() {
    let bound = |min: u32, max: Option<u32>| {
        let max = max.map_or(Duration::MAX, |max| max * MS);
        let limits = IntervalLimits::new(min * MS, max);
        Driven::with(check(2, 2), limits, 0).all("S").wait()
    };
    assert_eq!(bound(0, None), 400 * MS);
    assert_eq!(bound(700, None), 700 * MS);
    assert_eq!(bound(0, Some(150)), 150 * MS);
    assert_eq!(bound(700, Some(150)), 700 * MS);
    assert_eq!(bound(0, Some(0)), MS);
    assert_eq!(bound(100, Some(1000)), 400 * MS);
}

#[test]
fn limits_bound_the_wait_with_its_jitter() {
    let check = HealthCheck {
        interval_jitter: 200 * MS,
        ..check(2, 2)
    };
    let limits = IntervalLimits::new(Duration::ZERO, 450 * MS);
    assert_eq!(
        Driven::with(check, limits, 199_999).all("S").wait(),
        450 * MS
    );
}

#[test]
fn the_longest_waits_do_not_overflow() {
    let far = Duration::MAX;
    let check = HealthCheck {
        timeout: far,
        interval: far,
        interval_jitter: far,
        interval_jitter_percent: u32::MAX,
        ..check(2, 2)
    };
    let year = Duration::from_secs(365 * 86_400);
    let mut driven = Driven::with(check.clone(), IntervalLimits::default(), u64::MAX - 1);
    let id = driven.start();
    assert!(driven.wait() > 20 * year);
    driven.end(id, &Outcome::SUCCESS);
    assert!(driven.wait() > 20 * year);
    let check = HealthCheck {
        initial_jitter: far,
        ..check
    };
    let driven = Driven::with(check, IntervalLimits::default(), u64::MAX - 1);
    assert!(driven.wait() > 20 * year);
}
