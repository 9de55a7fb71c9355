//! What a shard was told and has not done yet.
//!
//! Each cluster has its own line, and clusters have turns. For one cluster all is done in the order in which it was
//! told, but that a reset stands for the changes of hosts before it that were not begun, and takes their place. Between
//! clusters there is no order: a question is answered at once unless its own cluster has something waiting.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::input::{Input, MembershipChange};
use crate::cluster::{ClusterId, Reset, Update};
use crate::engine::door::Told;

/// A change of hosts that is made piece by piece.
pub(super) struct Going {
    pub(super) reset: Reset,
    pub(super) membership: MembershipChange,
    /// What it takes of the room for changes until it was made.
    pub(super) _room: Option<OwnedSemaphorePermit>,
}

/// What is done next.
pub(super) enum Work {
    Begin(Told),
    GoOn(Going),
}

#[derive(Default)]
struct Line {
    going: Option<Going>,
    waiting: VecDeque<Told>,
}

/// A line is there while something waits in it or is being done.
#[derive(Default)]
pub(super) struct Lines {
    lines: HashMap<Arc<str>, Line>,
    /// Whose turn it is, the next first.
    turns: VecDeque<Arc<str>>,
}

impl Lines {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Has it wait in its line, or gives it back if it need not wait.
    pub(super) fn push(&mut self, told: Told) -> Option<Told> {
        let Some(cluster) = told.input.cluster() else {
            return Some(told);
        };
        if let Some(line) = self.lines.get_mut(cluster) {
            line.push(told);
            return None;
        }
        if !matches!(told.input, Input::Update(..)) {
            return Some(told);
        }
        let cluster = Arc::clone(cluster);
        self.turns.push_back(Arc::clone(&cluster));
        self.lines.entry(cluster).or_default().push(told);
        None
    }

    /// What the next cluster has first in its line. Its turn ends with [`Lines::end_turn`].
    pub(super) fn next(&mut self) -> Option<(Arc<str>, Work)> {
        let cluster = self.turns.pop_front()?;
        let line = self.lines.get_mut(&cluster)?;
        let work = match line.going.take() {
            Some(going) => Work::GoOn(going),
            None => Work::Begin(line.waiting.pop_front()?),
        };
        Some((cluster, work))
    }

    /// What was begun may have to go on.
    pub(super) fn end_turn(&mut self, cluster: Arc<str>, going: Option<Going>) {
        let Some(line) = self.lines.get_mut(&cluster) else {
            return;
        };
        line.going = going;
        if line.going.is_some() || !line.waiting.is_empty() {
            self.turns.push_back(cluster);
        } else {
            self.lines.remove(&cluster);
        }
    }

    /// Whether a change of this cluster's hosts goes on.
    pub(super) fn changes(&self, cluster: &str) -> bool {
        self.lines
            .get(cluster)
            .is_some_and(|line| line.going.is_some())
    }

    /// Clusters whose hosts are being changed.
    pub(super) fn changing(&self) -> Vec<ClusterId> {
        let going = self.lines.values().filter_map(|line| line.going.as_ref());
        going.map(|going| going.reset.cluster()).collect()
    }
}

impl Line {
    fn push(&mut self, told: Told) {
        let place = match &told.input {
            Input::Update(Update::Reset { .. }, ..) => self.leave_out_changes(),
            Input::Update(Update::RemoveCluster(_), ..) => {
                self.leave_out_changes();
                None
            }
            _ => None,
        };
        match place {
            Some(place) => self.waiting.insert(place, told),
            None => self.waiting.push_back(told),
        }
    }

    /// Leaves out changes of hosts that wait, back to the last change of the cluster itself, and tells the place of
    /// the first of them.
    fn leave_out_changes(&mut self) -> Option<usize> {
        let cluster =
            |told: &Told| matches!(&told.input, Input::Update(update, ..) if !of_hosts(update));
        let hosts =
            |told: &Told| matches!(&told.input, Input::Update(update, ..) if of_hosts(update));
        let waiting = &mut self.waiting;
        let after = waiting.iter().rposition(cluster).map_or(0, |at| at + 1);
        let place = after + waiting.iter().skip(after).position(hosts)?;
        let mut at = 0;
        waiting.retain(|told| {
            at += 1;
            at <= after || !hosts(told)
        });
        Some(place)
    }
}

