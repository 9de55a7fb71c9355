//! Payloads as they are typed.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::preset;
use crate::cli::CheckArgs;
use crate::config::{Payload, UdpConfig};

/// Why there is no payload.
#[derive(Debug)]
pub(super) enum Wrong {
    /// The arguments are not to be understood.
    Usage(String),
    /// A file cannot be read.
    Local(String),
}

/// What is sent and awaited.
pub(super) fn read(args: &CheckArgs) -> Result<UdpConfig, Wrong> {
    if let Some(name) = &args.preset {
        let (send, receive) = preset::find(name).map_err(Wrong::Usage)?;
        let payload = |bytes: &'static [u8]| Payload::new(bytes).map_err(usage("--preset"));
        return Ok(UdpConfig::new(payload(send)?, payload(receive)?));
    }
    let send = one(
        "send",
        args.send_hex.as_deref(),
        args.send_text.as_deref(),
        args.send_file.as_deref(),
    )?;
    let receive = one(
        "receive",
        args.receive_hex.as_deref(),
        args.receive_text.as_deref(),
        args.receive_file.as_deref(),
    )?;
    Ok(UdpConfig::new(send, receive))
}

fn usage<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> Wrong {
    let what = what.to_owned();
    move |error| Wrong::Usage(format!("{what}: {error}"))
}

fn one(
    name: &str,
    hex: Option<&str>,
    text: Option<&str>,
    file: Option<&Path>,
) -> Result<Payload, Wrong> {
    let option = |form: &str| format!("--{name}-{form}");
    match (hex, text, file) {
        (Some(hex), ..) => Payload::from_hex(hex).map_err(usage(&option("hex"))),
        (_, Some(text), _) => {
            let bytes = unescape(text).map_err(usage(&option("text")))?;
            Payload::new(bytes).map_err(usage(&option("text")))
        }
        (.., Some(file)) => {
            let local = |error| Wrong::Local(format!("{}: {error}", file.display()));
            let mut bytes = Vec::new();
            // A byte more tells that it is too long, without the rest, which may have no end.
            let all = File::open(file).map_err(local)?;
            let mut all = all.take(Payload::MAX as u64 + 1);
            all.read_to_end(&mut bytes).map_err(local)?;
            if bytes.len() > Payload::MAX {
                let longest = Payload::MAX;
                let reason = format!("{} is longer than {longest} bytes", file.display());
                return Err(usage(&option("file"))(reason));
            }
            Payload::new(bytes).map_err(usage(&option("file")))
        }
        (None, None, None) => {
            let [hex, text, file] = ["hex", "text", "file"].map(option);
            Err(Wrong::Usage(format!(
                "want one of {hex}, {text}, {file}, or --preset"
            )))
        }
    }
}

/// The bytes that a text with escapes stands for.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((plain, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        let mut chars = after.chars();
        let escape = chars.next();
        let byte = match escape {
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some('0') => 0,
            Some('\\') => b'\\',
            Some('x') => {
                let digits = after.get(1..3).filter(|d| !d.starts_with('+'));
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                chars.nth(1);
                byte.ok_or("\\x wants two hexadecimal digits")?
            }
            Some(other) => return Err(format!("\\{other} is no escape")),
            None => return Err("a \\ stands alone at the end".to_owned()),
        };
        bytes.push(byte);
        rest = chars.as_str();
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_bytes() {
        assert_eq!(unescape("pi\\x6eg\\r\\n"), Ok(b"ping\r\n".to_vec()));
        assert_eq!(unescape("\\\\n\\0é"), Ok("\\n\0é".as_bytes().to_vec()));
        assert_eq!(unescape(""), Ok(Vec::new()));
        for (text, told) in [
            ("\\q", "\\q is no escape"),
            ("a\\", "a \\ stands alone at the end"),
            ("\\x6", "\\x wants two hexadecimal digits"),
            ("\\x+1", "\\x wants two hexadecimal digits"),
            ("\\xé", "\\x wants two hexadecimal digits"),
        ] {
            assert_eq!(unescape(text), Err(told.to_owned()), "{text}");
        }
    }
}
