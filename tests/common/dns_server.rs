//! A name server on loopback, over UDP and TCP, that says what it was told.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Notify;

/// What is said of a name.
#[derive(Clone, Debug)]
pub enum Reply {
    /// It has these addresses, which hold for so many seconds.
    Addresses(Vec<IpAddr>, u32),
    /// It is another name's alias for so many seconds; the other has these addresses for an hour.
    Alias(u32, Vec<IpAddr>),
    /// As [`Reply::Addresses`], but over TCP only: what is said over UDP is cut short.
    Truncated(Vec<IpAddr>),
    /// As [`Reply::Addresses`], but questions for IPv6 addresses fail.
    FailsV6(Vec<IpAddr>),
    /// There is no such name.
    NxDomain,
    /// The server has failed.
    ServFail,
    /// Nothing.
    Silence,
}

impl Reply {
    pub fn addresses<const N: usize>(addresses: [&str; N]) -> Self {
        Self::Addresses(parse(addresses), 300)
    }
}

pub fn parse<const N: usize>(addresses: [&str; N]) -> Vec<IpAddr> {
    addresses.iter().map(|a| a.parse().unwrap()).collect()
}

/// A question that came: `A` or `AAAA`, and over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked(pub &'static str, pub &'static str);

#[derive(Clone)]
pub struct DnsServer {
    pub address: SocketAddr,
    said: Arc<Mutex<Said>>,
    asked: Arc<Notify>,
}

#[derive(Default)]
struct Said {
    replies: HashMap<String, Reply>,
    asked: HashMap<String, Vec<Asked>>,
}

impl DnsServer {
    /// A server whose tasks end with the test's runtime. Names of which nothing was said do not exist.
    pub async fn start() -> Self {
        // The ports of both are alike; that of one may be taken for the other.
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let server = Self {
            address: udp.local_addr().unwrap(),
            said: Arc::default(),
            asked: Arc::default(),
        };
        tokio::spawn(server.clone().serve_udp(udp));
        tokio::spawn(server.clone().serve_tcp(tcp));
        server
    }

    /// Says `reply` of `name` from now on.
    pub fn say(&self, name: &str, reply: Reply) {
        let mut said = self.said.lock().unwrap();
        said.replies.insert(name.to_owned(), reply);
    }

    /// The questions for `name` so far.
    pub fn asked(&self, name: &str) -> Vec<Asked> {
        let said = self.said.lock().unwrap();
        said.asked.get(name).cloned().unwrap_or_default()
    }

    /// Waits for so many more questions for `name`.
    pub async fn until_asked(&self, name: &str, more: usize) {
        let wanted = self.asked(name).len() + more;
        loop {
            let next = self.asked.notified();
            tokio::pin!(next);
            next.as_mut().enable();
            if self.asked(name).len() >= wanted {
                return;
            }
            next.await;
        }
    }

    async fn serve_udp(self, socket: UdpSocket) {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            if let Some(answer) = self.answer(&buffer[..length], "udp") {
                let _ = socket.send_to(&answer, from).await;
            }
        }
    }

    async fn serve_tcp(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(self.clone().serve_stream(stream));
        }
    }

    async fn serve_stream(self, mut stream: TcpStream) {
        while let Ok(length) = stream.read_u16().await {
            let mut question = vec![0; length.into()];
            if stream.read_exact(&mut question).await.is_err() {
                return;
            }
            if let Some(answer) = self.answer(&question, "tcp") {
                let length = u16::try_from(answer.len()).unwrap();
                let _ = stream.write_u16(length).await;
                let _ = stream.write_all(&answer).await;
            }
        }
    }

    fn answer(&self, question: &[u8], over: &'static str) -> Option<Vec<u8>> {
        let (name, end) = read_name(question);
        let v6 = question[end..end + 2] == [0, 28];
        let reply = {
            let mut said = self.said.lock().unwrap();
            let asked = said.asked.entry(name.clone()).or_default();
            asked.push(Asked(if v6 { "AAAA" } else { "A" }, over));
            said.replies.get(&name).cloned()
        };
        self.asked.notify_waiters();
        let (mut code, mut cut, mut alias, mut held) = (0_u8, false, None, (Vec::new(), 300));
        match reply.unwrap_or(Reply::NxDomain) {
            Reply::Addresses(addresses, ttl) => held = (addresses, ttl),
            Reply::Alias(ttl, addresses) => {
                alias = Some(ttl);
                held = (addresses, 3600);
            }
            Reply::Truncated(_) if over == "udp" => cut = true,
            Reply::Truncated(addresses) => held.0 = addresses,
            Reply::FailsV6(_) if v6 => code = 2,
            Reply::FailsV6(addresses) => held.0 = addresses,
            Reply::NxDomain => code = 3,
            Reply::ServFail => code = 2,
            Reply::Silence => return None,
        }
        let (addresses, ttl) = held;
        let mut records = Vec::new();
        let mut count = 0_u16;
        let mut owner: &[u8] = &[0xc0, 12];
        if let Some(ttl) = alias {
            let target = b"\x05other\x04test\x00";
            records.extend(record(owner, 5, ttl, target));
            count += 1;
            owner = target;
        }
        for address in addresses {
            let data = match address {
                IpAddr::V4(address) if !v6 => record(owner, 1, ttl, &address.octets()),
                IpAddr::V6(address) if v6 => record(owner, 28, ttl, &address.octets()),
                _ => continue,
            };
            records.extend(data);
            count += 1;
        }
        let mut answer = question[..2].to_vec();
        answer.extend([0x81 | (u8::from(cut) << 1), 0x80 | code, 0, 1]);
        answer.extend(count.to_be_bytes());
        answer.extend([0; 4]);
        answer.extend(&question[12..end + 4]);
        answer.extend(records);
        Some(answer)
    }
}

/// The name in a question, and where it ends.
fn read_name(question: &[u8]) -> (String, usize) {
    let mut labels = Vec::new();
    let mut at = 12;
    while question[at] != 0 {
        let end = at + 1 + usize::from(question[at]);
        labels.push(String::from_utf8_lossy(&question[at + 1..end]).to_lowercase());
        at = end;
    }
    (labels.join("."), at + 1)
}

fn record(owner: &[u8], kind: u8, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    let mut record = owner.to_vec();
    record.extend([0, kind, 0, 1]);
    record.extend(ttl.to_be_bytes());
    record.extend(length.to_be_bytes());
    record.extend(data);
    record
}
