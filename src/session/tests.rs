use proptest::prelude::*;

use super::*;
use crate::config::{CheckerConfig, TypedConfig};
use crate::event::Reason;

const MS: Duration = Duration::from_millis(1);

/// Each interval has a length of its own.
fn check(unhealthy_threshold: u32, healthy_threshold: u32) -> HealthCheck {
    let checker = CheckerConfig::Custom(TypedConfig::default());
    HealthCheck {
        unhealthy_interval: 700 * MS,
        unhealthy_edge_interval: 250 * MS,
        healthy_edge_interval: 150 * MS,
        no_traffic_interval: 1100 * MS,
        no_traffic_healthy_interval: 1500 * MS,
        ..HealthCheck::new(
            checker,
            100 * MS,
            400 * MS,
            unhealthy_threshold,
            healthy_threshold,
        )
    }
}

fn failure(failure_type: FailureType) -> Failure {
    Failure::new(failure_type, Reason::Silent)
}

fn ejected(failure_type: FailureType) -> EventKind {
    EventKind::EjectUnhealthy {
        failure_type,
        http_status_code: 0,
    }
}

fn failed(failure_type: FailureType, first_check: bool) -> EventKind {
    EventKind::Failure {
        failure_type,
        first_check,
        http_status_code: 0,
    }
}

/// An outcome by a letter: Success, Degraded, Refused, Timeout, Active, and active but Counted.
fn outcome(letter: char) -> Outcome {
    match letter {
        'S' => Outcome::SUCCESS,
        'D' => Outcome::Success { degraded: true },
        'R' => Outcome::Failure(failure(FailureType::Network)),
        'T' => Outcome::Failure(failure(FailureType::NetworkTimeout)),
        'A' => Outcome::Failure(failure(FailureType::Active)),
        'C' => Outcome::Failure(Failure {
            retriable: true,
            ..failure(FailureType::Active)
        }),
        other => unreachable!("no outcome {other}"),
    }
}

/// A session and the world around it.
struct Driven {
    session: Session,
    check: HealthCheck,
    traffic: Traffic,
    limits: IntervalLimits,
    random: u64,
    now: Instant,
    attempts: u32,
}

impl Driven {
    fn new(check: HealthCheck) -> Self {
        Self::with(check, IntervalLimits::default(), 0)
    }

    fn with(check: HealthCheck, limits: IntervalLimits, random: u64) -> Self {
        let now = Instant::now();
        let mut cx = Context {
            check: &check,
            traffic: Traffic::Had,
            limits,
            random: &mut || random,
        };
        Self {
            session: Session::new(now, None, &mut cx),
            check,
            traffic: Traffic::Had,
            limits,
            random,
            now,
            attempts: 0,
        }
    }

    /// The session after this one, as a changed check begins it.
    fn succeeded_by(&self, check: HealthCheck) -> Self {
        let mut next = Self::new(check);
        let mut cx = Context {
            check: &next.check,
            traffic: Traffic::Had,
            limits: next.limits,
            random: &mut || 0,
        };
        next.session = Session::new(self.now, Some(&self.session), &mut cx);
        next.now = self.now;
        next
    }

    /// Time until the session is next to be looked at.
    fn wait(&self) -> Duration {
        self.session.poll_timeout().unwrap() - self.now
    }

    /// Waits for the next attempt and begins it.
    fn start(&mut self) -> AttemptId {
        self.now += self.wait();
        assert_eq!(self.session.handle_timeout(self.now), Some(Due::Start));
        self.attempts += 1;
        let id = AttemptId(self.attempts);
        let lag = self.session.handle_start(self.now, id, &self.check);
        assert_eq!(lag, Some(Duration::ZERO));
        id
    }

    fn end(&mut self, id: AttemptId, outcome: &Outcome) -> Option<Completion> {
        let random = self.random;
        let mut cx = Context {
            check: &self.check,
            traffic: self.traffic,
            limits: self.limits,
            random: &mut || random,
        };
        self.session.handle_outcome(self.now, id, outcome, &mut cx)
    }

