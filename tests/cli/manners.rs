//! Hosts with manners of their own, which go on while a command runs to its end.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A host that answers each datagram by those that `answer` gives. It ends with the process.
pub struct Host {
    pub address: SocketAddr,
    heard: Arc<AtomicUsize>,
}

impl Host {
    pub fn new(mut answer: impl FnMut(usize, &[u8]) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (address, heard) = (socket.local_addr().unwrap(), Arc::default());
        let count = Arc::clone(&heard);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                let before = AtomicUsize::fetch_add(&count, 1, Relaxed);
                for datagram in answer(before, &buffer[..len]) {
                    socket.send_to(&datagram, from).unwrap();
                }
            }
        });
        Self { address, heard }
    }

    /// One that always gives the same answer.
    pub fn answering(with: &'static [u8]) -> Self {
        Self::new(move |_, _| vec![with.to_vec()])
    }

    /// How many datagrams came.
    pub fn heard(&self) -> usize {
        self.heard.load(Relaxed)
    }
}

/// A port where nobody listens, as long as the socket is there: it takes datagrams from itself alone.
pub fn closed() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    socket.connect(address).unwrap();
    (socket, address)
}
