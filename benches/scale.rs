//! What many hosts cost: memory, descriptors, lateness, and whether an attempt costs more among more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bench prints, ends at the first surprise and counts in floating point"
)]

use std::net::UdpSocket;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::args::Args;
use common::fleet::{self, Fleet};
use common::process::{self, Cpu, DescriptorWatch};
use common::responder::{self, Responder};
use xds_health::cluster::{Clusters, Share, Update};
use xds_health::config::{ClusterConfig, Discovery};
use xds_health::event::Reason;
use xds_health::host::Host;
use xds_health::stats::{HistogramView, Stats};

mod common;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A million hosts are added to what is measured if this is set.
const MILLION: &str = "BENCH_MILLION";
/// Descriptors of the run with few of them.
const FEW: u64 = 1024;
/// Views published for each row of `--publish`.
const VIEWS: u32 = 200;

fn main() -> ExitCode {
    responder::run_if_asked();
    let args = Args::new();
    if args.has("--few-descriptors") {
        return few_descriptors(&args);
    }
    if args.has("--silent") {
        return silent(&args);
    }
    if args.has("--cost") {
        // Each step ten times the one before.
        let least = args.value("--least", if args.short() { 50 } else { 1_000 });
        let steps = if args.short() { 3 } else { 4 };
        let counts: Vec<_> = (0..steps).map(|step| least * 10_usize.pow(step)).collect();
        costs(&counts, &args, Responder::start().port);
        return ExitCode::SUCCESS;
    }
    if args.has("--publish") {
        publish(&args);
        return ExitCode::SUCCESS;
    }
    let many = args.value("--hosts", if args.short() { 5_000 } else { 100_000 });
    let mut counts = vec![many / 100, many];
    if std::env::var_os(MILLION).is_some() {
        counts.push(1_000_000);
    }
    // Memory first: what has been freed by others is not asked for again.
    println!("memory of hosts whose first attempt is still to come");
    for hosts in &counts[1..] {
        memory(*hosts);
    }
    if args.has("--memory") {
        return ExitCode::SUCCESS;
    }
    let responder = Responder::start();
    first_round(many, responder.port);
    let clean = lateness(many, &args, responder.port);
    costs(&counts, &args, responder.port);
    if clean {
        ExitCode::SUCCESS
    } else {
        println!("\nhosts that always answer have been failed");
        ExitCode::FAILURE
    }
}

fn memory(hosts: usize) {
    let fleet = Fleet::start(fleet::check(HOUR, HOUR));
    let (before, cpu) = (process::resident(), Cpu::now());
    fleet.set_hosts(hosts, 9);
    fleet.wait_for_members(hosts as u64);
    let (grown, cpu) = (process::resident() - before, Cpu::now() - cpu);
    let each = grown as f64 / hosts as f64;
    println!(
        "{hosts:>9} hosts: {:>6} KiB, {each:.0} bytes each; {:.2} us of CPU time to add one",
        grown >> 10,
        cpu.micros_per(hosts as u64)
    );
    fleet.stop();
    assert!(each < 4096.0, "{each} bytes for a host");
}

fn first_round(hosts: usize, port: u16) {
    let watch = DescriptorWatch::start();
    let fleet = Fleet::start(fleet::check(HOUR, Duration::ZERO));
    let (before, begun) = (Cpu::now(), Instant::now());
    fleet.set_hosts(hosts, port);
    fleet.wait_for_successes(hosts as u64);
    let took = begun.elapsed();
    let (most, watching) = watch.stop();
    let cpu = Cpu::now() - before - watching;
    // The last of them close a little later than they count.
    std::thread::sleep(Duration::from_millis(100));
    let idle = process::descriptors();
    let failed = fleet.stop();
    println!(
        "\nfirst round of {hosts} hosts, none held back: {:.2} s, {:.2} us of CPU time each, {failed} failed\n\
         descriptors: {} at most, {idle} when idle",
        took.as_secs_f64(),
        cpu.micros_per(hosts as u64),
        most
    );
}

/// Checks all hosts at a steady rate; tells whether none was failed.
fn lateness(hosts: usize, args: &Args, port: u16) -> bool {
    let interval = Duration::from_millis(args.value("--interval-ms", 5000));
    let window = args.value("--window-s", if args.short() { 2 } else { 20 }) * SECOND;
    let watch = DescriptorWatch::start();
    let fleet = Fleet::start(fleet::check(interval, interval));
    fleet.set_hosts(hosts, port);
    fleet.wait_for_successes(hosts as u64);
    let engine = &fleet.stats().engine;
    let lag = engine.schedule_lag.view();
    let success = fleet.check.success.value();
    std::thread::sleep(window);
    let lag = engine.schedule_lag.view().since(&lag);
    let attempts = fleet.check.success.value() - success;
    let failed = fleet.stop();
    println!(
        "\n{hosts} hosts every {interval:?} for {window:?}: {attempts} attempts, {failed} failed\n\
         begun late by {}\n\
         descriptors: {} at most",
        quantiles(&lag),
        watch.stop().0
    );
    failed == 0
}

