//! Why something failed, in words: an error with all that caused it.

use std::error::Error;

use tonic::{Code, Status};

/// What tonic says of every connection that fails, before the cause.
const NOTHING_SAID: &str = "transport error";

/// What an error and its causes say, the cause last. What is said twice is told once.
pub(crate) fn whole(error: &(dyn Error + 'static)) -> String {
    with_causes(error.to_string(), error.source())
}

/// How a stream ended.
pub(crate) fn of_end(status: &Status) -> String {
    let (code, message) = (status.code(), status.message());
    let told = match (code, message) {
        (Code::Ok, _) => return "the server ended the stream".to_owned(),
        (code, "") => format!("{code:?}"),
        (code, message) => format!("{code:?}: {message}"),
    };
    with_causes(told, status.source())
}

fn with_causes(mut told: String, mut next: Option<&(dyn Error + 'static)>) -> String {
    while let Some(cause) = next {
        let text = cause.to_string();
        if text != NOTHING_SAID && !told.contains(&text) {
            told.push_str(": ");
            told.push_str(&text);
        }
        next = cause.source();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Outer {
        text: &'static str,
        #[source]
        inner: io::Error,
    }

    fn outer(text: &'static str, inner: &'static str) -> Outer {
        let inner = io::Error::other(inner);
        Outer { text, inner }
    }

    #[test]
    fn causes_are_told_to_the_last_and_once() {
        assert_eq!(whole(&outer("a failed", "b")), "a failed: b");
        assert_eq!(whole(&outer("a failed: b", "b")), "a failed: b");
        assert_eq!(whole(&outer("a", NOTHING_SAID)), "a");
        let inner = outer("TLS failed", "certificate expired");
        let nested = io::Error::other(inner);
        assert_eq!(whole(&nested), "TLS failed: certificate expired");
    }

    #[test]
    fn the_end_of_a_stream_has_its_code_and_its_cause() {
        let mut status = Status::unavailable("h2 protocol error");
        status.set_source(std::sync::Arc::new(outer("broken", "timed out")));
        let told = "Unavailable: h2 protocol error: broken: timed out";
        assert_eq!(of_end(&status), told);
        assert_eq!(of_end(&Status::cancelled("")), "Cancelled");
        assert_eq!(of_end(&Status::ok("")), "the server ended the stream");
    }
}
