//! Who may ask at all: what a browser does for a foreign page is refused.
//!
//! A page from anywhere can have a browser send requests here, though not read the answers. So what changes
//! something is not done when a header of the browser tells of another origin. A page can also name this
//! machine by a name of its own (DNS rebinding), so that the browser takes both for one origin; on a port that
//! only this machine reaches, only its own names are answered to. Programs that are no browsers send none of
//! these headers, and reach this machine by its own names.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Shared;
use super::answer::Refused;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

pub(super) async fn guard(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    match admit(shared.admin.own_names, &request) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

fn admit<B>(own_names: bool, request: &axum::http::Request<B>) -> Result<(), Refused> {
    let headers = request.headers();
    if own_names {
        let asked = request
            .uri()
            .authority()
            .map(|authority| authority.as_str());
        let mut named = values(headers, &header::HOST).chain(asked.map(Some));
        if !named.all(|host| host.is_some_and(is_own)) {
            let message = "This port is asked for by an IP address or as localhost.\n";
            return Err(Refused::forbidden(message));
        }
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let host = values(headers, &header::HOST).next().flatten();
        let same_site = |site: Option<&str>| matches!(site, Some("same-origin" | "none"));
        let same_origin = |origin: Option<&str>| {
            let authority = origin.and_then(|origin| Some(origin.split_once("://")?.1));
            authority.is_some() && authority == host
        };
        if !values(headers, &FETCH_SITE).all(same_site)
            || !values(headers, &header::ORIGIN).all(same_origin)
        {
            let message = "A page of another origin may not ask for this.\n";
            return Err(Refused::forbidden(message));
        }
    }
    Ok(())
}

/// All values of a header; none for one that is not text.
fn values<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Option<&'a str>> + use<'a> {
    headers.get_all(name).into_iter().map(|v| v.to_str().ok())
}

/// Whether nobody else can have a name server lead there: an IP address, or `localhost` and what is below it.
fn is_own(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        let ip = rest.split_once(']').map_or("", |(ip, _)| ip);
        return ip.parse::<Ipv6Addr>().is_ok();
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    if name.parse::<Ipv4Addr>().is_ok() {
        return true;
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(method: &str, uri: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = axum::http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        admit(true, &request.body(()).unwrap()).is_ok()
    }

    #[test]
    fn only_own_names_are_answered_to() {
        for own in [
            "127.0.0.1",
            "127.0.0.1:9901",
            "10.0.0.7:1",
            "[::1]",
            "[::1]:9901",
            "localhost",
            "LocalHost.:9901",
            "a.localhost:1",
        ] {
            assert!(admits("GET", "/", &[("host", own)]), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:9901",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "[::1].evil.example.",
            "[evil.example]",
            "",
            "127.1",
        ] {
            let own = foreign.starts_with("[::1]");
            assert_eq!(admits("GET", "/", &[("host", foreign)]), own, "{foreign}");
        }
        // Neither beside an own one, nor in the line of the request. None at all comes from no browser.
        assert!(!admits(
            "GET",
            "/",
            &[("host", "localhost"), ("host", "evil.example")]
        ));
        assert!(!admits(
            "GET",
            "http://evil.example/",
            &[("host", "localhost")]
        ));
        assert!(admits("GET", "/", &[]));
    }

    #[test]
    fn a_foreign_page_may_not_change_anything() {
        let host = ("host", "localhost:9901");
        for (name, value, fine) in [
            ("origin", "http://localhost:9901", true),
            ("origin", "https://localhost:9901", true),
            ("origin", "http://localhost:9902", false),
            ("origin", "http://evil.example", false),
            ("origin", "null", false),
            ("origin", "", false),
            ("sec-fetch-site", "same-origin", true),
            ("sec-fetch-site", "none", true),
            ("sec-fetch-site", "same-site", false),
            ("sec-fetch-site", "cross-site", false),
            ("sec-fetch-site", "odd", false),
        ] {
            assert_eq!(
                admits("POST", "/", &[host, (name, value)]),
                fine,
                "{name}: {value}"
            );
            assert!(
                admits("GET", "/", &[host, (name, value)]),
                "{name}: {value}"
            );
        }
        assert!(admits("POST", "/", &[host]));
        assert!(!admits("POST", "/", &[("origin", "http://localhost")]));
    }
}
