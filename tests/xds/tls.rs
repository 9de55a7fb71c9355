//! TLS to control planes.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType, date_time_ymd,
};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::*;
use crate::control_plane::{ControlPlane, Listener};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        Self::named("one of many")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate and its key.
    fn issue(&self, names: &[&str], uri: &str) -> (rcgen::Certificate, KeyPair) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params
            .subject_alt_names
            .push(SanType::URI(uri.try_into().unwrap()));
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }

    /// A server with a certificate for `plane.test`, which asks for one if `mutual`.
    fn acceptor(&self, mutual: bool) -> TlsAcceptor {
        self.acceptor_with(
            mutual,
            self.issue(&["plane.test", "127.0.0.1"], "spiffe://test/plane"),
        )
    }

    /// A server whose certificate ended long ago, or begins long after.
    fn acceptor_of(&self, from: i32, to: i32) -> TlsAcceptor {
        let mut params = CertificateParams::new(vec!["plane.test".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        self.acceptor_with(false, (params.signed_by(&key, &self.0).unwrap(), key))
    }

    fn acceptor_with(
        &self,
        mutual: bool,
        (certificate, key): (rcgen::Certificate, KeyPair),
    ) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(self.0.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            config.with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let mut config = config.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    fn save(&self, directory: &Path) -> String {
        let path = directory.join("ca.pem");
        std::fs::write(&path, self.0.pem()).unwrap();
        path.display().to_string()
    }
}

/// A transport socket of TLS with more fields in its validation and beside it.
fn socket(ca: &str, validation: &str, common: &str) -> String {
    format!(
        "{H2}
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: plane.test
        common_tls_context:
          validation_context: {{trusted_ca: {{filename: {ca}}}, {validation}}}
          {common}"
    )
}

/// Whether a stream is opened.
async fn opens(acceptor: TlsAcceptor, resources: &str, fields: &str) -> bool {
    let (listener, address) = Listener::tcp().await;
    let mut plane = ControlPlane::serve(listener, Some(acceptor));
    let resources = resources.replace("PORT", &address.port().to_string());
    let daemon = Daemon::start(&bootstrap(&resources, address, fields));
    within(async {
        tokio::select! {
            _ = plane.stream() => true,
            () = daemon.when(|daemon| daemon.stat("cluster_manager.cds.update_failure") > 0) => false,
        }
    })
    .await
}

#[tokio::test]
async fn a_cluster_trusts_its_authority_and_the_names_it_asks_for() {
    let directory = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new(), Authority::new());
    let ca = authority.save(directory.path());
    let acceptor = || authority.acceptor(false);
    let ads = ads("GRPC");
    assert!(opens(acceptor(), &ads, &socket(&ca, "", "")).await);
    assert!(
        !opens(other.acceptor(false), &ads, &socket(&ca, "", "")).await,
        "another authority"
    );
    for (matcher, wanted) in [
        ("{san_type: DNS, matcher: {exact: plane.test}}", true),
        (
            "{san_type: DNS, matcher: {exact: PLANE.test, ignore_case: true}}",
            true,
        ),
        ("{san_type: DNS, matcher: {exact: other.test}}", false),
        ("{san_type: DNS, matcher: {suffix: .test}}", true),
        (
            "{san_type: URI, matcher: {prefix: \"spiffe://test/\"}}",
            true,
        ),
        (
            "{san_type: URI, matcher: {exact: \"spiffe://other/plane\"}}",
            false,
        ),
        ("{san_type: URI, matcher: {exact: plane.test}}", false),
        (
            r"{san_type: DNS, matcher: {safe_regex: {regex: '[a-z]+\.test'}}}",
            true,
        ),
        (
            "{san_type: DNS, matcher: {safe_regex: {regex: plane}}}",
            false,
        ),
        (
            "{san_type: DNS, matcher: {safe_regex: {regex: 'x|plane'}}}",
            false,
        ),
        (
            "{san_type: DNS, matcher: {safe_regex: {regex: 'PLANE.test'}, ignore_case: true}}",
            false,
        ),
        (
            "{san_type: URI, matcher: {safe_regex: {regex: 'spiffe://[^/]+/(plane|other)'}}}",
            true,
        ),
        ("{san_type: IP_ADDRESS, matcher: {exact: 127.0.0.1}}", true),
        ("{san_type: IP_ADDRESS, matcher: {exact: 127.0.0.2}}", false),
    ] {
        let validation = format!("match_typed_subject_alt_names: [{matcher}]");
        assert_eq!(
            opens(acceptor(), &ads, &socket(&ca, &validation, "")).await,
            wanted,
            "{matcher}"
        );
    }
}

#[tokio::test]
async fn a_certificate_that_has_ended_or_is_yet_to_begin_is_not_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ca = authority.save(directory.path());
    let socket = socket(&ca, "", "");
    assert!(opens(authority.acceptor_of(2000, 4000), &ads("GRPC"), &socket).await);
    for (from, to) in [(2000, 2001), (3999, 4000)] {
        let acceptor = authority.acceptor_of(from, to);
        assert!(
            !opens(acceptor, &ads("GRPC"), &socket).await,
            "{from} to {to}"
        );
    }
}

