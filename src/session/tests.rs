use super::*;
use crate::config::{CheckerConfig, TypedConfig};
use crate::event::Reason;

mod attempts;
mod events;
mod intervals;
mod jitter;
mod properties;
mod succession;
mod verdicts;

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
