//! The tree that both formats become: JSON's kinds of values, with what Envoy's YAML reader makes of
//! a plain scalar already decided, and with the places they stand at.
//!
//! Mappings keep their order and their repeated keys: whether those are a fault is for the reader of
//! messages to say. What an anchor names is shared, not copied, and the limits below are kept while
//! the tree is built, so that walking it is bounded too.

use std::fmt;
use std::sync::Arc;

/// The longest text that is read, in bytes.
pub const MAX_BYTES: usize = 32 << 20;

/// How many sequences and mappings may stand inside one another, as in Envoy.
pub const MAX_DEPTH: usize = 100;

/// How many nodes the aliases of a document may add to it. A long scalar counts as several.
pub const MAX_ALIASED_NODES: usize = 1_000_000;

/// A place in a text. Both numbers start at 1; a column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// `None` in a tree that came from a message.
    pub(super) position: Option<Position>,
    pub(super) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool {
        value: bool,
        written: Arc<str>,
    },
    /// A number in JSON's notation.
    Number {
        value: Arc<str>,
        written: Arc<str>,
    },
    String(Arc<str>),
    List(Arc<[Node]>),
    Map(Arc<[Entry]>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: Arc<str>,
    pub(super) position: Option<Position>,
    pub(super) node: Node,
}

impl Node {
    /// What a mapping holds under `key`; of several, the last.
    pub(super) fn member(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else {
            return None;
        };
        entries
            .iter()
            .rev()
            .find(|e| &*e.key == key)
            .map(|e| &e.node)
    }

    /// How much this node adds to a document when an alias repeats it. It walks the whole node:
    /// shared parts were counted when they were added, so the walk is bounded by the same limit.
    pub(super) fn weight(&self) -> usize {
        match &self.value {
            Value::List(items) => items.iter().fold(1, |sum, n| sum + n.weight()),
            Value::Map(entries) => entries
                .iter()
                .fold(1, |sum, e| sum + scalar_weight(&e.key) + e.node.weight()),
            Value::String(text) => scalar_weight(text),
            Value::Null | Value::Bool { .. } | Value::Number { .. } => 1,
        }
    }

    /// How many sequences and mappings stand inside one another here.
    pub(super) fn depth(&self) -> usize {
        let deepest = match &self.value {
            Value::List(items) => items.iter().map(Self::depth).max(),
            Value::Map(entries) => entries.iter().map(|e| e.node.depth()).max(),
            _ => return 0,
        };
        1 + deepest.unwrap_or(0)
    }
}

fn scalar_weight(text: &str) -> usize {
    1 + text.len() / 64
}

/// The value as a fault quotes it: as it was written, cut when long.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool { written, .. } | Self::Number { written, .. } => f.write_str(written),
            Self::String(text) => f.write_str(&quoted(text)),
            Self::List(_) => f.write_str("a list"),
            Self::Map(_) => f.write_str("a mapping"),
        }
    }
}

/// `text` in double quotes, at most about forty characters of it.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 40;
    match text.char_indices().nth(SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_at_a_character() {
        assert_eq!(quoted("1ms"), r#""1ms""#);
        let long = "é".repeat(100);
        assert_eq!(quoted(&long), format!("\"{}\"...", "é".repeat(40)));
    }
}