/// Why no stream is opened, without the address.
async fn failure(acceptor: TlsAcceptor, fields: &str) -> String {
    let (listener, address) = Listener::tcp().await;
    let _plane = ControlPlane::serve(listener, Some(acceptor));
    let daemon = Daemon::start(&bootstrap(&ads("GRPC"), address, fields));
    let reason = daemon.failure().await;
    let reason = reason.strip_prefix(&format!("{address}: "));
    reason.unwrap().to_owned()
}

#[tokio::test]
async fn why_a_certificate_is_not_trusted_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new(), Authority::named("another"));
    let ca = authority.save(directory.path());
    let any_name = socket(&ca, "", "");
    let matcher = "match_typed_subject_alt_names: [{san_type: DNS, matcher: {exact: other.test}}]";
    let own_name = socket(&ca, matcher, "");
    for (acceptor, fields, wanted) in [
        (other.acceptor(false), &any_name, "UnknownIssuer"),
        (authority.acceptor_of(2000, 2001), &any_name, "expired"),
        (
            authority.acceptor_of(3999, 4000),
            &any_name,
            "not valid yet",
        ),
        (authority.acceptor(false), &own_name, "NotValidForName"),
    ] {
        let told = failure(acceptor, fields).await;
        let begins = told.starts_with("invalid peer certificate: ");
        assert!(begins && told.contains(wanted), "{wanted}: {told}");
    }
}

#[tokio::test]
async fn a_handshake_that_is_not_answered_ends_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new().save(directory.path());
    // Connections are made by the system, and never taken.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let text = bootstrap(&ads("GRPC"), address, &socket(&ca, "", ""));
    let daemon = Daemon::start(&text.replace("connect_timeout: 5s", "connect_timeout: 0.05s"));
    let reason = daemon.failure().await;
    assert_eq!(reason, format!("{address}: deadline has elapsed"));
}

#[tokio::test]
async fn a_client_shows_its_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ca = authority.save(directory.path());
    let (certificate, key) = authority.issue(&["client.test"], "spiffe://test/client");
    let (chain, own) = (
        directory.path().join("chain.pem"),
        directory.path().join("key.pem"),
    );
    std::fs::write(&chain, certificate.pem()).unwrap();
    std::fs::write(&own, key.serialize_pem()).unwrap();
    let identity = format!(
        "tls_certificates: [{{certificate_chain: {{filename: {}}}, private_key: {{filename: {}}}}}]",
        chain.display(),
        own.display()
    );
    let ads = ads("GRPC");
    assert!(opens(authority.acceptor(true), &ads, &socket(&ca, "", &identity)).await);
    assert!(!opens(authority.acceptor(true), &ads, &socket(&ca, "", "")).await);
}

#[tokio::test]
async fn a_target_must_have_the_name_that_it_is_asked_by() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let ca = authority.save(directory.path());
    let target = |host: &str| {
        format!(
            "cds_config: {{ads: {{}}}}, ads_config: {{api_type: GRPC, grpc_services: [{{google_grpc: \
             {{target_uri: \"{host}:PORT\", stat_prefix: x, channel_credentials: \
             {{ssl_credentials: {{root_certs: {{filename: {ca}}}}}}}}}}}]}}"
        )
    };
    assert!(opens(authority.acceptor(false), &target("127.0.0.1"), "").await);
    assert!(!opens(authority.acceptor(false), &target("dns:///localhost"), "").await);
}

#[tokio::test]
async fn what_would_trust_anybody_is_refused() {
    let refused = |socket: &str, wanted: &str| {
        let text = bootstrap(&ads("GRPC"), "127.0.0.1:1".parse().unwrap(), socket);
        let bootstrap = Bootstrap::from_yaml(&text, &mut Warnings::default()).unwrap();
        let error = Client::new(&bootstrap, Registry::default(), Arc::default()).unwrap_err();
        let error = error.to_string();
        assert!(error.ends_with(wanted), "{error}");
    };
    let ca = socket("/no/such", "", "");
    refused(
        &ca,
        "trusted_ca \"/no/such\" cannot be read: No such file or directory (os error 2)",
    );
    refused(
        &ca.replace("trusted_ca: {filename: /no/such},", ""),
        "in the cluster \"plane\": transport_socket.typed_config.common_tls_context.validation_context.trusted_ca: \
         value is required: the certificate of a control plane is always verified",
    );
    refused(
        &socket(
            "/no/such",
            "match_typed_subject_alt_names: [{san_type: DNS, matcher: {safe_regex: {regex: 'a)|(b'}}}]",
            "",
        ),
        "match_typed_subject_alt_names[0].matcher.safe_regex.regex: is no regular expression: unopened group",
    );
    refused(
        &socket("/no/such", "trust_chain_verification: ACCEPT_UNTRUSTED", ""),
        "validation_context.trust_chain_verification: is not supported for a control plane",
    );
}
