//! The UDP checker over real sockets on loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
#[path = "common/peer.rs"]
mod peer;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use common::{Events, check, run, until};
use peer::Peer;
use xds_health::checker::udp::UdpChecker;
use xds_health::config::{
    BindConfig, ClusterConfig, Discovery, HealthCheck, Payload, SocketOption, UdpConfig,
};
use xds_health::engine::{Cluster, Engine, Options};
use xds_health::event::{Mismatch, Reason, Shortage};
use xds_health::host::{Address, Host};
use xds_health::snapshot::{HostView, Verdict};
use xds_health::stats::Stats;

const MS: Duration = Duration::from_millis(1);

struct Bed {
    engine: Engine,
    cluster: Cluster,
}

impl Bed {
    async fn with(
        payloads: (&[u8], &[u8]),
        check: HealthCheck,
        hosts: Vec<Host>,
        bind: Option<BindConfig>,
    ) -> Self {
        Self::running(Options::default(), payloads, check, hosts, bind).await
    }

    async fn running(
        options: Options,
        payloads: (&[u8], &[u8]),
        check: HealthCheck,
        hosts: Vec<Host>,
        bind: Option<BindConfig>,
    ) -> Self {
        let options = options.with_seed(1);
        let engine = Engine::start(options, Arc::new(Stats::default())).unwrap();
        let hosts = hosts.into_iter().map(Arc::new).collect();
        let mut config = ClusterConfig::new("c", Discovery::Static(hosts)).with_health_check(check);
        config.bind = bind.map(Arc::new);
        let config_of_checker = UdpConfig::new(
            Payload::new(payloads.0).unwrap(),
            Payload::new(payloads.1).unwrap(),
        );
        let checker = Shared(Arc::new(UdpChecker::new(config_of_checker)));
        let cluster = run(&engine, config, checker, &Events::default()).await;
        Self { engine, cluster }
    }

    async fn of(hosts: Vec<Host>) -> Self {
        Self::with((b"ping", b"pong"), quick(), hosts, None).await
    }

    /// The only host's view once its verdict is known.
    async fn verdict(&self) -> HostView {
        let known = |views: &[HostView]| views.len() == 1 && views[0].verdict() != Verdict::Unknown;
        until(&self.cluster, known).await.remove(0)
    }

    /// Answers each attempt by `answers`, none of which matches, until one fails by a mismatch as wanted.
    async fn until_mismatch(
        &self,
        peer: &Peer,
        answers: &[&[u8]],
        wanted: impl Fn(&Mismatch) -> bool,
    ) -> Arc<Mismatch> {
        let answering = async {
            loop {
                let (_, from) = peer.next().await;
                for answer in answers {
                    peer.answer(from, answer).await;
                }
            }
        };
        let failed_so = until(&self.cluster, |views| {
            views.first().is_some_and(
                |view| matches!(view.reason.as_deref(), Some(Reason::Mismatch(m)) if wanted(m)),
            )
        });
        tokio::select! {
            () = answering => unreachable!("it goes on for ever"),
            views = failed_so => match views[0].reason.as_deref() {
                Some(Reason::Mismatch(mismatch)) => Arc::clone(mismatch),
                other => panic!("{other:?}"),
            },
        }
    }

    async fn reason(&self) -> Reason {
        let reason = self.verdict().await.reason;
        reason.as_deref().unwrap().clone()
    }
}

#[derive(Clone, Debug)]
struct Shared(Arc<UdpChecker>);

impl xds_health::checker::Checker for Shared {
    fn health_checker_type(&self) -> xds_health::event::HealthCheckerType {
        self.0.health_checker_type()
    }

    fn for_host(
        &self,
        target: xds_health::checker::Target<'_>,
    ) -> Box<dyn xds_health::checker::HostChecker> {
        self.0.for_host(target)
    }

    fn only_attempt(
        &self,
        target: xds_health::checker::Target<'_>,
        io: xds_health::checker::AttemptIo,
    ) -> xds_health::checker::Attempt<'static> {
        self.0.only_attempt(target, io)
    }
}

