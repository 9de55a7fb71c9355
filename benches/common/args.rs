//! The command line of a bench.

use std::str::FromStr;

/// Arguments of a bench: flags, and names followed by values.
pub(crate) struct Args(Vec<String>);

impl Args {
    /// Those of this process.
    pub(crate) fn new() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    /// Whether `name` is given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|arg| arg == name)
    }

    /// Whether a quick run is asked for, by `--short` or by running as a test: `cargo bench` gives `--bench`.
    pub(crate) fn short(&self) -> bool {
        self.has("--short") || !self.has("--bench")
    }

    /// The value that follows `name`, or `default`.
    pub(crate) fn value<T: FromStr>(&self, name: &str, default: T) -> T {
        let mut args = self.0.iter().skip_while(|arg| *arg != name);
        let Some(value) = args.nth(1) else {
            return default;
        };
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} {value}: not a value of its kind"))
    }
}
