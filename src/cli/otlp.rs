//! Stats pushed to an OpenTelemetry collector, by OTLP over gRPC.
//!
//! They are what `/stats/prometheus` shows, under the same names and labels. Each push tells all of them anew, a few
//! thousand at a time, so nothing is kept for a collector that is not there; checks go on whatever it does.

use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::transport::{Channel, Endpoint};

use super::{OtlpArgs, clock};
use crate::engine::Engine;
use crate::proto::envoy::config::core::v3::Node;

mod message;

use message::Requests;

/// How long a collector may take for one request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the last push may take when the daemon stops.
const LAST: Duration = Duration::from_secs(1);

/// Reads the URL of a collector.
pub(super) fn endpoint(url: &str) -> Result<Box<Endpoint>, String> {
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| error.to_string())?;
    match endpoint.uri().scheme_str() {
        Some("http") => Ok(Box::new(
            endpoint.timeout(PATIENCE).connect_timeout(PATIENCE),
        )),
        _ => Err("want http://HOST:PORT: a collector beside this process, without TLS".to_owned()),
    }
}

/// Pushes that go on until they are stopped.
#[derive(Debug)]
pub(super) struct Pushing(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Pushing {
    /// Begins, if there is a collector. Must be called within a tokio runtime.
    pub(super) fn start(args: &OtlpArgs, engine: &Engine, node: Node) -> Self {
        let started = args.otlp.as_ref().map(|to| {
            let mut pusher = Pusher {
                client: MetricsServiceClient::new(to.connect_lazy()),
                engine: engine.clone(),
                node,
                began: clock::time(),
                failing: false,
            };
            let (stop, stopped) = oneshot::channel();
            let every = args.otlp_every;
            let task = tokio::spawn(async move {
                tokio::select! {
                    () = pusher.run(every) => (),
                    _ = stopped => (),
                }
                // Who does not take it in time goes without.
                let _ = timeout(LAST, pusher.push()).await;
            });
            (stop, task)
        });
        Self(started)
    }

    /// Pushes once more what was counted, and ends.
    pub(super) async fn stop(self) {
        if let Some((stop, task)) = self.0 {
            drop(stop);
            if let Err(error) = task.await {
                tracing::error!(%error, "stats were not pushed to the end");
            }
        }
    }
}

/// Pushes stats to one collector.
#[derive(Debug)]
struct Pusher {
    client: MetricsServiceClient<Channel>,
    engine: Engine,
    node: Node,
    began: SystemTime,
    /// Whether the last push has failed.
    failing: bool,
}

impl Pusher {
    async fn run(&mut self, every: Duration) {
        let mut turns = interval(every);
        turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            turns.tick().await;
            self.push().await;
        }
    }

    async fn push(&mut self) {
        let stats = self.engine.stats();
        let mut rejected = 0;
        for request in Requests::new(stats, &self.node, self.began, clock::time()) {
            match self.client.export(request).await {
                Ok(answer) => {
                    let partial = answer.into_inner().partial_success;
                    rejected += partial.map_or(0, |partial| partial.rejected_data_points);
                }
                Err(status) => {
                    if !std::mem::replace(&mut self.failing, true) {
                        let (code, reason) = (status.code(), status.message());
                        tracing::warn!(?code, reason, "stats cannot be pushed");
                    }
                    return;
                }
            }
        }
        if std::mem::take(&mut self.failing) {
            tracing::info!("stats are pushed again");
        }
        if rejected > 0 {
            tracing::warn!(rejected, "the collector has refused stats");
        }
    }
}
