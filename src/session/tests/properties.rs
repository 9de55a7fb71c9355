//! What holds whatever is called.

use proptest::prelude::*;

use super::*;

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