    /// One whole attempt that ends at once.
    fn complete(&mut self, letter: char) -> Completion {
        let id = self.start();
        self.end(id, &outcome(letter)).unwrap()
    }

    fn all(&mut self, letters: &str) -> &mut Self {
        for letter in letters.chars() {
            self.complete(letter);
        }
        self
    }

    fn events(&mut self, letter: char) -> Vec<EventKind> {
        self.complete(letter).events.into_iter().flatten().collect()
    }

    fn set_unhealthy(&mut self) -> Completion {
        let passive = failure(FailureType::Passive);
        self.session.set_unhealthy(&passive, &self.check)
    }
}

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

#[test]
fn events_are_those_that_envoy_logs() {
    let mut driven = Driven::new(check(2, 2));
    let timeout = FailureType::NetworkTimeout;
    let first_check = true;
    assert_eq!(driven.events('S'), [EventKind::AddHealthy { first_check }]);
    assert_eq!(driven.events('S'), []);
    assert_eq!(driven.events('T'), []);
    assert_eq!(driven.events('T'), [ejected(timeout)]);
    assert_eq!(driven.events('T'), []);
    assert_eq!(driven.events('S'), []);
    let first_check = false;
    assert_eq!(driven.events('S'), [EventKind::AddHealthy { first_check }]);
    assert_eq!(driven.events('A'), [ejected(FailureType::Active)]);

    let mut driven = Driven::new(check(2, 1));
    let refused = FailureType::Network;
    assert_eq!(driven.events('R'), [failed(refused, true)]);
    assert_eq!(driven.events('R'), []);
    assert_eq!(driven.events('S'), [EventKind::AddHealthy { first_check }]);
}

#[test]
fn every_failure_is_told_if_asked_for() {
    let mut driven = Driven::new(HealthCheck {
        always_log_failures: true,
        ..check(2, 2)
    });
    let timeout = FailureType::NetworkTimeout;
    assert_eq!(driven.events('T'), [failed(timeout, true)]);
    assert_eq!(driven.events('T'), [failed(timeout, false)]);
    driven.all("SS");
    assert_eq!(driven.events('T'), [failed(timeout, false)]);
    // The ejection comes before the failure that ejects.
    let both = [ejected(timeout), failed(timeout, false)];
    assert_eq!(driven.events('T'), both);
    assert_eq!(driven.events('S'), []);
}

#[test]
fn every_success_but_the_one_that_adds_the_host_is_told_if_asked_for() {
    let mut driven = Driven::new(HealthCheck {
        always_log_success: true,
        ..check(1, 2)
    });
    let first = EventKind::AddHealthy { first_check: true };
    let again = EventKind::AddHealthy { first_check: false };
    assert_eq!(driven.events('S'), [first]);
    assert_eq!(driven.events('S'), [EventKind::Success]);
    assert_eq!(
        driven.events('D'),
        [EventKind::Degraded, EventKind::Success]
    );
    driven.all("T");
    let plain = [EventKind::NoLongerDegraded, EventKind::Success];
    assert_eq!(driven.events('S'), plain);
    assert_eq!(driven.events('S'), [again]);
    assert_eq!(driven.events('S'), [EventKind::Success]);
}

#[test]
fn events_carry_the_status_of_an_http_answer() {
    let mut driven = Driven::new(check(1, 1));
    driven.all("S");
    let id = driven.start();
    let told = driven.end(
        id,
        &Outcome::Failure(Failure {
            http_status_code: 503,
            ..failure(FailureType::Active)
        }),
    );
    assert_eq!(
        told.unwrap().events[0],
        Some(EventKind::EjectUnhealthy {
            failure_type: FailureType::Active,
            http_status_code: 503
        })
    );
}

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

/// What thresholds make of completions, told from all of them.
#[derive(Debug, Default)]
struct Oracle {
    /// Success or failure, since the verdict last changed.
    run: Vec<bool>,
    healthy: bool,
    decided: bool,
}

