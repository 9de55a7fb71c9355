//! Attempts by nothing but the system calls that they consist of.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{connect, recv, send, socket_with};

use super::responder::{ANSWER, ASK};

/// When attempts begin.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// So many at once; as one ends the next begins.
    InFlight(usize),
    /// So many in each period of [`TICK`].
    PerTick(usize),
}

/// How often a paced run begins attempts: about as often as a timer of milliseconds wakes.
pub(crate) const TICK: Duration = Duration::from_millis(2);

/// Makes `attempts` attempts, each with a socket of its own, to `hosts` in turn.
pub(crate) fn run(hosts: &[SocketAddr], attempts: u64, pace: Pace) {
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let mut hosts = hosts.iter().cycle();
    let mut begin = |slot: usize| {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        connect(&socket, hosts.next().unwrap()).unwrap();
        send(&socket, ASK, SendFlags::NOSIGNAL).unwrap();
        let data = epoll::EventData::new_u64(slot as u64);
        epoll::add(
            &poller,
            &socket,
            data,
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )
        .unwrap();
        socket
    };
    let mut free = Vec::new();
    let mut sockets: Vec<Option<OwnedFd>> = Vec::new();
    let mut events = Vec::with_capacity(512);
    let (mut begun, mut done) = (0, 0);
    let mut tick = Instant::now();
    while done < attempts {
        let now = Instant::now();
        let (room, patience) = match pace {
            Pace::InFlight(most) => (most - (begun - done) as usize, Duration::from_secs(10)),
            Pace::PerTick(count) if now >= tick => {
                tick += TICK;
                (count, tick.saturating_duration_since(now))
            }
            Pace::PerTick(_) => (0, tick - now),
        };
        for _ in 0..room.min((attempts - begun) as usize) {
            let slot = free.pop().unwrap_or_else(|| {
                sockets.push(None);
                sockets.len() - 1
            });
            sockets[slot] = Some(begin(slot));
            begun += 1;
        }
        let patience = Timespec::try_from(patience).unwrap();
        events.clear();
        epoll::wait(&poller, spare_capacity(&mut events), Some(&patience)).unwrap();
        assert!(now.elapsed() < Duration::from_secs(9), "an answer is lost");
        for event in &events {
            let slot = event.data.u64() as usize;
            let socket = sockets[slot].take().unwrap();
            let mut buffer = [0; 8];
            let (got, _) = recv(&socket, &mut buffer, RecvFlags::empty()).unwrap();
            assert_eq!(&buffer[..got], ANSWER);
            drop(socket);
            free.push(slot);
            done += 1;
        }
    }
}
