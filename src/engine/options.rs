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

/// How an engine is to run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Shards, 1 and up; default 1. Hosts are spread over them.
    pub shards: usize,
    /// Attempts that may run at once, of all shards; default and at most as many as the limits of open
    /// descriptors and of local ports allow, when some are left to the rest of the process. Further ones wait
    /// for their turn.
    pub max_in_flight: Option<usize>,
    /// Whether clusters count as having had traffic.
    pub traffic: Traffic,
    /// Where jitter starts from; random by default.
    pub seed: Option<u64>,
    /// How many of its last attempts each shard notes, of 32 bytes each; default 0, which costs nothing. See
    /// [`Engine::attempts`](super::Engine::attempts).
    pub journal: usize,
    /// How many events are kept for a follower that is slow; default 1,024. See
    /// [`Engine::events`](super::Engine::events).
    pub events: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shards: 1,
            max_in_flight: None,
            traffic: Traffic::default(),
            seed: None,
            journal: 0,
            events: 1024,
        }
    }
}

impl Options {
    /// The same with so many shards.
    pub fn with_shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// The same with at most so many attempts at once.
    pub fn with_max_in_flight(mut self, attempts: usize) -> Self {
        self.max_in_flight = Some(attempts);
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
