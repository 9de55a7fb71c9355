//! Text that goes into HTML, and into links.

use std::fmt::Write as _;

/// Appends text, so that it is nothing but text within an element or a quoted attribute.
pub(super) fn escape(to: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => to.push_str("&amp;"),
            '<' => to.push_str("&lt;"),
            '>' => to.push_str("&gt;"),
            '"' => to.push_str("&quot;"),
            '\'' => to.push_str("&#39;"),
            // A browser would end the line, or leave it out.
            '\0' => to.push('\u{fffd}'),
            '\r' => to.push_str("&#13;"),
            c => to.push(c),
        }
    }
}

/// Appends a value of a query. What it gives needs no escapes in HTML.
pub(super) fn encode(to: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':' => {
                to.push(char::from(byte));
            }
            byte => {
                let _ = write!(to, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        let mut to = String::new();
        escape(&mut to, "<b a=\"x\" b='y'>&\0\r\u{e9}");
        assert_eq!(
            to,
            "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp;\u{fffd}&#13;\u{e9}"
        );
        let mut to = String::new();
        encode(&mut to, "a b&c=\"<+\u{e9}[::1]:80");
        assert_eq!(to, "a%20b%26c%3D%22%3C%2B%C3%A9%5B::1%5D:80");
    }
}
