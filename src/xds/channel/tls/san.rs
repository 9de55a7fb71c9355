//! Which of the names that a certificate bears are wanted.

use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::server::ParsedCertificate;

use crate::config::{At, ConfigError};
use crate::pattern;
use crate::proto::envoy::extensions::transport_sockets::tls::v3::SubjectAltNameMatcher;
use crate::proto::envoy::extensions::transport_sockets::tls::v3::subject_alt_name_matcher::SanType;
use crate::proto::envoy::r#type::matcher::v3::StringMatcher;
use crate::proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

/// Says which names will do.
#[derive(Clone, Debug)]
pub(super) struct SanMatcher {
    /// None for any kind of name.
    kind: Option<SanType>,
    pattern: Pattern,
    ignore_case: bool,
}

#[derive(Clone, Debug)]
enum Pattern {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    /// It fits whole names, whatever `ignore_case` says.
    Regex(pattern::Pattern),
}

impl SanMatcher {
    pub(super) fn typed(message: &SubjectAltNameMatcher) -> Result<Self, ConfigError> {
        let kind = message.san_type();
        if !matches!(kind, SanType::Dns | SanType::Uri | SanType::IpAddress) {
            let reason = format!(
                "{} is not supported for a control plane",
                kind.as_str_name()
            );
            return Err(ConfigError::new("san_type", reason));
        }
        let Some(matcher) = &message.matcher else {
            return Err(ConfigError::new("matcher", "value is required"));
        };
        let read = Self::read(matcher, Some(kind)).map_err(|error| error.at("matcher"))?;
        let exact = matches!(read.pattern, Pattern::Exact(_));
        if kind == SanType::IpAddress && !exact {
            let reason = "an address can be matched by exact only";
            return Err(ConfigError::new("matcher", reason));
        }
        Ok(read)
    }

    pub(super) fn untyped(message: &StringMatcher) -> Result<Self, ConfigError> {
        Self::read(message, None)
    }

    fn read(message: &StringMatcher, kind: Option<SanType>) -> Result<Self, ConfigError> {
        let pattern = match &message.match_pattern {
            None => return Err(ConfigError::new("match_pattern", "value is required")),
            Some(MatchPattern::Exact(text)) => Pattern::Exact(text.clone()),
            Some(MatchPattern::Prefix(text)) => Pattern::Prefix(text.clone()),
            Some(MatchPattern::Suffix(text)) => Pattern::Suffix(text.clone()),
            Some(MatchPattern::Contains(text)) => Pattern::Contains(text.clone()),
            Some(MatchPattern::SafeRegex(matcher)) => {
                let regex = pattern::Pattern::whole(&matcher.regex).map_err(|cause| {
                    ConfigError::new("regex", format!("is no regular expression: {cause}"))
                });
                Pattern::Regex(regex.at("safe_regex")?)
            }
        };
        Ok(Self {
            kind,
            pattern,
            ignore_case: message.ignore_case,
        })
    }

    fn takes(&self, kind: SanType) -> bool {
        self.kind.is_none_or(|own| own == kind)
    }

    fn matches(&self, name: &str) -> bool {
        let fold = |text: &str| match self.ignore_case {
            true => text.to_ascii_lowercase(),
            false => text.to_owned(),
        };
        match &self.pattern {
            Pattern::Exact(pattern) => fold(name) == fold(pattern),
            Pattern::Prefix(pattern) => fold(name).starts_with(&fold(pattern)),
            Pattern::Suffix(pattern) => fold(name).ends_with(&fold(pattern)),
            Pattern::Contains(pattern) => fold(name).contains(&fold(pattern)),
            Pattern::Regex(regex) => regex.is_in(name),
        }
    }

    /// Whether the certificate is one for the server that an exact pattern names, be that by a wildcard or as
    /// an address.
    fn is_server(&self, certificate: &ParsedCertificate<'_>) -> bool {
        let Pattern::Exact(name) = &self.pattern else {
            return false;
        };
        let Ok(server) = ServerName::try_from(name.as_str()) else {
            return false;
        };
        let kind = match server {
            ServerName::IpAddress(_) => SanType::IpAddress,
            _ => SanType::Dns,
        };
        self.takes(kind) && verify_server_name(certificate, &server).is_ok()
    }
}

/// Whether a name of the certificate is wanted by one of `matchers`.
pub(super) fn matches(
    matchers: &[SanMatcher],
    der: &CertificateDer<'_>,
    certificate: &ParsedCertificate<'_>,
) -> bool {
    if matchers
        .iter()
        .any(|matcher| matcher.is_server(certificate))
    {
        return true;
    }
    let Ok(end) = webpki::EndEntityCert::try_from(der) else {
        return false;
    };
    let wants = |kind, name: &str| matchers.iter().any(|m| m.takes(kind) && m.matches(name));
    end.valid_dns_names().any(|name| wants(SanType::Dns, name))
        || end.valid_uri_names().any(|name| wants(SanType::Uri, name))
}
