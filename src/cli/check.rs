//! `xds-health check`: attempts by hand, through the engine and the checkers of the daemon.

use std::collections::HashSet;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::ctrl_c;

use super::console::{Console, harmless};
use super::load::{self, Source};
use super::{BAD_CONFIG, CheckArgs, CheckFormat, LOCAL, USAGE};
use crate::config::{BindConfig, CheckerConfig, HealthCheck, TypedConfig, UdpConfig, resolve};
use crate::engine::raise_descriptor_limit;
use crate::host::Host;
use crate::stats::Stats;

mod find;
mod formats;
pub(super) mod hex;
mod payload;
mod preset;
mod probe;
mod report;

pub(super) use preset::presets;

use find::NotFound;
use payload::Wrong;
use probe::{Plan, Planned};
use report::{Report, Verdict};

/// Timeout when none is asked for.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Why nothing was checked.
struct Refused {
    code: u8,
    reason: String,
}

impl Refused {
    fn usage(reason: impl Into<String>) -> Self {
        let (code, reason) = (USAGE, reason.into());
        Self { code, reason }
    }

    fn local(reason: impl ToString) -> Self {
        let (code, reason) = (LOCAL, reason.to_string());
        Self { code, reason }
    }
}

pub(super) fn check(args: &CheckArgs, console: &mut Console<'_>) -> u8 {
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let report = runtime
        .map_err(Refused::local)
        .and_then(|runtime| runtime.block_on(checked(args, console)));
    match report {
        Ok(report) => answer(&report, args.format, console),
        Err(Refused { reason, .. }) if args.format == CheckFormat::Nagios => {
            let line = reason.replace('\n', "; ").replace('|', "/");
            let line = harmless(&line);
            console.out.say(format_args!("UDP UNKNOWN: {line}\n"));
            LOCAL
        }
        Err(Refused { code, reason }) => {
            console.complain(&reason);
            code
        }
    }
}

fn answer(report: &Report, format: CheckFormat, console: &mut Console<'_>) -> u8 {
    let text = match format {
        CheckFormat::Table => formats::table(report, console.out.paint()),
        CheckFormat::Json => formats::json(report),
        CheckFormat::Prometheus => formats::prometheus(report),
        CheckFormat::Nagios => formats::nagios(report),
    };
    console.out.say(format_args!("{text}"));
    match report.verdict() {
        _ if format == CheckFormat::Nagios => formats::nagios_code(report),
        _ if report.local() => LOCAL,
        Verdict::Passed => 0,
        Verdict::Flaky | Verdict::Failed => BAD_CONFIG,
        Verdict::Unchecked => LOCAL,
    }
}

async fn checked(args: &CheckArgs, console: &mut Console<'_>) -> Result<Report, Refused> {
    let (mut plan, all) = match (&args.config, &args.cluster) {
        (Some(file), Some(cluster)) => of_cluster(args, file, cluster).await?,
        _ => of_hosts(args)?,
    };
    if let Some(source) = args.source {
        plan.bind = Some(Arc::new(BindConfig {
            source: Some(SocketAddr::new(source, 0)),
            ..BindConfig::default()
        }));
    }
    let mut seen = HashSet::new();
    plan.hosts
        .retain(|host| !host.check_disabled && seen.insert(host.address.clone()));
    let disabled = all.iter().filter(|host| host.check_disabled).count();
    if plan.hosts.is_empty() || plan.checks.is_empty() {
        return Err(Refused::usage("there is nothing to check"));
    }
    let shows = console.err.moves() && args.format == CheckFormat::Table;
    let progress = |done, all| {
        if shows {
            let text = format_args!("\r{done} of {all} attempts\x1b[K");
            console.err.say(text);
        }
    };
    let stop = async {
        // Without the handler, the signal itself ends the process.
        let _ = ctrl_c().await;
    };
    let rows = probe::run(plan, progress, stop)
        .await
        .map_err(Refused::local)?;
    if shows {
        console.err.say(format_args!("\r\x1b[K"));
    }
    Ok(Report { rows, disabled })
}

