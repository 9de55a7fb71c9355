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
use common::bare::{self, Pace};
use common::envoy::{self, Envoy};
use common::fleet::{self, Fleet};
use common::process::Cpu;
use common::responder::{self, Responder};

mod common;

/// Sockets that are kept where that is asked for.
const SPARES: usize = 256;
/// Long enough for CPU time that is told in hundredths of a second.
const ENVOY_WINDOW: Duration = Duration::from_secs(4);

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
    if args.has("--round-trips") {
        plan.round_trips(responder.port);
        return;
    }
    if args.has("--profile") {
        // For profilers and tracers: one of the columns by itself.
        let column = args.value("--profile", String::new());
        let row = match &*column {
            "bare" => plan.bare(responder.port, Pace::InFlight(plan.in_flight)),
            "paced" => plan.bare(responder.port, plan.pace()),
            "kept" => plan.engine(responder.port, SPARES),
            _ => plan.engine(responder.port, 0),
        };
        println!("{row}, {} attempts", row.attempts);
        return;
    }
    println!(
        "{} hosts every {:?}, so {:.0}/s. CPU microseconds of an attempt: sum (user + system).\n\
         bare: system calls only, {} at once, as fast as they go\n\
         paced: the same at the engine's rate\n\
         engine: a socket for each attempt, as bare; kept: sockets used again, if asked for\n",
        plan.hosts,
        plan.interval,
        plan.rate(),
        plan.in_flight
    );
    let with_envoy = std::env::var_os(envoy::BINARY).is_some();
    if with_envoy {
        println!("envoy: the same hosts, interval and responder\n");
    }
    let columns = ["bare", "paced", "engine", "kept", "envoy"];
    let columns = &columns[..if with_envoy { 5 } else { 4 }];
    print!("{:>6}", "round");
    for column in columns {
        print!(" {column:>21}");
    }
    println!(
        "  engine/bare engine/paced   kept/bare{}",
        if with_envoy {
            " engine/envoy   kept/envoy"
        } else {
            ""
        }
    );
    let mut all = vec![Vec::new(); columns.len()];
    for round in 1..=rounds {
        let mut rows = vec![
            plan.bare(responder.port, Pace::InFlight(plan.in_flight)),
            plan.bare(responder.port, plan.pace()),
            plan.engine(responder.port, 0),
            plan.engine(responder.port, SPARES),
        ];
        rows.extend(plan.envoy(responder.port));
        print!("{round:>6}");
        for (row, all) in rows.iter().zip(&mut all) {
            print!(" {:>21}", row.to_string());
            all.push(row.total());
        }
        ratios(&rows.iter().map(|row| row.total()).collect::<Vec<_>>());
    }
    let medians: Vec<f64> = all.into_iter().map(common::median).collect();
    print!("median");
    for median in &medians {
        print!(" {median:>21.2}");
    }
    ratios(&medians);
}

/// Ends a line with the ratios of its columns.
fn ratios(columns: &[f64]) {
    let [bare, paced, engine, kept, envoy @ ..] = columns else {
        return;
    };
    print!(
        " {:>12.2} {:>12.2} {:>11.2}",
        engine / bare,
        engine / paced,
        kept / bare
    );
    for envoy in envoy {
        print!(" {:>12.2} {:>12.2}", engine / envoy, kept / envoy);
    }
    println!();
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
    /// Attempts in a second.
    fn rate(&self) -> f64 {
        self.hosts as f64 / self.interval.as_secs_f64()
    }

    /// The attempts of the window.
    fn attempts(&self) -> u64 {
        (self.rate() * self.window.as_secs_f64()) as u64
    }

    fn pace(&self) -> Pace {
        let per_tick = self.rate() * bare::TICK.as_secs_f64();
        Pace::PerTick((per_tick as usize).max(1))
    }

    fn bare(&self, port: u16, pace: Pace) -> Row {
        let hosts: Vec<_> = (0..self.hosts).map(|i| fleet::address(i, port)).collect();
        let attempts = self.attempts();
        let before = Cpu::now();
        bare::run(&hosts, attempts, pace);
        Row::new(Cpu::now() - before, attempts)
    }

    /// None without a binary.
    fn envoy(&self, port: u16) -> Option<Row> {
        let mut envoy = Envoy::start(self.hosts, self.interval, port)?;
        envoy.wait_for_attempts(self.hosts as u64 * 3);
        let (before, done) = (envoy.cpu(), envoy.counter("attempt"));
        std::thread::sleep(self.window.max(ENVOY_WINDOW));
        let (after, attempts) = (envoy.cpu(), envoy.counter("attempt") - done);
        assert_eq!(envoy.counter("failure"), 0, "attempts have failed");
        Some(Row::new(after - before, attempts))
    }

    /// How long after the questions the engine notices the answers, by its own journal.
    fn round_trips(&self, port: u16) {
        let check = fleet::check(self.interval, self.interval);
        let attempts = usize::try_from(self.attempts()).unwrap();
        let fleet = Fleet::with(fleet::options().with_journal(attempts), check);
        fleet.set_hosts(self.hosts, port);
        fleet.wait_for_successes(self.hosts as u64 * 3);
        std::thread::sleep(self.window);
        let mut took = fleet.round_trips(attempts);
        assert_eq!(fleet.stop(), 0, "attempts have failed");
        took.sort_unstable();
        let at = |part: f64| took[(part * (took.len() - 1) as f64) as usize].as_micros();
        println!(
            "{} round trips at {:.0}/s, microseconds: p10 {}, p50 {}, p90 {}, p99 {}",
            took.len(),
            self.rate(),
            at(0.1),
            at(0.5),
            at(0.9),
            at(0.99)
        );
    }

    /// An engine that keeps so many sockets for later attempts.
    fn engine(&self, port: u16, spares: usize) -> Row {
        // Spread over the interval, so that the rate is steady.
        let check = fleet::check(self.interval, self.interval);
        let fleet = Fleet::with(fleet::options().with_spare_sockets(spares), check);
        fleet.set_hosts(self.hosts, port);
        fleet.wait_for_successes(self.hosts as u64 * 3);
        let (before, done) = (Cpu::now(), fleet.check.success.value());
        std::thread::sleep(self.window);
        let (after, attempts) = (Cpu::now(), fleet.check.success.value() - done);
        assert_eq!(fleet.stop(), 0, "attempts have failed");
        let wanted = self.attempts();
        assert!(attempts > wanted / 10, "{attempts} of {wanted} attempts");
        Row::new(after - before, attempts)
    }
}
