//! What is told of completions.

use super::*;

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
