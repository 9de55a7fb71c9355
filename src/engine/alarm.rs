//! A timer that ends a wait at the poller between two of its milliseconds.
//!
//! Pollers and runtimes count milliseconds, so an answer that is looked for within one is noticed at its end. This
//! is a descriptor that the poller watches: set anew for a wait that needs it, by one system call. Systems without
//! it wait for their millisecond.

use std::io;
use std::time::Duration;

use mio::{Registry, Token};

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::os::fd::{AsRawFd, OwnedFd};

    use mio::Interest;
    use mio::unix::SourceFd;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    use super::{Duration, Registry, Token, io};

    #[derive(Debug)]
    pub(in crate::engine) struct Alarm(OwnedFd);

    impl Alarm {
        pub(in crate::engine) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            let mut source = SourceFd(&timer.as_raw_fd());
            registry.register(&mut source, token, Interest::READABLE)?;
            Ok(Self(timer))
        }

        pub(in crate::engine) fn set(&self, after: Duration) -> io::Result<()> {
            const NONE: Timespec = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // Never read: to be set anew makes it as good as read, and the poller tells of each time it goes off.
            let once = Itimerspec {
                it_interval: NONE,
                it_value: Timespec::try_from(after).unwrap_or(NONE),
            };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
            Ok(())
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use super::{Duration, Registry, Token, io};

    #[derive(Debug)]
    pub(in crate::engine) struct Alarm(());

    impl Alarm {
        pub(in crate::engine) fn new(_registry: &Registry, _token: Token) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in crate::engine) fn set(&self, _after: Duration) -> io::Result<()> {
            Ok(())
        }
    }
}

pub(super) use system::Alarm;
