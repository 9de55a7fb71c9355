//! YAML text to a tree.
//!
//! The parser gives events with positions; this builds nodes from them with a stack of its own, so
//! that depth costs no call stack, and stops at the first document's end: Envoy reads no further.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use granit_parser::{ErrorKind, Event, Marker, Options, Parser, ScalarStyle, Tag};

use super::node::{Entry, MAX_ALIASED_NODES, MAX_BYTES, MAX_DEPTH, Node, Position, Value};
use super::{TextError, TextErrorKind, scalar};

/// What a text holds.
pub(super) struct Yaml {
    pub(super) root: Node,
    /// Where a second document begins.
    pub(super) next: Option<Position>,
}

pub(super) fn parse(text: &str) -> Result<Yaml, TextError> {
    let start = Position { line: 1, column: 1 };
    if text.len() > MAX_BYTES {
        return Err(TextErrorKind::TooLong.at(start));
    }
    let mut text = untabbed(text);
    let mut shifted = HashSet::new();
    let mut rounds = 0;
    loop {
        let failure = match parse_once(&text, &shifted) {
            Ok(yaml) => return Ok(yaml),
            Err(failure) => failure,
        };
        // Each round reads the text again, so their number is bounded by its length.
        rounds += 1;
        let more = rounds <= MAX_REREAD_BYTES / text.len().max(1);
        let at = failure.error.position;
        let index = match failure.mending.filter(|_| more) {
            Some(Mending::Indent) => {
                shifted.insert(at.line);
                unindented_value(&text, at)
            }
            // What follows on the line is the comment, so no place moves.
            Some(Mending::PartComment) => unparted_comment(&text, at),
            None => None,
        };
        match index {
            Some(index) => text.to_mut().insert(index, ' '),
            None => return Err(failure.error),
        }
    }
}

/// How much text is read again at most for the sake of a [`Mending`].
const MAX_REREAD_BYTES: usize = 16 << 20;

/// Envoy takes tabs as indentation within brackets, so JSON in a file for YAML may have them. Blanks
/// before the content of a line mean nothing there, not even in a quoted scalar.
fn untabbed(text: &str) -> Cow<'_, str> {
    let content = |line: &&str| !matches!(line.trim().chars().next(), None | Some('#'));
    let first = text.lines().find(content).unwrap_or_default();
    if !first.trim_start().starts_with(['{', '[']) || !text.contains('\t') {
        return Cow::Borrowed(text);
    }
    let mut spaced = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let content = line.trim_start_matches([' ', '\t']);
        let blanks = line.len() - content.len();
        spaced.extend(std::iter::repeat_n(' ', blanks));
        spaced.push_str(content);
    }
    Cow::Owned(spaced)
}

/// Where the value of a key begins that Envoy takes and YAML's rules do not, since it is not indented
/// more than its key: what is in brackets or quotes, or begins with a sign, on the line after. One space more mends it.
fn unindented_value(text: &str, at: Position) -> Option<usize> {
    let mut start = 0;
    let mut key = None;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if index + 1 == at.line {
            let indent = at.column - 1;
            let value = line.get(indent..)?;
            let key: &str = key?;
            let is_key = key.ends_with(':')
                && key.get(..indent)?.bytes().all(|b| matches!(b, b' ' | b'-'))
                && !key[indent..].starts_with([' ', '-']);
            let is_value = value.starts_with(['[', '{', '&', '!', '*', '"', '\'', '|', '>']);
            return (is_key && is_value).then_some(start + indent);
        }
        start += line.len();
        let content = line.split(" #").next().unwrap_or(line).trim_end();
        if !matches!(content.trim_start().chars().next(), None | Some('#')) {
            key = Some(content);
        }
    }
    None
}

/// Where a comment begins that Envoy takes and YAML's rules do not: right after a bracket, a quote or the sign of a
/// block scalar. One space before it mends it.
fn unparted_comment(text: &str, at: Position) -> Option<usize> {
    let line = text.split_inclusive('\n').nth(at.line - 1)?;
    let (before, _) = line
        .char_indices()
        .nth(at.column.saturating_sub(2))
        .unwrap_or((0, ' '));
    let hash = before + line[before..].find('#')?;
    let parted = line[..hash].ends_with([' ', '\t']);
    let start: usize = text
        .split_inclusive('\n')
        .take(at.line - 1)
        .map(str::len)
        .sum();
    (!parted).then_some(start + hash)
}

