//! Bytes on a connection of the admin port: every one of them is answered, or the connection ends, and nothing that
//! is asked for there takes the server away from the next one.
#![no_main]

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use xds_health::admin::{self, Admin, Limits};
use xds_health::config::{Bootstrap, Warnings};
use xds_health::engine::{Engine, Options, Origin};
use xds_health::registry::Registry;
use xds_health::stats::Stats;

/// Connections that never were on a network.
struct Wires(mpsc::Receiver<DuplexStream>);

impl Listener for Wires {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.recv().await {
            Some(wire) => (wire, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

struct Server {
    runtime: Runtime,
    connect: mpsc::Sender<DuplexStream>,
}

const BOOTSTRAP: &str = r#"
static_resources:
  clusters:
  - &one
    name: games
    load_assignment:
      cluster_name: games
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 9}}}
    health_checks:
    - timeout: 1s
      interval: 3600s
      initial_jitter: 3600s
      unhealthy_threshold: 2
      healthy_threshold: 2
      custom_health_check:
        name: u
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck
          send: {text: "70"}
          receive: {text: "71"}
  - name: "strange \" \u202ename with.dots"
"#;

impl Server {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (connect, wires) = mpsc::channel(1);
        runtime.block_on(async {
            let bootstrap = Bootstrap::from_yaml(BOOTSTRAP, &mut Warnings::default()).unwrap();
            let engine = Engine::start(Options::default(), Arc::new(Stats::default())).unwrap();
            for config in &bootstrap.clusters {
                let update = Registry::default().build(Arc::clone(config)).unwrap();
                engine.set_cluster(update, Origin::Static).await.unwrap();
            }
            let router = admin::router(Admin::new(engine).with_node(bootstrap.node));
            tokio::spawn(admin::serve(
                Wires(wires),
                router,
                Limits::default().with_request_timeout(Duration::from_secs(5)),
                std::future::pending(),
            ));
        });
        Self { runtime, connect }
    }

    /// What is answered to bytes: up to the end of the connection, or until nothing more comes.
    fn ask(&self, bytes: &[u8], to_the_end: bool) -> Vec<u8> {
        let patience = Duration::from_millis(if to_the_end { 20_000 } else { 3 });
        self.runtime.block_on(async {
            let (mut near, far) = tokio::io::duplex(1 << 20);
            self.connect.send(far).await.unwrap();
            let mut answer = Vec::new();
            // The other end may have enough before it has read all.
            let _ = near.write_all(bytes).await;
            loop {
                let read = near.read_buf(&mut answer);
                match tokio::time::timeout(patience, read).await {
                    Ok(Ok(0) | Err(_)) => return answer,
                    Ok(Ok(_)) => (),
                    Err(_) => {
                        assert!(!to_the_end, "no end");
                        return answer;
                    }
                }
            }
        })
    }
}

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    SERVER.with_borrow_mut(|server| {
        let server = server.get_or_insert_with(Server::start);
        let answer = server.ask(data, false);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."));
        let ready = server.ask(
            b"GET /server_info HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            true,
        );
        assert!(ready.starts_with(b"HTTP/1.1 200"));
    });
});
