//! Payloads for common UDP services, and plain words where no answer is fixed.

use std::fmt::Write as _;

use crate::cli::console::{Console, Style};
use crate::cli::table::{Cell, Table};
use crate::cli::{PresetsArgs, USAGE};

/// A service and what is known of it.
#[derive(Debug)]
pub(super) struct Preset {
    name: &'static str,
    port: u16,
    what: &'static str,
    pub(super) answer: Answer,
}

/// Whether every server of a kind answers alike.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// It does: what is sent, and what comes back.
    Fixed {
        send: &'static [u8],
        receive: &'static [u8],
    },
    /// It does not: why, and what can be done.
    Varies(&'static str),
}

const PRESETS: [Preset; 14] = [
    Preset {
        name: "coap",
        port: 5683,
        what: "an empty message, which is reset (RFC 7252, 4.3)",
        answer: Answer::Fixed {
            send: b"\x40\x00\x78\x64",
            receive: b"\x70\x00\x78\x64",
        },
    },
    Preset {
        name: "echo",
        port: 7,
        what: "an echo service (RFC 862), or an echo of your own",
        answer: Answer::Fixed {
            send: b"xds-health",
            receive: b"xds-health",
        },
    },
    Preset {
        name: "gtp-u",
        port: 2152,
        what: "GTP-U echo, of a user plane (3GPP TS 29.281, 7.2.1)",
        answer: Answer::Fixed {
            send: b"\x32\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00",
            receive: b"\x32\x02\x00\x06\x00\x00\x00\x00\x00\x00\x00\x00\x0e\x00",
        },
    },
    Preset {
        name: "memcached",
        port: 11211,
        what: "meta no-op, of memcached 1.6 or later with UDP enabled",
        answer: Answer::Fixed {
            send: b"\x78\x64\x00\x00\x00\x01\x00\x00mn\r\n",
            receive: b"\x78\x64\x00\x00\x00\x01\x00\x00MN\r\n",
        },
    },
    Preset {
        name: "rpcbind",
        port: 111,
        what: "the null procedure of version 2 (RFC 1833)",
        answer: Answer::Fixed {
            send: b"xds!\0\0\0\0\0\0\0\x02\0\x01\x86\xa0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            receive: b"xds!\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        },
    },
    Preset {
        name: "dns",
        port: 53,
        what: "",
        answer: Answer::Varies(
            "an answer repeats the id of the query and holds records, flags and times to live that are your \
             server's own. For a name whose answer never changes, send the query with an id of your choice and \
             await, byte for byte, what your server answers; a resolver's times to live count down, so only an \
             authoritative server will do",
        ),
    },
    Preset {
        name: "ntp",
        port: 123,
        what: "",
        answer: Answer::Varies("every answer holds the time"),
    },
    Preset {
        name: "quic",
        port: 443,
        what: "",
        answer: Answer::Varies(
            "what a server says to a version it does not know holds bits that it may choose at will",
        ),
    },
    Preset {
        name: "radius",
        port: 1812,
        what: "",
        answer: Answer::Varies(
            "the answer to Status-Server is signed with your shared secret. For one secret and one query it is \
             always the same as long as the server adds no time to it: take it from your server",
        ),
    },
    Preset {
        name: "sip",
        port: 5060,
        what: "",
        answer: Answer::Varies("the answer to OPTIONS holds a tag that is new each time"),
    },
    Preset {
        name: "snmp",
        port: 161,
        what: "",
        answer: Answer::Varies(
            "answers depend on the device and the community. One that never changes, as to sysObjectID.0 with a \
             request id of your choice, can be taken from your device",
        ),
    },
    Preset {
        name: "stun",
        port: 3478,
        what: "",
        answer: Answer::Varies("an answer holds the address and port that it was asked from"),
    },
    Preset {
        name: "tftp",
        port: 69,
        what: "",
        answer: Answer::Varies("answers come from another port than the one that was asked"),
    },
    Preset {
        name: "wireguard",
        port: 51820,
        what: "",
        answer: Answer::Varies("it is silent to all but its peers"),
    },
];

