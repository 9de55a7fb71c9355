//! Where the command writes: answers to one stream, complaints to another, and whether they are in colour.

use std::fmt::Arguments;
use std::io::{self, Write};

/// The two streams of the command, and what is known of them.
#[derive(Debug)]
pub struct Console<'a> {
    pub(super) out: Output<'a>,
    pub(super) err: Output<'a>,
}

/// One stream.
pub(super) struct Output<'a> {
    to: &'a mut dyn Write,
    terminal: bool,
    paint: Paint,
    failed: Option<io::Error>,
}

impl<'a> Console<'a> {
    /// Answers go to `out`, complaints to `err`; neither is a terminal.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Self {
            out: Output::new(out),
            err: Output::new(err),
        }
    }

    /// The same, whose streams are terminals as is said here.
    pub fn with_terminals(mut self, out: bool, err: bool) -> Self {
        self.out.terminal = out;
        self.err.terminal = err;
        self
    }

    /// Tells what went wrong, in a line or some.
    pub(super) fn complain(&mut self, reason: &impl ToString) {
        let reason = reason.to_string();
        let lines: Vec<_> = reason.lines().map(harmless).collect();
        self.err.say(format_args!("error: {}\n", lines.join("\n")));
    }

    /// What is written from now on is in colour as `color` says.
    pub(super) fn set_color(&mut self, color: Color) {
        let plain = no_color();
        for stream in [&mut self.out, &mut self.err] {
            stream.paint = Paint(match color {
                Color::Always => true,
                Color::Never => false,
                Color::Auto => stream.terminal && !plain,
            });
        }
    }
}

/// Whether the environment asks for no colour.
fn no_color() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_some() || dumb()
}

/// Whether the terminal says that it can do nothing but write.
fn dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

impl<'a> Output<'a> {
    fn new(to: &'a mut dyn Write) -> Self {
        Self {
            to,
            terminal: false,
            paint: Paint(false),
            failed: None,
        }
    }

    /// Writes `text`, at once. The first failure is kept, and ends the writing.
    pub(super) fn say(&mut self, text: Arguments<'_>) {
        if self.failed.is_some() {
            return;
        }
        let written = self.to.write_fmt(text).and_then(|()| self.to.flush());
        self.failed = written.err();
    }

    /// Whether it is a terminal whose cursor can be moved.
    pub(super) fn moves(&self) -> bool {
        self.terminal && !dumb()
    }

    pub(super) fn paint(&self) -> Paint {
        self.paint
    }

    /// Whether nobody reads any more.
    pub(super) fn closed(&self) -> bool {
        self.failed.is_some()
    }

    /// Why not all could be written. Whoever has closed the other end did not want the rest: that is no failure.
    pub(super) fn failure(&self) -> Option<&io::Error> {
        let failed = self.failed.as_ref();
        failed.filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
    }
}

impl std::fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output")
            .field("terminal", &self.terminal)
            .field("paint", &self.paint)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// When to write in colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// In any case
    Always,
    /// Not at all
    Never,
}

/// Whether text is painted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint(bool);

/// What a text is, and so its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Style {
    #[default]
    Plain,
    Good,
    Odd,
    Bad,
    Strong,
    Faint,
}

impl Paint {
    /// `text` in its colour.
    pub(super) fn apply(self, style: Style, text: &str) -> String {
        let code = match style {
            _ if !self.0 || text.is_empty() => return text.to_owned(),
            Style::Plain => return text.to_owned(),
            Style::Good => "32",
            Style::Odd => "33",
            Style::Bad => "31",
            Style::Strong => "1",
            Style::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// `text` with whatever could move a cursor, change a colour or turn the direction of writing written out.
pub(super) fn harmless(text: &str) -> std::borrow::Cow<'_, str> {
    if text.chars().any(harms) {
        let escape = |c: char| match harms(c) {
            true => c.escape_default().to_string(),
            false => c.to_string(),
        };
        text.chars().map(escape).collect::<String>().into()
    } else {
        text.into()
    }
}

/// Controls, separators of lines, and marks that turn the direction of writing.
fn harms(c: char) -> bool {
    let separates = matches!(c, '\u{2028}' | '\u{2029}');
    let turns = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || separates || turns
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Full(io::ErrorKind);

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_who_left_is_no_failure_and_a_full_disk_is_one() {
        for (kind, fails) in [
            (io::ErrorKind::BrokenPipe, false),
            (io::ErrorKind::StorageFull, true),
        ] {
            let (mut out, mut err) = (Full(kind), Vec::new());
            let mut console = Console::new(&mut out, &mut err);
            console.out.say(format_args!("text"));
            assert!(console.out.closed());
            assert_eq!(console.out.failure().is_some(), fails);
        }
    }

    #[test]
    fn colours_stand_around_the_text_or_nowhere() {
        assert_eq!(Paint(true).apply(Style::Bad, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Paint(true).apply(Style::Plain, "x"), "x");
        assert_eq!(Paint(false).apply(Style::Bad, "x"), "x");
    }

    #[test]
    fn text_from_elsewhere_cannot_move_the_cursor() {
        assert_eq!(harmless("a\x1b[2Jé\n"), "a\\u{1b}[2Jé\\n");
        assert_eq!(harmless("a\u{202e}b\u{2028}"), "a\\u{202e}b\\u{2028}");
        assert_eq!(harmless("plain"), "plain");
    }
}
