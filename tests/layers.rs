//! Which module of `src/` may use which, and which of them do no I/O and read no clock: read from the sources.
//!
//! The order is that of the flow of data, from messages to the command line: a module uses only what stands
//! above it in [`MAY_USE`]. Where the order may surprise:
//!
//! - `snapshot` stands above `cluster`, which keeps it up to date;
//! - `feed`, the event sinks, stands above `registry`, which makes them, and uses `stats` to count what it drops;
//! - `admin` uses `engine`, which has the clusters by name and their snapshots;
//! - `hds` uses `engine`, whose verdicts it reports, and the streams of `xds`;
//! - `xds` and `dns` do not name the engine, nor does it name them: they meet in a channel of changes;
//! - `config` has the one function of the pure modules that reads a file, and asks for the number of a network
//!   interface where an address names one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends at what it does not expect"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Each module with what it may use. `lib.rs` and `main.rs` may use everything.
const MAY_USE: &[(&str, &[&str])] = &[
    ("proto", &[]),
    ("validate", &["proto"]),
    ("host", &[]),
    ("event", &["host"]),
    ("stats", &["host", "event"]),
    ("config", &["proto", "validate", "host"]),
    ("schedule", &[]),
    ("session", &["event", "config"]),
    ("snapshot", &["host", "event"]),
    (
        "cluster",
        &[
            "host", "event", "stats", "config", "schedule", "session", "snapshot",
        ],
    ),
    ("sockopt", &[]),
    ("pattern", &[]),
    ("checker", &["host", "event", "config", "sockopt"]),
    ("feed", &["proto", "host", "event", "stats", "config"]),
    ("registry", &["proto", "host", "config", "checker", "feed"]),
    (
        "engine",
        &[
            "host", "event", "stats", "config", "session", "snapshot", "cluster", "checker",
            "feed", "registry",
        ],
    ),
    ("metrics", &["stats"]),
    ("tower", &["host", "engine"]),
    ("dns", &["host", "stats", "config", "schedule", "registry"]),
    (
        "xds",
        &[
            "proto", "validate", "host", "stats", "config", "pattern", "registry",
        ],
    ),
    (
        "hds",
        &[
            "proto", "host", "stats", "config", "snapshot", "registry", "engine", "xds",
        ],
    ),
    (
        "admin",
        &[
            "proto", "host", "event", "stats", "config", "session", "snapshot", "cluster",
            "pattern", "feed", "engine", "xds", "hds",
        ],
    ),
    (
        "cli",
        &[
            "proto", "validate", "host", "event", "stats", "config", "session", "snapshot",
            "cluster", "checker", "feed", "registry", "engine", "dns", "xds", "hds", "admin",
        ],
    ),
];

/// Modules that are handed instants, numbers and bytes, and ask for none.
const PURE: &[&str] = &[
    "proto",
    "validate",
    "host",
    "event",
    "stats",
    "config",
    "schedule",
    "session",
    "snapshot",
    "cluster",
    "pattern",
    "dns::state",
    "dns::wait",
    "xds::backoff",
    "xds::rate",
    "xds::state",
    "xds::subscription",
];

/// What a pure module does not name: a path, or the beginning of one; or a name alone.
const IMPURE: &[&str] = &[
    "tokio",
    "mio",
    "rustix",
    "libc",
    "socket2",
    "std::env",
    "std::fs",
    "std::process",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "elapsed",
    "fastrand::Rng::new",
    "fastrand::bool",
    "fastrand::f64",
    "fastrand::u32",
    "fastrand::u64",
    "fastrand::usize",
    "to_socket_addrs",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "UnixDatagram",
    "UnixListener",
    "UnixStream",
];

/// Where a pure module may name it all the same.
const EXCEPT: &[(&str, &str)] = &[
    // `Bootstrap::from_file`.
    ("config::bootstrap", "std::fs"),
    // The scope of a link-local address.
    ("config::address", "to_socket_addrs"),
];

/// A source file: its module's path and its tokens, without comments, literals and what is only for tests.
struct Source {
    path: PathBuf,
    module: Vec<String>,
    tokens: Vec<String>,
}

impl Source {
    fn name(&self) -> String {
        self.module.join("::")
    }

