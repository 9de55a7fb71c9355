//! A host that answers every check: one socket on all loopback addresses, in a process of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What it is asked.
pub(crate) const ASK: &[u8] = b"ping";
/// What it answers.
pub(crate) const ANSWER: &[u8] = b"pong";

/// The argument that makes a bench the responder.
const ROLE: &str = "respond";
/// Bytes of questions that may wait for it.
const RECEIVE_BUFFER: libc::c_int = 64 << 20;
/// How long it looks away when there is no question. It never waits at its socket, so that no question
/// pays for waking it, as none sent to another machine would; answers take as long as in a near network.
const PAUSE: Duration = Duration::from_micros(50);
/// Datagrams taken by one system call.
const BATCH: usize = 64;

/// The child that answers; ended when dropped.
pub(crate) struct Responder {
    child: Child,
    /// Its port, on every address of 127.0.0.0/8.
    pub(crate) port: u16,
}

impl Responder {
    /// Runs this program once more, as the responder.
    pub(crate) fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(ROLE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let port = line.trim().parse().unwrap();
        Self { child, port }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers, and does not return, if that is what this process was started for.
pub(crate) fn run_if_asked() {
    if std::env::args().nth(1).is_none_or(|role| role != ROLE) {
        return;
    }
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    for (option, value) in [
        ((libc::SOL_SOCKET, libc::SO_RCVBUF), RECEIVE_BUFFER),
        ((libc::SOL_SOCKET, libc::SO_RCVBUFFORCE), RECEIVE_BUFFER),
        ((libc::IPPROTO_IP, libc::IP_PKTINFO), 1),
    ] {
        // The size without limit is for the superuser.
        let refused = set(&socket, option, value).is_err();
        assert!(!refused || option.1 == libc::SO_RCVBUFFORCE, "{option:?}");
    }
    println!("{}", socket.local_addr().unwrap().port());
    std::io::stdout().flush().unwrap();
    std::thread::spawn(|| {
        // The end of its input is the end of whoever started it.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    answer(&socket)
}

#[expect(unsafe_code, reason = "options that no safe interface offers")]
fn set(
    socket: &UdpSocket,
    (level, name): (libc::c_int, libc::c_int),
    value: libc::c_int,
) -> Result<(), std::io::Error> {
    // SAFETY: the descriptor is open, and the value is as long as told.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Room for one `in_pktinfo`, aligned as control messages are.
type Control = [u64; 4];

#[expect(
    unsafe_code,
    reason = "many datagrams by one call, each from the address it was sent to"
)]
fn answer(socket: &UdpSocket) -> ! {
    let fd = socket.as_raw_fd();
    // SAFETY: all-zero is a value of these plain structs.
    let mut names: [libc::sockaddr_in; BATCH] = unsafe { std::mem::zeroed() };
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    let mut controls = [Control::default(); BATCH];
    let mut buffers = [[0_u8; 64]; BATCH];
    let mut slices = buffers.each_mut().map(|buffer| libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: 0,
    });
    loop {
        for (i, message) in messages.iter_mut().enumerate() {
            slices[i].iov_len = 64;
            let header = &mut message.msg_hdr;
            header.msg_name = (&raw mut names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_iov = &raw mut slices[i];
            header.msg_iovlen = 1;
            header.msg_control = controls[i].as_mut_ptr().cast();
            header.msg_controllen = size_of::<Control>() as _;
        }
        // SAFETY: all pointers are to the arrays above, which outlive the call, with their lengths.
        let got = unsafe {
            libc::recvmmsg(
                fd,
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(got @ 1..) = usize::try_from(got) else {
            std::thread::sleep(PAUSE);
            continue;
        };
        for i in 0..got {
            // The control message that told the question's destination now tells the answer's source.
            buffers[i][..ANSWER.len()].copy_from_slice(ANSWER);
            slices[i].iov_len = ANSWER.len();
        }
        let mut sent = 0;
        while sent < got {
            // SAFETY: as above; `sent` is below the length.
            let more = unsafe {
                libc::sendmmsg(
                    fd,
                    messages.as_mut_ptr().add(sent),
                    (got - sent) as libc::c_uint,
                    0,
                )
            };
            // Whoever asked may have gone, which is told by an error; the answer is not missed.
            sent += usize::try_from(more).unwrap_or(0).max(1);
        }
    }
}