/// Long enough for any machine where an answer is awaited.
fn patient() -> HealthCheck {
    let mut check = check();
    check.timeout = Duration::from_secs(30);
    check
}

/// Short, where a timeout is awaited.
fn quick() -> HealthCheck {
    let mut check = check();
    check.timeout = 100 * MS;
    check.no_traffic_interval = 10 * MS;
    check.no_traffic_healthy_interval = 10 * MS;
    check
}

#[tokio::test]
async fn other_datagrams_are_passed_over_until_one_matches() {
    for address in [
        std::net::IpAddr::from(Ipv4Addr::LOCALHOST),
        Ipv6Addr::LOCALHOST.into(),
    ] {
        let peer = Peer::at(address).await;
        let bed = Bed::with((b"ping", b"pong"), patient(), vec![peer.host()], None).await;
        let (payload, from) = peer.next().await;
        assert_eq!(payload, b"ping");
        for wrong in [&b"nope"[..], b"po", b"", b"pongX", b"pong\0"] {
            peer.answer(from, wrong).await;
        }
        peer.answer(from, b"pong").await;
        assert_eq!(bed.verdict().await.verdict(), Verdict::Healthy);
    }
}

#[tokio::test]
async fn only_wrong_datagrams_fail_by_the_timeout_and_say_how_they_differ() {
    let peer = Peer::new().await;
    let bed = Bed::of(vec![peer.host()]).await;
    let mismatch = bed
        .until_mismatch(&peer, &[b"nope", b"pongpong"], |m| m.datagrams == 2)
        .await;
    assert_eq!(mismatch.first_difference, 4);
    assert_eq!((mismatch.length, &*mismatch.sample), (8, &b"pongpong"[..]));
}

#[tokio::test]
async fn parts_of_the_answer_are_never_joined() {
    let peer = Peer::new().await;
    let bed = Bed::of(vec![peer.host()]).await;
    bed.until_mismatch(&peer, &[b"po", b"ng"], |m| m.datagrams == 2)
        .await;
}

#[tokio::test]
async fn a_silent_host_times_out() {
    let peer = Peer::new().await;
    let bed = Bed::of(vec![peer.host()]).await;
    assert_eq!(bed.reason().await, Reason::Silent);
}

#[tokio::test]
async fn a_closed_port_fails_at_once() {
    for address in [
        std::net::IpAddr::from(Ipv4Addr::LOCALHOST),
        Ipv6Addr::LOCALHOST.into(),
    ] {
        let host = Peer::at(address).await.host();
        let bed = Bed::with((b"ping", b"pong"), patient(), vec![host], None).await;
        assert_eq!(bed.reason().await, Reason::Refused);
    }
}

#[tokio::test]
async fn an_answer_from_another_port_is_not_seen() {
    let (peer, other) = (Peer::new().await, Peer::new().await);
    let bed = Bed::of(vec![peer.host()]).await;
    let (_, from) = peer.next().await;
    other.answer(from, b"pong").await;
    assert_eq!(bed.reason().await, Reason::Silent);
}

#[tokio::test]
async fn a_late_answer_satisfies_no_later_attempt() {
    let peer = Peer::new().await;
    let bed = Bed::of(vec![peer.host()]).await;
    let (_, first) = peer.next().await;
    let (_, second) = peer.next().await;
    assert_ne!(first, second);
    // To where the first attempt was, while the second runs.
    peer.answer(first, b"pong").await;
    let (_, third) = peer.next().await;
    assert_ne!(second, third);
    let session = bed.cluster.explain(&peer.host().address).await.unwrap();
    let session = &session[0].sessions[0];
    assert!(session.failed && session.successes == 0);
}

#[tokio::test]
async fn a_second_answer_to_an_attempt_satisfies_no_later_one() {
    for spare_sockets in [0, 1] {
        answer_twice(spare_sockets).await;
    }
}

