//! What is shown on a terminal.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::command::binary;
use crate::manners::Host;

/// Runs a command whose streams are a terminal so many columns wide and rows high, and gives all that it showed.
fn shown(args: &[&str], env: &[(&str, &str)], columns: u16, rows: u16) -> String {
    let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&control).unwrap();
    unlockpt(&control).unwrap();
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&control, size).unwrap();
    let name = ptsname(&control, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let open = || File::from(rustix::fs::open(&*name, flags, Mode::empty()).unwrap());
    let mut child = binary()
        .args(args)
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(open())
        .stderr(open())
        .spawn()
        .unwrap();
    let reader = std::thread::spawn(move || {
        let (mut control, mut text) = (File::from(control), Vec::new());
        // When the last of the other side is gone, reading fails.
        let _ = control.read_to_end(&mut text);
        String::from_utf8(text).unwrap()
    });
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(child);
    reader.join().unwrap()
}

/// `text` without what only moves the cursor or paints.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        rest = &after[end + 1..];
    }
    plain + rest
}

#[test]
fn the_demo_is_one_table_that_is_shown_anew() {
    let text = shown(&["demo", "--for", "2s"], &[], 70, 40);
    assert!(text.matches("\x1b[J").count() > 2, "shown more than once");
    assert!(text.contains("\x1b[32mhealthy\x1b[0m"), "in colour");
    let last = text.rsplit("UPSTREAM").next().unwrap();
    let last = plain(last);
    for upstream in ["slow", "flapping", "wrong", "silent", "closed"] {
        let line = last
            .lines()
            .find(|line| line.trim_start().starts_with(upstream));
        let line = line.unwrap_or_else(|| panic!("{upstream}: {last}"));
        let line = line.trim_matches('\r');
        assert!(
            line.chars().count() <= 70,
            "no wider than the terminal: {line}"
        );
    }
}

#[test]
fn the_demo_is_cut_to_a_small_terminal() {
    let text = shown(&["demo", "--for", "2s", "--color", "never"], &[], 40, 5);
    // From one time to the next, four lines up at most.
    let up = text.split("\x1b[").filter_map(|rest| {
        let number = rest.split_once('A')?.0;
        number.parse::<usize>().ok()
    });
    assert_eq!(up.max(), Some(4));
    let (_, last) = text.rsplit_once("UPSTREAM").unwrap();
    assert!(plain(last).contains('…'), "{last:?}");
}

#[test]
fn a_dumb_terminal_gets_lines_only() {
    let text = shown(&["demo", "--for", "2s"], &[("TERM", "dumb")], 70, 40);
    assert!(!text.contains('\x1b'), "{text:?}");
    assert!(text.contains("healthy"), "{text:?}");
}

#[test]
fn progress_is_shown_on_a_terminal_and_taken_back() {
    let host = Host::answering(b"pong");
    let target = host.address.to_string();
    let args = [
        "check",
        &target,
        "--send-text",
        "x",
        "--receive-text",
        "pong",
    ];
    let patient = ["--timeout", "60s", "--interval", "1ms", "--count", "2"];
    let args = [&args[..], &patient].concat();
    let text = shown(&args, &[], 80, 40);
    assert!(text.contains("\r1 of 2 attempts\x1b[K"), "{text:?}");
    assert!(text.contains("\r\x1b[K"), "{text:?}");
    assert!(text.contains("\x1b[32mpassed\x1b[0m"), "{text:?}");
    let text = shown(&args, &[("NO_COLOR", "1")], 80, 40);
    assert!(!text.contains("\x1b[32m"), "{text:?}");
    let text = shown(
        &[&args[..], &["--color", "always"]].concat(),
        &[("NO_COLOR", "1")],
        80,
        40,
    );
    assert!(text.contains("\x1b[32m"), "{text:?}");
}
