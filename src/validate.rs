//! Checks messages against the rules that Envoy puts on their fields.
//!
//! The rules stand as options in `proto/`; the build turns them into one [`Validate`] per message, over
//! the functions of `rules`. A check walks the message once and reports all that is wrong, each
//! [`Fault`] with its path, in the words Envoy refuses it with. It goes down into set messages, repeated
//! items and map values, and never into an `Any`: who opens one checks what was in it. Besides the rules,
//! every `Duration` must be one that Envoy takes: not negative, and at most 9223372035.999999999s.
//!
//! A sound message costs no allocation: paths are frames on the stack, written out for a fault only.

use std::fmt::{self, Display, Write as _};

mod generated;
mod rules;

/// A message that Envoy's rules can be asked about.
pub trait Validate {
    /// Hands every fault of this message, found `at` a path, to `faults`.
    fn validate_at(&self, at: &FieldPath<'_>, faults: &mut dyn FnMut(Fault));

    /// Checks this message; paths are relative to it.
    ///
    /// ```
    /// use xds_health::proto::envoy::config::core::v3::Pipe;
    /// use xds_health::validate::Validate;
    ///
    /// let faults = Pipe::default().validate().unwrap_err();
    /// assert_eq!(faults[0].to_string(), "path: value length must be at least 1 characters");
    /// ```
    ///
    /// # Errors
    ///
    /// All faults, field by field as `proto/` has them and oneofs last; never an empty list.
    fn validate(&self) -> Result<(), Vec<Fault>> {
        let mut faults = Vec::new();
        self.validate_at(&FieldPath::ROOT, &mut |fault| faults.push(fault));
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }
}

/// One thing that is wrong with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The field, under its proto names: `health_checks[0].timeout`. Empty for the message itself.
    pub path: String,
    /// What is wrong with it: `value is required`.
    pub reason: String,
}

impl Fault {
    /// A fault at `path`.
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            reason: reason.into(),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.reason)
    }
}

/// Where in a message a check is: a frame that points to the one it stands in.
#[derive(Clone, Copy, Debug)]
pub struct FieldPath<'a> {
    above: Option<&'a Self>,
    field: &'a str,
    element: Element<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Element<'a> {
    Whole,
    Item(usize),
    Key(&'a str),
}

impl<'a> FieldPath<'a> {
    /// The message that a check starts from.
    pub const ROOT: FieldPath<'static> = FieldPath {
        above: None,
        field: "",
        element: Element::Whole,
    };

    /// The field `name` of the message here.
    pub fn field(&'a self, name: &'a str) -> Self {
        self.frame(name, Element::Whole)
    }

    /// Item `index` of its repeated field `name`.
    pub fn item(&'a self, name: &'a str, index: usize) -> Self {
        self.frame(name, Element::Item(index))
    }

    /// The entry under `key` of its map field `name`.
    pub fn entry(&'a self, name: &'a str, key: &'a str) -> Self {
        self.frame(name, Element::Key(key))
    }

    fn frame(&'a self, field: &'a str, element: Element<'a>) -> Self {
        Self {
            above: Some(self),
            field,
            element,
        }
    }

    /// A fault found here.
    pub fn fault(&self, reason: impl Into<String>) -> Fault {
        Fault::new(self.to_string(), reason)
    }
}

impl Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(above) = self.above else {
            return Ok(());
        };
        above.fmt(f)?;
        if above.above.is_some() {
            f.write_char('.')?;
        }
        f.write_str(self.field)?;
        match self.element {
            Element::Whole => Ok(()),
            Element::Item(index) => write!(f, "[{index}]"),
            Element::Key(key) => write!(f, "[{key:?}]"),
        }
    }
}

#[cfg(test)]
mod tests;
