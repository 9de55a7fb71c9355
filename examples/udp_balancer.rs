//! A UDP load balancer that follows health: each datagram goes to a host that passes its checks.
//!
//! Three servers answer health checks and number their answers. A client sends datagrams through the balancer;
//! then one server is killed. Between its death and its ejection datagrams to it are lost, as they must be. From
//! the ejection on none is lost, which is asserted; and when the server is back, it gets its share again.
//!
//! ```text
//! cargo run --example udp_balancer
//! ```

#![allow(clippy::print_stdout, reason = "an example tells what it sees")]

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use xds_health::config::{CheckerConfig, ClusterConfig, Discovery, HealthCheck};
use xds_health::engine::{Cluster, EligibleChange, Engine, Options, Origin};
use xds_health::host::Host;
use xds_health::registry::Registry;
use xds_health::stats::Stats;

/// How long the client waits for an answer before it counts the datagram as lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// Forwards datagrams: those of each client from a socket of its own, so that answers find their way back.
struct Balancer {
    listener: Arc<UdpSocket>,
    cluster: Cluster,
    upstreams: Vec<SocketAddr>,
    next: usize,
    clients: HashMap<SocketAddr, Arc<UdpSocket>>,
}

impl Balancer {
    async fn run(mut self) -> io::Result<()> {
        let mut changes = self.cluster.eligible_changes();
        let mut datagram = vec![0; 65_535];
        loop {
            tokio::select! {
                // What is known of health comes before the next datagram.
                biased;
                change = changes.next() => match change {
                    Some(EligibleChange::Enters(host)) => {
                        self.upstreams.extend(host.address.socket_addr());
                    }
                    Some(EligibleChange::Leaves(host)) => {
                        let gone = host.address.socket_addr();
                        self.upstreams.retain(|at| Some(*at) != gone);
                    }
                    Some(_) => (),
                    None => return Ok(()),
                },
                received = self.listener.recv_from(&mut datagram) => {
                    let (len, client) = received?;
                    self.forward(client, &datagram[..len]).await?;
                }
            }
        }
    }

    async fn forward(&mut self, client: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        if self.upstreams.is_empty() {
            return Ok(());
        }
        self.next = (self.next + 1) % self.upstreams.len();
        let upstream = self.upstreams[self.next];
        // From now on the interval for clusters with traffic rules. After the first call this is a look at a flag.
        self.cluster
            .note_traffic()
            .await
            .map_err(io::Error::other)?;
        let socket = match self.clients.get(&client) {
            Some(socket) => Arc::clone(socket),
            None => {
                let socket = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?);
                tokio::spawn(answers(
                    Arc::clone(&socket),
                    Arc::clone(&self.listener),
                    client,
                ));
                self.clients.insert(client, Arc::clone(&socket));
                socket
            }
        };
        // A closed port of another upstream may be reported here: it concerns that one, not this datagram.
        if let Err(error) = socket.send_to(datagram, upstream).await
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            socket.send_to(datagram, upstream).await?;
        }
        Ok(())
    }
}

/// Brings answers back to a client. A real balancer would end this when the client is silent for a while.
async fn answers(from: Arc<UdpSocket>, listener: Arc<UdpSocket>, client: SocketAddr) {
    let mut datagram = vec![0; 65_535];
    loop {
        if let Ok((len, _)) = from.recv_from(&mut datagram).await {
            // A client that has gone is no reason to end.
            let _ = listener.send_to(&datagram[..len], client).await;
        }
    }
}

/// A server: answers `ping` with `pong`, and anything else with its own port.
async fn serve(address: SocketAddr) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let socket = UdpSocket::bind(address).await?;
    let address = socket.local_addr()?;
    let server = tokio::spawn(async move {
        let mut datagram = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut datagram).await {
            let port = address.port().to_string();
            let answer = match &datagram[..len] {
                b"ping" => b"pong",
                _ => port.as_bytes(),
            };
            if socket.send_to(answer, from).await.is_err() {
                return;
            }
        }
    });
    Ok((address, server))
}

/// Sends datagrams one after the other, and counts the answers by server; `None` are the lost ones.
async fn send(client: &UdpSocket, count: usize) -> io::Result<BTreeMap<Option<u16>, usize>> {
    let mut answers = BTreeMap::new();
    let mut answer = [0; 16];
    for _ in 0..count {
        client.send(b"a question").await?;
        let port = match timeout(PATIENCE, client.recv(&mut answer)).await {
            Ok(len) => std::str::from_utf8(&answer[..len?])
                .ok()
                .and_then(|port| port.parse().ok()),
            Err(_) => None,
        };
        *answers.entry(port).or_default() += 1;
    }
    Ok(answers)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(serve((Ipv4Addr::LOCALHOST, 0).into()).await?);
    }

    let second = Duration::from_secs(1);
    let checker = CheckerConfig::udp(b"ping", b"pong")?;
    let check =
        HealthCheck::new(checker, second, second / 5, 2, 2).with_no_traffic_interval(second / 5);
    let config = ClusterConfig::new("games", Discovery::Dynamic).with_health_check(check);
    let engine = Engine::start(Options::default(), Arc::new(Stats::default()))?;
    let update = Registry::default().build(config)?;
    let cluster = engine.set_cluster(update, Origin::Dynamic).await?;
    cluster
        .reset(servers.iter().map(|(address, _)| Host::new(*address)))
        .await?;
    cluster.initialized().await?;

    let listener = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    client.connect(listener.local_addr()?).await?;
    let balancer = Balancer {
        listener: Arc::new(listener),
        cluster: cluster.clone(),
        upstreams: Vec::new(),
        next: 0,
        clients: HashMap::new(),
    };
    tokio::spawn(balancer.run());

    let answers = send(&client, 300).await?;
    println!("three servers: {answers:?}");
    assert_eq!(
        answers.len(),
        3,
        "every server has its share, and none is lost"
    );

    let (killed, server) = servers.remove(0);
    let (mut events, mut changes) = (cluster.events(), cluster.changes());
    server.abort();
    // Its socket is closed once it has ended.
    let _ = server.await;
    let event = loop {
        let event = events.next().await?;
        if event.host.address.socket_addr() == Some(killed) {
            break event;
        }
    };
    println!("{killed} was ejected: {:?}", event.reason);
    // The view that shows it follows the event within milliseconds.
    while cluster
        .snapshot()
        .at(killed)
        .is_some_and(|view| view.eligible())
    {
        changes.changed().await?;
    }

    let answers = send(&client, 1000).await?;
    println!("after ejection: {answers:?}");
    assert!(
        !answers.contains_key(&None),
        "no datagram is lost after ejection"
    );
    assert_eq!(answers.len(), 2);

    let (_, _server) = serve(killed).await?;
    while !cluster
        .snapshot()
        .at(killed)
        .is_some_and(|view| view.eligible())
    {
        changes.changed().await?;
    }
    let answers = send(&client, 300).await?;
    println!("and back: {answers:?}");
    assert_eq!(answers.get(&Some(killed.port())), Some(&100));
    Ok(())
}
