//! CPU time of an attempt: of the system calls that it cannot do without, and of the engine that makes them.
//!
//! Both check the same hosts in turns within one run; what is printed last is the ratio of their medians.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bench prints, ends at the first surprise and counts in floating point"
)]

use std::time::Duration;

use common::args::Args;
use common::fleet::{self, Fleet};
use common::process::Cpu;
use common::responder::{self, Responder};

mod common;

fn main() {
    responder::run_if_asked();
    let args = Args::new();
    let short = args.short();
    let plan = Plan {
        hosts: args.value("--hosts", if short { 200 } else { 2000 }),
        interval: Duration::from_millis(args.value("--interval-ms", 100)),
        window: Duration::from_millis(args.value("--window-ms", if short { 300 } else { 2000 })),
        in_flight: args.value("--in-flight", 256),
    };
    let rounds = args.value("--rounds", if short { 1 } else { 7 });
    let responder = Responder::start();
    if args.has("--profile") {
        let row = plan.engine(responder.port);
        println!("engine: {row}, {} attempts", row.attempts);
        return;
    }
    println!(
        "{} hosts every {:?}; bare: {} at once; CPU microseconds per attempt (user + system)",
        plan.hosts, plan.interval, plan.in_flight
    );
    println!(
        "{:>6} {:>22} {:>22} {:>7}",
        "round", "bare", "engine", "ratio"
    );
    let mut all: [Vec<f64>; 2] = Default::default();
    for round in 1..=rounds {
        let rows = [plan.bare(responder.port), plan.engine(responder.port)];
        let [bare, engine] = rows.map(Row::total);
        println!(
            "{round:>6} {:>22} {:>22} {:>7.2}",
            rows[0].to_string(),
            rows[1].to_string(),
            engine / bare
        );
        all[0].push(bare);
        all[1].push(engine);
    }
    let [bare, engine] = all.map(common::median);
    println!("median {bare:>22.2} {engine:>22.2} {:>7.2}", engine / bare);
}

struct Plan {
    hosts: usize,
    interval: Duration,
    window: Duration,
    in_flight: usize,
}

/// Microseconds of an attempt.
#[derive(Clone, Copy)]
struct Row {
    user: f64,
    system: f64,
    attempts: u64,
}

impl Row {
    fn new(cpu: Cpu, attempts: u64) -> Self {
        let each = |time: Duration| time.as_secs_f64() * 1e6 / attempts as f64;
        Self {
            user: each(cpu.user),
            system: each(cpu.system),
            attempts,
        }
    }

    fn total(self) -> f64 {
        self.user + self.system
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (user, system) = (self.user, self.system);
        write!(f, "{:.2} ({user:.2} + {system:.2})", self.total())
    }
}

impl Plan {
    /// The attempts of the window.
    fn attempts(&self) -> u64 {
        let rounds = self.window.as_secs_f64() / self.interval.as_secs_f64();
        (rounds * self.hosts as f64) as u64
    }

    fn bare(&self, port: u16) -> Row {
        let hosts: Vec<_> = (0..self.hosts).map(|i| fleet::address(i, port)).collect();
        let attempts = self.attempts();
        let before = Cpu::now();
        common::bare::run(&hosts, attempts, self.in_flight);
        Row::new(Cpu::now() - before, attempts)
    }

    fn engine(&self, port: u16) -> Row {
        // Spread over the interval, so that the rate is steady.
        let fleet = Fleet::start(fleet::check(self.interval, self.interval));
        fleet.set_hosts(self.hosts, port);
        fleet.wait_for_successes(self.hosts as u64 * 3);
        let (before, done) = (Cpu::now(), fleet.check.success.value());
        std::thread::sleep(self.window);
        let (after, attempts) = (Cpu::now(), fleet.check.success.value() - done);
        assert_eq!(fleet.stop(), 0, "attempts have failed");
        let wanted = self.attempts();
        assert!(attempts > wanted / 4, "{attempts} of {wanted} attempts");
        Row::new(after - before, attempts)
    }
}
