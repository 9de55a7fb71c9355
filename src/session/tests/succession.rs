//! Sessions that follow another, or begin with a verdict.

use super::*;

#[test]
fn a_session_after_another_keeps_its_verdict_until_its_first_completion() {
    // Healthy stays healthy, and one failure is enough whatever the threshold.
    let mut healthy = Driven::new(check(2, 2));
    healthy.all("DT");
    let mut next = healthy.succeeded_by(check(9, 9));
    assert!(!next.session.failed() && next.session.degraded());
    assert!(next.session.known() && next.session.first_check());
    assert_eq!(next.session.counts(), (0, 0));
    assert_eq!(next.wait(), Duration::ZERO);
    // It was never healthy by the new check, so it is not ejected by it: as Envoy tells it.
    assert_eq!(
        next.events('T'),
        [failed(FailureType::NetworkTimeout, true)]
    );
    assert!(next.session.failed());

    // Failed stays failed with its reason, and one success is enough.
    let mut failed = Driven::new(check(2, 2));
    failed.all("TTS");
    let mut next = failed.succeeded_by(check(9, 9));
    assert!(next.session.failed() && next.session.timed_out());
    assert_eq!(
        next.events('S'),
        [EventKind::AddHealthy { first_check: true }]
    );
    assert!(!next.session.failed() && !next.session.timed_out());
}

#[test]
fn a_first_success_after_a_healthy_session_is_told_and_changes_nothing() {
    let mut healthy = Driven::new(check(2, 2));
    let mut next = healthy.all("S").succeeded_by(check(2, 2));
    let first = next.complete('S');
    assert_eq!(first.transition, Transition::Unchanged);
    let added = EventKind::AddHealthy { first_check: true };
    assert_eq!(
        (first.first_check, first.events),
        (true, [Some(added), None, None])
    );
    assert!(!next.session.first_check());
    // From now on the thresholds hold.
    next.all("T");
    assert!(!next.session.failed());
}

#[test]
fn a_host_taken_as_healthy_needs_the_threshold_of_failures_from_the_first_on() {
    let taken = |threshold| {
        let mut driven = Driven::new(check(threshold, 2));
        driven.session = driven.session.taken_as_healthy();
        assert!(!driven.session.failed() && !driven.session.known());
        driven
    };
    let timeout = FailureType::NetworkTimeout;
    let mut silent = taken(2);
    let first = silent.complete('T');
    assert_eq!(first.events, [None, Some(failed(timeout, true)), None]);
    assert!(!silent.session.failed());
    let second = silent.complete('T');
    assert_eq!(second.events, [Some(ejected(timeout)), None, None]);
    assert!(silent.session.failed());

    let at_once = taken(1).complete('T');
    let both = [Some(ejected(timeout)), Some(failed(timeout, true)), None];
    assert_eq!(at_once.events, both);

    let mut passing = taken(1);
    assert_eq!(passing.complete('S').events, [None; 3]);
    assert!(passing.session.known() && !passing.session.failed());

    // A verdict there was stays what it is.
    let mut before = Driven::new(check(1, 1));
    before.complete('T');
    let after = before.succeeded_by(check(1, 1)).session;
    assert!(after.taken_as_healthy().failed());
}

#[test]
fn a_session_that_has_found_nothing_out_has_no_verdict_to_leave() {
    let mut fresh = Driven::new(check(2, 2));
    fresh.start();
    let next = fresh.succeeded_by(check(2, 2));
    assert!(next.session.failed() && !next.session.known());
    // The verdict of one that was decided goes on through any number of sessions.
    let mut decided = Driven::new(check(2, 2));
    let third = decided
        .all("S")
        .succeeded_by(check(2, 2))
        .succeeded_by(check(2, 2));
    assert!(!third.session.failed() && third.session.known());
}
