//! Thresholds, and what they make of completions.

use super::*;

/// The verdict after each of the completions: healthy or failed, by a letter.
#[track_caller]
fn verdicts(thresholds: (u32, u32), letters: &str, expected: &str) {
    let mut driven = Driven::new(check(thresholds.0, thresholds.1));
    let told = letters.chars().map(|letter| {
        driven.complete(letter);
        if driven.session.failed() { 'f' } else { 'h' }
    });
    assert_eq!(told.collect::<String>(), expected, "after {letters}");
}

#[test]
fn a_host_starts_failed_and_is_checked_at_once() {
    let mut driven = Driven::new(check(2, 2));
    let session = &mut driven.session;
    assert!(session.failed() && session.first_check());
    assert!(!session.known() && !session.timed_out() && !session.degraded());
    assert_eq!(session.poll_timeout(), Some(driven.now));
    assert_eq!(session.waits_by(), IntervalKind::Initial);
    assert_eq!(session.handle_timeout(driven.now), Some(Due::Start));
}

#[test]
fn a_first_success_passes_the_host_whatever_the_threshold() {
    for threshold in [0, 1, 2, 7, u32::MAX] {
        let mut driven = Driven::new(check(2, threshold));
        let first = driven.complete('S');
        assert_eq!(first.transition, Transition::Changed);
        assert!(first.first_check);
        assert!(!driven.session.failed() && driven.session.known());
        assert!(!driven.complete('S').first_check);
    }
}

#[test]
fn a_first_failure_leaves_the_host_failed_until_the_threshold_of_successes() {
    for letter in ['R', 'T', 'A', 'C'] {
        let mut driven = Driven::new(check(2, 2));
        let first = driven.complete(letter);
        assert_eq!(first.transition, Transition::Unchanged);
        assert!(first.first_check && driven.session.known());
    }
    verdicts((2, 2), "TSS", "ffh");
    verdicts((2, 3), "RSSS", "fffh");
}

#[test]
fn failures_in_a_row_fail_a_healthy_host_at_the_threshold() {
    verdicts((1, 2), "ST", "hf");
    verdicts((3, 2), "STTT", "hhhf");
    // Both types of network failure count, and count together.
    verdicts((3, 2), "SRRR", "hhhf");
    verdicts((3, 2), "SRTR", "hhhf");
}

#[test]
fn a_success_clears_the_failures_and_a_failure_the_successes() {
    verdicts((3, 2), "STTSTTT", "hhhhhhf");
    verdicts((3, 3), "TSSTSSS", "ffffffh");
    let mut driven = Driven::new(check(3, 3));
    driven.all("STT");
    assert_eq!(driven.session.counts(), (0, 2));
    assert_eq!(driven.all("S").session.counts(), (0, 0));
    driven.all("TTT");
    assert_eq!(driven.session.counts(), (0, 0));
    assert_eq!(driven.all("SS").session.counts(), (2, 0));
    assert_eq!(driven.all("T").session.counts(), (0, 0));
}

#[test]
fn counts_begin_anew_after_a_change_of_the_verdict() {
    verdicts((2, 2), "STTSSTTSS", "hhffhhffh");
}

#[test]
fn a_threshold_of_zero_is_never_reached() {
    verdicts((0, 2), "STTTTTTT", "hhhhhhhh");
    verdicts((2, 0), "STTSSSSS", "hhffffff");
    verdicts((2, 0), "TSSSS", "fffff");
    // What answers that it is unhealthy is not counted.
    verdicts((0, 2), "SA", "hf");
}

#[test]
fn an_active_failure_fails_the_host_at_once_and_a_retriable_one_counts() {
    verdicts((3, 2), "SA", "hf");
    verdicts((3, 2), "SCCC", "hhhf");
    verdicts((3, 2), "SCTR", "hhhf");
    verdicts((3, 2), "STA", "hhf");
}

#[test]
fn transitions_tell_what_a_completion_did() {
    use Transition::{ChangePending, Changed, Unchanged};
    let mut driven = Driven::new(check(2, 2));
    let told: Vec<_> = "STTTSSS"
        .chars()
        .map(|letter| driven.complete(letter).transition)
        .collect();
    assert_eq!(
        told,
        [
            Changed,
            ChangePending,
            Changed,
            Unchanged,
            ChangePending,
            Changed,
            Unchanged
        ]
    );
}

#[test]
fn a_host_turns_degraded_and_back_by_what_it_answers() {
    let mut driven = Driven::new(check(2, 2));
    let degraded = driven.events('D');
    let added = EventKind::AddHealthy { first_check: true };
    assert_eq!(degraded, [added, EventKind::Degraded]);
    assert!(driven.session.degraded() && !driven.session.failed());
    assert_eq!(driven.complete('D').transition, Transition::Unchanged);
    // A failure says nothing of it.
    driven.all("T");
    assert!(driven.session.degraded());
    let plain = driven.complete('S');
    assert_eq!(plain.transition, Transition::Changed);
    assert!(plain.events.contains(&Some(EventKind::NoLongerDegraded)));
    assert!(!driven.session.degraded());
}

#[test]
fn degraded_does_not_hide_a_pending_change() {
    let mut driven = Driven::new(check(2, 2));
    driven.all("T");
    assert_eq!(driven.complete('D').transition, Transition::ChangePending);
    assert!(driven.session.failed() && driven.session.degraded());
}

#[test]
fn set_unhealthy_fails_the_host_at_once_and_keeps_the_schedule() {
    let mut driven = Driven::new(check(3, 2));
    driven.all("S");
    let due = driven.session.poll_timeout();
    let told = driven.set_unhealthy();
    assert_eq!(told.transition, Transition::Changed);
    let passive = ejected(FailureType::Passive);
    assert_eq!(told.events, [Some(passive), None, None]);
    assert!(driven.session.failed() && !driven.session.timed_out());
    assert_eq!(driven.session.poll_timeout(), due);
    assert_eq!(driven.set_unhealthy().transition, Transition::Unchanged);
    driven.all("S");
    assert!(driven.session.failed());
    driven.all("S");
    assert!(!driven.session.failed());
}

#[test]
fn set_unhealthy_leaves_a_running_attempt_and_counts_as_the_first_check() {
    let mut driven = Driven::new(check(3, 2));
    let id = driven.start();
    let told = driven.set_unhealthy();
    assert!(told.first_check);
    assert_eq!(
        told.events,
        [None, Some(failed(FailureType::Passive, true)), None]
    );
    assert_eq!(driven.session.attempting(), Some(id));
    let success = driven.end(id, &Outcome::SUCCESS).unwrap();
    assert_eq!(success.transition, Transition::ChangePending);
    assert!(!success.first_check);
}