fn quantiles(lag: &HistogramView) -> String {
    let at = |q| lag.quantile_ms(q).unwrap_or_default();
    format!(
        "{:.2} ms on average, p50 <= {} ms, p99 <= {} ms, p99.9 <= {} ms",
        lag.sum_micros as f64 / 1e3 / lag.count().max(1) as f64,
        at(0.5),
        at(0.99),
        at(0.999)
    )
}

/// CPU time of an attempt by the number of hosts, at one rate.
fn costs(counts: &[usize], args: &Args, port: u16) {
    let rate = args.value("--rate", if args.short() { 2_000.0 } else { 20_000.0 });
    let window = args.value("--cost-window-s", if args.short() { 1 } else { 5 }) * SECOND;
    let rounds = args.value("--rounds", if args.short() { 1 } else { 3 });
    println!("\nCPU microseconds of an attempt at {rate} attempts a second, median of {rounds}");
    let mut all = vec![Vec::new(); counts.len()];
    for _ in 0..rounds {
        for (hosts, all) in counts.iter().zip(&mut all) {
            let interval = Duration::from_secs_f64(*hosts as f64 / rate);
            let fleet = Fleet::start(fleet::check(interval, interval));
            fleet.set_hosts(*hosts, port);
            // A first attempt changes what readers see, and costs more for it.
            fleet.wait_for_successes(*hosts as u64 + rate as u64 / 2);
            let (before, done) = (Cpu::now(), fleet.check.success.value());
            std::thread::sleep(window);
            let (cpu, attempts) = (Cpu::now() - before, fleet.check.success.value() - done);
            assert_eq!(fleet.stop(), 0, "attempts have failed");
            all.push(cpu.micros_per(attempts.max(1)));
        }
    }
    let medians: Vec<f64> = all.into_iter().map(common::median).collect();
    for (hosts, each) in counts.iter().zip(&medians) {
        println!(
            "{hosts:>9} hosts: {each:>6.2}, ratio {:.2}",
            each / medians[0]
        );
    }
}

/// Hosts that never answer: each fails by its own timeout, and none for want of a port or a descriptor.
fn silent(args: &Args) -> ExitCode {
    let hosts = args.value("--hosts", if args.short() { 5_000 } else { 100_000 });
    let interval = args.value("--interval-s", if args.short() { 1 } else { 10 }) * SECOND;
    let rounds: u64 = args.value("--rounds", 3);
    // Nobody ever reads from it; what does not fit into its buffer is lost.
    let nobody = UdpSocket::bind("0.0.0.0:0").unwrap();
    let mut check = fleet::check(interval, interval);
    check.timeout = SECOND;
    let watch = DescriptorWatch::start();
    let fleet = Fleet::start(check);
    fleet.set_hosts(hosts, nobody.local_addr().unwrap().port());
    let counters = Arc::clone(&fleet.check);
    let round = |wanted: u64| {
        while counters.failure.value() < wanted {
            std::thread::sleep(Duration::from_millis(1));
        }
        process::resident()
    };
    let first = round(hosts as u64);
    let last = round(hosts as u64 * rounds);
    let lag = fleet.stats().engine.schedule_lag.view();
    let (most, _) = watch.stop();
    let failed = fleet.stop();
    let by_silence = counters.reasons[Reason::Silent.index()].value();
    let waited: u64 = counters.shortages.iter().map(|c| c.value()).sum();
    let grown = last as i64 - first as i64;
    println!(
        "{hosts} silent hosts every {interval:?}, timeout 1 s: {failed} attempts failed, {by_silence} of them by \
         silence; {waited} waited for room; {most} descriptors at most\n\
         memory grew by {} KiB after the first round\n\
         begun late by {}",
        grown >> 10,
        quantiles(&lag)
    );
    let flat = grown < (hosts * 16 + (1 << 20)) as i64;
    if by_silence == failed && waited == 0 && counters.success.value() == 0 && flat {
        println!("kept");
        ExitCode::SUCCESS
    } else {
        println!("violated");
        ExitCode::FAILURE
    }
}

