//! From messages to what TLS needs. What cannot be done is refused by name, so that nothing is trusted that
//! the configuration does not trust.

use tokio_rustls::rustls::SupportedProtocolVersion;
use tokio_rustls::rustls::version::{TLS12, TLS13};

use super::{Names, Roots, SanMatcher, Tls};
use crate::config::{At, ConfigError};
use crate::proto::envoy::config::core::v3::DataSource;
use crate::proto::envoy::config::core::v3::grpc_service::google_grpc::SslCredentials;
use crate::proto::envoy::extensions::transport_sockets::tls::v3::certificate_validation_context::TrustChainVerification;
use crate::proto::envoy::extensions::transport_sockets::tls::v3::common_tls_context::ValidationContextType;
use crate::proto::envoy::extensions::transport_sockets::tls::v3::tls_parameters::TlsProtocol;
use crate::proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, TlsCertificate, TlsParameters,
    UpstreamTlsContext,
};
use crate::validate::Validate;

const VERIFIED: &str = "value is required: the certificate of a control plane is always verified";

pub(super) fn of_cluster(
    context: &UpstreamTlsContext,
    auto_sni: Option<&str>,
    verify: bool,
) -> Result<Tls, ConfigError> {
    if let Err(faults) = context.validate()
        && let Some(error) = ConfigError::from_faults(faults)
    {
        return Err(error);
    }
    let sni = Some(context.sni.as_str()).filter(|sni| !sni.is_empty());
    let sni = sni.or(auto_sni);
    let default = CommonTlsContext::default();
    let common = context.common_tls_context.as_ref().unwrap_or(&default);
    let asked = verify || context.auto_sni_san_validation;
    if asked && sni.is_none() {
        let reason = "there is no name to verify: give sni";
        return Err(ConfigError::new("auto_sni_san_validation", reason));
    }
    read_common(common, sni, asked).at("common_tls_context")
}

fn read_common(
    common: &CommonTlsContext,
    sni: Option<&str>,
    asked: bool,
) -> Result<Tls, ConfigError> {
    let Some(ValidationContextType::ValidationContext(validation)) =
        &common.validation_context_type
    else {
        return Err(ConfigError::new("validation_context.trusted_ca", VERIFIED));
    };
    let (roots, matchers) = read_validation(validation).at("validation_context")?;
    let names = if !matchers.is_empty() {
        Names::Match(matchers)
    } else if asked {
        Names::Asked
    } else {
        Names::Any
    };
    let identity = match &*common.tls_certificates {
        [] => None,
        [one] => Some(read_certificate(one).at_index("tls_certificates", 0)?),
        _ => {
            return Err(ConfigError::new(
                "tls_certificates",
                "only one is supported",
            ));
        }
    };
    let params = common.tls_params.as_ref();
    let versions = params.map_or_else(|| Ok(vec![&TLS13, &TLS12]), read_params);
    Ok(Tls {
        roots,
        identity,
        sni: sni.map(str::to_owned),
        names,
        versions: versions.at("tls_params")?,
    })
}

fn read_validation(
    message: &CertificateValidationContext,
) -> Result<(Roots, Vec<SanMatcher>), ConfigError> {
    for (name, set) in [
        (
            "verify_certificate_hash",
            !message.verify_certificate_hash.is_empty(),
        ),
        (
            "verify_certificate_spki",
            !message.verify_certificate_spki.is_empty(),
        ),
        ("crl", message.crl.is_some()),
        (
            "allow_expired_certificate",
            message.allow_expired_certificate,
        ),
        ("max_verify_depth", message.max_verify_depth.is_some()),
        (
            "trust_chain_verification",
            message.trust_chain_verification() != TrustChainVerification::VerifyTrustChain,
        ),
    ] {
        if set {
            return Err(ConfigError::new(
                name,
                "is not supported for a control plane",
            ));
        }
    }
    let roots = match (&message.trusted_ca, &message.system_root_certs) {
        (Some(source), _) if source.specifier.is_some() => Roots::Pem(source.clone()),
        (_, Some(_)) => Roots::System,
        _ => {
            return Err(ConfigError::new("trusted_ca", VERIFIED));
        }
    };
    let typed = message.match_typed_subject_alt_names.iter().enumerate();
    let typed = typed.map(|(index, matcher)| {
        SanMatcher::typed(matcher).at_index("match_typed_subject_alt_names", index)
    });
    let any = message.match_subject_alt_names.iter().enumerate();
    let any = any.map(|(index, matcher)| {
        SanMatcher::untyped(matcher).at_index("match_subject_alt_names", index)
    });
    let matchers: Result<Vec<_>, _> = typed.chain(any).collect();
    Ok((roots, matchers?))
}

fn read_certificate(message: &TlsCertificate) -> Result<(DataSource, DataSource), ConfigError> {
    if message.password.is_some() {
        return Err(ConfigError::new(
            "password",
            "is not supported for a control plane",
        ));
    }
    pair(
        message.certificate_chain.as_ref(),
        message.private_key.as_ref(),
    )
    .map_err(|field| ConfigError::new(field, "value is required"))
    .and_then(|pair| pair.ok_or_else(|| ConfigError::new("certificate_chain", "value is required")))
}

/// Both or neither.
fn pair(
    chain: Option<&DataSource>,
    key: Option<&DataSource>,
) -> Result<Option<(DataSource, DataSource)>, &'static str> {
    match (chain, key) {
        (None, None) => Ok(None),
        (Some(chain), Some(key)) => Ok(Some((chain.clone(), key.clone()))),
        (None, Some(_)) => Err("certificate_chain"),
        (Some(_), None) => Err("private_key"),
    }
}

fn read_params(
    message: &TlsParameters,
) -> Result<Vec<&'static SupportedProtocolVersion>, ConfigError> {
    for (name, set) in [
        ("cipher_suites", !message.cipher_suites.is_empty()),
        ("ecdh_curves", !message.ecdh_curves.is_empty()),
        (
            "signature_algorithms",
            !message.signature_algorithms.is_empty(),
        ),
        (
            "compliance_policies",
            !message.compliance_policies.is_empty(),
        ),
    ] {
        if set {
            return Err(ConfigError::new(
                name,
                "is not supported for a control plane",
            ));
        }
    }
    let least = message.tls_minimum_protocol_version();
    let most = message.tls_maximum_protocol_version();
    let mut versions = Vec::new();
    if most == TlsProtocol::TlsAuto || most >= TlsProtocol::TlSv13 {
        versions.push(&TLS13);
    }
    if least < TlsProtocol::TlSv13 && (most == TlsProtocol::TlsAuto || most >= TlsProtocol::TlSv12)
    {
        versions.push(&TLS12);
    }
    if versions.is_empty() {
        let reason = "only TLS 1.2 and 1.3 are supported";
        return Err(ConfigError::new("tls_maximum_protocol_version", reason));
    }
    Ok(versions)
}

pub(super) fn of_target(ssl: &SslCredentials, host: &str) -> Result<Tls, ConfigError> {
    let identity = pair(ssl.cert_chain.as_ref(), ssl.private_key.as_ref()).map_err(|field| {
        let field = if field == "certificate_chain" {
            "cert_chain"
        } else {
            field
        };
        ConfigError::new(field, "value is required")
    })?;
    Ok(Tls {
        roots: ssl.root_certs.clone().map_or(Roots::System, Roots::Pem),
        identity,
        sni: Some(host.to_owned()),
        names: Names::Asked,
        versions: vec![&TLS13, &TLS12],
    })
}
