//! How an engine is to run.

/// Whether clusters count as having had traffic, which decides the intervals that rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Traffic {
    /// Always: `interval` and its like rule. For those who check on behalf of others.
    Always,
    /// Not until told: `no_traffic_interval` rules until then. Envoy's rule, and the default.
    #[default]
    WhenNoted,
}

/// As many shards may be asked for.
pub(super) const MOST_SHARDS: usize = 1024;

/// How an engine is to run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Shards, 1 to 1,024; default 1. Hosts are spread over them.
    pub shards: usize,
    /// Attempts that may run at once, of all shards; default and at most as many as the limits of open
    /// descriptors and of local ports allow, when some are left to the rest of the process. Further ones wait
    /// for their turn.
    pub max_in_flight: Option<usize>,
    /// Descriptors that attempts leave to the rest of the process: files, connections, whatever else it may open
    /// later; default 128, or a quarter of the limit where that is fewer.
    pub reserved_descriptors: Option<usize>,
    /// Sockets of attempts that have succeeded that are kept for later ones, of all shards; default 0: each
    /// attempt opens a socket and closes it. See [`Options::with_spare_sockets`].
    pub spare_sockets: usize,
    /// Whether clusters count as having had traffic.
    pub traffic: Traffic,
    /// Where jitter starts from; random by default.
    pub seed: Option<u64>,
    /// How many of its last attempts each shard notes, of 32 bytes each; default 0, which costs nothing. See
    /// [`Engine::attempts`](super::Engine::attempts).
    pub journal: usize,
    /// How many events are kept for a follower that is slow; default 1,024, at most 1,048,576. Each followed cluster
    /// has room for as many, of 32 bytes each, from its first follower on. See
    /// [`Engine::events`](super::Engine::events).
    pub events: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: 1,
            max_in_flight: None,
            reserved_descriptors: None,
            spare_sockets: 0,
            traffic: Traffic::default(),
            seed: None,
            journal: 0,
            events: 1024,
        }
    }
}

impl Options {
    /// The same with so many shards, of which 1,024 are the most.
    pub fn with_shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// The same with at most so many attempts at once.
    pub fn with_max_in_flight(mut self, attempts: usize) -> Self {
        self.max_in_flight = Some(attempts);
        self
    }

    /// The same with so many descriptors left to the rest of the process.
    pub fn with_reserved_descriptors(mut self, descriptors: usize) -> Self {
        self.reserved_descriptors = Some(descriptors);
        self
    }

    /// The same with up to so many sockets kept for later attempts, in place of a new socket for each, which is
    /// the rule of the UDP health check. Linux only; others go on opening sockets. A few hundred are enough.
    ///
    /// It spares a third of the CPU time and more. A socket is kept after a success only: it is parted from its
    /// host, which gives its port up, and looked at once more; if there was anything to be read, it is closed.
    /// What comes from another host than the one it was then connected to is passed over. What is left is this: an
    /// answer that the kernel was handing over in that very moment to the same socket, if the next attempt on it
    /// goes to the same host. Sockets with an `upstream_bind_config` are never kept.
    pub fn with_spare_sockets(mut self, sockets: usize) -> Self {
        self.spare_sockets = sockets;
        self
    }

    /// The same with another rule of what counts as traffic.
    pub fn with_traffic(mut self, traffic: Traffic) -> Self {
        self.traffic = traffic;
        self
    }

    /// The same with a fixed start for jitter.
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The same with so many attempts noted by each shard.
    pub fn with_journal(mut self, attempts: usize) -> Self {
        self.journal = attempts;
        self
    }

    /// The same with so many events kept for slow followers.
    pub fn with_events(mut self, events: usize) -> Self {
        self.events = events;
        self
    }
}