/// What it costs to show readers that some hosts of a cluster have changed, while they hold the view before.
fn publish(args: &Args) {
    println!("microseconds to publish a view, by how many hosts changed, anywhere in the cluster");
    let changed = [1_usize, 10, 100];
    println!(
        "{:>9} {:>9} {:>9} {:>9}",
        "hosts", changed[0], changed[1], changed[2]
    );
    let many = args.value("--hosts", if args.short() { 5_000 } else { 100_000 });
    for hosts in [many / 100, many] {
        let now = Instant::now();
        let stats = Stats::default();
        let mut clusters = Clusters::new(now, Share::ALL, 1);
        let config = ClusterConfig::new(fleet::CLUSTER, Discovery::Dynamic)
            .with_health_check(fleet::check(HOUR, HOUR));
        let name = Arc::clone(&config.name);
        clusters.handle_update(
            now,
            Update::Cluster {
                config: Arc::new(config),
                stats: stats.cluster(&name, &name),
                traffic: true,
            },
        );
        let told =
            |weight| move |index| Arc::new(Host::new(fleet::address(index, 9)).with_weight(weight));
        let mut weight = 1;
        let all = (0..hosts).map(told(weight)).collect();
        let cluster = Arc::clone(&name);
        clusters.handle_update(
            now,
            Update::Reset {
                cluster,
                hosts: all,
            },
        );
        let mut held = clusters.poll_part();
        let row = changed.map(|count| {
            let mut spent = Duration::ZERO;
            for view in 0..VIEWS {
                weight += 1;
                let some = (0..count).map(|i| (i * hosts / count + view as usize) % hosts);
                let hosts = some.map(told(weight)).collect();
                let cluster = Arc::clone(&name);
                let before = Instant::now();
                clusters.handle_update(now, Update::Upsert { cluster, hosts });
                let next = clusters.poll_part();
                spent += before.elapsed();
                assert!(next.is_some(), "nothing has changed");
                held = next;
            }
            spent.as_secs_f64() * 1e6 / f64::from(VIEWS)
        });
        drop(held);
        println!("{hosts:>9} {:>9.1} {:>9.1} {:>9.1}", row[0], row[1], row[2]);
    }
}

/// Checks many more hosts than this process may have descriptors.
fn few_descriptors(args: &Args) -> ExitCode {
    let few = args.value("--descriptors", FEW);
    let limit = rustix::process::Rlimit {
        current: Some(few),
        maximum: Some(few),
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let hosts = args.value("--hosts", if args.short() { 5_000 } else { 50_000 });
    let interval = args.value("--interval-s", if args.short() { 1 } else { 10 }) * SECOND;
    let rounds = args.value("--rounds", 3);
    let responder = Responder::start();
    let watch = DescriptorWatch::start();
    // All first attempts are due at once, the worst that can be asked for, unless they are to be spread.
    let spread = if args.has("--spread") {
        interval
    } else {
        Duration::ZERO
    };
    let fleet = Fleet::start(fleet::check(interval, spread));
    fleet.set_hosts(hosts, responder.port);
    fleet.wait_for_first_checks();
    let first = fleet.stats().engine.schedule_lag.view();
    let mut seen_unhealthy = 0;
    let begun = Instant::now();
    while begun.elapsed() < interval * rounds {
        // Looking at all hosts is not to take a noticeable part of the time.
        std::thread::sleep(
            (Duration::from_micros(2) * hosts as u32).max(Duration::from_millis(100)),
        );
        let snapshot = fleet.engine().cluster(fleet::CLUSTER).unwrap().snapshot();
        let unhealthy = snapshot.hosts().filter(|host| !host.eligible()).count();
        seen_unhealthy = seen_unhealthy.max(unhealthy);
    }
    let attempts = fleet.check.attempt.value();
    let waited: u64 = fleet.check.shortages.iter().map(|c| c.value()).sum();
    let lag = fleet.stats().engine.schedule_lag.view().since(&first);
    let (most, _) = watch.stop();
    let failed = fleet.stop();
    println!(
        "{hosts} hosts every {interval:?} with {few} descriptors: {attempts} attempts, {failed} failed, \
         {waited} waited for room; {seen_unhealthy} hosts unhealthy; {most} descriptors at most\n\
         after the first round begun late by {}",
        quantiles(&lag)
    );
    let enough = attempts >= hosts as u64 * u64::from(rounds);
    if failed == 0 && seen_unhealthy == 0 && (most as u64) < few && enough {
        println!("kept");
        ExitCode::SUCCESS
    } else {
        println!("violated");
        ExitCode::FAILURE
    }
}
