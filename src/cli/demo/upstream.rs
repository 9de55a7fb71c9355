//! Upstreams on loopback, each with manners of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::{interval, sleep};

/// What an upstream is asked.
pub(super) const PING: &[u8] = b"ping";
/// What it is to answer.
pub(super) const PONG: &[u8] = b"pong";

/// How long a slow one takes.
const SLOW: Duration = Duration::from_millis(150);
/// How long a flapping one is of one mind.
const FLAP: Duration = Duration::from_secs(2);

/// How an upstream behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Answers at once.
    Healthy,
    /// Answers late, but in time.
    Slow,
    /// Answers for a while, then does not, and so on.
    Flapping,
    /// Answers something else.
    Wrong,
    /// Takes all and answers nothing.
    Silent,
    /// Nobody listens.
    Closed,
    /// Answers at once, but is told of only after a while.
    Late,
}

impl Manner {
    pub(super) const ALL: [Self; 7] = [
        Self::Healthy,
        Self::Slow,
        Self::Flapping,
        Self::Wrong,
        Self::Silent,
        Self::Closed,
        Self::Late,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Slow => "slow",
            Self::Flapping => "flapping",
            Self::Wrong => "wrong",
            Self::Silent => "silent",
            Self::Closed => "closed",
            Self::Late => "late",
        }
    }
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upstream {
    pub(super) manner: Manner,
    pub(super) address: SocketAddr,
}

impl Upstream {
    /// Begins to behave, as a task of the current runtime.
    pub(super) async fn start(manner: Manner) -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let address = socket.local_addr()?;
        if manner == Manner::Closed {
            // It takes datagrams from itself alone: all others are refused, and nobody else is given the port.
            socket.connect(address).await?;
        }
        tokio::spawn(behave(manner, Arc::new(socket)));
        Ok(Self { manner, address })
    }
}

async fn behave(manner: Manner, socket: Arc<UdpSocket>) {
    let mut buffer = [0; PING.len() + 1];
    let (mut turns, mut answers) = (interval(FLAP), true);
    // The first turn is at once.
    turns.tick().await;
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            _ = turns.tick() => {
                answers = manner != Manner::Flapping || !answers;
                continue;
            }
        };
        // A peer that is gone already may have been reported: nothing of it matters here.
        let Ok((length, from)) = received else {
            continue;
        };
        if buffer[..length] != *PING || !answers {
            continue;
        }
        let answer: &'static [u8] = match manner {
            Manner::Silent | Manner::Closed => continue,
            Manner::Wrong => b"pang",
            Manner::Healthy | Manner::Slow | Manner::Flapping | Manner::Late => PONG,
        };
        if manner != Manner::Slow {
            // As above.
            let _ = socket.send_to(answer, from).await;
            continue;
        }
        let socket = Arc::clone(&socket);
        tokio::spawn(async move {
            sleep(SLOW).await;
            let _ = socket.send_to(answer, from).await;
        });
    }
}
