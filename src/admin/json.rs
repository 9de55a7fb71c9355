//! JSON as Envoy lays it out: one space a level, proto names.

use crate::config::json::write_string;

/// Where in a document the next item goes. The text itself is handed in, so that it can be taken away in
/// pieces.
#[derive(Debug, Default)]
pub(super) struct Layout {
    depth: usize,
    /// Whether the innermost object or list has items.
    items: bool,
}

impl Layout {
    /// Begins an object (`{`) or a list (`[`).
    pub(super) fn open(&mut self, to: &mut String, bracket: char) {
        to.push(bracket);
        self.depth += 1;
        self.items = false;
    }

    /// Ends an object (`}`) or a list (`]`).
    pub(super) fn close(&mut self, to: &mut String, bracket: char) {
        self.depth -= 1;
        if self.items {
            self.new_line(to);
        }
        to.push(bracket);
        self.items = true;
    }

    /// Begins an item of a list.
    pub(super) fn item(&mut self, to: &mut String) {
        if self.items {
            to.push(',');
        }
        self.items = true;
        self.new_line(to);
    }

    /// Begins a member of an object, whose name needs no escapes.
    pub(super) fn key(&mut self, to: &mut String, name: &str) {
        self.item(to);
        to.push('"');
        to.push_str(name);
        to.push_str("\": ");
    }

    /// A member that is an object or a list.
    pub(super) fn open_key(&mut self, to: &mut String, name: &str, bracket: char) {
        self.key(to, name);
        self.open(to, bracket);
    }

    /// A member that is a string.
    pub(super) fn string(&mut self, to: &mut String, name: &str, value: &str) {
        self.key(to, name);
        write_string(to, value);
    }

    /// A member that is a string, unless it is empty.
    pub(super) fn string_if_any(&mut self, to: &mut String, name: &str, value: &str) {
        if !value.is_empty() {
            self.string(to, name, value);
        }
    }

    /// A member that is a number.
    pub(super) fn number(&mut self, to: &mut String, name: &str, value: u32) {
        self.key(to, name);
        to.push_str(&value.to_string());
    }

    /// A member that is a number, unless it is 0.
    pub(super) fn number_if_any(&mut self, to: &mut String, name: &str, value: u32) {
        if value != 0 {
            self.number(to, name, value);
        }
    }

    /// A member that is `true`, if it is.
    pub(super) fn flag_if_set(&mut self, to: &mut String, name: &str, value: bool) {
        if value {
            self.key(to, name);
            to.push_str("true");
        }
    }

    fn new_line(&self, to: &mut String) {
        to.push('\n');
        to.extend(std::iter::repeat_n(' ', self.depth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_objects_take_no_lines() {
        let mut to = String::new();
        let mut layout = Layout::default();
        layout.open(&mut to, '{');
        layout.open_key(&mut to, "a", '{');
        layout.close(&mut to, '}');
        layout.open_key(&mut to, "b", '[');
        layout.item(&mut to);
        to.push('1');
        layout.item(&mut to);
        layout.open(&mut to, '{');
        layout.string(&mut to, "c", "<");
        layout.close(&mut to, '}');
        layout.close(&mut to, ']');
        layout.close(&mut to, '}');
        assert_eq!(
            to,
            "{\n \"a\": {},\n \"b\": [\n  1,\n  {\n   \"c\": \"\\u003c\"\n  }\n ]\n}"
        );
    }
}
