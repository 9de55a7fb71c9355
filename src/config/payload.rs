//! What checks send and await: bytes, given as hexadecimal digits or as they are.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Bytes that fit into one UDP datagram: at most [`Payload::MAX`].
///
/// Source: `envoy.config.core.v3.HealthCheck.Payload`. May be empty.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<[u8]>);

impl Payload {
    /// The most bytes that a UDP datagram carries over IPv4.
    pub const MAX: usize = 65_507;

    /// These bytes (`binary`).
    ///
    /// # Errors
    ///
    /// [`PayloadError::TooLong`].
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Result<Self, PayloadError> {
        let bytes = bytes.into();
        if bytes.len() > Self::MAX {
            return Err(PayloadError::TooLong(bytes.len()));
        }
        Ok(Self(bytes))
    }

    /// The bytes that hexadecimal digits in either case stand for, two for each (`text`).
    ///
    /// ```
    /// use xds_health::config::Payload;
    ///
    /// assert_eq!(&*Payload::from_hex("70696e67")?, b"ping");
    /// assert_eq!(
    ///     Payload::from_hex("0x7069").unwrap_err().to_string(),
    ///     "invalid hex string: 'x' at offset 1 is no hexadecimal digit"
    /// );
    /// # Ok::<(), xds_health::config::PayloadError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any [`PayloadError`].
    pub fn from_hex(text: &str) -> Result<Self, PayloadError> {
        if text.is_empty() {
            return Err(PayloadError::Empty);
        }
        if !text.len().is_multiple_of(2) {
            return Err(wrong(text, 0));
        }
        let mut bytes = Vec::with_capacity(text.len() / 2);
        for (index, pair) in text.as_bytes().chunks_exact(2).enumerate() {
            let Some(byte) = read(pair) else {
                return Err(wrong(text, index * 2));
            };
            bytes.push(byte);
        }
        Self::new(bytes)
    }
}

/// The byte of two digits. As with Envoy, one digit will do after a blank or before a NUL.
fn read(pair: &[u8]) -> Option<u8> {
    match *pair {
        [b' ' | b'\t'..=b'\r', low] => digit(low),
        [low, 0] => digit(low),
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    }
}

/// The value of a hexadecimal digit.
fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' | b'A'..=b'F' => Some((digit | 0x20) - b'a' + 10),
        _ => None,
    }
}

/// Why a text, which is sound before `from`, is not.
fn wrong(text: &str, from: usize) -> PayloadError {
    let mut characters = text.char_indices();
    match characters.find(|(at, c)| *at >= from && !c.is_ascii_hexdigit()) {
        Some((offset, character)) => PayloadError::NotHex { character, offset },
        None => PayloadError::OddLength(text.len()),
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 64;
        let shown = &self[..self.len().min(SHOWN)];
        write!(
            f,
            "Payload({} bytes: \"{}\")",
            self.len(),
            shown.escape_ascii()
        )
    }
}

/// Why something is no payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// A text of no digits at all; bytes may be none.
    #[error("invalid hex string: it is empty; give an empty payload as binary")]
    Empty,
    /// A digit has no second one: how many there are.
    #[error("invalid hex string: two digits make a byte, but there are {0}")]
    OddLength(usize),
    /// A character that is no hexadecimal digit.
    #[error("invalid hex string: {character:?} at offset {offset} is no hexadecimal digit")]
    NotHex {
        /// The first such character.
        character: char,
        /// Where it is, in bytes.
        offset: usize,
    },
    /// So many bytes do not fit into a datagram.
    #[error("payload size {0} exceeds the maximum of {max} bytes", max = Payload::MAX)]
    TooLong(usize),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str, reason: &str) {
        assert_eq!(Payload::from_hex(text).unwrap_err().to_string(), reason);
    }

    #[test]
    fn hex_errors_say_what_and_where() {
        refused(
            "",
            "invalid hex string: it is empty; give an empty payload as binary",
        );
        refused(
            "abc",
            "invalid hex string: two digits make a byte, but there are 3",
        );
        refused(
            "zz",
            "invalid hex string: 'z' at offset 0 is no hexadecimal digit",
        );
        refused(
            "70 69",
            "invalid hex string: ' ' at offset 2 is no hexadecimal digit",
        );
        refused(
            "7069\n",
            "invalid hex string: '\\n' at offset 4 is no hexadecimal digit",
        );
        refused(
            "70é",
            "invalid hex string: 'é' at offset 2 is no hexadecimal digit",
        );
        refused(
            &"0".repeat(2 * 65_508),
            "payload size 65508 exceeds the maximum of 65507 bytes",
        );
    }

    #[test]
    fn a_payload_fills_a_datagram_and_no_more() {
        assert_eq!(Payload::new(vec![0; 65_507]).unwrap().len(), 65_507);
        assert_eq!(
            Payload::new(vec![0; 65_508]),
            Err(PayloadError::TooLong(65_508))
        );
        assert_eq!(
            Payload::from_hex(&"0".repeat(2 * 65_507)).unwrap().len(),
            65_507
        );
        assert!(Payload::new([]).unwrap().is_empty());
    }

    #[test]
    fn a_blank_before_a_digit_or_a_nul_after_it_is_none() {
        for (text, bytes) in [
            (" 5", &[5][..]),
            ("70\t6", &[0x70, 6]),
            (" 5 a", &[5, 10]),
            ("f\0", &[15]),
        ] {
            assert_eq!(&*Payload::from_hex(text).unwrap(), bytes);
        }
        refused(
            " 5x0",
            "invalid hex string: 'x' at offset 2 is no hexadecimal digit",
        );
        for text in ["  ", "5 ", "+5", "-5", "\x005", "70\0\0", "\u{a0}5", "7 06"] {
            assert!(Payload::from_hex(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn hex_in_either_case_gives_the_bytes_back(bytes: Vec<u8>, upper: bool) {
            prop_assume!(!bytes.is_empty());
            let mut text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            if upper {
                text.make_ascii_uppercase();
            }
            prop_assert_eq!(&*Payload::from_hex(&text).unwrap(), &*bytes);
        }
    }
}
