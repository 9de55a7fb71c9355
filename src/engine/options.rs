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
#[derive(Clone, Debug, Default)]
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
}