    /// The crate's top modules that it names.
    fn uses(&self) -> BTreeSet<&str> {
        let mut uses = BTreeSet::new();
        let token = |at: usize| self.tokens.get(at).map_or("", String::as_str);
        let mut at = 0;
        while at < self.tokens.len() {
            let mut next = at;
            let above = match token(at) {
                "crate" => self.module.len(),
                "super" => {
                    let mut above = 1;
                    while token(next + 1) == "::" && token(next + 2) == "super" {
                        above += 1;
                        next += 2;
                    }
                    above
                }
                _ => 0,
            };
            at = next + 1;
            // Up to the crate's root, but not past it.
            if above == 0 || above < self.module.len() || token(at) != "::" {
                continue;
            }
            if token(at + 1) != "{" {
                uses.insert(token(at + 1));
                continue;
            }
            let (mut depth, mut inside) = (0, at + 1);
            loop {
                match token(inside) {
                    "{" => depth += 1,
                    "}" => depth -= 1,
                    _ => (),
                }
                let first = ["{", ","].contains(&token(inside)) && depth == 1;
                if first && is_word(token(inside + 1)) {
                    uses.insert(token(inside + 1));
                }
                inside += 1;
                if depth == 0 {
                    break;
                }
            }
        }
        uses
    }

    /// Whether it names `path`, be it in a group of a `use`.
    fn names(&self, path: &str) -> bool {
        let wanted: Vec<_> = path.split("::").collect();
        let plain = |window: &[String]| {
            let words = window.iter().step_by(2);
            words.eq(&wanted) && window.iter().skip(1).step_by(2).all(|t| t == "::")
        };
        if self.tokens.windows(wanted.len() * 2 - 1).any(plain) {
            return true;
        }
        let [outer, inner] = wanted[..] else {
            return false;
        };
        let group = [outer, "::", "{"];
        let groups = self.tokens.windows(3).enumerate();
        let mut groups = groups.filter(|(_, window)| window.iter().eq(&group));
        groups.any(|(at, _)| {
            let inside = self.tokens[at..].iter().take_while(|token| *token != ";");
            inside.into_iter().any(|token| token == inner)
        })
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words and signs; comments and literals are left out.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").expect("an end of the comment") + 2
        } else if let Some(len) = raw_string(rest) {
            len
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' {
            let mut after = rest.chars().skip(1);
            let escaped = after.next() == Some('\\');
            // Else it is a lifetime.
            if escaped || after.next() == Some('\'') {
                quoted(rest, '\'')
            } else {
                1
            }
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            let word = &rest[..end.unwrap_or(rest.len())];
            tokens.push(word.to_owned());
            word.len()
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[len..];
    }
    tokens
}

/// The length of the literal that `text` begins with.
fn quoted(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return at + 1;
        }
    }
    panic!("a literal without end: {text:.40}");
}

/// The length of the raw string that `text` begins with, if it does.
fn raw_string(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('r').or_else(|| text.strip_prefix("br"))?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let body = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let begin = text.len() - body.len();
    Some(begin + body.find(&end)? + end.len())
}

/// Leaves out the items that are only compiled for tests. Tells the modules among them that have a file of
/// their own.
fn without_tests(tokens: Vec<String>) -> (Vec<String>, BTreeSet<String>) {
    let (mut kept, mut files) = (Vec::new(), BTreeSet::new());
    let mut at = 0;
    let attribute = ["#", "[", "cfg", "(", "test", ")", "]"];
    while at < tokens.len() {
        if !tokens[at..].iter().take(attribute.len()).eq(&attribute) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += attribute.len();
        let begin = at;
        let mut depth = 0;
        loop {
            let token = &*tokens[at];
            at += 1;
            match token {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => (),
            }
            if depth == 0 && (token == "}" || token == ";") {
                break;
            }
        }
        if let [.., keyword, name, end] = &tokens[begin..at]
            && (keyword, end) == (&"mod".to_owned(), &";".to_owned())
        {
            files.insert(name.clone());
        }
    }
    (kept, files)
}

fn read(path: &Path, module: Vec<String>, sources: &mut Vec<Source>) {
    let text = std::fs::read_to_string(path).unwrap();
    let (tokens, tests) = without_tests(tokens(&text));
    let folder = match module.is_empty() {
        true => path.parent().unwrap().to_owned(),
        false => path.with_extension(""),
    };
    let mods = tokens.windows(3).filter(|w| w[0] == "mod" && w[2] == ";");
    let below: Vec<_> = mods.map(|window| window[1].clone()).collect();
    if !module.is_empty() {
        sources.push(Source {
            path: path.to_owned(),
            module: module.clone(),
            tokens,
        });
    }
    for name in below {
        assert!(!tests.contains(&name));
        let path = folder.join(&name).with_extension("rs");
        let module = module.iter().cloned().chain([name]).collect();
        read(&path, module, sources);
    }
}