impl Oracle {
    fn tell(&mut self, passes: bool, at_once: bool, check: &HealthCheck) {
        let first = !std::mem::replace(&mut self.decided, true);
        self.run.push(passes);
        if passes == self.healthy {
            return;
        }
        let row = self.run.iter().rev().take_while(|one| **one == passes);
        let threshold = if passes {
            check.healthy_threshold
        } else {
            check.unhealthy_threshold
        };
        if first || at_once || row.count() == threshold as usize {
            self.healthy = passes;
            self.run.clear();
        }
    }

    /// The interval after a completion that was told.
    fn base(&self, passes: bool, traffic: bool, check: &HealthCheck) -> Duration {
        match (traffic, passes, passes == self.healthy) {
            (true, true, true) => check.interval,
            (true, true, false) => check.healthy_edge_interval,
            (true, false, true) => check.unhealthy_interval,
            (true, false, false) => check.unhealthy_edge_interval,
            (false, true, true) => check.no_traffic_healthy_interval,
            (false, _, _) => check.no_traffic_interval,
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Advance(u32),
    Start,
    Outcome { letter: char, stale: bool },
    SetUnhealthy,
    Sent,
    Traffic(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..600_u32).prop_map(Step::Advance),
        6 => Just(Step::Start),
        6 => (prop::sample::select(vec!['S', 'S', 'S', 'D', 'R', 'T', 'T', 'A', 'C']), 0..5_u8)
            .prop_map(|(letter, stale)| Step::Outcome { letter, stale: stale == 0 }),
        1 => Just(Step::SetUnhealthy),
        1 => Just(Step::Sent),
        1 => any::<bool>().prop_map(Step::Traffic),
    ]
}

/// What the session must be doing.
#[derive(Debug)]
enum Doing {
    Waiting(Instant),
    Due(Instant),
    Attempting(AttemptId, Instant),
}

proptest! {
    #[test]
    fn a_wait_is_its_interval_and_a_part_of_the_jitter(
        interval in 1..5_000_u32,
        percent in 0..300_u32,
        jitter in 0..3_000_u32,
        initial in 0..3_000_u32,
        limits in prop::option::of((0..2_000_u32, 0..8_000_u32)),
        random in any::<u64>(),
    ) {
        let check = HealthCheck {
            interval: interval * MS,
            interval_jitter: jitter * MS,
            interval_jitter_percent: percent,
            initial_jitter: initial * MS,
            ..check(2, 2)
        };
        let bounds = limits.map_or_else(IntervalLimits::default, |(min, max)| {
            IntervalLimits::new(min * MS, max * MS)
        });
        let (least, most) = (bounds.min.max(MS), bounds.max.max(bounds.min).max(MS));

        let mut driven = Driven::with(check, bounds, random);
        let first = driven.wait();
        if initial == 0 {
            prop_assert_eq!(first, Duration::ZERO);
        } else {
            prop_assert!(first >= least && first <= most);
            prop_assert!(first < initial * MS || first == least);
        }

        let wait = driven.all("S").wait();
        prop_assert!(wait >= least && wait <= most, "{wait:?}");
        let base = interval * MS;
        prop_assert!(wait >= base || wait == most, "{wait:?} is short of {base:?}");
        let parts = base * percent / 100 + jitter * MS;
        prop_assert!(wait < base + parts || wait == base || wait == least, "{wait:?}");
        if limits.is_none() && parts.is_zero() {
            prop_assert_eq!(wait, base);
        }
    }

    #[test]
    fn any_sequence_of_calls_keeps_to_the_thresholds_and_to_one_attempt(
        thresholds in (0..4_u32, 0..4_u32),
        jitter in (0..50_u32, 0..200_u32),
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let check = HealthCheck {
            interval_jitter_percent: jitter.0,
            interval_jitter: jitter.1 * MS,
            ..check(thresholds.0, thresholds.1)
        };
        let mut random = fastrand::Rng::with_seed(seed);
        let mut numbers = || random.u64(..);
        let (mut now, mut traffic, mut last) = (Instant::now(), false, 0);
        let mut cx = Context {
            check: &check,
            traffic: traffic.into(),
            limits: IntervalLimits::default(),
            random: &mut numbers,
        };
        let mut session = Session::new(now, None, &mut cx);
        let mut doing = Doing::Waiting(now);
        let mut oracle = Oracle::default();

        for step in steps {
            match step {
                Step::Advance(millis) => {
                    now += millis * MS;
                    let due = session.handle_timeout(now);
                    match doing {
                        Doing::Waiting(until) if until <= now => {
                            prop_assert_eq!(due, Some(Due::Start));
                            doing = Doing::Due(until);
                        }
                        Doing::Attempting(id, deadline) if deadline <= now => {
                            prop_assert_eq!(due, Some(Due::Expire(id)));
                        }
                        _ => prop_assert_eq!(due, None),
                    }
                }
                Step::Start => {
                    last += 1;
                    let id = AttemptId(last);
                    let lag = session.handle_start(now, id, &check);
                    if let Doing::Due(since) = doing {
                        prop_assert_eq!(lag, Some(now - since));
                        doing = Doing::Attempting(id, now + check.timeout);
                    } else {
                        prop_assert_eq!(lag, None);
                    }
                }
                Step::Outcome { letter, stale } => {
                    let (runs, id) = match doing {
                        Doing::Attempting(id, _) if !stale => (true, id),
                        Doing::Attempting(id, _) => (false, AttemptId(id.0 - 1)),
                        _ => (false, AttemptId(last)),
                    };
                    let mut cx = Context {
                        check: &check,
                        traffic: traffic.into(),
                        limits: IntervalLimits::default(),
                        random: &mut numbers,
                    };
                    let was = oracle.healthy;
                    let told = session.handle_outcome(now, id, &outcome(letter), &mut cx);
                    prop_assert_eq!(told.is_some(), runs);
                    if let Some(told) = told {
                        let passes = matches!(letter, 'S' | 'D');
                        oracle.tell(passes, letter == 'A', &check);
                        let events: Vec<_> = told.events.into_iter().flatten().collect();
                        let added = events.iter().any(|e| matches!(e, EventKind::AddHealthy { .. }));
                        let ejects = |e: &EventKind| matches!(e, EventKind::EjectUnhealthy { .. });
                        let ejected = events.iter().any(ejects);
                        prop_assert_eq!(added, !was && oracle.healthy);
                        prop_assert_eq!(ejected, was && !oracle.healthy);
                        let until = session.poll_timeout().unwrap();
                        let base = oracle.base(passes, traffic, &check);
                        let most = base + base * jitter.0 / 100 + jitter.1 * MS;
                        prop_assert!(until >= now + base && until <= now + most);
                        doing = Doing::Waiting(until);
                    }
                }
                Step::SetUnhealthy => {
                    session.set_unhealthy(&failure(FailureType::Passive), &check);
                    oracle.tell(false, true, &check);
                }
                Step::Sent => {
                    session.handle_sent(now, AttemptId(last), &check);
                    if let Doing::Attempting(id, deadline) = &mut doing
                        && id.0 == last
                    {
                        *deadline = now + check.timeout;
                    }
                }
                Step::Traffic(has) => traffic = has,
            }
            prop_assert_eq!(session.failed(), !oracle.healthy);
            prop_assert_eq!(session.known(), oracle.decided);
            prop_assert!(!session.timed_out() || session.failed());
            let (attempting, timeout) = match doing {
                Doing::Waiting(until) => (None, Some(until)),
                Doing::Due(_) => (None, None),
                Doing::Attempting(id, deadline) => (Some(id), Some(deadline)),
            };
            prop_assert_eq!(session.attempting(), attempting);
            prop_assert_eq!(session.poll_timeout(), timeout);
        }
    }
}
