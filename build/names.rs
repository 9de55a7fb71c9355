//! The names that prost-build gives to what a descriptor names. It keeps its own rules private, so they
//! are repeated here; a wrong one does not compile.

use heck::{ToSnakeCase, ToUpperCamelCase};
use protox::prost_reflect::{MessageDescriptor, OneofDescriptor};

#[rustfmt::skip]
const KEYWORDS: [&str; 47] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn",
    "else", "enum", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "static",
    "struct", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield",
];

/// A field, or a module for a package segment or for what is nested in a message.
pub(crate) fn snake(name: &str) -> String {
    identifier(name.to_snake_case())
}

/// A message, an enum, or a member of a oneof.
pub(crate) fn camel(name: &str) -> String {
    identifier(name.to_upper_camel_case())
}

fn identifier(name: String) -> String {
    match name.as_str() {
        // These may not be raw identifiers.
        "self" | "super" | "extern" | "crate" | "Self" => name + "_",
        word if KEYWORDS.contains(&word) => format!("r#{name}"),
        _ => name,
    }
}

/// The Rust path of a message: `proto::envoy::r#type::v3::Percent`.
pub(crate) fn message(message: &MessageDescriptor) -> String {
    format!("{}::{}", scope(message), camel(message.name()))
}

/// The Rust path of a oneof's enum.
pub(crate) fn oneof(oneof: &OneofDescriptor) -> String {
    let parent = oneof.parent_message();
    let module = snake(parent.name());
    format!("{}::{module}::{}", scope(parent), camel(oneof.name()))
}

/// The module that holds a message: its package, then the messages that it is nested in.
fn scope(message: &MessageDescriptor) -> String {
    match message.parent_message() {
        Some(parent) => format!("{}::{}", scope(&parent), snake(parent.name())),
        None => {
            let segments = message.package_name().split('.').map(snake);
            ["proto".to_owned()]
                .into_iter()
                .chain(segments)
                .collect::<Vec<_>>()
                .join("::")
        }
    }
}
