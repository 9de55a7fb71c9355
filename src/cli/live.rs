//! Lines that are shown anew in place, on a terminal.

use super::console::Output;

/// What is shown now, to be replaced by what comes next.
#[derive(Debug, Default)]
pub(super) struct Live {
    lines: usize,
}

impl Live {
    /// Shows `lines` where the last ones were. No line may be wider than [`width`].
    pub(super) fn show(&mut self, out: &mut Output<'_>, lines: &[String]) {
        let mut text = String::new();
        if self.lines > 0 {
            // To the first line of the last time.
            text.push_str(&format!("\x1b[{}A", self.lines));
        }
        for line in lines {
            text.push_str("\r\x1b[K");
            text.push_str(line);
            text.push('\n');
        }
        // Whatever was below.
        text.push_str("\x1b[J");
        self.lines = lines.len();
        out.say(format_args!("{text}"));
    }
}

/// Columns and rows of the terminal that is standard output.
pub(super) fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    match size {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        }
        _ => (80, 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::console::Console;

    #[test]
    fn what_is_shown_replaces_what_was() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err);
        let mut live = Live::default();
        live.show(&mut console.out, &["a".to_owned(), "b".to_owned()]);
        live.show(&mut console.out, &["c".to_owned()]);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "\r\x1b[Ka\n\r\x1b[Kb\n\x1b[J\x1b[2A\r\x1b[Kc\n\x1b[J");
    }
}
