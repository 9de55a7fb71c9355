//! The command, run to its end.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a run of the command came to.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Standard error, whose lines each begin with `prefix`, without it, and without the lines of the file
    /// that are shown below them.
    pub fn complaints(&self, prefix: &str) -> Vec<&str> {
        let without = |line| str::strip_prefix(line, prefix).expect(line);
        let told = self.err.lines().filter(|line| !line.starts_with(' '));
        told.map(without).collect()
    }
}

pub fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_xds-health"))
}

/// Runs the command in `directory` with `input` as standard input.
pub fn ran(directory: &Path, args: &[&str], input: &str) -> Ran {
    let mut child = binary()
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end without reading.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