/// Hosts by their addresses.
fn of_hosts(args: &CheckArgs) -> Result<(Plan, Vec<Arc<Host>>), Refused> {
    let config = payload::read(args).map_err(|wrong| match wrong {
        Wrong::Usage(reason) => Refused::usage(reason),
        Wrong::Local(reason) => Refused::local(reason),
    })?;
    let mut hosts = Vec::new();
    for text in &args.hosts {
        let named = |why: &dyn std::fmt::Display| format!("{text}: {why}");
        if let Ok(address) = text.parse::<SocketAddr>() {
            hosts.push(Arc::new(Host::new(address)));
            continue;
        }
        let parts = text.rsplit_once(':');
        let port = parts.and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none() || parts.is_some_and(|(name, _)| name.is_empty()) {
            return Err(Refused::usage(named(&"want HOST:PORT")));
        }
        let found = text.to_socket_addrs();
        for address in found.map_err(|error| Refused::local(named(&error)))? {
            hosts.push(Arc::new(Host::new(address).with_hostname(text.as_str())));
        }
    }
    // The checker is told what to do by `checker`, not by this.
    let unused = CheckerConfig::Custom(TypedConfig::default());
    let timeout = args.timeout.unwrap_or(TIMEOUT);
    let receive = Arc::from(config.receive());
    let check = Planned {
        config: often(HealthCheck::new(unused, timeout, args.interval, 1, 1), args),
        checker: Arc::new(find::checker(config)),
        receive: Some(receive),
    };
    let plan = Plan {
        hosts: hosts.clone(),
        checks: vec![check],
        bind: None,
        count: args.count,
    };
    Ok((plan, hosts))
}

/// The endpoints of a cluster.
async fn of_cluster(
    args: &CheckArgs,
    file: &std::path::Path,
    cluster: &str,
) -> Result<(Plan, Vec<Arc<Host>>), Refused> {
    let stats = Arc::<Stats>::default();
    let loaded = Source::read(file).and_then(|source| source.load(&find::registry(), &stats));
    let loaded = loaded.map_err(|error| {
        let name = load::name(file);
        let lines = error.to_string();
        let lines: Vec<_> = lines
            .lines()
            .map(|line| format!("{name}: {line}"))
            .collect();
        Refused {
            code: BAD_CONFIG,
            reason: lines.join("\n"),
        }
    })?;
    let found = find::find(loaded, cluster, args.wait, stats).await;
    let (update, hosts) = found.map_err(|why| match why {
        NotFound::NoCluster(reason) => Refused::usage(reason),
        NotFound::NotTold(reason) => Refused::local(reason),
    })?;
    let checks = update.config.health_checks.iter().zip(update.checkers);
    let checks = checks.map(|(check, checker)| Planned {
        receive: awaited(check),
        config: often(HealthCheck::clone(check), args),
        checker,
    });
    let plan = Plan {
        hosts: hosts.clone(),
        checks: checks.collect(),
        bind: update.config.bind.clone(),
        count: args.count,
    };
    Ok((plan, hosts))
}

/// The same check, made at the interval that is asked for, with an event for each attempt.
fn often(check: HealthCheck, args: &CheckArgs) -> HealthCheck {
    let mut check = check.with_only_interval(args.interval);
    check.timeout = args.timeout.unwrap_or(check.timeout);
    check.initial_jitter = Duration::ZERO;
    check.interval_jitter = Duration::ZERO;
    check.interval_jitter_percent = 0;
    check.always_log_failures = true;
    check.always_log_success = true;
    check
}

/// What a UDP check awaits.
fn awaited(check: &HealthCheck) -> Option<Arc<[u8]>> {
    let CheckerConfig::Custom(config) = &check.checker else {
        return None;
    };
    let resolved = resolve(config).ok()?;
    let config = UdpConfig::from_bytes(&resolved.value).ok()?;
    Some(config.receive().into())
}
