//! Regular expressions that come from elsewhere: in the syntax that RE2 and the `regex` crate share, and bounded in
//! size, which bounds what it costs to look for one.

use regex::bytes::{Regex, RegexBuilder};

/// How large a compiled pattern may be, in bytes.
const MOST: usize = 64 * 1024;

/// A regular expression. Its classes are ASCII, as in RE2.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// A pattern that may be found anywhere.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in one line.
    pub(crate) fn anywhere(pattern: &str) -> Result<Self, String> {
        let regex = RegexBuilder::new(pattern)
            .unicode(false)
            .size_limit(MOST)
            .build();
        regex.map(Self).map_err(|error| cause(&error))
    }

    /// A pattern for whole texts.
    ///
    /// # Errors
    ///
    /// As of [`Pattern::anywhere`].
    pub(crate) fn whole(pattern: &str) -> Result<Self, String> {
        // By itself first: what is wrong with it is not to be hidden, nor told of what is put around it.
        Self::anywhere(pattern)?;
        Self::anywhere(&format!(r"\A(?:{pattern})\z"))
    }

    /// Whether `text` has it.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        self.0.is_match(text.as_bytes())
    }
}

/// What is wrong, in one line: faults of syntax are drawn on many, and end with it.
fn cause(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            last.strip_prefix("error: ").unwrap_or(last).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_for_whole_texts_takes_no_part_of_one() {
        let fits = |pattern: &str, text: &str| Pattern::whole(pattern).unwrap().is_in(text);
        assert!(fits("a|b.", "bc") && fits("", "") && fits("(?i)AB", "ab"));
        assert!(!fits("a|b", "ab") && !fits("", "ab") && !fits("a", "a\n"));
        assert!(Pattern::anywhere("a|b").unwrap().is_in("xbx"));
    }

    #[test]
    fn faults_are_told_in_a_line() {
        for (pattern, fault) in [
            ("[", "unclosed character class"),
            ("a)(b", "unopened group"),
            ("(", "unclosed group"),
            ("(?:x{1000}){1000}", "it is too large"),
        ] {
            assert_eq!(Pattern::whole(pattern).unwrap_err(), fault);
        }
    }
}