/// All files that `lib.rs` leads to.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let mut sources = Vec::new();
    read(&root, Vec::new(), &mut sources);
    sources
}

#[test]
fn the_table_has_an_order_and_holds_every_module() {
    for (at, (module, uses)) in MAY_USE.iter().enumerate() {
        for used in *uses {
            let above = MAY_USE[..at].iter().any(|(name, _)| name == used);
            assert!(above, "{used} does not stand above {module}");
        }
    }
    for source in sources() {
        let top = &source.module[0];
        assert!(MAY_USE.iter().any(|(name, _)| name == top), "{top}");
    }
    let may_use = |module| MAY_USE.iter().find(|(name, _)| *name == module).unwrap().1;
    for follows in ["xds", "dns"] {
        assert!(!may_use(follows).contains(&"engine"));
        assert!(!may_use("engine").contains(&follows));
    }
}

#[test]
fn a_module_uses_only_what_it_may() {
    let mut wrong = Vec::new();
    for source in sources() {
        let top = &*source.module[0];
        let (_, may) = MAY_USE.iter().find(|(name, _)| *name == top).unwrap();
        for used in source.uses() {
            if used != top && !may.contains(&used) {
                wrong.push(format!("{}: {used}", source.path.display()));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn pure_modules_do_no_io_and_read_no_clock() {
    let mut wrong = Vec::new();
    for source in sources() {
        let name = source.name();
        let within = |module: &&str| name == *module || name.starts_with(&format!("{module}::"));
        if !PURE.iter().any(within) {
            continue;
        }
        for path in IMPURE {
            if source.names(path) && !EXCEPT.contains(&(&*name, path)) {
                wrong.push(format!("{}: {path}", source.path.display()));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn paths_are_found_in_every_form() {
    let text = r##"
        //! [`crate::doc`]
        use crate::{a::{self, b}, c, d as e};
        use super::f;
        use super::super::{h::i, j};
        const TEXT: &str = "crate::text"; const RAW: &str = r#"crate::"raw"#; const QUOTE: char = '"';
        fn x<'a>(_: &'a str) -> crate::k::L { let c = '\''; crate::m!() } /* crate::n */
        #[cfg(test)]
        mod tests { use crate::o; fn y() { let _ = [0; 3]; } }
        #[cfg(test)]
        mod file;
        use std::{fs, time::Instant};
        fn z() { Instant::now(); }
    "##;
    let (tokens, files) = without_tests(tokens(text));
    let source = Source {
        path: PathBuf::new(),
        module: ["top", "below"].map(str::to_owned).to_vec(),
        tokens,
    };
    let wanted = ["a", "c", "d", "h", "j", "k", "m"];
    assert_eq!(source.uses().into_iter().collect::<Vec<_>>(), wanted);
    assert_eq!(files.into_iter().collect::<Vec<_>>(), ["file"]);
    assert!(source.names("std::fs") && source.names("Instant::now"));
    assert!(!source.names("std::thread") && !source.names("elapsed"));
}

/// In JSON a field `message` would be a second one of that name: the first is the event's own text.
#[test]
fn no_event_of_the_log_has_two_messages() {
    let mut events = 0;
    for source in sources() {
        for (at, window) in source.tokens.windows(5).enumerate() {
            let [tracing, colons, level, bang, open] = window else {
                continue;
            };
            let levels = ["error", "warn", "info", "debug", "trace"];
            let is_event = (
                tracing.as_str(),
                colons.as_str(),
                bang.as_str(),
                open.as_str(),
            ) == ("tracing", "::", "!", "(")
                && levels.contains(&level.as_str());
            if !is_event {
                continue;
            }
            events += 1;
            let inside = &source.tokens[at + 5..];
            let mut depth = 1;
            for (at, token) in inside.iter().enumerate() {
                depth += i32::from(token == "(") - i32::from(token == ")");
                if depth == 0 {
                    break;
                }
                let field = at == 0 || inside[at - 1] == "," || inside[at - 1] == "%";
                let next = inside.get(at + 1).map(String::as_str);
                let name = token == "message" && matches!(next, Some("=" | ","));
                assert!(!(depth == 1 && field && name), "{}", source.path.display());
            }
        }
    }
    assert!(events > 50, "{events}");
}
