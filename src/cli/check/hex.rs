//! Bytes side by side, with the first that differs marked.

use std::fmt::Write as _;

use crate::cli::console::{Paint, Style};

/// Bytes in a row.
const ROW: usize = 16;
/// Rows that are shown before and after the one in question.
const AROUND: usize = 2;

/// Rows of `bytes` around the place `mark`, whose byte stands in brackets. Where there is no byte any more,
/// the brackets are empty.
pub(in crate::cli) fn dump(bytes: &[u8], mark: usize, paint: Paint) -> Vec<String> {
    // At the end of whole rows, an empty row holds the brackets.
    let rows = if mark >= bytes.len() {
        mark / ROW + 1
    } else {
        bytes.len().div_ceil(ROW)
    };
    let at = mark / ROW;
    let (first, last) = (at.saturating_sub(AROUND), (at + AROUND + 1).min(rows));
    let mut lines = Vec::new();
    if first > 0 {
        lines.push(format!("... {} bytes", first * ROW));
    }
    for row in first..last {
        lines.push(line(bytes, row, mark, paint));
    }
    if last < rows {
        lines.push(format!("... {} bytes", bytes.len() - last * ROW));
    }
    lines
}

fn line(bytes: &[u8], row: usize, mark: usize, paint: Paint) -> String {
    let begin = row * ROW;
    let mut line = format!("{begin:08x} ");
    for at in begin..begin + ROW {
        let byte = match bytes.get(at) {
            Some(byte) => format!("{byte:02x}"),
            None => "  ".to_owned(),
        };
        let before = match at {
            _ if at == mark => "[",
            _ if at == mark + 1 && at > begin => "]",
            _ => " ",
        };
        let byte = match at == mark {
            true => paint.apply(Style::Bad, &byte),
            false => byte,
        };
        let _ = write!(line, "{before}{byte}");
    }
    line.push_str(if mark + 1 == begin + ROW { "]" } else { " " });
    line.push_str(" |");
    for byte in bytes.iter().skip(begin).take(ROW) {
        line.push(if byte.is_ascii_graphic() || *byte == b' ' {
            char::from(*byte)
        } else {
            '.'
        });
    }
    line.push('|');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::console::Console;

    fn shown(bytes: &[u8], mark: usize) -> Vec<String> {
        let paint = Console::new(&mut Vec::new(), &mut Vec::new()).out.paint();
        dump(bytes, mark, paint)
    }

    #[test]
    fn the_first_difference_is_in_brackets() {
        assert_eq!(
            shown(b"pang", 1),
            ["00000000  70[61]6e 67                                      |pang|"]
        );
        assert_eq!(
            shown(b"pong", 4),
            ["00000000  70 6f 6e 67[  ]                                  |pong|"]
        );
        assert_eq!(
            shown(b"0123456789abcdef", 15),
            ["00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65[66] |0123456789abcdef|"]
        );
        assert_eq!(
            shown(b"", 0),
            ["00000000 [  ]                                              ||"]
        );
        assert_eq!(shown(&[7; 16], 16).len(), 2);
    }

    #[test]
    fn of_many_bytes_those_around_it_are_shown() {
        let lines = shown(&[0; 65_507], 32_000);
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[0], "... 31968 bytes");
        assert_eq!(lines[6], "... 33459 bytes");
        assert!(lines[3].starts_with("00007d00 [00]"));
    }
}
