//! The core without a runtime: an owner of its own event loop drives health checks by itself, here with mio.
//!
//! `Clusters` does no I/O and reads no clock. It is told what the time is, what to check and how attempts ended;
//! it says when it next wants to be told, and what to do: begin an attempt, give one up, tell of an event. The same
//! loop can be built on io_uring or whatever a proxy has.
//!
//! ```text
//! cargo run --example event_loop
//! ```

#![allow(clippy::print_stdout, reason = "an example tells what it sees")]

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use xds_health::cluster::{Action, Clusters, SessionId, Share, Update};
use xds_health::config::{CheckerConfig, ClusterConfig, Discovery, HealthCheck, UdpConfig};
use xds_health::event::{EventKind, HealthCheckerType, Outcome, Reason};
use xds_health::host::Host;
use xds_health::session::AttemptId;
use xds_health::stats::Stats;

/// An attempt that runs: its socket is open.
struct Running {
    session: SessionId,
    socket: UdpSocket,
    sent: Instant,
}

struct Loop {
    poll: Poll,
    clusters: Clusters,
    udp: UdpConfig,
    /// By the names of attempts, which are the tokens of their sockets too.
    running: HashMap<AttemptId, Running>,
    next: u32,
    told: Vec<(SocketAddr, EventKind)>,
}

impl Loop {
    /// Until so many events were told.
    fn run(&mut self, events: usize) -> io::Result<()> {
        let mut ready = Events::with_capacity(64);
        while self.told.len() < events {
            let now = Instant::now();
            self.clusters.handle_timeout(now);
            self.act(now)?;
            let wait = self
                .clusters
                .poll_timeout()
                .map(|at| at.saturating_duration_since(now));
            self.poll.poll(&mut ready, wait)?;
            for event in &ready {
                let attempt = u32::try_from(event.token().0).map(AttemptId);
                if let Ok(attempt) = attempt {
                    self.receive(attempt)?;
                }
            }
        }
        Ok(())
    }

    /// Does what the core wants: to be done after each time that it was told something.
    fn act(&mut self, now: Instant) -> io::Result<()> {
        while let Some(action) = self.clusters.poll_action() {
            match action {
                Action::Start(session) => self.start(now, session)?,
                Action::Expire(session, attempt) => {
                    self.running.remove(&attempt);
                    let silent = Outcome::timeout(Reason::Silent);
                    self.clusters
                        .handle_outcome(now, session, attempt, silent, None);
                }
                Action::Cancel(_, attempt) => {
                    self.running.remove(&attempt);
                }
                Action::Event(notice) => {
                    let event = notice.at(HealthCheckerType::Udp, SystemTime::now());
                    println!(
                        "{}: {:?}, {:?}",
                        event.host.address, event.kind, event.reason
                    );
                    if let Some(address) = event.host.address.socket_addr() {
                        self.told.push((address, event.kind));
                    }
                }
                // Nothing is kept for sessions here.
                _ => (),
            }
        }
        Ok(())
    }

    fn start(&mut self, now: Instant, session: SessionId) -> io::Result<()> {
        self.next = self.next.wrapping_add(1);
        let attempt = AttemptId(self.next);
        let Some(started) = self.clusters.start(now, session, attempt) else {
            return Ok(());
        };
        let Some(address) = started.host.checked_at().socket_addr() else {
            return Ok(());
        };
        let mut socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0).into())?;
        let token = Token(self.next as usize);
        self.poll
            .registry()
            .register(&mut socket, token, Interest::READABLE)?;
        socket.connect(address)?;
        socket.send(self.udp.send())?;
        self.running.insert(
            attempt,
            Running {
                session,
                socket,
                sent: now,
            },
        );
        Ok(())
    }

    /// Reads until the socket has no more: mio tells of changes only.
    fn receive(&mut self, attempt: AttemptId) -> io::Result<()> {
        let mut datagram = vec![0; 65_535];
        loop {
            let Some(running) = self.running.get(&attempt) else {
                return Ok(());
            };
            let outcome = match running.socket.recv(&mut datagram) {
                Ok(len) if self.udp.matches(&datagram[..len]) => Outcome::SUCCESS,
                // It may be followed by one that matches.
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(_) => Outcome::network(Reason::Refused),
            };
            let now = Instant::now();
            let (session, round_trip) = (running.session, now - running.sent);
            self.running.remove(&attempt);
            self.clusters
                .handle_outcome(now, session, attempt, outcome, Some(round_trip));
            self.act(now)?;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // One host that answers, one whose port is closed, one that is silent.
    let fine = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let closed = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let (fine_at, silent_at) = (fine.local_addr()?, silent.local_addr()?);
    std::thread::spawn(move || {
        let mut ping = [0; 16];
        while let Ok((_, from)) = fine.recv_from(&mut ping) {
            if fine.send_to(b"pong", from).is_err() {
                return;
            }
        }
    });

    let checker = CheckerConfig::udp(b"ping", b"pong")?;
    let CheckerConfig::Custom(typed) = &checker else {
        return Err("the UDP checker is a custom one".into());
    };
    let udp = UdpConfig::from_bytes(&typed.value)?;
    let second = Duration::from_secs(1);
    let check = HealthCheck::new(checker, second, second, 2, 1);
    let config = Arc::new(ClusterConfig::new("games", Discovery::Dynamic).with_health_check(check));
    let stats = Stats::default();
    let now = Instant::now();
    let mut clusters = Clusters::new(now, Share::ALL, fastrand::u64(..));
    clusters.handle_update(
        now,
        Update::Cluster {
            stats: stats.cluster(config.key(), config.stat_name()),
            config: Arc::clone(&config),
            traffic: true,
        },
    );
    let hosts = [fine_at, closed, silent_at].map(|address| Arc::new(Host::new(address)));
    clusters.handle_update(
        now,
        Update::Reset {
            cluster: Arc::clone(&config.name),
            hosts: hosts.into(),
        },
    );

    let mut events = Loop {
        poll: Poll::new()?,
        clusters,
        udp,
        running: HashMap::new(),
        next: 0,
        told: Vec::new(),
    };
    events.run(3)?;
    let told: HashMap<SocketAddr, EventKind> = events.told.iter().copied().collect();
    assert_eq!(told[&fine_at], EventKind::AddHealthy { first_check: true });
    for failed in [closed, silent_at] {
        assert!(matches!(
            told[&failed],
            EventKind::Failure {
                first_check: true,
                ..
            }
        ));
    }
    // What readers are given: a view of each cluster that has changed.
    let (_, part) = events
        .clusters
        .poll_part()
        .ok_or("the cluster has changed")?;
    assert!(part.initialized);
    assert_eq!(part.hosts.iter().filter(|view| view.eligible()).count(), 1);
    Ok(())
}
