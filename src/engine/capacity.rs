//! How many attempts may run at once.

use super::Options;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors left to the rest of the process, unless it says how many it wants. A quarter of all where there are
/// few.
const RESERVE: u64 = 128;
/// The part of the other descriptors that attempts may have at least, however many are open when an engine starts.
const LEAST_PART: u64 = 16;
/// Descriptors that a shard has for itself.
const PER_SHARD: u64 = 8;

/// Raises the limit of open descriptors as far as it may be, and tells it.
///
/// For programs that own their process; an embedder may prefer to leave it.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    if limit.current.is_some_and(|current| current < most) {
        let wanted = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, wanted) {
            tracing::debug!(%error, "descriptor limit not raised");
        }
    }
    descriptor_limit()
}

fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many descriptors may be open in this process, and how many are.
pub(crate) fn descriptors() -> (u64, u64) {
    let limit = descriptor_limit();
    (limit, open_descriptors().min(limit))
}

/// Attempts that may run at once in this process with so many shards: as many as descriptors and local ports
/// allow, at least one. The options may ask for less.
pub(super) fn in_flight(options: &Options, shards: usize) -> usize {
    let (limit, open) = descriptors();
    let reserve = options.reserved_descriptors.map_or_else(
        || RESERVE.min(limit / 4),
        |reserve| u64::try_from(reserve).unwrap_or(u64::MAX),
    );
    let free = descriptors_for_attempts(limit, open, shards, reserve);
    let most = usize::try_from(free.min(local_ports() / 2)).unwrap_or(usize::MAX);
    match options.max_in_flight {
        Some(wanted) if wanted > most => {
            tracing::warn!(
                wanted,
                most,
                "fewer attempts may run at once than asked for"
            );
            most
        }
        Some(wanted) => wanted.max(1),
        None => most,
    }
}

fn descriptors_for_attempts(limit: u64, open: u64, shards: usize, reserve: u64) -> u64 {
    let shards = u64::try_from(shards).unwrap_or(u64::MAX);
    let rest = limit
        .saturating_sub(shards.saturating_mul(PER_SHARD))
        .saturating_sub(reserve);
    // What is open may be attempts of another engine, which end.
    let least = (rest / LEAST_PART).max(1);
    rest.saturating_sub(open).max(least)
}

/// Descriptors that are open now; a guess where the system does not tell.
fn open_descriptors() -> u64 {
    const GUESS: u64 = 16;
    match std::fs::read_dir("/proc/self/fd") {
        Ok(entries) => u64::try_from(entries.count()).unwrap_or(GUESS),
        // All that may be are.
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => u64::MAX,
        Err(_) => GUESS,
    }
}

/// Ports that the system gives out by itself.
fn local_ports() -> u64 {
    const USUAL: u64 = 28_232;
    let Ok(range) = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range") else {
        return USUAL;
    };
    let mut bounds = range.split_whitespace().map(str::parse::<u64>);
    match (bounds.next(), bounds.next()) {
        (Some(Ok(low)), Some(Ok(high))) if low <= high => high - low + 1,
        _ => USUAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_the_process_keeps_its_descriptors() {
        let of = descriptors_for_attempts;
        assert_eq!(of(1024, 20, 2, 128), 1024 - 20 - 16 - 128);
        assert_eq!(of(1024, 20, 64, 128), 1024 - 20 - 512 - 128);
        assert_eq!(of(40, 20, 1, 10), 40 - 20 - 8 - 10);
        assert_eq!(of(28, 25, 2, 7), 1);
        assert_eq!(of(15, 15, 1, 7), 1);
        assert_eq!(of(1024, 1000, 2, 128), 55);
    }

    #[test]
    fn there_is_room_for_one_attempt_at_least() {
        let options = Options::default();
        assert!(in_flight(&options, 1) >= 1);
        let none = options.clone().with_reserved_descriptors(usize::MAX);
        assert_eq!(in_flight(&none, 1), 1);
        assert_eq!(in_flight(&options.with_max_in_flight(0), 1), 1);
        assert!(local_ports() >= 1);
        assert!(open_descriptors() >= 3);
    }
}
