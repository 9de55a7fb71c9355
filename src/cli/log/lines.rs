//! Lines of the log as they are written: one for each event, whatever stands in it.
//!
//! Names, paths and texts of control planes stand in fields, and may hold anything. No character of them begins
//! another line, or is an order to a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

use crate::cli::LogFormat;

/// Writes to `writer` what it is given, an event at a time.
#[derive(Clone, Debug)]
pub(super) struct Lines<W> {
    writer: W,
    format: LogFormat,
}

impl<W> Lines<W> {
    pub(super) fn new(writer: W, format: LogFormat) -> Self {
        Self { writer, format }
    }
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Lines<W> {
    type Writer = Lines<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Lines::new(self.writer.make_writer(), self.format)
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        Lines::new(self.writer.make_writer_for(metadata), self.format)
    }
}

impl<W: io::Write> io::Write for Lines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let (line, end) = match text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (&*text, ""),
        };
        match escaped(line, self.format) {
            Cow::Borrowed(_) => self.writer.write_all(text.as_bytes())?,
            Cow::Owned(line) => self.writer.write_all((line + end).as_bytes())?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// A line without what is more than a character of it.
fn escaped(line: &str, format: LogFormat) -> Cow<'_, str> {
    if !line.contains(commands) {
        return line.into();
    }
    let mut shown = String::with_capacity(line.len() * 2);
    for character in line.chars() {
        match format {
            _ if !commands(character) => shown.push(character),
            LogFormat::Text => shown.extend(character.escape_default()),
            // It stands within a string, since a line of JSON has blanks only elsewhere. None is beyond U+FFFF.
            LogFormat::Json => {
                // Writing to a String does not fail.
                let _ = write!(shown, "\\u{:04x}", u32::from(character));
            }
        }
    }
    shown.into()
}

/// Whether a character ends a line, tells a terminal what to do, or has what follows be read backwards.
fn commands(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// All that is more than a character, once.
    fn hostile() -> String {
        let all = (0..=0xffff_u32).filter_map(char::from_u32);
        all.filter(|character| commands(*character)).collect()
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged by a logger such as the daemon's.
    fn logged(format: LogFormat, log: impl FnOnce()) -> String {
        let to = Log::default();
        let of = to.clone();
        let writer = Lines::new(move || of.clone(), format);
        let lines = tracing_subscriber::fmt()
            .with_writer(writer)
            .with_ansi(false);
        match format {
            LogFormat::Text => tracing::subscriber::with_default(lines.finish(), log),
            LogFormat::Json => {
                let lines = lines.json().flatten_event(true).finish();
                tracing::subscriber::with_default(lines, log);
            }
        }
        let bytes = to.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    /// Every way in which a field, a message or a span tells of what came from elsewhere.
    fn tell(hostile: &str) {
        tracing::warn!(host = %hostile, "as text");
        tracing::warn!(host = hostile, "as a string");
        tracing::warn!(host = ?hostile, "for who wrote it");
        tracing::warn!(error = %io::Error::other(hostile.to_owned()), "an error");
        tracing::warn!("in the message: {hostile}");
        tracing::warn_span!("attempt", host = %hostile).in_scope(|| tracing::warn!("in a span"));
    }

    #[test]
    fn an_event_is_one_line_of_plain_characters_whatever_stands_in_it() {
        let hostile = format!("a{}b", hostile());
        for format in [LogFormat::Text, LogFormat::Json] {
            let log = logged(format, || tell(&hostile));
            let stray = log.chars().find(|c| *c != '\n' && commands(*c));
            assert_eq!(stray, None, "{log}");
            assert_eq!(log.lines().count(), 6, "{log}");
        }
    }

    #[test]
    fn what_a_line_of_json_tells_is_what_was_logged() {
        let hostile = hostile();
        let log = logged(LogFormat::Json, || tell(&hostile));
        let mut lines = log.lines().map(|line| {
            serde_json::from_str::<serde_json::Value>(line)
                .unwrap_or_else(|e| panic!("{e}: {line}"))
        });
        for _ in 0..2 {
            assert_eq!(lines.next().unwrap()["host"], hostile.as_str());
        }
        assert_eq!(lines.count(), 4);
    }

    #[test]
    fn what_is_plain_stays_as_it_is() {
        let log = logged(LogFormat::Text, || {
            tracing::warn!(host = %"127.0.0.1:80", "größer \\n 日本");
        });
        assert!(
            log.ends_with("größer \\n 日本 host=127.0.0.1:80\n"),
            "{log}"
        );
        let text = logged(
            LogFormat::Text,
            || tracing::warn!(path = %"/a\n\u{1b}[31mb", "x"),
        );
        assert!(text.ends_with("x path=/a\\n\\u{1b}[31mb\n"), "{text}");
    }
}
