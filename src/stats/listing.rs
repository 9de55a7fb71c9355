//! Stats in the order of their names, without having all of them at once.

use std::sync::Arc;

use super::cluster::Part;
use super::{ClusterStats, Sample, Section};

/// What the stats of clusters that are not Envoy's begin with.
const OWN: &str = "xds_health.cluster.";

/// Goes over the stats of one section in the order of their names.
///
/// Each item is a few of them: those of one cluster, or of clusters whose names begin alike so that theirs stand
/// between one another. The names of a million stats are never in memory together.
#[derive(Debug)]
pub(crate) struct Listing {
    section: Section,
    clusters: Vec<Arc<ClusterStats>>,
    /// Those of no cluster which come after `cluster.`, and of these the ones after [`OWN`].
    middle: Vec<Sample>,
    last: Vec<Sample>,
    at: At,
}

#[derive(Clone, Copy, Debug)]
enum At {
    /// Before the cluster of this index; after the last of a part stand those of no cluster.
    Cluster(Part, usize),
    End,
}

impl Listing {
    pub(super) fn new(
        section: Section,
        mut clusters: Vec<Arc<ClusterStats>>,
        mut rest: Vec<Sample>,
    ) -> Self {
        rest.sort_by(|a, b| a.name.cmp(&b.name));
        let last = rest.split_off(rest.partition_point(|sample| *sample.name < *OWN));
        clusters.sort_by_cached_key(|cluster| dotted(cluster));
        Self {
            section,
            clusters,
            middle: rest,
            last,
            at: At::Cluster(Part::Envoy, 0),
        }
    }

    /// The clusters from `first` whose stats may stand between each other's, and which comes after them.
    fn group(&self, first: usize) -> Option<(&[Arc<ClusterStats>], usize)> {
        let rest = self.clusters.get(first..)?;
        let start = dotted(rest.first()?);
        let more = rest[1..]
            .iter()
            .take_while(|cluster| dotted(cluster).starts_with(&start));
        let next = first + 1 + more.count();
        Some((&self.clusters[first..next], next))
    }
}

/// A cluster's name with the dot that follows it in the names of its stats, by which these are ordered.
fn dotted(cluster: &ClusterStats) -> String {
    format!("{}.", cluster.name())
}

impl Iterator for Listing {
    type Item = Vec<Sample>;

    fn next(&mut self) -> Option<Vec<Sample>> {
        let At::Cluster(part, first) = self.at else {
            return None;
        };
        if let Some((group, next)) = self.group(first) {
            let samples = of_group(group, part, self.section);
            self.at = At::Cluster(part, next);
            return Some(samples);
        }
        let rest = match part {
            Part::Envoy => {
                self.at = At::Cluster(Part::Own, 0);
                &mut self.middle
            }
            Part::Own => {
                self.at = At::End;
                &mut self.last
            }
        };
        Some(std::mem::take(rest))
    }
}

/// By name; what several clusters count under one name is added up.
fn of_group(group: &[Arc<ClusterStats>], part: Part, section: Section) -> Vec<Sample> {
    let mut of_all = Vec::new();
    for cluster in group {
        cluster.samples(part, section, &mut of_all);
    }
    of_all.sort_by(|a, b| a.name.cmp(&b.name));
    of_all.dedup_by(|next, kept| kept.absorb(next));
    of_all
}
