//! When attempts begin and end.

use super::*;

#[test]
fn the_next_interval_starts_at_the_completion() {
    let mut driven = Driven::new(check(2, 2));
    let id = driven.start();
    driven.now += 60 * MS;
    driven.end(id, &Outcome::SUCCESS);
    assert_eq!(driven.wait(), 400 * MS);

    let start = driven.now + driven.wait();
    let id = driven.start();
    assert_eq!(driven.now, start);
    driven.now += driven.wait();
    assert_eq!(
        driven.session.handle_timeout(driven.now),
        Some(Due::Expire(id))
    );
    driven.end(id, &outcome('T'));
    assert_eq!(driven.now + driven.wait(), start + (100 + 250) * MS);
}

#[test]
fn a_timeout_may_be_longer_than_the_interval() {
    let mut driven = Driven::new(HealthCheck {
        timeout: 900 * MS,
        ..check(2, 2)
    });
    let id = driven.start();
    driven.now += 899 * MS;
    assert_eq!(driven.session.handle_timeout(driven.now), None);
    assert_eq!(driven.session.attempting(), Some(id));
    driven.now += MS;
    driven.end(id, &outcome('T'));
    assert_eq!(driven.wait(), 700 * MS);
}

#[test]
fn an_attempt_expires_at_its_deadline_and_until_it_is_ended() {
    let mut driven = Driven::new(check(2, 2));
    let id = driven.start();
    driven.now += 100 * MS - Duration::from_nanos(1);
    assert_eq!(driven.session.handle_timeout(driven.now), None);
    driven.now += Duration::from_nanos(1);
    for _ in 0..3 {
        let due = driven.session.handle_timeout(driven.now);
        assert_eq!(due, Some(Due::Expire(id)));
        driven.now += 10 * MS;
    }
    assert!(driven.end(id, &outcome('T')).is_some());
    assert_eq!(driven.session.handle_timeout(driven.now), None);
}

#[test]
fn an_attempt_sent_late_has_its_whole_timeout() {
    let mut driven = Driven::new(check(2, 2));
    let id = driven.start();
    driven.now += 70 * MS;
    driven.session.handle_sent(driven.now, id, &driven.check);
    assert_eq!(driven.wait(), 100 * MS);
    driven.now += 10 * MS;
    let stale = AttemptId(id.0 + 1);
    driven.session.handle_sent(driven.now, stale, &driven.check);
    assert_eq!(driven.wait(), 90 * MS);
    driven.end(id, &Outcome::SUCCESS);
    driven.session.handle_sent(driven.now, id, &driven.check);
    assert_eq!(driven.wait(), 400 * MS);
}

#[test]
fn a_due_start_is_told_once_and_its_delay_is_told() {
    let mut driven = Driven::new(check(2, 2));
    driven.all("S");
    driven.now += 400 * MS;
    assert_eq!(driven.session.handle_timeout(driven.now), Some(Due::Start));
    assert_eq!(driven.session.poll_timeout(), None);
    driven.now += 30 * MS;
    assert_eq!(driven.session.handle_timeout(driven.now), None);
    assert_eq!(driven.session.attempting(), None);
    let id = AttemptId(9);
    let lag = driven.session.handle_start(driven.now, id, &driven.check);
    assert_eq!(lag, Some(30 * MS));
    assert_eq!(driven.session.attempting(), Some(id));
    assert_eq!(driven.wait(), 100 * MS);
}

#[test]
fn nothing_starts_that_is_not_due() {
    let mut driven = Driven::new(check(2, 2));
    let (now, id) = (driven.now, AttemptId(9));
    assert_eq!(driven.session.handle_start(now, id, &driven.check), None);
    let running = driven.start();
    assert_eq!(driven.session.handle_start(now, id, &driven.check), None);
    assert_eq!(driven.session.attempting(), Some(running));
}

#[test]
fn a_late_answer_does_not_undo_a_timeout() {
    let mut driven = Driven::new(check(1, 1));
    driven.all("S");
    let late = driven.start();
    driven.now += 100 * MS;
    driven.end(late, &outcome('T'));
    let before = driven.session.clone();
    assert_eq!(driven.end(late, &Outcome::SUCCESS), None);
    let running = driven.start();
    assert_eq!(driven.end(late, &Outcome::SUCCESS), None);
    assert!(before.failed() && driven.session.failed());
    assert_eq!(driven.session.attempting(), Some(running));
}

#[test]
fn a_timeout_shows_while_the_host_is_failed() {
    let timed_out = |letters: &str| Driven::new(check(2, 2)).all(letters).session.timed_out();
    assert!(timed_out("T"), "failed from the start");
    assert!(!timed_out("R"));
    assert!(!timed_out("ST"), "still healthy");
    assert!(timed_out("STT"), "ejected by it");
    assert!(!timed_out("STR"), "ejected by another failure");
    assert!(timed_out("SRRT"), "while failed");
    assert!(timed_out("TS"), "a success below the threshold leaves it");
    assert!(!timed_out("TSS"), "the host is healthy");
    assert!(!timed_out("TR"), "another failure clears it");
    assert!(!timed_out("TA"));
}
