//! What is asked after the `?`.

use axum::body::{HttpBody as _, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header;
use axum::http::request::Parts;

use super::answer::Refused;
use super::serve::Terms;
use crate::pattern::Pattern;

/// How many bytes of a form are read.
const FORM_BYTES: usize = 4096;

/// The parameters of a query. Of one that is given twice the first counts.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query; none if it is not UTF-8. A `+` stands for itself, as Envoy has it, so that a
    /// regular expression can be typed.
    fn parse(query: &str) -> Option<Self> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let read = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        });
        read.collect::<Option<_>>().map(Self)
    }

    /// Reads a query that a form made: a `+` stands for a space.
    ///
    /// # Errors
    ///
    /// When it is not UTF-8.
    pub(super) fn form(query: &str) -> Result<Self, Refused> {
        Self::parse(&query.replace('+', "%20")).ok_or_else(not_utf8)
    }

    /// All parameters.
    pub(super) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Whether the parameter is given, with a value or without.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n == name)
    }

    /// The parameter's value, unless it is empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(n, _)| n == name)?;
        Some(&**value).filter(|value| !value.is_empty())
    }

    /// The filter on names.
    ///
    /// # Errors
    ///
    /// When it is no regular expression, or one that is too large.
    pub(super) fn filter(&self) -> Result<Filter, Refused> {
        self.get("filter").map_or(Ok(Filter(None)), |pattern| {
            Filter::of(Pattern::anywhere(pattern))
        })
    }

    /// The filter on whole names that `parameter` holds.
    ///
    /// # Errors
    ///
    /// As of [`Query::filter`].
    pub(super) fn whole(&self, parameter: &str) -> Result<Filter, Refused> {
        self.get(parameter).map_or(Ok(Filter(None)), |pattern| {
            Filter::of(Pattern::whole(pattern))
        })
    }
}

/// Which names are asked for.
#[derive(Debug)]
pub(super) struct Filter(Option<Pattern>);

impl Filter {
    fn of(pattern: Result<Pattern, String>) -> Result<Self, Refused> {
        let refused = |cause| Refused::bad_request(format!("Invalid regex: {cause}\n"));
        Ok(Self(Some(pattern.map_err(refused)?)))
    }

    /// Whether the regular expression is found in `name`; always, if none was given.
    pub(super) fn finds(&self, name: &str) -> bool {
        let pattern = self.0.as_ref();
        pattern.is_none_or(|pattern| pattern.is_in(name))
    }
}

/// Replaces `%` and two hexadecimal digits by the byte that they name; a `%` without them stays.
fn decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = match after {
            [high, low, ..] if byte == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        let (byte, after) = match escaped {
            Some((high, low)) => (high << 4 | low, &after[2..]),
            None => (byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    String::from_utf8(decoded).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|n| u8::try_from(n).ok())
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        Self::parse(parts.uri.query().unwrap_or_default()).ok_or_else(not_utf8)
    }
}

fn not_utf8() -> Refused {
    Refused::bad_request("Invalid query: not UTF-8\n")
}

/// What is asked by a `POST`: after the `?` and, as with Envoy, in a form.
#[derive(Debug)]
pub(super) struct Posted(pub(super) Query);

impl<S: Sync> FromRequest<S> for Posted {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refused> {
        let (parts, body) = request.into_parts();
        let mut query = Query::parse(parts.uri.query().unwrap_or_default()).ok_or_else(not_utf8)?;
        let too_large =
            || Refused::too_large(format!("A body of at most {FORM_BYTES} bytes is read.\n"));
        if body.size_hint().lower() > FORM_BYTES as u64 {
            return Err(too_large());
        }
        let patience = Terms::of(&parts.extensions).limits.request_timeout;
        // Read whatever it is: else its rest would be taken for the next request.
        let body = tokio::time::timeout(patience, to_bytes(body, FORM_BYTES)).await;
        let body = body
            .map_err(|_| Refused::timeout("The body did not come.\n"))?
            .map_err(|_| too_large())?;
        let form = parts.headers.get(header::CONTENT_TYPE);
        if form.is_some_and(|of| {
            of.as_bytes()
                .starts_with(b"application/x-www-form-urlencoded")
        }) {
            let form = std::str::from_utf8(&body).map_err(|_| not_utf8())?;
            query.0.extend(Query::form(form)?.0);
        }
        Ok(Self(query))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_envoy_reads_it() {
        let query = Query::parse("usedonly&&filter=a.+%2Bb%20%zz%&filter=c&x=1=2").unwrap();
        assert_eq!(query.get("filter"), Some("a.++b %zz%"));
        assert_eq!(query.get("x"), Some("1=2"));
        assert!(query.has("usedonly") && !query.has("used"));
        let empty = Query::parse("format=").unwrap();
        assert!(empty.has("format") && empty.get("format").is_none());
        assert_eq!(Query::parse("a=%ff"), None);
        assert_eq!(Query::parse("a=%C3%a9").unwrap().get("a"), Some("\u{e9}"));
    }

    #[test]
    fn a_whole_name_is_matched_by_all_of_the_pattern() {
        let whole = |pattern: &str| {
            let query = Query(vec![("name_regex".to_owned(), pattern.to_owned())]);
            query.whole("name_regex").ok()
        };
        assert!(whole("a|b.").unwrap().finds("bc"));
        assert!(!whole("a|b").unwrap().finds("ab"));
        assert!(whole("").unwrap().finds("ab"));
        assert!(whole("[").is_none() && whole("a)(b").is_none());
    }

    #[test]
    fn a_filter_is_found_anywhere_in_a_name() {
        let filter = |pattern: &str| {
            let query = Query(vec![("filter".to_owned(), pattern.to_owned())]);
            query.filter().ok()
        };
        assert!(filter("ed").unwrap().finds("eds"));
        assert!(!filter("ED").unwrap().finds("eds"));
        assert!(!filter("^d").unwrap().finds("eds"));
        assert!(filter("").unwrap().finds("eds"));
        assert!(filter("\u{e9}$").unwrap().finds("caf\u{e9}"));
        assert!(filter("[").is_none());
        assert!(filter("(a{1000}){1000}").is_none());
    }
}
