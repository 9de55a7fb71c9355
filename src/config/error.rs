//! What is wrong with a configuration, all of it, and what is merely odd.
//!
//! A conversion walks a message once with a [`FieldPath`] and a [`Report`] in hand. It notes what is wrong
//! and goes on, so that whoever wrote the configuration hears of every fault at once; a value comes out only
//! if there was none. Sound messages cost nothing here: a path is written out for a fault alone.

use std::fmt::{self, Display};

use crate::validate::{Fault, FieldPath, Validate};

/// A configuration that cannot be used: one or more faults.
///
/// [`Display`] gives one fault a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    faults: Vec<Fault>,
}

impl ConfigError {
    /// One fault at `path`, which is empty for the whole configuration.
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Fault::new(path, reason).into()
    }

    /// All `faults`, or none if the list is empty.
    pub fn from_faults(faults: Vec<Fault>) -> Option<Self> {
        (!faults.is_empty()).then_some(Self { faults })
    }

    /// What is wrong, at least one fault, in the order in which it was found.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The same faults, found in the field `name` of a message.
    pub fn at(mut self, name: &str) -> Self {
        for fault in &mut self.faults {
            fault.path = join(name, &fault.path);
        }
        self
    }

    /// The same faults, found in item `index` of the repeated field `name`.
    pub fn at_index(self, name: &str, index: usize) -> Self {
        self.at(&format!("{name}[{index}]"))
    }

    /// These faults, then those of `other`.
    pub fn and(mut self, other: Self) -> Self {
        self.faults.extend(other.faults);
        self
    }
}

fn join(above: &str, path: &str) -> String {
    match (above, path) {
        ("", path) => path.to_owned(),
        (above, "") => above.to_owned(),
        (above, path) => format!("{above}.{path}"),
    }
}

impl From<Fault> for ConfigError {
    fn from(fault: Fault) -> Self {
        Self {
            faults: vec![fault],
        }
    }
}

impl From<ConfigError> for Vec<Fault> {
    fn from(error: ConfigError) -> Self {
        error.faults
    }
}

impl Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Says on the way out in which field a configuration was wrong.
///
/// ```
/// use xds_health::config::{At, ConfigError};
///
/// let inner: Result<(), _> = Err(ConfigError::new("text", "is odd"));
/// let outer = inner.at("send").at_index("checks", 2).unwrap_err();
/// assert_eq!(outer.to_string(), "checks[2].send.text: is odd");
/// ```
pub trait At {
    /// In the field `name`.
    fn at(self, name: &str) -> Self;

    /// In item `index` of the repeated field `name`.
    fn at_index(self, name: &str, index: usize) -> Self;
}

impl<T> At for Result<T, ConfigError> {
    fn at(self, name: &str) -> Self {
        self.map_err(|error| error.at(name))
    }

    fn at_index(self, name: &str, index: usize) -> Self {
        self.map_err(|error| error.at_index(name, index))
    }
}

/// What is allowed but perhaps not meant: deprecated fields, values that are rounded, settings that do
/// nothing here. Conversions add to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings(Vec<Fault>);

impl Warnings {
    /// The warnings, each with its path.
    pub fn as_slice(&self) -> &[Fault] {
        &self.0
    }

    /// Adds one.
    pub fn push(&mut self, warning: Fault) {
        self.0.push(warning);
    }
}

impl IntoIterator for Warnings {
    type Item = Fault;
    type IntoIter = std::vec::IntoIter<Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Where one conversion notes its faults and warnings.
#[derive(Debug, Default)]
pub(crate) struct Report {
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
}

impl Report {
    /// Notes a fault. `None`, for `return report.fault(..)` and the like.
    pub(crate) fn fault<T>(&mut self, at: &FieldPath<'_>, reason: impl Into<String>) -> Option<T> {
        self.faults.push(at.fault(reason));
        None
    }

    /// Notes a warning.
    pub(crate) fn warn(&mut self, at: &FieldPath<'_>, reason: impl Into<String>) {
        self.warnings.push(at.fault(reason));
    }

    /// Warns of the field `name` if it is `set`.
    pub(crate) fn deprecated(&mut self, set: bool, name: &str, at: &FieldPath<'_>) {
        if set {
            self.warn(&at.field(name), "is deprecated");
        }
    }

    /// Notes all faults by the rules on the fields of `message`.
    pub(crate) fn rules(&mut self, message: &impl Validate) {
        message.validate_at(&FieldPath::ROOT, &mut |fault| self.faults.push(fault));
    }

    /// Notes the faults of something inside, which has paths of its own.
    pub(crate) fn within<T>(&mut self, at: &FieldPath<'_>, error: ConfigError) -> Option<T> {
        self.faults.extend(error.at(&at.to_string()).faults);
        None
    }

    /// What came of the conversion, and whether it may be used.
    pub(crate) fn finish<T>(
        self,
        value: Option<T>,
        warnings: &mut Warnings,
    ) -> Result<T, ConfigError> {
        warnings.0.extend(self.warnings);
        match ConfigError::from_faults(self.faults) {
            Some(error) => Err(error),
            // A conversion that gives no value has told why, by itself or by the rules.
            None => value.ok_or_else(|| ConfigError::new("", UNEXPLAINED)),
        }
    }
}

pub(crate) const UNEXPLAINED: &str = "cannot be used";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_grow_on_the_way_out() {
        let error = ConfigError::new("", "value is required")
            .at("timeout")
            .and(ConfigError::new("name", "is empty"))
            .at_index("health_checks", 1);
        assert_eq!(
            error.to_string(),
            "health_checks[1].timeout: value is required\nhealth_checks[1].name: is empty"
        );
    }

    #[test]
    fn a_fault_inside_has_the_path_of_its_place() {
        let mut report = Report::default();
        let place = FieldPath::ROOT.item("checks", 3);
        report.within::<()>(&place, ConfigError::new("send", "is odd"));
        report.within::<()>(&FieldPath::ROOT, ConfigError::new("name", "is odd"));
        let error = report.finish(Some(()), &mut Warnings::default());
        assert_eq!(
            error.unwrap_err().to_string(),
            "checks[3].send: is odd\nname: is odd"
        );
    }

    #[test]
    fn warnings_do_not_spoil_the_value() {
        let mut report = Report::default();
        report.deprecated(true, "event_log_path", &FieldPath::ROOT);
        report.deprecated(false, "name", &FieldPath::ROOT);
        let mut warnings = Warnings::default();
        assert_eq!(report.finish(Some(7), &mut warnings), Ok(7));
        assert_eq!(
            warnings.as_slice(),
            [Fault::new("event_log_path", "is deprecated")]
        );
    }
}
