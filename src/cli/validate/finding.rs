//! What was found in a file, with the line it was found in, in each form.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cli::console::{Paint, Style, harmless};
use crate::config::text::Position;
use crate::validate::Fault;

/// Characters of a line that are shown at most.
const SHOWN: usize = 100;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    Error,
    Warning,
}

/// One fault or trap.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) line: Option<usize>,
    pub(super) column: Option<usize>,
    pub(super) path: String,
    pub(super) reason: String,
    /// The line in question.
    pub(super) source: Option<String>,
}

impl Finding {
    pub(super) fn new(
        severity: Severity,
        fault: &Fault,
        place: Option<Position>,
        text: Option<&str>,
    ) -> Self {
        let line = place.map(|place| place.line);
        let source = line.and_then(|line| text?.lines().nth(line.checked_sub(1)?));
        Self {
            severity,
            line,
            column: place.map(|place| place.column),
            path: fault.path.clone(),
            reason: fault.reason.clone(),
            source: source.map(str::to_owned),
        }
    }

    /// A line, and below it the line of the file with a mark under the place.
    pub(super) fn text(&self, file: &str, paint: Paint) -> String {
        let mut text = format!("{}: ", harmless(file));
        if self.severity == Severity::Warning {
            text.push_str(&paint.apply(Style::Odd, "warning"));
            text.push_str(": ");
        }
        if let (Some(line), Some(column)) = (self.line, self.column) {
            let _ = write!(text, "line {line}, column {column}: ");
        }
        let what = match &*self.path {
            "" => self.reason.clone(),
            path => format!("{path}: {}", self.reason),
        };
        let _ = writeln!(text, "{}", harmless(&what.replace('\n', " ")));
        if let (Some(line), Some(column), Some(source)) = (self.line, self.column, &self.source) {
            let (shown, at) = excerpt(source, column);
            let style = match self.severity {
                Severity::Error => Style::Bad,
                Severity::Warning => Style::Odd,
            };
            let mark = paint.apply(style, "^");
            let _ = writeln!(text, "{line:>6} | {shown}");
            let _ = writeln!(text, "       | {:at$}{mark}", "");
        }
        text
    }

    /// A command of GitHub's workflows, which shows it beside the line.
    pub(super) fn github(&self, file: &str) -> String {
        let level = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let mut text = format!("::{level} file={}", harmless(&property(file)));
        if let (Some(line), Some(column)) = (self.line, self.column) {
            let _ = write!(text, ",line={line},col={column}");
        }
        let what = match &*self.path {
            "" => self.reason.clone(),
            path => format!("{path}: {}", self.reason),
        };
        let _ = writeln!(text, "::{}", harmless(&message(&what)));
        text
    }
}

/// The part of a line around `column`, counted from 1, and where that stands in it, counted from 0.
fn excerpt(line: &str, column: usize) -> (String, usize) {
    let at = column.saturating_sub(1);
    let chars: Vec<char> = line
        .chars()
        .map(|c| if c == '\t' { ' ' } else { c })
        .collect();
    let begin = if chars.len() <= SHOWN {
        0
    } else {
        at.saturating_sub(SHOWN / 2).min(chars.len() - SHOWN)
    };
    let part: String = chars.iter().skip(begin).take(SHOWN).collect();
    let (before, lead) = if begin > 0 { ("…", 1) } else { ("", 0) };
    let after = if begin + SHOWN < chars.len() {
        "…"
    } else {
        ""
    };
    let shown = format!("{before}{}{after}", harmless(&part));
    (shown, lead + at.saturating_sub(begin))
}

fn message(text: &str) -> String {
    let escaped = text.replace('%', "%25").replace('\r', "%0D");
    escaped.replace('\n', "%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_shown_around_the_place() {
        let line = format!("{}X{}", "a".repeat(300), "b".repeat(300));
        let (shown, at) = excerpt(&line, 301);
        assert_eq!(shown.chars().nth(at), Some('X'));
        assert_eq!(shown.chars().count(), SHOWN + 2);
        for column in [1, 601] {
            let (shown, at) = excerpt(&line, column);
            assert!(at < shown.chars().count());
        }
        assert_eq!(excerpt("\tä: x", 5), (" ä: x".to_owned(), 4));
        assert_eq!(excerpt("", 9), (String::new(), 8));
    }

    #[test]
    fn what_would_end_a_workflow_command_is_escaped() {
        let fault = Fault::new("a", "50% of\nit");
        let finding = Finding::new(Severity::Warning, &fault, None, None);
        assert_eq!(
            finding.github("C:,x"),
            "::warning file=C%3A%2Cx::a: 50%25 of%0Ait\n"
        );
    }
}
