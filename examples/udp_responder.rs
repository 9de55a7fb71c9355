//! Answers health checks: `pong` to each `ping`, on the addresses of `examples/bootstrap.yaml`.
//!
//! ```text
//! cargo run --example udp_responder                  # 127.0.0.1:9001 and 127.0.0.1:9002
//! cargo run --example udp_responder -- 127.0.0.1:53  # or wherever
//! ```

use std::io;
use std::net::UdpSocket;
use std::thread;

fn main() -> io::Result<()> {
    let mut addresses: Vec<String> = std::env::args().skip(1).collect();
    if addresses.is_empty() {
        addresses = vec!["127.0.0.1:9001".to_owned(), "127.0.0.1:9002".to_owned()];
    }
    let mut threads = Vec::new();
    for address in addresses {
        let socket = UdpSocket::bind(&address)?;
        eprintln!("answering on {address}");
        threads.push(thread::spawn(move || answer(&socket)));
    }
    for thread in threads {
        if let Ok(result) = thread.join() {
            result?;
        }
    }
    Ok(())
}

fn answer(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = [0; 65_535];
    loop {
        let (len, from) = socket.recv_from(&mut buffer)?;
        if &buffer[..len] == b"ping" {
            socket.send_to(b"pong", from)?;
        }
    }
}
