//! What holds for the answers of all commands.

use std::fs::File;
use std::process::Stdio;

use crate::command::{binary, ran};

/// A check of a host that is not there.
#[cfg(target_os = "linux")]
const FAILS: [&str; 10] = [
    "check",
    "127.0.0.1:1",
    "--send-text",
    "x",
    "--receive-text",
    "x",
    "--count",
    "1",
    "--timeout",
    "1s",
];

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_written_is_no_success() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/bootstrap.yaml");
    for args in [
        &["validate", "-c", example][..],
        &["presets"],
        &["completions", "bash"],
        &["--help"],
        // A failure of its own does not hide it.
        &FAILS,
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = binary();
        command.args(args).stdin(Stdio::null()).stdout(full);
        let output = command.stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            "error: cannot write the answer: No space left on device (os error 28)\n"
        );
    }
}

#[test]
fn a_reader_who_leaves_is_no_failure() {
    let mut child = binary()
        .args(["completions", "zsh"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

#[test]
fn colour_is_for_who_asks_or_has_a_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let painted = |args: &[&str]| {
        let args: Vec<_> = ["presets"].iter().chain(args).copied().collect();
        ran(directory.path(), &args, "").out.contains('\x1b')
    };
    assert!(painted(&["--color", "always"]));
    assert!(!painted(&["--color", "never"]));
    assert!(!painted(&[]), "a pipe is no terminal");
}

#[test]
fn completions_and_manual_pages_come_from_the_arguments() {
    let directory = tempfile::tempdir().unwrap();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = ran(directory.path(), &["completions", shell], "");
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{shell}");
        for word in ["validate", "max-in-flight"] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
    }
    let page = ran(directory.path(), &["man"], "");
    assert_eq!((page.code, &*page.err), (Some(0), ""));
    assert!(page.out.contains(".TH xds-health 1"), "{}", page.out);
    let page = ran(directory.path(), &["man", "check"], "");
    assert!(page.out.contains(".TH xds-health-check 1"), "{}", page.out);
    assert!(page.out.contains("receive\\-hex"), "{}", page.out);
    let none = ran(directory.path(), &["man", "cheque"], "");
    assert_eq!((none.code, &*none.out), (Some(2), ""));
}