struct Failure {
    error: TextError,
    mending: Option<Mending>,
}

/// What one space more would mend.
#[derive(Clone, Copy)]
enum Mending {
    /// See [`unindented_value`].
    Indent,
    /// See [`unparted_comment`].
    PartComment,
}

impl From<TextError> for Failure {
    fn from(error: TextError) -> Self {
        Self {
            error,
            mending: None,
        }
    }
}

/// Parses `text`, which has a space too many on the lines in `shifted`.
fn parse_once(text: &str, shifted: &HashSet<usize>) -> Result<Yaml, Failure> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut builder = Builder::default();
    let mut events = Parser::new_from_str_with_options(text, options);
    let mut root = None;
    while let Some(event) = events.next_event() {
        let (event, span) = event.map_err(|error| Failure {
            mending: match error.kind() {
                ErrorKind::SimpleKeyExpected => Some(Mending::Indent),
                ErrorKind::CommentNotSeparated => Some(Mending::PartComment),
                _ => None,
            },
            error: TextErrorKind::Syntax(error.info()).at(position(error.marker(), shifted)),
        })?;
        if matches!(event, Event::DocumentEnd) {
            break;
        }
        if let Some(node) = builder.handle(event, position(&span.start, shifted))? {
            root = Some(node);
        }
    }
    let start = Position { line: 1, column: 1 };
    let root = root.ok_or_else(|| TextErrorKind::Empty.at(start))?;
    // What follows may be no YAML at all, and is not read either way.
    let next = events.find_map(|event| match event {
        Ok((Event::DocumentStart(..), span)) => Some(position(&span.start, shifted)),
        _ => None,
    });
    Ok(Yaml { root, next })
}

fn position(marker: &Marker, shifted: &HashSet<usize>) -> Position {
    let line = marker.line().max(1);
    // The parser's lines end at a lone carriage return, too: there a line may be in `shifted` that has no space more.
    let column = marker.col() + 1 - usize::from(marker.col() > 0 && shifted.contains(&line));
    Position { line, column }
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    aliased: usize,
}

/// A sequence or mapping whose end has not been seen.
struct Open {
    position: Position,
    anchor: usize,
    /// The tag `!ignore`, which makes Envoy drop a key with its value.
    ignore: bool,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        key: Option<Key>,
    },
}

struct Key {
    text: Arc<str>,
    position: Position,
    ignore: bool,
}

impl Builder {
    /// Takes an event; gives the root once it is complete.
    fn handle(&mut self, event: Event<'_>, position: Position) -> Result<Option<Node>, TextError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let tag = tag.as_deref();
                let value = scalar::yaml(&text, plain, kind(tag));
                self.add(node(position, value), anchor, is_ignore(tag))
            }
            Event::Alias(anchor) => self.alias(anchor, position),
            Event::SequenceStart(_, anchor, tag) => {
                self.open(position, anchor, tag.as_deref(), Content::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                let content = Content::Map {
                    entries: Vec::new(),
                    key: None,
                };
                self.open(position, anchor, tag.as_deref(), content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            _ => Ok(None),
        }
    }

    fn open(
        &mut self,
        position: Position,
        anchor: usize,
        tag: Option<&Tag>,
        content: Content,
    ) -> Result<Option<Node>, TextError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(TextErrorKind::TooDeep.at(position));
        }
        self.open.push(Open {
            position,
            anchor,
            ignore: is_ignore(tag),
            content,
        });
        Ok(None)
    }

    fn close(&mut self) -> Result<Option<Node>, TextError> {
        let Some(open) = self.open.pop() else {
            return Ok(None);
        };
        let value = match open.content {
            Content::List(items) => Value::List(items.into()),
            Content::Map { entries, .. } => Value::Map(entries.into()),
        };
        self.add(node(open.position, value), open.anchor, open.ignore)
    }

    /// Repeats what an anchor names. An anchor exists once its node is complete, so nothing can
    /// contain itself.
    fn alias(&mut self, anchor: usize, position: Position) -> Result<Option<Node>, TextError> {
        let Some(target) = self.anchors.get(&anchor) else {
            return Err(TextErrorKind::AliasInItself.at(position));
        };
        let value = target.value.clone();
        self.aliased += target.weight();
        if self.aliased > MAX_ALIASED_NODES {
            return Err(TextErrorKind::TooManyAliases.at(position));
        }
        if self.open.len() + target.depth() > MAX_DEPTH {
            return Err(TextErrorKind::TooDeep.at(position));
        }
        self.add(node(position, value), 0, false)
    }

    /// Puts a complete node where it belongs.
    fn add(&mut self, node: Node, anchor: usize, ignore: bool) -> Result<Option<Node>, TextError> {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            return Ok(Some(node));
        };
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, key } => match key.take() {
                None => *key = Some(Key::new(&node, ignore)?),
                Some(key) if key.ignore => {}
                Some(Key { text, position, .. }) => entries.push(Entry {
                    key: text,
                    position: Some(position),
                    node,
                }),
            },
        }
        Ok(None)
    }
}

