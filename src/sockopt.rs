//! Setting a socket option by number, which no safe interface offers.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets the option `name` of `level` to `value`.
#[expect(
    unsafe_code,
    reason = "configurations name options by number; the call reads `value` and nothing else"
)]
pub(crate) fn set(socket: &impl AsFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the descriptor is borrowed, so open; `value` is readable for `len` bytes and not kept.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            len,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
