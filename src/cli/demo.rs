//! `xds-health demo`: all of it at work in one process, over real sockets, with nothing else needed.
//!
//! Upstreams on loopback behave as their names say; a management server tells of them; the client, the engine
//! and the admin port are those of the daemon.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::console::Console;
use super::control::Controls;
use super::daemon::Daemon;
use super::load::Source;
use super::{BAD_CONFIG, DemoArgs, LOCAL, LogArgs, LogFormat, live::Live, log, run::JOURNAL};
use crate::admin::Control;
use crate::engine::{Cluster, Options, Traffic, raise_descriptor_limit};
use crate::registry::Registry;
use crate::snapshot::Verdict;
use crate::stats::Stats;

mod management;
mod show;
mod upstream;

use upstream::{Manner, Upstream};

/// After which time the last upstream is told of.
const LATE: Duration = Duration::from_secs(3);
/// How often what is shown is brought up to date.
const TICK: Duration = Duration::from_millis(200);

pub(super) fn demo(args: &DemoArgs, console: &mut Console<'_>) -> u8 {
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let shown = runtime.and_then(|runtime| runtime.block_on(show(args, console)));
    match shown {
        Ok(code) => code,
        Err(error) => {
            console.complain(&error);
            LOCAL
        }
    }
}

async fn show(args: &DemoArgs, console: &mut Console<'_>) -> io::Result<u8> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut upstreams = Vec::new();
    for manner in Manner::ALL {
        upstreams.push(Upstream::start(manner).await?);
    }
    let early = upstreams.iter().filter(|u| u.manner != Manner::Late);
    let (tell, told) = watch::channel(early.copied().collect());
    let text = bootstrap(management::start(told).await?);
    if let Some(path) = &args.save {
        let wrong =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        std::fs::write(path, &text).map_err(wrong)?;
    }
    let stats = Arc::new(Stats::default());
    let registry = Registry::default();
    let loaded = match Source::yaml(&text).load(&registry, &stats) {
        Ok(loaded) => loaded,
        Err(error) => {
            console.complain(&error);
            return Ok(BAD_CONFIG);
        }
    };
    let options = Options::default()
        .with_traffic(Traffic::Always)
        .with_journal(JOURNAL);
    // Log lines would stand in the table, so there are none unless the admin port is told to write some.
    let log = LogArgs {
        log_format: LogFormat::Text,
        log_level: "off".to_owned(),
    };
    let (logs, _flush) = log::install(&log).map_err(io::Error::other)?;
    let controls = Arc::new(Controls::new(logs, registry));
    let control = Arc::clone(&controls) as Arc<dyn Control>;
    let daemon = Daemon::start(loaded, options, stats, control).await?;
    show::head(console, &text, daemon.admin());

    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = async {
        match args.length {
            Some(length) => sleep(length).await,
            None => pending().await,
        }
    };
    let late = sleep(LATE);
    tokio::pin!(end, late);
    let (mut live, mut before) = (Live::default(), HashMap::new());
    let mut all_told = false;
    while !console.out.closed() {
        tokio::select! {
            _ = ticks.tick() => (),
            () = &mut late, if !all_told => {
                all_told = true;
                tell.send_replace(upstreams.clone());
            }
            () = &mut end => break,
            () = controls.told_to_quit() => break,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
        let Some(cluster) = daemon.engine().cluster(management::NAME) else {
            continue;
        };
        if console.out.moves() {
            let (columns, rows) = super::live::size();
            let paint = console.out.paint();
            let mut lines = show::table(&daemon, &cluster, paint, Some(columns)).await;
            // A line that has left the screen cannot be shown anew.
            lines.truncate(rows.saturating_sub(1));
            live.show(&mut console.out, &lines);
        } else {
            show::changes(&daemon, &cluster, &mut before, console);
        }
    }
    if !console.out.moves()
        && let Some(cluster) = daemon.engine().cluster(management::NAME)
    {
        let lines = show::table(&daemon, &cluster, console.out.paint(), None).await;
        console.out.say(format_args!("\n{}\n", lines.join("\n")));
    }
    daemon.stop().await?;
    Ok(0)
}

/// The configuration by which the server is asked.
fn bootstrap(server: SocketAddr) -> String {
    let (ip, port) = (server.ip(), server.port());
    format!(
        r#"node: {{id: demo, cluster: demo}}
admin:
  address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}
dynamic_resources:
  ads_config:
    api_type: GRPC
    transport_api_version: V3
    grpc_services: [{{envoy_grpc: {{cluster_name: management}}}}]
  cds_config: {{ads: {{}}, resource_api_version: V3}}
static_resources:
  clusters:
  - name: management
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment:
      cluster_name: management
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: {ip}, port_value: {port}}}}}}}
"#
    )
}
