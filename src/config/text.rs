//! Configuration text, YAML or JSON, to messages: as lenient as Envoy 1.40, and stricter about
//! telling what is wrong.
//!
//! A text becomes a tree of nodes with positions, whichever format it had; the tree is then read
//! into a message along its descriptor. Reading never stops at a fault: every fault of a document is
//! reported, each at its proto path, and [`Document::locate`] turns such a path, also one that
//! validation found on the message, back into a line and column. Nothing here does I/O.
//!
//! Fields that Envoy has and the crate's messages leave out are passed over, with what is under
//! them. An `Any` of a type that the crate does not know becomes an `Any` of
//! `xds.type.v3.TypedStruct`, so that whoever needs it can decide.
//!
//! # Differences from Envoy
//!
//! - What stands under a passed-over field or in an unknown type is not checked.
//! - The YAML parser keeps to the specification in corners where Envoy's does not. It refuses `[a,,b]`,
//!   `-` alone as an item in brackets, a quoted scalar without an end, the escape `\'`, an undeclared tag
//!   handle, raw control characters, and tabs that indent within brackets (but not in a text that is in
//!   brackets as a whole). It accepts tabs on lines without content, and pairs of `\ud83d\ude00`.
//! - `google.protobuf.Struct` may be nested about 30 levels deep, in Envoy 98.
//!
//! # Examples
//!
//! ```
//! use xds_health::config::text::Document;
//! use xds_health::proto::envoy::config::core::v3::HealthCheck;
//!
//! let text = "
//! timeout: 1ms
//! interval: 5s
//! unhealthy_treshold: 2
//! ";
//! let document = Document::from_yaml(text)?;
//! let read = document.read::<HealthCheck>();
//! assert_eq!(read.message.interval.unwrap().seconds, 5);
//!
//! let faults: Vec<String> = read.faults.iter().map(ToString::to_string).collect();
//! assert_eq!(faults, [
//!     "timeout: \"1ms\" is not a duration: want digits, at most nine decimals, then s, as in 0.25s",
//!     "unhealthy_treshold: unknown field \"unhealthy_treshold\" in envoy.config.core.v3.HealthCheck, \
//!      did you mean unhealthy_threshold?",
//! ]);
//! assert_eq!(document.locate("timeout").unwrap().to_string(), "line 2, column 10");
//! # Ok::<(), xds_health::config::text::TextError>(())
//! ```

mod json;
mod known;
mod message;
mod node;
mod path;
mod scalar;
mod structure;
mod suggest;
mod unused;
mod value;
mod yaml;

use prost_reflect::{DynamicMessage, MessageDescriptor};

use crate::proto::descriptor_pool;
use crate::validate::Fault;

use message::{Reader, RepeatedKeys};
use node::Node;
pub use node::{MAX_ALIASED_NODES, MAX_BYTES, MAX_DEPTH, Position};

/// A text that could not be taken apart at all, so that nothing in it was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {kind}")]
#[non_exhaustive]
pub struct TextError {
    /// Where the parser stopped.
    pub position: Position,
    /// Why.
    pub kind: TextErrorKind,
}

/// Why a text is no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TextErrorKind {
    /// It breaks the grammar; the parser's words.
    #[error("{0}")]
    Syntax(String),
    /// There is nothing in it, or nothing in its first document.
    #[error("the text is empty")]
    Empty,
    /// A scalar or a list stands where the fields of a message should.
    #[error("the text is {0}, not a mapping")]
    NotAMapping(String),
    /// A YAML mapping has a list or a mapping as a key.
    #[error("a key must be text, not a list or a mapping")]
    KeyNotText,
    /// A YAML alias stands inside the node that its anchor names.
    #[error("an alias stands inside what it names")]
    AliasInItself,
    /// See [`MAX_ALIASED_NODES`].
    #[error("the aliases stand for more than {MAX_ALIASED_NODES} nodes")]
    TooManyAliases,
    /// See [`MAX_DEPTH`].
    #[error("lists and mappings are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// See [`MAX_BYTES`].
    #[error("the text is longer than {MAX_BYTES} bytes")]
    TooLong,
}

impl TextErrorKind {
    fn at(self, position: Position) -> TextError {
        TextError {
            position,
            kind: self,
        }
    }
}

/// A text taken apart, ready to be read as messages.
#[derive(Clone, Debug)]
pub struct Document {
    root: Node,
    repeated_keys: RepeatedKeys,
    warnings: Vec<Fault>,
}

