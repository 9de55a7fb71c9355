//! What is wrong with a configuration, all of it, and what is merely odd.
//!
//! A conversion walks a message once with a [`FieldPath`] and a [`Report`] in hand. It notes what is wrong
//! and goes on, so that whoever wrote the configuration hears of every fault at once; a value comes out only
//! if there was none. Sound messages cost nothing here: a path is written out for a fault alone.

use std::fmt::{self, Display};

use super::text::{Document, Position, Read, TextError};
use crate::validate::{Fault, FieldPath, Validate};

/// A configuration that cannot be used: one or more faults, each with its place in the text if there is one.
///
/// [`Display`] gives one fault a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    faults: Vec<(Fault, Option<Position>)>,
}

impl ConfigError {
    /// One fault at `path`, which is empty for the whole configuration.
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Fault::new(path, reason).into()
    }

    /// All `faults`; nothing if there are none.
    pub fn from_faults(faults: impl IntoIterator<Item = Fault>) -> Option<Self> {
        let faults: Vec<_> = faults.into_iter().map(|fault| (fault, None)).collect();
        (!faults.is_empty()).then_some(Self { faults })
    }

    /// What is wrong, at least one fault, in the order in which it was found.
    pub fn faults(&self) -> impl ExactSizeIterator<Item = &Fault> {
        self.faults.iter().map(|(fault, _)| fault)
    }

    /// The faults with their places in the text, as far as these are known.
    pub fn located(&self) -> impl ExactSizeIterator<Item = (&Fault, Option<Position>)> {
        self.faults.iter().map(|(fault, place)| (fault, *place))
    }

    /// The same faults, each with its place in `document` if it has none yet. Paths must begin where the
    /// document does.
    pub fn located_in(mut self, document: &Document) -> Self {
        for (fault, place) in &mut self.faults {
            *place = place.or_else(|| document.locate(&fault.path));
        }
        self
    }

    /// The same faults in the order of their places in the text, first those without.
    pub fn in_order(mut self) -> Self {
        self.faults.sort_by_key(|(_, place)| *place);
        self
    }

    /// The same faults, found in the field `name` of a message.
    pub fn at(mut self, name: &str) -> Self {
        for (fault, _) in &mut self.faults {
            fault.path = join(name, &fault.path);
        }
        self
    }

    /// The same faults, found in item `index` of the repeated field `name`.
    pub fn at_index(self, name: &str, index: usize) -> Self {
        self.at(&format!("{name}[{index}]"))
    }

    /// The same faults by paths that begin below `above`, for those that are there.
    #[cfg(feature = "xds")]
    pub(crate) fn below(mut self, above: &str) -> Self {
        for (fault, _) in &mut self.faults {
            if let Some(path) = fault.path.strip_prefix(above) {
                fault.path = path.trim_start_matches('.').to_owned();
            }
        }
        self
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
            faults: vec![(fault, None)],
        }
    }
}

impl From<TextError> for ConfigError {
    fn from(error: TextError) -> Self {
        let fault = Fault::new("", error.kind.to_string());
        Self {
            faults: vec![(fault, Some(error.position))],
        }
    }
}

impl From<ConfigError> for Vec<Fault> {
    fn from(error: ConfigError) -> Self {
        error.faults.into_iter().map(|(fault, _)| fault).collect()
    }
}

impl Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_lines(&self.faults, f)
    }
}

impl std::error::Error for ConfigError {}

fn write_lines(faults: &[(Fault, Option<Position>)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, (fault, place)) in faults.iter().enumerate() {
        if index > 0 {
            f.write_str("\n")?;
        }
        if let Some(place) = place {
            write!(f, "{place}: ")?;
        }
        fault.fmt(f)?;
    }
    Ok(())
}

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

/// Gathers what is wrong in several places.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<ConfigError>);

