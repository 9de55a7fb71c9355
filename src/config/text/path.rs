//! Paths of fields, and where they lead in a tree.
//!
//! A path is what faults carry: proto names joined by dots, `[2]` for an item of a list, `["k"]` for
//! what a map holds under a key, and the same for a key that cannot be a name.

use super::node::{Entry, Node, Position, Value};
use super::suggest::camel_case;

/// Appends a field, or a key that was taken for one.
pub(super) fn push_name(path: &mut String, name: &str) {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(plain) {
        push_key(path, name);
        return;
    }
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

pub(super) fn push_index(path: &mut String, index: usize) {
    path.push_str(&format!("[{index}]"));
}

pub(super) fn push_key(path: &mut String, key: &str) {
    path.push_str(&bracketed(key));
}

fn bracketed(key: &str) -> String {
    format!("[{key:?}]")
}

/// Whether `inner` is `outer` or something within it.
pub(super) fn is_within(inner: &str, outer: &str) -> bool {
    inner
        .strip_prefix(outer)
        .is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

pub(super) fn locate(root: &Node, path: &str) -> Option<Position> {
    let mut node = root;
    let mut position = root.position;
    let mut rest = path;
    while !rest.is_empty() {
        let (next, after) = step(node, rest)?;
        let Some(next) = next else {
            break;
        };
        node = next;
        // A key without a value has its position where the value would be: that is never far.
        position = node.position.or(position);
        rest = after;
    }
    position
}

/// One step along a path: the node it leads to, if it is there, and what is left of the path.
fn step<'n, 'p>(node: &'n Node, path: &'p str) -> Option<(Option<&'n Node>, &'p str)> {
    let Some(bracket) = path.strip_prefix('[') else {
        let name = path.strip_prefix('.').unwrap_or(path);
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (name, rest) = name.split_at(end);
        return Some((field(node, name), rest));
    };
    if bracket.starts_with('"') {
        let entry = entries(node)
            .iter()
            .rev()
            .find_map(|entry| Some((entry, path.strip_prefix(&bracketed(&entry.key))?)));
        return Some(match entry {
            Some((entry, rest)) => (Some(&entry.node), rest),
            None => (None, ""),
        });
    }
    let (index, rest) = bracket.split_once(']')?;
    let index: usize = index.parse().ok()?;
    let item = match &node.value {
        Value::List(items) => items.get(index),
        // One value alone stands for a list of one.
        _ => (index == 0).then_some(node),
    };
    Some((item, rest))
}

fn field<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let camel = camel_case(name);
    let found = entries(node)
        .iter()
        .rev()
        .find(|entry| *entry.key == *name || *entry.key == *camel)
        .map(|entry| &entry.node);
    // What a `TypedStruct` holds stands one level further down in the text.
    let holds_struct = || node.member("@type").and_then(|_| node.member("value"));
    found.or_else(|| field(holds_struct()?, name))
}

fn entries(node: &Node) -> &[Entry] {
    match &node.value {
        Value::Map(entries) => entries,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::text::yaml;

    #[test]
    fn a_path_leads_to_its_value_or_near_it() {
        let text = r#"a:
- bC: {"x.y[0]": 5, "q\"": 6}
one: {d: 7}
any:
  "@type": x/xds.type.v3.TypedStruct
  value:
    send: 8
"#;
        let root = yaml::parse(text).unwrap().root;
        let at = |path: &str| locate(&root, path).map(|p| (p.line, p.column));
        for (path, expected) in [
            ("", (1, 1)),
            ("a[0].b_c", (2, 7)),
            (r#"a[0].b_c["x.y[0]"]"#, (2, 18)),
            (r#"a[0].b_c["q\""]"#, (2, 28)),
            (r#"a[0].b_c["none"].z"#, (2, 7)),
            ("a[0].z.y[3]", (2, 3)),
            ("a[7]", (2, 3)),
            ("one[0].d", (3, 10)),
            ("any.send", (7, 11)),
            ("any.value.send.text", (7, 11)),
            ("nothing[0].here", (1, 1)),
        ] {
            assert_eq!(at(path), Some(expected), "{path}");
        }
        assert_eq!(at("a[x]"), None);
        assert_eq!(at("a[0"), None);
    }

    #[test]
    fn within_is_by_whole_steps() {
        assert!(is_within("a.b[0].c", "a.b"));
        assert!(is_within("a.b", "a.b"));
        assert!(is_within("a", ""));
        assert!(!is_within("a.bc", "a.b"));
        assert!(!is_within("a", "a.b"));
    }
}
