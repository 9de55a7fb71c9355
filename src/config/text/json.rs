//! JSON text to a tree, as lenient as Envoy: a comma may follow the last member, strings may stand in
//! single quotes and hold line breaks, and a key may be a bare word. Comments may not be there.

use std::sync::Arc;

use super::node::{Entry, MAX_BYTES, MAX_DEPTH, Node, Position, Value};
use super::{TextError, TextErrorKind};

pub(super) fn parse(text: &str) -> Result<Node, TextError> {
    let mut parser = Parser {
        rest: text,
        position: Position { line: 1, column: 1 },
        depth: 0,
    };
    if text.len() > MAX_BYTES {
        return Err(TextErrorKind::TooLong.at(parser.position));
    }
    parser.skip_blanks();
    if parser.rest.is_empty() {
        return Err(TextErrorKind::Empty.at(parser.position));
    }
    let root = parser.node()?;
    parser.skip_blanks();
    match parser.rest.is_empty() {
        true => Ok(root),
        false => Err(parser.unexpected("the end of the text")),
    }
}

struct Parser<'a> {
    rest: &'a str,
    position: Position,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn node(&mut self) -> Result<Node, TextError> {
        let position = Some(self.position);
        let value = match self.rest.bytes().next() {
            Some(b'{') => self.map()?,
            Some(b'[') => self.list()?,
            Some(b'"' | b'\'') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        Ok(Node { position, value })
    }

    fn map(&mut self) -> Result<Value, TextError> {
        let mut entries = Vec::new();
        self.members('}', |parser| {
            let position = Some(parser.position);
            let key = match parser.rest.bytes().next() {
                Some(b'"' | b'\'') => parser.string()?,
                _ => parser.bare_key()?,
            };
            parser.skip_blanks();
            if !parser.take(':') {
                return Err(parser.unexpected("':'"));
            }
            parser.skip_blanks();
            let node = parser.node()?;
            entries.push(Entry {
                key,
                position,
                node,
            });
            Ok(())
        })?;
        Ok(Value::Map(entries.into()))
    }

    fn list(&mut self) -> Result<Value, TextError> {
        let mut items = Vec::new();
        self.members(']', |parser| {
            items.push(parser.node()?);
            Ok(())
        })?;
        Ok(Value::List(items.into()))
    }

    /// From an opening bracket to `close`, with commas between and perhaps one at the end.
    fn members(
        &mut self,
        close: char,
        mut member: impl FnMut(&mut Self) -> Result<(), TextError>,
    ) -> Result<(), TextError> {
        if self.depth == MAX_DEPTH {
            return Err(TextErrorKind::TooDeep.at(self.position));
        }
        self.depth += 1;
        self.skip(1);
        self.skip_blanks();
        while !self.take(close) {
            member(self)?;
            self.skip_blanks();
            if !self.take(',') && !self.rest.starts_with(close) {
                return Err(self.unexpected(&format!("',' or '{close}'")));
            }
            self.skip_blanks();
        }
        self.depth -= 1;
        Ok(())
    }

    fn word(&mut self) -> Result<Value, TextError> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        let value = match word {
            "null" => Value::Null,
            "true" | "false" => Value::Bool {
                value: word == "true",
                written: word.into(),
            },
            _ => return Err(self.unexpected("a value")),
        };
        self.skip(end);
        Ok(value)
    }

    fn bare_key(&mut self) -> Result<Arc<str>, TextError> {
        let end = self
            .rest
            .find(|c: char| c != '_' && !c.is_ascii_alphanumeric())
            .unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        if word.is_empty()
            || word.starts_with(|c: char| c.is_ascii_digit())
            || matches!(word, "null" | "true" | "false")
        {
            return Err(self.unexpected("a key"));
        }
        self.skip(end);
        Ok(word.into())
    }

    fn number(&mut self) -> Result<Value, TextError> {
        let bytes = self.rest.as_bytes();
        let digits = |from: usize| {
            let tail = bytes.get(from..).unwrap_or_default();
            tail.iter().take_while(|b| b.is_ascii_digit()).count()
        };
        let start = usize::from(bytes.first() == Some(&b'-'));
        let integer = digits(start);
        let mut end = start + integer;
        let mut sound = integer == 1 || (integer > 1 && bytes[start] != b'0');
        if bytes.get(end) == Some(&b'.') {
            let decimals = digits(end + 1);
            sound &= decimals > 0;
            end += 1 + decimals;
        }
        if let Some(b'e' | b'E') = bytes.get(end) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            sound &= exponent > 0;
            end += 1 + sign + exponent;
        }
        let written: Arc<str> = self.rest[..end].into();
        if !sound {
            let reason = format!("{written:?} is not a number in JSON");
            return Err(TextErrorKind::Syntax(reason).at(self.position));
        }
        self.skip(end);
        Ok(Value::Number {
            value: Arc::clone(&written),
            written,
        })
    }

    fn string(&mut self) -> Result<Arc<str>, TextError> {
        let start = self.position;
        let quote = if self.rest.starts_with('"') {
            '"'
        } else {
            '\''
        };
        self.skip(1);
        let mut text = String::new();
        loop {
            let Some(end) = self.rest.find([quote, '\\']) else {
                return Err(TextErrorKind::Syntax("a string has no end".into()).at(start));
            };
            text.push_str(&self.rest[..end]);
            self.skip(end);
            if self.take(quote) {
                return Ok(text.into());
            }
            text.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char, TextError> {
        let at = self.position;
        let refuse = || {
            let reason = "an escape in a string is not one of JSON's".into();
            TextErrorKind::Syntax(reason).at(at)
        };
        let mut chars = self.rest.chars();
        let escaped = match chars.nth(1).ok_or_else(refuse)? {
            c @ ('"' | '\'' | '\\' | '/') => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.unicode().ok_or_else(refuse),
            _ => return Err(refuse()),
        };
        self.skip(2);
        Ok(escaped)
    }

    /// `\u` and four digits, or two of them for what lies beyond 16 bits.
    fn unicode(&mut self) -> Option<char> {
        let first = self.code_unit()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first);
        }
        let second = self.code_unit()?;
        let low = second.checked_sub(0xdc00).filter(|&low| low < 0x400)?;
        char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + low)
    }

    fn code_unit(&mut self) -> Option<u32> {
        let hex = self.rest.strip_prefix("\\u")?.get(..4)?;
        let unit = hex
            .bytes()
            .all(|b| b.is_ascii_hexdigit())
            .then(|| u32::from_str_radix(hex, 16).ok())??;
        self.skip(6);
        Some(unit)
    }

    fn take(&mut self, c: char) -> bool {
        let taken = self.rest.starts_with(c);
        if taken {
            self.skip(c.len_utf8());
        }
        taken
    }

    fn skip_blanks(&mut self) {
        let blank = |c| matches!(c, ' ' | '\t' | '\n' | '\r');
        let end = self.rest.find(|c| !blank(c)).unwrap_or(self.rest.len());
        self.skip(end);
    }

    /// Goes on by `bytes`, and counts lines and columns.
    fn skip(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        for c in passed.chars() {
            match c {
                '\n' => {
                    self.position.line += 1;
                    self.position.column = 1;
                }
                _ => self.position.column += 1,
            }
        }
        self.rest = rest;
    }

    fn unexpected(&self, wanted: &str) -> TextError {
        let reason = match self.rest.chars().next() {
            Some(c) => format!("{c:?} stands where {wanted} should be"),
            None => format!("the text ends where {wanted} should be"),
        };
        TextErrorKind::Syntax(reason).at(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, expected: &str) {
        let error = parse(text).unwrap_err();
        assert_eq!(error.to_string(), expected, "{text:.80}");
    }

    #[test]
    fn what_envoy_lets_pass_is_read() {
        let node = parse("\n{'a': [1,], b_1: \"x\ny\",}").unwrap();
        let list = node.member("a").unwrap();
        assert_eq!(list.position, Some(Position { line: 2, column: 7 }));
        let text = &node.member("b_1").unwrap().value;
        assert_eq!(*text, Value::String("x\ny".into()));
    }

    #[test]
    fn escapes_are_those_of_json() {
        let node = parse(r#"{"a": "\u00e9\ud83d\ude00\n\/\'"}"#).unwrap();
        let text = &node.member("a").unwrap().value;
        assert_eq!(*text, Value::String("é😀\n/'".into()));
        for bad in [
            r"\x41", r"\q", r"\ud83d", r"\udc00", r"\u12", r"\u+123", r"\",
        ] {
            let text = format!("{{\"a\": \"{bad}\"}}");
            assert!(parse(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_those_of_json() {
        for good in ["0", "-0", "5", "1.50", "1e9", "1E+9", "-1.5e-9"] {
            assert!(parse(&format!("[{good}]")).is_ok(), "{good}");
        }
        for bad in [
            "05", "+5", "5.", ".5", "-", "1e", "1e+", "0x5", "NaN", "1_0",
        ] {
            assert!(parse(&format!("[{bad}]")).is_err(), "{bad}");
        }
    }

    #[test]
    fn faults_tell_where_they_are() {
        refused("", "line 1, column 1: the text is empty");
        refused(
            "{\"a\": 1}\n x",
            "line 2, column 2: 'x' stands where the end of the text should be",
        );
        refused(
            "{\"a\" 1}",
            "line 1, column 6: '1' stands where ':' should be",
        );
        refused(
            "{5: 1}",
            "line 1, column 2: '5' stands where a key should be",
        );
        refused(
            "[1 2]",
            "line 1, column 4: '2' stands where ',' or ']' should be",
        );
        refused("[\"a", "line 1, column 2: a string has no end");
        refused(
            "[,1]",
            "line 1, column 2: ',' stands where a value should be",
        );
    }

    #[test]
    fn depth_is_limited() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        let error = parse(&nested(MAX_DEPTH + 1)).unwrap_err();
        assert_eq!(error.kind, TextErrorKind::TooDeep);
        assert!(parse(&"{\"a\":".repeat(100_000)).is_err());
    }
}
