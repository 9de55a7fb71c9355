//! How many attempts may run at once.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors left to the rest of the process: logs, the admin port, streams to management servers.
const RESERVE: u64 = 128;

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
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Attempts that may run at once in this process: as many as descriptors and local ports allow.
pub(super) fn default_in_flight() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let attempts = descriptors
        .saturating_sub(RESERVE)
        .max(descriptors / 2)
        .min(local_ports() / 2)
        .max(1);
    usize::try_from(attempts).unwrap_or(usize::MAX)
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
    fn there_is_room_for_one_attempt_at_least() {
        assert!(default_in_flight() >= 1);
        assert!(local_ports() >= 1);
    }
}
