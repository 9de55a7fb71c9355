//! TLS to control planes.
//!
//! The chain of the server's certificate is always verified: where no CA is named, `google_grpc` takes those of
//! the system, as gRPC does, and a cluster is refused, where Envoy would trust anybody. As with Envoy, a
//! cluster's certificate may bear any name unless the configuration asks for some.

use std::net::SocketAddr;
use std::sync::Arc;
use std::{fmt, io};

use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use super::Io;
use crate::config::ConfigError;
use crate::proto::envoy::config::core::v3::DataSource;
use crate::proto::envoy::config::core::v3::data_source::Specifier;
use crate::proto::envoy::config::core::v3::grpc_service::google_grpc::SslCredentials;
use crate::proto::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;

mod read;
mod san;

use san::SanMatcher;

/// How TLS is spoken to a control plane. Files are read at each connect.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    roots: Roots,
    identity: Option<(DataSource, DataSource)>,
    sni: Option<String>,
    names: Names,
    versions: Vec<&'static rustls::SupportedProtocolVersion>,
}

#[derive(Clone, Debug)]
enum Roots {
    System,
    Pem(DataSource),
}

/// Which names the server's certificate must bear.
#[derive(Clone, Debug)]
enum Names {
    Any,
    /// The one that it is asked for by.
    Asked,
    /// One of them at least.
    Match(Vec<SanMatcher>),
}

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{what} {path:?} cannot be read: {error}")]
    File {
        what: &'static str,
        path: String,
        error: io::Error,
    },
    #[error("{what}: {reason}")]
    Pem { what: &'static str, reason: String },
    #[error("the certificates of the system cannot be read: {0}")]
    System(String),
    #[error("{0}")]
    Rustls(#[from] rustls::Error),
    #[error("{0:?} is no name that a server can be asked for by")]
    Name(String),
}

/// Bytes of a file of certificates or keys.
const MOST_BYTES: usize = 16 << 20;

/// TLS that is ready to be spoken.
#[derive(Clone)]
pub(super) struct Client {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Client {
    pub(super) async fn connect(self, io: Box<dyn Io>) -> io::Result<TlsStream<Box<dyn Io>>> {
        self.connector.connect(self.name, io).await
    }
}

impl Tls {
    /// As a cluster's transport socket says. `auto_sni` is the name to ask for where it names none; `verify`
    /// is `auto_san_validation`.
    pub(super) fn of_cluster(
        context: &UpstreamTlsContext,
        auto_sni: Option<&str>,
        verify: bool,
    ) -> Result<Self, ConfigError> {
        read::of_cluster(context, auto_sni, verify)
    }

    /// As `ssl_credentials` say, for the server of name `host`.
    pub(super) fn of_target(ssl: &SslCredentials, host: &str) -> Result<Self, ConfigError> {
        read::of_target(ssl, host)
    }

    /// Reads what is in files, for a connection to `address`.
    pub(super) fn client(&self, address: Option<SocketAddr>) -> Result<Client, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Verifier {
            roots: self.roots()?,
            provider: Arc::clone(&provider),
            names: self.names.clone(),
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&self.versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = certificates("certificate_chain", chain)?;
                let pem = load("private_key", key)?;
                let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| TlsError::Pem {
                    what: "private_key",
                    reason: error.to_string(),
                })?;
                config.with_client_auth_cert(chain, key)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = match (&self.sni, address) {
            (Some(sni), _) => {
                let name = ServerName::try_from(sni.clone());
                name.map_err(|_| TlsError::Name(sni.clone()))?
            }
            // The name of an address is not sent.
            (None, Some(address)) => address.ip().into(),
            (None, None) => {
                config.enable_sni = false;
                let name = ServerName::try_from("localhost");
                name.map_err(|_| TlsError::Name("localhost".to_owned()))?
            }
        };
        Ok(Client {
            connector: TlsConnector::from(Arc::new(config)),
            name,
        })
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut store = RootCertStore::empty();
        match &self.roots {
            Roots::System => {
                let found = rustls_native_certs::load_native_certs();
                store.add_parsable_certificates(found.certs);
                if store.is_empty() {
                    let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
                    return Err(TlsError::System(reasons.join("; ")));
                }
            }
            Roots::Pem(source) => {
                for certificate in certificates("trusted_ca", source)? {
                    store.add(certificate)?;
                }
            }
        }
        Ok(store)
    }
}

fn certificates(
    what: &'static str,
    source: &DataSource,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = load(what, source)?;
    let wrong = |reason: String| TlsError::Pem { what, reason };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() {
        return Err(wrong("there is no certificate in it".to_owned()));
    }
    Ok(found)
}

fn load(what: &'static str, source: &DataSource) -> Result<Vec<u8>, TlsError> {
    match &source.specifier {
        None => Ok(Vec::new()),
        Some(Specifier::InlineBytes(bytes)) => Ok(bytes.clone()),
        Some(Specifier::InlineString(text)) => Ok(text.clone().into_bytes()),
        Some(Specifier::Filename(path)) => {
            let read = crate::xds::read::file(path.as_ref(), MOST_BYTES);
            read.map_err(|error| TlsError::File {
                what,
                path: path.clone(),
                error,
            })
        }
        Some(Specifier::EnvironmentVariable(name)) => match std::env::var(name) {
            Ok(value) => Ok(value.into_bytes()),
            Err(error) => Err(TlsError::Pem {
                what,
                reason: format!("environment variable {name:?}: {error}"),
            }),
        },
    }
}

/// Trusts chains that end in the roots, and the names that are asked for.
#[derive(Debug)]
struct Verifier {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
    names: Names,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        match &self.names {
            Names::Any => (),
            Names::Asked => verify_server_name(&certificate, server_name)?,
            Names::Match(matchers) => {
                if !san::matches(matchers, end_entity, &certificate) {
                    return Err(CertificateError::NotValidForName.into());
                }
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
