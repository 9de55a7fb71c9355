//! Which hosts are to get load, by Envoy's rules of priorities and panic.
//!
//! Envoy's load balancers first choose a priority, by how much of each is available; then healthy or degraded
//! hosts of it, or all of them where too few are available: panic. Here stands the first half of that, from
//! what a snapshot says. Which host of those a packet goes to is the proxy's own choice. Localities and their
//! weights, zone awareness and subsets are not looked at.
//!
//! Source: `envoy.config.cluster.v3.Cluster.CommonLbConfig` and Envoy's documentation of priority levels,
//! degraded endpoints and the panic threshold.

use super::HostView;
use crate::host::Health;

/// The numbers that rule a [`Balance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BalanceRules {
    /// `common_lb_config.healthy_panic_threshold` in whole percent, 0 to 100; default 50. A priority of which
    /// less is available is in panic, if all priorities together cannot take the load either. 0: never.
    pub healthy_panic_threshold: u32,
    /// `policy.overprovisioning_factor` of the endpoints in percent; default 140. A priority counts as able to
    /// take all load while this times its available part is 100 or more.
    pub overprovisioning_factor: u32,
}

impl Default for BalanceRules {
    fn default() -> Self {
        Self {
            healthy_panic_threshold: 50,
            overprovisioning_factor: 140,
        }
    }
}

impl BalanceRules {
    /// The same with another panic threshold, in percent.
    pub fn with_healthy_panic_threshold(mut self, percent: u32) -> Self {
        self.healthy_panic_threshold = percent;
        self
    }

    /// The same with another overprovisioning factor, in percent.
    pub fn with_overprovisioning_factor(mut self, percent: u32) -> Self {
        self.overprovisioning_factor = percent;
        self
    }
}

/// A priority, and how much of the load is its.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PriorityLoad {
    /// Hosts of it, but for those that panic calculations leave out.
    pub hosts: usize,
    /// Those of them that are healthy.
    pub healthy: usize,
    /// Those of them that are degraded.
    pub degraded: usize,
    /// Load for its healthy hosts, or for all of them in panic, in percent of all load.
    pub healthy_load: u32,
    /// Load for its degraded hosts in percent of all load; 0 in panic.
    pub degraded_load: u32,
    /// Too little of it is available: load goes to all of its hosts alike, healthy or not.
    pub panic: bool,
}

impl PriorityLoad {
    fn available(&self, percent: u32, of: usize) -> u32 {
        let share = (of as u64 * u64::from(percent)).checked_div(self.hosts as u64);
        u32::try_from(share.unwrap_or(0).min(100)).unwrap_or(100)
    }
}

/// How load is to be spread over priorities, and over the hosts of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    priorities: Vec<PriorityLoad>,
}