async fn answer_twice(spare_sockets: usize) {
    let peer = Peer::new().await;
    let options = Options::default().with_spare_sockets(spare_sockets);
    let payloads = (&b"ping"[..], &b"pong"[..]);
    let bed = Bed::running(options, payloads, quick(), vec![peer.host()], None).await;
    let mut last = None;
    for _ in 0..3 {
        let (_, from) = peer.next().await;
        assert_ne!(Some(from), last);
        for _ in 0..2 {
            peer.answer(from, b"pong").await;
        }
        bed.verdict().await;
        last = Some(from);
    }
    // To where the attempt was that has succeeded, while the next one runs.
    let (_, from) = peer.next().await;
    assert_ne!(Some(from), last);
    peer.answer(last.unwrap(), b"pong").await;
    peer.next().await;
    let session = bed.cluster.explain(&peer.host().address).await.unwrap();
    assert_eq!(session[0].sessions[0].failures, 1);
}

#[tokio::test]
async fn many_hosts_are_checked_by_answers_that_were_there_before_their_sockets_were_watched() {
    for spare_sockets in [0, 8] {
        let peers: Vec<Peer> = peers(20).await;
        let options = Options::default().with_spare_sockets(spare_sockets);
        let payloads = (&b"ping"[..], &b"pong"[..]);
        let hosts = peers.iter().map(Peer::host).collect();
        let bed = Bed::running(options, payloads, patient(), hosts, None).await;
        for peer in &peers {
            let (_, from) = peer.next().await;
            peer.answer(from, b"nope").await;
            peer.answer(from, b"pong").await;
        }
        until(&bed.cluster, |views| {
            views.len() == 20 && views.iter().all(|v| v.verdict() == Verdict::Healthy)
        })
        .await;
        let samples = bed.engine.stats().samples();
        let failures = samples
            .iter()
            .find(|s| s.name == "cluster.c.health_check.failure");
        assert!(failures.is_some_and(|s| !s.used), "{failures:?}");
    }
}

async fn peers(count: usize) -> Vec<Peer> {
    let mut peers = Vec::new();
    for _ in 0..count {
        peers.push(Peer::new().await);
    }
    peers
}

#[tokio::test]
async fn empty_payloads_are_datagrams_too() {
    let peer = Peer::new().await;
    let bed = Bed::with((b"", b""), patient(), vec![peer.host()], None).await;
    let (payload, from) = peer.next().await;
    assert_eq!(payload, b"");
    peer.answer(from, b"x").await;
    peer.answer(from, b"").await;
    assert_eq!(bed.verdict().await.verdict(), Verdict::Healthy);
}

#[tokio::test]
async fn the_largest_datagrams_go_both_ways() {
    let peer = Peer::new().await;
    let (ping, pong) = (vec![b'a'; 65_507], vec![b'b'; 65_507]);
    let bed = Bed::with((&ping, &pong), patient(), vec![peer.host()], None).await;
    let (payload, from) = peer.next().await;
    assert!(payload == ping);
    peer.answer(from, &pong).await;
    assert_eq!(bed.verdict().await.verdict(), Verdict::Healthy);
}

#[tokio::test]
async fn checks_go_to_the_health_check_address() {
    let peer = Peer::new().await;
    let own = SocketAddr::from(([127, 0, 0, 9], 9));
    let host = Host::new(own).with_check_address(peer.address());
    let bed = Bed::with((b"ping", b"pong"), patient(), vec![host], None).await;
    let (_, from) = peer.next().await;
    peer.answer(from, b"pong").await;
    let view = bed.verdict().await;
    assert_eq!(view.verdict(), Verdict::Healthy);
    assert_eq!(view.host.address, Address::from(own));
}

