//! Attempts by nothing but the system calls that they consist of.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{connect, recv, send, socket_with};

use super::responder::{ANSWER, ASK};

/// Makes `attempts` attempts, `in_flight` at once, each with a socket of its own, to `hosts` in turn.
pub(crate) fn run(hosts: &[SocketAddr], attempts: u64, in_flight: usize) {
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
    let mut left = attempts;
    let mut sockets: Vec<Option<OwnedFd>> = Vec::with_capacity(in_flight);
    while left > 0 && sockets.len() < in_flight {
        sockets.push(Some(begin(sockets.len())));
        left -= 1;
    }
    let mut events = Vec::with_capacity(in_flight);
    let mut done = 0;
    let patience = Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    while done < attempts {
        events.clear();
        epoll::wait(&poller, spare_capacity(&mut events), Some(&patience)).unwrap();
        assert!(!events.is_empty(), "an answer is lost");
        for event in &events {
            let slot = event.data.u64() as usize;
            let socket = sockets[slot].take().unwrap();
            let mut buffer = [0; 8];
            let (got, _) = recv(&socket, &mut buffer, RecvFlags::empty()).unwrap();
            assert_eq!(&buffer[..got], ANSWER);
            drop(socket);
            done += 1;
            if left > 0 {
                sockets[slot] = Some(begin(slot));
                left -= 1;
            }
        }
    }
}