/// What a document, or a `Struct`, is as a message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Read<M> {
    /// The message, as far as it could be read: what has a fault is left unset, or is the default in
    /// a list or map, so that indices agree with the text.
    pub message: M,
    /// All that is wrong, in the order of the text.
    pub faults: Vec<Fault>,
    /// What was read but may not be meant: a key given twice, a second document.
    pub warnings: Vec<Fault>,
}

impl<M> Read<M> {
    /// Whether a fault found here tells all about `path`: it is at the same place, around it or
    /// within it. A rule broken there is only its consequence, such as a required field that is
    /// unset because it could not be read.
    pub fn explains(&self, path: &str) -> bool {
        self.faults
            .iter()
            .any(|fault| path::is_within(&fault.path, path) || path::is_within(path, &fault.path))
    }
}

impl Document {
    /// Takes YAML text apart. Only the first document in it counts, as with Envoy.
    ///
    /// # Errors
    ///
    /// See [`TextErrorKind`].
    pub fn from_yaml(text: &str) -> Result<Self, TextError> {
        let yaml = yaml::parse(text)?;
        let second = yaml.next.map(|next| {
            let reason = format!("a second document begins at {next}: only the first is read");
            Fault::new("", reason)
        });
        Self::new(yaml.root, RepeatedKeys::LastCounts, second)
    }

    /// Takes JSON text apart. As with Envoy, a comma may follow the last member, strings may stand
    /// in single quotes, and keys may be bare words; unlike in YAML, all values of a key that is
    /// given twice count: lists are joined, and what a second message gives replaces what the first gave of it.
    ///
    /// # Errors
    ///
    /// See [`TextErrorKind`].
    pub fn from_json(text: &str) -> Result<Self, TextError> {
        Self::new(json::parse(text)?, RepeatedKeys::AllCount, None)
    }

    fn new(
        root: Node,
        repeated_keys: RepeatedKeys,
        warning: Option<Fault>,
    ) -> Result<Self, TextError> {
        let start = Position { line: 1, column: 1 };
        let position = root.position.unwrap_or(start);
        match root.value {
            node::Value::Map(_) => Ok(Self {
                root,
                repeated_keys,
                warnings: warning.into_iter().collect(),
            }),
            node::Value::Null => Err(TextErrorKind::Empty.at(position)),
            other => Err(TextErrorKind::NotAMapping(other.to_string()).at(position)),
        }
    }

    /// Reads the document as a message of type `M`.
    pub fn read<M: prost::Message + prost::Name + Default>(&self) -> Read<M> {
        let name = M::full_name();
        let Some(descriptor) = descriptor_pool().get_message_by_name(&name) else {
            let unknown = Fault::new("", format!("there is no message {name}"));
            return Read {
                message: M::default(),
                faults: vec![unknown],
                warnings: Vec::new(),
            };
        };
        let mut read = self.read_as(&descriptor);
        let message = read.message.transcode_to().unwrap_or_else(|e| {
            read.faults.push(Fault::new("", e.to_string()));
            M::default()
        });
        Read {
            message,
            faults: read.faults,
            warnings: read.warnings,
        }
    }

    /// Reads the document as the message that `descriptor` tells of. An `Any` in it may hold the
    /// types of the crate's own pool.
    pub fn read_as(&self, descriptor: &MessageDescriptor) -> Read<DynamicMessage> {
        let mut read = Reader::new(self.repeated_keys).read(&self.root, descriptor);
        read.warnings.splice(0..0, self.warnings.iter().cloned());
        read
    }

    /// Where the value at `path` stands, or what is nearest around it if the text does not have it.
    /// The path is in proto names, as in a [`Fault`], whatever spelling the text uses. `None` only
    /// if the path is not one.
    ///
    /// ```
    /// # use xds_health::config::text::Document;
    /// let document = Document::from_yaml("healthChecks:\n- timeout: 1s\n")?;
    /// let at = |path| document.locate(path).map(|p| (p.line, p.column));
    /// assert_eq!(at("health_checks[0].timeout"), Some((2, 12)));
    /// assert_eq!(at("health_checks[0].interval"), Some((2, 3)));
    /// # Ok::<(), xds_health::config::text::TextError>(())
    /// ```
    pub fn locate(&self, path: &str) -> Option<Position> {
        path::locate(&self.root, path)
    }
}

/// Reads a `google.protobuf.Struct` as the message that `descriptor` tells of, by the rules for
/// text: how the value of a `TypedStruct` becomes the message that it stands for. Paths in the
/// faults begin at the message.
pub fn struct_to_message(
    value: &prost_types::Struct,
    descriptor: &MessageDescriptor,
) -> Read<DynamicMessage> {
    Reader::new(RepeatedKeys::LastCounts).read(&structure::struct_to_node(value), descriptor)
}

#[cfg(test)]
mod tests;