impl Balance {
    /// For these hosts: those of a snapshot, or some of them.
    pub fn of<'a>(hosts: impl IntoIterator<Item = &'a HostView>, rules: BalanceRules) -> Self {
        let mut priorities: Vec<PriorityLoad> = Vec::new();
        for view in hosts {
            let priority = usize::from(view.host.priority);
            if priorities.len() <= priority {
                priorities.resize_with(priority + 1, PriorityLoad::default);
            }
            if view.flags.excluded() {
                continue;
            }
            let at = &mut priorities[priority];
            at.hosts += 1;
            match view.flags.health() {
                Health::Healthy => at.healthy += 1,
                Health::Degraded => at.degraded += 1,
                Health::Unhealthy => (),
            }
        }
        let mut balance = Self { priorities };
        balance.spread(rules);
        balance
    }

    /// All priorities, the first one first. Their loads add up to 100 unless there is no host to take any.
    pub fn priorities(&self) -> &[PriorityLoad] {
        &self.priorities
    }

    /// Whether load is to go to this host: to healthy ones of the priorities that have load, to degraded ones
    /// where those do not suffice, and in panic to all.
    pub fn uses(&self, view: &HostView) -> bool {
        let Some(at) = self.priorities.get(usize::from(view.host.priority)) else {
            return false;
        };
        match view.flags.health() {
            _ if at.panic => at.healthy_load > 0,
            Health::Healthy => at.healthy_load > 0,
            Health::Degraded => at.degraded_load > 0,
            Health::Unhealthy => false,
        }
    }

    fn spread(&mut self, rules: BalanceRules) {
        let factor = rules.overprovisioning_factor;
        let healthy = |at: &PriorityLoad| at.available(factor, at.healthy);
        let degraded = |at: &PriorityLoad| at.available(factor, at.degraded);
        let all = self.priorities.iter();
        let total = all
            .map(|at| healthy(at) + degraded(at))
            .sum::<u32>()
            .min(100);
        for at in &mut self.priorities {
            let available = at.available(100, at.healthy + at.degraded);
            at.panic = total < 100 && available < rules.healthy_panic_threshold;
        }
        if self.priorities.iter().all(|at| at.panic) {
            return self.spread_by_hosts();
        }
        if total == 0 {
            // Panic is switched off, and nobody is there to take load.
            return;
        }
        let mut rest = 100;
        let mut first = None;
        for (index, at) in self.priorities.iter_mut().enumerate() {
            at.healthy_load = rest.min(healthy(at) * 100 / total);
            rest -= at.healthy_load;
            if at.healthy_load > 0 {
                first.get_or_insert((index, true));
            }
        }
        for (index, at) in self.priorities.iter_mut().enumerate() {
            at.degraded_load = rest.min(degraded(at) * 100 / total);
            rest -= at.degraded_load;
            if at.degraded_load > 0 {
                first.get_or_insert((index, false));
            }
        }
        // What rounding left over goes to the first that has any.
        if let Some((index, healthy)) = first {
            let at = &mut self.priorities[index];
            if healthy {
                at.healthy_load += rest;
            } else {
                at.degraded_load += rest;
            }
        }
        for at in self.priorities.iter_mut().filter(|at| at.panic) {
            at.healthy_load += std::mem::take(&mut at.degraded_load);
        }
    }

    /// All priorities are in panic: each gets load by how many hosts it has.
    fn spread_by_hosts(&mut self) {
        let all: usize = self.priorities.iter().map(|at| at.hosts).sum();
        let mut rest = 100;
        let mut first = None;
        for (index, at) in self.priorities.iter_mut().enumerate() {
            let load = (at.hosts * 100).checked_div(all).unwrap_or(0);
            at.healthy_load = u32::try_from(load).unwrap_or(0).min(rest);
            rest -= at.healthy_load;
            if at.hosts > 0 {
                first.get_or_insert(index);
            }
        }
        if let Some(first) = first {
            self.priorities[first].healthy_load += rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{HealthFlags, Host};
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::Instant;

    /// Hosts of one priority, by a letter each: `h`ealthy, `d`egraded, `u`nhealthy, e`x`cluded.
    fn hosts(priority: u8, letters: &str) -> Vec<HostView> {
        let flags = |letter| match letter {
            'h' => HealthFlags::NONE,
            'd' => HealthFlags::DEGRADED_ACTIVE_HC,
            'u' => HealthFlags::FAILED_ACTIVE_HC,
            _ => HealthFlags::FAILED_ACTIVE_HC | HealthFlags::PENDING_ACTIVE_HC,
        };
        let view = |letter| HostView {
            host: Arc::new(
                Host::new(SocketAddr::from(([127, 0, 0, 1], 1))).with_priority(priority),
            ),
            flags: flags(letter),
            unchecked: false,
            since: Instant::now(),
            reason: None,
        };
        letters.chars().map(view).collect()
    }

    /// `h` and `d` loads of each priority, `!` where there is panic.
    fn loads(priorities: &[&str], threshold: u32) -> Vec<String> {
        let all: Vec<HostView> = (0..)
            .zip(priorities)
            .flat_map(|(priority, letters)| hosts(priority, letters))
            .collect();
        let rules = BalanceRules::default().with_healthy_panic_threshold(threshold);
        let balance = Balance::of(&all, rules);
        let of = |at: &PriorityLoad| {
            let panic = if at.panic { "!" } else { "" };
            format!("{}/{}{panic}", at.healthy_load, at.degraded_load)
        };
        balance.priorities().iter().map(of).collect()
    }

    #[test]
    fn load_goes_to_the_first_priority_until_too_little_of_it_is_available() {
        // As in the tables of Envoy's documentation of priority levels.
        for (of_ten, expected) in [
            (10, ["100/0", "0/0"]),
            (8, ["100/0", "0/0"]),
            (7, ["98/0", "2/0"]),
            (5, ["70/0", "30/0"]),
            (1, ["14/0", "86/0"]),
            (0, ["0/0", "100/0"]),
        ] {
            let first = "h".repeat(of_ten) + &"u".repeat(10 - of_ten);
            assert_eq!(loads(&[&first, "hhhhhhhhhh"], 50), expected, "{of_ten}");
        }
    }

    #[test]
    fn degraded_hosts_take_what_healthy_ones_of_all_priorities_cannot() {
        assert_eq!(loads(&["hhhhdddd"], 50), ["70/30"]);
        assert_eq!(loads(&["huuudddd", "hhhhhhhh"], 50), ["17/0", "83/0"]);
        assert_eq!(loads(&["dddd"], 50), ["0/100"]);
    }

    #[test]
    fn too_few_available_hosts_mean_panic_unless_another_priority_helps() {
        assert_eq!(loads(&["huuu"], 50), ["100/0!"]);
        assert_eq!(loads(&["huuu"], 20), ["100/0"]);
        assert_eq!(loads(&["huuu", "hhhh"], 50), ["35/0", "65/0"]);
        assert_eq!(loads(&["uuuu", "uu"], 50), ["67/0!", "33/0!"]);
        // Hosts that are left out of panic calculations do not count.
        assert_eq!(loads(&["hxxx"], 50), ["100/0"]);
        assert_eq!(loads(&["uuuu"], 0), ["0/0"]);
        assert_eq!(loads(&[], 50), [""; 0]);
    }

    #[test]
    fn in_panic_all_hosts_are_used_and_otherwise_those_that_load_is_for() {
        let uses = |letters: &str, threshold: u32| {
            let all = hosts(0, letters);
            let rules = BalanceRules::default().with_healthy_panic_threshold(threshold);
            let balance = Balance::of(&all, rules);
            all.iter().filter(|view| balance.uses(view)).count()
        };
        assert_eq!(uses("huuu", 50), 4);
        assert_eq!(uses("huuu", 0), 1);
        assert_eq!(uses("hhhd", 50), 3);
        assert_eq!(uses("hhdd", 50), 4);
    }
}