fn of_hosts(update: &Update) -> bool {
    !matches!(update, Update::Cluster { .. } | Update::RemoveCluster(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(input: Input) -> Told {
        Told { input, room: None }
    }

    fn change(update: Update) -> Told {
        told(Input::Update(update, None, MembershipChange::new(None)))
    }

    fn reset(name: &str) -> Told {
        change(Update::Reset {
            cluster: name.into(),
            hosts: Arc::default(),
        })
    }

    fn remove(name: &str) -> Told {
        change(Update::Remove {
            cluster: name.into(),
            addresses: Arc::default(),
        })
    }

    fn question(name: &str) -> Told {
        told(Input::Traffic(name.into()))
    }

    fn letter(input: &Input) -> char {
        match input {
            Input::Update(Update::Reset { .. }, ..) => 'r',
            Input::Update(Update::Remove { .. }, ..) => '-',
            Input::Update(Update::RemoveCluster(_), ..) => 'x',
            Input::Traffic(_) => '?',
            _ => '!',
        }
    }

    /// What is done in the order in which it is done, by cluster and kind.
    fn done(lines: &mut Lines) -> String {
        let mut done = Vec::new();
        while let Some((cluster, work)) = lines.next() {
            let Work::Begin(told) = work else {
                panic!("nothing goes on");
            };
            done.push(format!("{cluster}{}", letter(&told.input)));
            lines.end_turn(cluster, None);
        }
        assert!(lines.is_empty());
        done.join(" ")
    }

    #[test]
    fn a_question_waits_for_what_its_own_cluster_was_told_and_for_nothing_else() {
        let mut lines = Lines::default();
        assert!(lines.push(question("a")).is_some());
        assert!(
            lines
                .push(told(Input::Limits(Default::default())))
                .is_some()
        );
        assert!(lines.push(reset("a")).is_none());
        assert!(lines.push(question("b")).is_some());
        assert!(lines.push(question("a")).is_none());
        assert!(lines.push(remove("a")).is_none());
        assert!(lines.push(question("a")).is_none());
        assert_eq!(done(&mut lines), "ar a? a- a?");
        assert!(lines.push(question("a")).is_some());
    }

    #[test]
    fn what_was_begun_and_not_yet_done_has_questions_wait_too() {
        let mut lines = Lines::default();
        assert!(lines.push(reset("a")).is_none());
        let (cluster, _) = lines.next().unwrap();
        assert!(lines.push(question("a")).is_none());
        lines.end_turn(cluster, None);
        assert_eq!(done(&mut lines), "a?");
    }

    #[test]
    fn the_last_reset_stands_for_all_changes_of_hosts_that_wait() {
        let mut lines = Lines::default();
        for told in [
            reset("a"),
            question("a"),
            remove("a"),
            reset("b"),
            reset("a"),
        ] {
            assert!(lines.push(told).is_none());
        }
        assert!(lines.push(remove("a")).is_none());
        assert_eq!(done(&mut lines), "ar br a? a-");
    }

    #[test]
    fn a_cluster_that_goes_needs_no_hosts_and_one_that_comes_again_keeps_its_own() {
        let mut lines = Lines::default();
        let gone = || change(Update::RemoveCluster("a".into()));
        for told in [reset("a"), question("a"), gone(), reset("a"), reset("a")] {
            assert!(lines.push(told).is_none());
        }
        assert_eq!(done(&mut lines), "a? ax ar");
    }

    #[test]
    fn clusters_have_turns() {
        let mut lines = Lines::default();
        for told in [remove("a"), remove("a"), remove("a"), remove("b")] {
            assert!(lines.push(told).is_none());
        }
        assert_eq!(done(&mut lines), "a- b- a- a-");
    }
}