impl Key {
    fn new(node: &Node, ignore: bool) -> Result<Self, TextError> {
        let position = node.position.unwrap_or(Position { line: 1, column: 1 });
        let text = match &node.value {
            Value::Null => "null".into(),
            Value::Bool { written, .. } | Value::Number { written, .. } => Arc::clone(written),
            Value::String(text) => Arc::clone(text),
            Value::List(_) | Value::Map(_) => return Err(TextErrorKind::KeyNotText.at(position)),
        };
        Ok(Self {
            text,
            position,
            ignore,
        })
    }
}

fn node(position: Position, value: Value) -> Node {
    Node {
        position: Some(position),
        value,
    }
}

fn kind(tag: Option<&Tag>) -> scalar::Tag {
    match tag.map(Tag::parts) {
        None => scalar::Tag::None,
        Some(("", "!")) => scalar::Tag::NonSpecific,
        Some(_) => scalar::Tag::Other,
    }
}

fn is_ignore(tag: Option<&Tag>) -> bool {
    tag.is_some_and(|tag| tag.parts() == ("!", "ignore"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, expected: &str) {
        let error = parse(text).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), expected, "{text:.80}");
    }

    #[test]
    fn positions_are_those_of_the_text() {
        let yaml = parse("a:\n  - b: 1\n    é: [x, *y]\n".replace("*y", "y").as_str()).unwrap();
        let list = yaml.root.member("a").unwrap();
        let Value::List(items) = &list.value else {
            panic!("{list:?}")
        };
        let x = items[0].member("é").unwrap();
        assert_eq!(x.position, Some(Position { line: 3, column: 8 }));
    }

    #[test]
    fn a_key_tagged_ignore_goes_with_its_value() {
        let yaml = parse("!ignore a: &x 1\nb: *x\n").unwrap();
        assert!(yaml.root.member("a").is_none());
        assert!(matches!(
            &yaml.root.member("b").unwrap().value,
            Value::Number { value, .. } if &**value == "1"
        ));
    }

    #[test]
    fn only_the_first_document_counts() {
        let yaml = parse("a: 1\n---\n[: }{\n").unwrap();
        assert!(yaml.root.member("a").is_some());
        assert_eq!(yaml.next, Some(Position { line: 2, column: 1 }));
        assert_eq!(parse("a: 1\n...\n").unwrap().next, None);
    }

    #[test]
    fn brackets_may_stand_under_their_key() {
        for text in [
            "x:\n  a:\n  []\n  b: 1\n",
            "x:\n  a: # why\n\n  # so\n  &e [\n  ]\n  b: 1\n",
            "x:\n- a:\n  {c: []}\n  b: 1\n",
            "x:\n  a:\n  \"c\" # why\n  b:\n  &b 'c'\n  d:\n  *b\n",
            "x:\n  a:\n  |\n   c\n  b: 1\n",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
        let yaml = parse("a:\n[x,\n y]\nb:\n{c: 1}\n").unwrap();
        let c = yaml.root.member("b").unwrap().member("c").unwrap();
        assert_eq!(c.position, Some(Position { line: 5, column: 5 }));
        for text in ["a: b\n[]\n", "a:\nb\n", "a: b\n\"c\"\n"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"a:\n[]\n".repeat(100_000)).is_err());
    }

    #[test]
    fn a_comment_may_follow_without_a_space() {
        for text in [
            "a: \"b\"# c\nd: 'e'#f\ng: [h]# \"i\"\nj: {k: l}#\n",
            "a: {b: \"#\"# c\n}# d",
            "a: |# b\n  c\nd: é\ne: \"é#\"# f\n",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
        let yaml = parse("a: \"b\"# c\nd: x# y\n").unwrap();
        let text = &yaml.root.member("d").unwrap().value;
        assert_eq!(*text, Value::String("x# y".into()));
        assert!(parse("a: {b: \"c\"#d}\n").is_err());
        assert!(parse(&"a: \"b\"# c\n".repeat(100_000)).is_err());
    }

    #[test]
    fn lines_may_end_in_any_way() {
        let keys = ["ocVke:", "r:", "rsdes:", "r\0ocke:"];
        for ends in [
            ["\n", "\r"],
            ["\r", "\n"],
            ["\r\n", "\r"],
            ["\r", "\r"],
            ["\n\r", "\n\r"],
        ] {
            for value in [">+", ">", "|", "[]", "&a", "\"x"] {
                let text: String = keys
                    .iter()
                    .map(|key| format!("{key}{}{value}{}", ends[0], ends[1]))
                    .collect();
                // Taken or refused, but with a place in the text.
                if let Err(error) = parse(&text) {
                    assert!(
                        error.position.line > 0 && error.position.column > 0,
                        "{text:?}"
                    );
                }
            }
        }
        assert!(parse("ocVke:\n>+\rr:\n>+\rrsdes:\n>\n\rr\0ocke:\n:\n\t\t:\0\r").is_err());
    }

    #[test]
    fn json_may_be_indented_with_tabs() {
        let yaml = parse("# JSON\n{\n\t\"a\": [\n\t\t1\n\t]\n}\n").unwrap();
        let a = yaml.root.member("a").unwrap();
        assert_eq!(a.position, Some(Position { line: 3, column: 7 }));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        refused("", "line 1, column 1: the text is empty");
        refused("# nothing\n", "line 1, column 1: the text is empty");
        refused(
            "? [a]\n: b\n",
            "line 1, column 3: a key must be text, not a list or a mapping",
        );
        assert!(parse("a:\n\tb: 1\n").is_err());
    }

    #[test]
    fn hostile_text_is_refused_at_once() {
        for open in ["[", "{a: ", "- ", "? ", "[{a: "] {
            let error = parse(&open.repeat(100_000)).map(|_| ()).unwrap_err();
            assert!(
                matches!(
                    error.kind,
                    TextErrorKind::TooDeep | TextErrorKind::Syntax(_)
                ),
                "{error}"
            );
        }
        refused(
            "a: &a [*a]\n",
            "line 1, column 8: an alias stands inside what it names",
        );
        let mut laughs = String::from("a0: &a0 [x, x]\n");
        for i in 1..60 {
            let (j, line) = (i - 1, i);
            laughs += &format!("a{line}: &a{i} [*a{j}, *a{j}]\n");
        }
        let error = parse(&laughs).map(|_| ()).unwrap_err();
        assert_eq!(error.kind, TextErrorKind::TooManyAliases);
    }

    #[test]
    fn aliases_count_for_depth_too() {
        let mut text = String::from("a0: &a0 [x]\n");
        for i in 1..120 {
            text += &format!("a{i}: &a{i} [*a{}]\n", i - 1);
        }
        let error = parse(&text).map(|_| ()).unwrap_err();
        assert_eq!(error.kind, TextErrorKind::TooDeep);
    }
}