#[tokio::test]
async fn attempts_come_from_the_bound_address_of_the_hosts_family() {
    let mut bind = BindConfig::default();
    bind.source = Some(SocketAddr::from(([127, 0, 0, 77], 0)));
    bind = bind.with_extra_source(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)));
    bind.socket_options = vec![SocketOption::new(
        libc::IPPROTO_IP,
        libc::IP_TTL,
        9_i32.to_ne_bytes().to_vec(),
    )];
    for (at, source) in [
        (std::net::IpAddr::from(Ipv4Addr::LOCALHOST), "127.0.0.77"),
        (Ipv6Addr::LOCALHOST.into(), "::1"),
    ] {
        let peer = Peer::at(at).await;
        let _bed = Bed::with(
            (b"ping", b"pong"),
            patient(),
            vec![peer.host()],
            Some(bind.clone()),
        )
        .await;
        let (_, from) = peer.next().await;
        assert_eq!(from.ip().to_string(), source);
    }
}

#[tokio::test]
async fn a_source_that_is_not_ours_is_a_local_error() {
    let mut bind = BindConfig::default();
    bind.source = Some(SocketAddr::from(([192, 0, 2, 1], 0)));
    let peer = Peer::new().await;
    let bed = Bed::with((b"ping", b"pong"), patient(), vec![peer.host()], Some(bind)).await;
    assert!(matches!(
        bed.reason().await,
        Reason::Local { call: "bind", .. }
    ));
}

#[tokio::test]
async fn a_socket_option_that_does_not_exist_is_a_local_error() {
    let mut bind = BindConfig::default();
    bind.socket_options = vec![SocketOption::new(12_345, 1, vec![0; 4])];
    let peer = Peer::new().await;
    let bed = Bed::with((b"ping", b"pong"), patient(), vec![peer.host()], Some(bind)).await;
    assert!(matches!(
        bed.reason().await,
        Reason::Local {
            call: "setsockopt",
            ..
        }
    ));
}

#[tokio::test]
async fn hosts_take_turns_at_a_fixed_local_port() {
    let taken = Peer::new().await;
    let port = taken.address().port();
    drop(taken);
    let mut bind = BindConfig::default();
    bind.source = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let peers = [Peer::new().await, Peer::new().await];
    let hosts = peers.iter().map(Peer::host).collect();
    let bed = Bed::with((b"ping", b"pong"), patient(), hosts, Some(bind)).await;
    for _ in 0..2 {
        // Whichever has the port is answered, and then the other has it.
        let (peer, from) = tokio::select! {
            (_, from) = peers[0].next() => (&peers[0], from),
            (_, from) = peers[1].next() => (&peers[1], from),
        };
        assert_eq!(from.port(), port);
        peer.answer(from, b"pong").await;
    }
    until(&bed.cluster, |views| {
        views.iter().all(|v| v.verdict() == Verdict::Healthy)
    })
    .await;
}

#[tokio::test]
async fn a_port_that_another_program_holds_is_waited_for_until_the_deadline() {
    let holder = Peer::new().await;
    let mut bind = BindConfig::default();
    bind.source = Some(holder.address());
    let peer = Peer::new().await;
    let bed = Bed::with((b"ping", b"pong"), quick(), vec![peer.host()], Some(bind)).await;
    assert_eq!(bed.reason().await, Reason::Shortage(Shortage::Ports));
    let samples = bed.engine.stats().samples();
    let name = "xds_health.cluster.c.health_check.waited_for.ports";
    assert!(samples.iter().any(|s| s.name == name && s.used));
    // Once it is free, checks go on from it.
    drop(holder);
    let (_, from) = peer.next().await;
    peer.answer(from, b"pong").await;
}

#[tokio::test]
async fn a_pipe_is_checked_by_unix_datagrams() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("host");
    let path = path.to_str().unwrap();
    let nobody = Host::new(Address::Pipe(path.into()));
    let bed = Bed::with((b"ping", b"pong"), patient(), vec![nobody.clone()], None).await;
    assert!(matches!(
        bed.reason().await,
        Reason::Local {
            call: "connect",
            ..
        }
    ));
    let socket = UnixDatagram::bind(path).unwrap();
    let bed = Bed::of(vec![nobody]).await;
    assert_eq!(bed.reason().await, Reason::Silent);
    let mut buffer = [0; 16];
    let len = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"ping");
}
