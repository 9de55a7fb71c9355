//! What the system says of this process.

use std::ops::Sub;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// CPU time of all threads of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl Cpu {
    /// What this process has used up to now.
    pub(crate) fn now() -> Self {
        Self::of(libc::RUSAGE_SELF)
    }

    /// What the calling thread has used up to now.
    pub(crate) fn of_thread() -> Self {
        Self::of(libc::RUSAGE_THREAD)
    }

    #[expect(unsafe_code, reason = "no safe interface offers `getrusage`")]
    fn of(who: libc::c_int) -> Self {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the place is as large as the call asks for, and any bits make a `rusage`.
        let usage = unsafe {
            assert_eq!(libc::getrusage(who, usage.as_mut_ptr()), 0);
            usage.assume_init()
        };
        let time = |value: libc::timeval| {
            let micros = value.tv_sec * 1_000_000 + value.tv_usec;
            Duration::from_micros(u64::try_from(micros).unwrap())
        };
        Self {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
        }
    }

    /// User and system time together, in microseconds for each of `count`.
    pub(crate) fn micros_per(self, count: u64) -> f64 {
        (self.user + self.system).as_secs_f64() * 1e6 / count as f64
    }
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// Memory that is resident, in bytes.
pub(crate) fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Descriptors that are open, but for the one that this takes.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Looks at the descriptors again and again, in a thread.
pub(crate) struct DescriptorWatch {
    end: Arc<AtomicBool>,
    thread: JoinHandle<(usize, Cpu)>,
}

impl DescriptorWatch {
    pub(crate) fn start() -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            let mut most = 0;
            while !ends.load(Relaxed) {
                most = most.max(descriptors());
                std::thread::sleep(Duration::from_millis(5));
            }
            (most, Cpu::of(libc::RUSAGE_THREAD))
        });
        Self { end, thread }
    }

    /// The most that it saw, and the CPU time it took to look.
    pub(crate) fn stop(self) -> (usize, Cpu) {
        self.end.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}