/// The preset of this name, or what to say if there is none.
pub(super) fn find(name: &str) -> Result<(&'static [u8], &'static [u8]), String> {
    match named(name).map(|preset| preset.answer) {
        Some(Answer::Fixed { send, receive }) => Ok((send, receive)),
        Some(Answer::Varies(why)) => Err(format!("{name}: no answer is fixed: {why}")),
        None => Err(format!("{name:?} is no preset: see xds-health presets")),
    }
}

fn named(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// `xds-health presets`.
pub(in crate::cli) fn presets(args: &PresetsArgs, console: &mut Console<'_>) -> u8 {
    let Some(name) = &args.name else {
        list(console);
        return 0;
    };
    let preset = named(name);
    match (preset, find(name)) {
        (Some(preset), Ok((send, receive))) => {
            let text = health_check(preset, send, receive);
            console.out.say(format_args!("{text}"));
            0
        }
        (_, Err(why)) => {
            console.complain(&why);
            USAGE
        }
        (None, Ok(_)) => 0,
    }
}

fn list(console: &mut Console<'_>) {
    let mut fixed = Table::new(&["PRESET", "PORT>", "WHAT"]);
    let mut varies = Table::new(&["NO FIXED ANSWER", "PORT>", "WHY"]);
    for preset in &PRESETS {
        let (table, what) = match preset.answer {
            Answer::Fixed { .. } => (&mut fixed, preset.what),
            // The first clause says it; the rest is told when it is asked for.
            Answer::Varies(why) => (&mut varies, why.split_once(". ").map_or(why, |(a, _)| a)),
        };
        let name = Cell::new(Style::Strong, preset.name);
        table.row(vec![name, preset.port.to_string().into(), what.into()]);
    }
    let paint = console.out.paint();
    let (fixed, varies) = (fixed.text(paint), varies.text(paint));
    console.out.say(format_args!("{fixed}\n{varies}"));
}

fn health_check(preset: &Preset, send: &[u8], receive: &[u8]) -> String {
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    format!(
        "# {}: {}; port {}\n\
         health_checks:\n\
         - timeout: 1s\n\
         \x20 interval: 5s\n\
         \x20 unhealthy_threshold: 3\n\
         \x20 healthy_threshold: 2\n\
         \x20 custom_health_check:\n\
         \x20   name: envoy.health_checkers.udp\n\
         \x20   typed_config:\n\
         \x20     \"@type\": type.googleapis.com/envoy.extensions.health_checkers.udp.v3.UdpHealthCheck\n\
         \x20     send: {{text: \"{}\"}}\n\
         \x20     receive: {{text: \"{}\"}}\n",
        preset.name,
        preset.what,
        preset.port,
        hex(send),
        hex(receive)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_repeat_what_names_the_question() {
        let (send, receive) = find("coap").unwrap();
        assert_eq!(send[2..4], receive[2..4]);
        // An RPC call of ten words, and an accepted reply of six.
        let (send, receive) = find("rpcbind").unwrap();
        assert_eq!((send.len(), receive.len()), (40, 24));
        assert_eq!(send[..4], receive[..4]);
        // The length counts what follows the first eight bytes.
        for message in <[_; 2]>::from(find("gtp-u").unwrap()) {
            assert_eq!(usize::from(message[3]), message.len() - 8);
        }
    }

    #[test]
    fn where_no_answer_is_fixed_it_is_said() {
        assert_eq!(
            find("ntp").unwrap_err(),
            "ntp: no answer is fixed: every answer holds the time"
        );
        assert!(find("dns").unwrap_err().contains("id of the query"));
        assert_eq!(
            find("http").unwrap_err(),
            "\"http\" is no preset: see xds-health presets"
        );
    }
}
