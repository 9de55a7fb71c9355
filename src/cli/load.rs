//! From a bootstrap file to what can be run.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

use crate::config::{At, Bootstrap, ConfigError, Format, Warnings, text::Document};
use crate::registry::{Registry, Update};

/// A bootstrap that can be run.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) bootstrap: Bootstrap,
    /// Its static clusters, with their checkers built.
    pub(super) clusters: Vec<Update>,
    pub(super) warnings: Warnings,
}

/// What messages call the file.
pub(super) fn name(path: &Path) -> Cow<'_, str> {
    if path == Path::new("-") {
        "<stdin>".into()
    } else {
        path.to_string_lossy()
    }
}

/// Reads `path`, or standard input for `-`.
pub(super) fn load(path: &Path, registry: &Registry) -> Result<Loaded, ConfigError> {
    let unreadable = |error| ConfigError::new("", format!("cannot be read: {error}"));
    let (bytes, format) = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin()
            .read_to_end(&mut bytes)
            .map_err(unreadable)?;
        (bytes, Format::Yaml)
    } else {
        (std::fs::read(path).map_err(unreadable)?, Format::of(path))
    };
    load_bytes(&bytes, format, registry)
}

fn load_bytes(bytes: &[u8], format: Format, registry: &Registry) -> Result<Loaded, ConfigError> {
    let text = || {
        std::str::from_utf8(bytes)
            .map_err(|error| ConfigError::new("", format!("is no text: {error}")))
    };
    let document = match format {
        Format::Json => Some(Document::from_json(text()?)?),
        Format::Binary => None,
        _ => Some(Document::from_yaml(text()?)?),
    };
    let mut warnings = Warnings::default();
    let bootstrap = match &document {
        Some(document) => Bootstrap::from_document(document, &mut warnings)?,
        None => Bootstrap::from_bytes(bytes, &mut warnings)?,
    };
    let mut clusters = Vec::new();
    let mut wrong: Option<ConfigError> = None;
    for (index, config) in bootstrap.clusters.iter().enumerate() {
        let built = registry
            .build(config.clone())
            .at_index("static_resources.clusters", index);
        match built {
            Ok(update) => clusters.push(update),
            Err(error) => {
                wrong = Some(match wrong {
                    Some(before) => before.and(error),
                    None => error,
                });
            }
        }
    }
    match wrong {
        None => Ok(Loaded {
            bootstrap,
            clusters,
            warnings,
        }),
        Some(error) => Err(match &document {
            Some(document) => error.located_in(document),
            None => error,
        }),
    }
}
