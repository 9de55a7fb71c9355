//! Which wait follows a completion.

use super::*;

/// The wait after the last of `letters`, and what it is called.
#[track_caller]
fn waits(traffic: bool, letters: &str, kind: IntervalKind, millis: u32) {
    let mut driven = Driven::new(check(2, 3));
    driven.traffic = traffic.into();
    driven.all(letters);
    assert_eq!(driven.session.waits_by(), kind, "after {letters}");
    assert_eq!(driven.wait(), millis * MS, "after {letters}");
}

#[test]
fn each_completion_has_its_interval_once_there_was_traffic() {
    let cases = [
        ("a first success", "S", IntervalKind::Interval, 400),
        ("a first failure", "T", IntervalKind::Unhealthy, 700),
        ("a success while healthy", "SS", IntervalKind::Interval, 400),
        (
            "one below the threshold",
            "TS",
            IntervalKind::HealthyEdge,
            150,
        ),
        ("the next below it", "TSS", IntervalKind::HealthyEdge, 150),
        ("one that reaches it", "TSSS", IntervalKind::Interval, 400),
        ("a failure below it", "ST", IntervalKind::UnhealthyEdge, 250),
        ("one that reaches it", "STT", IntervalKind::Unhealthy, 700),
        (
            "a failure while failed",
            "STTT",
            IntervalKind::Unhealthy,
            700,
        ),
        ("an active failure", "SA", IntervalKind::Unhealthy, 700),
        ("a change of degraded", "SD", IntervalKind::Interval, 400),
        (
            "the same below the threshold",
            "TD",
            IntervalKind::HealthyEdge,
            150,
        ),
    ];
    for (_, letters, kind, millis) in cases {
        waits(true, letters, kind, millis);
    }
}

#[test]
fn without_traffic_two_intervals_rule_all_completions() {
    let healthy = (IntervalKind::NoTrafficHealthy, 1500);
    let other = (IntervalKind::NoTraffic, 1100);
    for (letters, (kind, millis)) in [
        ("S", healthy),
        ("SS", healthy),
        ("TSSS", healthy),
        ("T", other),
        ("TS", other),
        ("ST", other),
        ("STT", other),
        ("STTT", other),
    ] {
        waits(false, letters, kind, millis);
    }
}

#[test]
fn a_never_reached_threshold_keeps_the_edge_intervals() {
    let mut driven = Driven::new(check(0, 0));
    driven.all("ST");
    assert_eq!(driven.session.waits_by(), IntervalKind::UnhealthyEdge);
    driven.all("ATS");
    assert_eq!(driven.session.waits_by(), IntervalKind::HealthyEdge);
}

#[test]
fn intervals_have_names() {
    for (kind, name) in [
        (IntervalKind::Initial, "initial_jitter"),
        (IntervalKind::Interval, "interval"),
        (IntervalKind::Unhealthy, "unhealthy_interval"),
        (IntervalKind::UnhealthyEdge, "unhealthy_edge_interval"),
        (IntervalKind::HealthyEdge, "healthy_edge_interval"),
        (IntervalKind::NoTraffic, "no_traffic_interval"),
        (
            IntervalKind::NoTrafficHealthy,
            "no_traffic_healthy_interval",
        ),
    ] {
        assert_eq!(kind.name(), name);
    }
}

#[test]
fn what_is_due_and_what_runs_can_be_put_off() {
    let mut driven = Driven::new(check(2, 2));
    driven.complete('S');
    let wait = driven.wait();
    driven.session.postpone(5000 * MS);
    assert_eq!(driven.wait(), wait + 5000 * MS);
    let id = driven.start();
    let timeout = driven.wait();
    driven.session.postpone(5000 * MS);
    assert_eq!(driven.wait(), timeout + 5000 * MS);
    driven.now += timeout;
    assert_eq!(driven.session.handle_timeout(driven.now), None);
    driven.now += 5000 * MS;
    assert_eq!(
        driven.session.handle_timeout(driven.now),
        Some(Due::Expire(id))
    );
}

#[test]
fn while_traffic_is_expected_the_shorter_of_both_waits_rules() {
    for (no_traffic, interval, kind) in [
        (200, 1000, IntervalKind::NoTrafficHealthy),
        (60_000, 1000, IntervalKind::Interval),
        (1000, 1000, IntervalKind::Interval),
    ] {
        let mut check = check(2, 2);
        check.interval = interval * MS;
        check.no_traffic_healthy_interval = no_traffic * MS;
        let mut driven = Driven::new(check);
        driven.traffic = Traffic::Expected;
        driven.complete('S');
        assert_eq!(driven.session.waits_by(), kind);
        assert_eq!(driven.wait(), no_traffic.min(interval) * MS);
    }
}

#[test]
fn traffic_does_not_shorten_a_wait_that_runs() {
    let mut driven = Driven::new(check(2, 2));
    driven.traffic = Traffic::None;
    driven.all("S");
    driven.traffic = Traffic::Had;
    driven.now += 850 * MS;
    assert_eq!(driven.session.handle_timeout(driven.now), None);
    assert_eq!(driven.wait(), 650 * MS);
    driven.all("S");
    assert_eq!(driven.wait(), 400 * MS);
}

#[test]
fn traffic_shortens_a_wait_only_if_asked_to_and_only_one_of_no_traffic() {
    let traffic = |driven: &mut Driven| {
        let mut cx = Context {
            check: &driven.check,
            traffic: Traffic::Had,
            limits: driven.limits,
            random: &mut || 0,
        };
        driven.session.handle_traffic(driven.now, &mut cx)
    };
    for (letters, kind, millis) in [
        ("S", IntervalKind::Interval, 400),
        ("T", IntervalKind::Unhealthy, 700),
    ] {
        let mut driven = Driven::new(check(2, 2));
        driven.traffic = Traffic::None;
        driven.all(letters);
        assert!(traffic(&mut driven));
        assert_eq!(
            (driven.session.waits_by(), driven.wait()),
            (kind, millis * MS)
        );
        // Now it waits by another interval.
        driven.now += 10 * MS;
        assert!(!traffic(&mut driven));
        assert_eq!(driven.wait(), (millis - 10) * MS);
    }

    let mut driven = Driven::new(check(2, 2));
    driven.traffic = Traffic::None;
    driven.all("S");
    driven.now += 1200 * MS;
    assert!(!traffic(&mut driven), "what is left is shorter");
    assert_eq!(driven.wait(), 300 * MS);
    driven.start();
    assert!(!traffic(&mut driven), "an attempt runs");
    assert_eq!(driven.wait(), 100 * MS);
}