impl Errors {
    /// What came of one of them; if it is an error, it is noted after those before it.
    pub(crate) fn note<T>(&mut self, result: Result<T, ConfigError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.0 = Some(match self.0.take() {
                    Some(before) => before.and(error),
                    None => error,
                });
                None
            }
        }
    }

    /// `value` if nothing was wrong, else all that was.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, ConfigError> {
        self.0.map_or(Ok(value), Err)
    }
}

/// What is allowed but perhaps not meant: deprecated fields, values that are rounded, settings that do
/// nothing here. Conversions add to it.
///
/// [`Display`] gives one warning a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings(Vec<(Fault, Option<Position>)>);

impl Warnings {
    /// Whether there is nothing to warn of.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The warnings, in the order in which they were found.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Fault> {
        self.0.iter().map(|(warning, _)| warning)
    }

    /// The warnings with their places in the text, as far as these are known.
    pub fn located(&self) -> impl ExactSizeIterator<Item = (&Fault, Option<Position>)> {
        self.0.iter().map(|(warning, place)| (warning, *place))
    }

    /// Adds one.
    pub fn push(&mut self, warning: Fault) {
        self.0.push((warning, None));
    }
}

impl Display for Warnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_lines(&self.0, f)
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

    /// Notes the faults of a part that nobody uses as warnings. `None` if there were some.
    pub(crate) fn unused<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.faults.len();
        let value = read(self);
        let faults: Vec<_> = self.faults.drain(before..).collect();
        let sound = faults.is_empty();
        self.warnings.extend(faults.into_iter().map(|fault| {
            let reason = format!("{}; nothing uses it", fault.reason);
            Fault::new(fault.path, reason)
        }));
        value.filter(|_| sound)
    }

    /// Notes the faults of something inside, which has paths of its own.
    pub(crate) fn within<T>(&mut self, at: &FieldPath<'_>, error: ConfigError) -> Option<T> {
        self.faults.extend(Vec::from(error.at(&at.to_string())));
        None
    }

    /// Adds what reading `document` found. A fault of the conversion is left out where one of the text
    /// explains it, as when a required field is missing because it could not be read.
    pub(crate) fn add_text<M>(&mut self, read: &Read<M>) {
        self.faults.retain(|fault| !explains(read, fault));
        self.faults.splice(0..0, read.faults.iter().cloned());
        self.warnings.splice(0..0, read.warnings.iter().cloned());
    }

    /// What came of the conversion of a message, and whether it may be used.
    pub(crate) fn finish<T>(
        self,
        value: Option<T>,
        document: Option<&Document>,
        warnings: &mut Warnings,
    ) -> Result<T, ConfigError> {
        let place = |fault: &Fault| document.and_then(|document| document.locate(&fault.path));
        warnings.0.extend(self.warnings.into_iter().map(|warning| {
            let place = place(&warning);
            (warning, place)
        }));
        let error = match (ConfigError::from_faults(self.faults), value) {
            (None, Some(value)) => return Ok(value),
            // A conversion that gives no value has told why, by itself or by the rules.
            (None, None) => ConfigError::new("", UNEXPLAINED),
            (Some(error), _) => error,
        };
        Err(match document {
            Some(document) => error.located_in(document),
            None => error,
        })
    }
}

/// Whether `fault` only follows from what could not be read. A oneof without a member is told under the
/// oneof's name, beside its members, so it follows from a fault in one of these.
pub(crate) fn explains<M>(read: &Read<M>, fault: &Fault) -> bool {
    if read.explains(&fault.path) {
        return true;
    }
    let Some(members) = fault.reason.strip_prefix("is required: set ") else {
        return false;
    };
    let message = fault.path.rsplit_once('.').map_or("", |(above, _)| above);
    let members = members.trim_start_matches("one of ").split(", ");
    members
        .map(|member| join(message, member))
        .any(|path| read.explains(&path))
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
        let error = report.finish(Some(()), None, &mut Warnings::default());
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
        assert_eq!(report.finish(Some(7), None, &mut warnings), Ok(7));
        assert_eq!(warnings.to_string(), "event_log_path: is deprecated");
    }
}
