//! `--otlp`: stats come to an OpenTelemetry collector, which may come and go.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use tokio::net::TcpListener;
use tokio::runtime::{self, Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::command::ran;
use crate::config::{OFTEN, bootstrap, check};
use crate::daemon::{Answering, Daemon, eventually};

/// What came last under each name and its attributes.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<BTreeMap<String, i64>>>);

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let mut known = self.0.lock().unwrap();
        for of in request.into_inner().resource_metrics {
            let resource = written(&of.resource.unwrap().attributes);
            for metric in of.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
                let points = match metric.data.unwrap() {
                    metric::Data::Sum(sum) => sum.data_points,
                    metric::Data::Gauge(gauge) => gauge.data_points,
                    _ => Vec::new(),
                };
                for point in points {
                    let name = format!("{resource} {} {}", metric.name, written(&point.attributes));
                    if let Some(number_data_point::Value::AsInt(value)) = point.value {
                        known.insert(name, value);
                    }
                }
            }
        }
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

fn written(attributes: &[KeyValue]) -> String {
    let words = attributes.iter().map(|attribute| {
        let value = attribute.value.as_ref().unwrap().value.as_ref().unwrap();
        match value {
            any_value::Value::StringValue(text) => format!("{}={text}", attribute.key),
            other => panic!("{other:?}"),
        }
    });
    words.collect::<Vec<_>>().join(",")
}

/// A collector's server; all its connections end with it.
struct Served {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Collector {
    async fn serve(&self, at: SocketAddr) -> Served {
        let listener = TcpListener::bind(at).await.unwrap().into_std().unwrap();
        let address = listener.local_addr().unwrap();
        let service = MetricsServiceServer::new(self.clone());
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.spawn(async move {
            let incoming = TcpListenerStream::new(TcpListener::from_std(listener).unwrap());
            let server = Server::builder().add_service(service);
            server.serve_with_incoming(incoming).await.unwrap();
        });
        let runtime = Some(runtime);
        Served { address, runtime }
    }

    fn value(&self, name: &str) -> Option<i64> {
        let version = env!("CARGO_PKG_VERSION");
        let of = format!(
            "service.name=xds-health,service.version={version},service.instance.id=n1 {name}"
        );
        self.0.lock().unwrap().get(&of).copied()
    }
}

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

#[tokio::test]
async fn a_collector_is_told_what_is_counted_and_may_come_and_go() {
    let host = Answering::new().await;
    let config = bootstrap("node: {id: n1}", &[host.address], &[check(OFTEN)], "");
    let collector = Collector::default();
    let served = collector.serve(ANY).await;
    let address = served.address;
    let url = format!("http://{address}");
    let mut daemon = Daemon::start(&config, &["--otlp", &url, "--otlp-every", "20ms"]);
    let successes = "envoy_cluster_health_check_success envoy_cluster_name=c";
    let told = |least| {
        let collector = &collector;
        eventually("successes at the collector", move || {
            collector.value(successes).filter(|value| *value >= least)
        })
    };
    let before = told(3).await;
    let healthy = "envoy_cluster_membership_healthy envoy_cluster_name=c";
    assert_eq!(collector.value(healthy), Some(1));
    let reason = "xds_health_cluster_health_check_failure_reason envoy_cluster_name=c";
    assert_eq!(collector.value(&format!("{reason},reason=timeout")), None);

    drop(served);
    let failing = || {
        let log = daemon.read("err");
        log.contains("stats cannot be pushed").then_some(())
    };
    eventually("a warning", failing).await;
    host.until_attempts(10).await;
    let _served = collector.serve(address).await;
    told(before + 10).await;
    // Told once when it fails and once when it does not, however long that takes.
    eventually("a word of its return", || {
        let log = daemon.read("err");
        log.contains("stats are pushed again").then_some(())
    })
    .await;
    assert_eq!(
        daemon.read("err").matches("stats cannot be pushed").count(),
        1
    );

    // What was counted to the end is told too.
    let seen = i64::try_from(host.attempts()).unwrap();
    daemon.stop().await;
    assert!(collector.value(successes) >= Some(seen - 1));
}

#[tokio::test]
async fn a_collector_that_never_answers_holds_up_nothing() {
    let host = Answering::new().await;
    let config = bootstrap("", &[host.address], &[check(OFTEN)], "");
    let silent = TcpListener::bind(ANY).await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut daemon = Daemon::start(&config, &["--otlp", &url, "--otlp-every", "1ms"]);
    host.until_attempts(20).await;
    daemon.stop().await;
}

#[test]
fn a_url_that_cannot_be_pushed_to_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for url in ["https://127.0.0.1:4317", "127.0.0.1:4317", "http://", "x"] {
        let ran = ran(directory.path(), &["run", "-c", "x", "--otlp", url], "");
        assert_eq!(ran.code, Some(2), "{url}: {}", ran.err);
    }
}
