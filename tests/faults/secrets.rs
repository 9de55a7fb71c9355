//! What must not be told to anybody who reads logs or the admin port.

use crate::bed::Daemon;

const KEY: &str = "MC4CAQAwBQYDK2VwBCIEIPaTXGmiYOmZT7mZkzvpW";
const TOKEN: &str = "Bearer-of-bad-news";

#[test]
fn keys_and_tokens_are_neither_logged_nor_dumped() {
    // Nobody listens there; the key is none, which is found out at the first connect.
    let more = format!(
        "  - name: plane
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment: {{cluster_name: plane, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 9}}}}}}}}]}}]}}
dynamic_resources:
  ads_config:
    api_type: GRPC
    transport_api_version: V3
    grpc_services:
    - envoy_grpc: {{cluster_name: plane}}
      initial_metadata: [{{key: authorization, value: {TOKEN}}}, {{key: x-bin, raw_value: aGVsbG8=}}]
  cds_config: {{resource_api_version: V3, ads: {{}}}}
"
    );
    let daemon = Daemon::start_by("", &more, |command| command.args(["--log-level", "trace"]));
    daemon.until_logged("cannot connect");
    let dump = daemon.page("/config_dump?include_eds").unwrap();
    assert!(
        dump.contains("initial_metadata") && dump.contains("[redacted]"),
        "{dump}"
    );
    for page in [dump, daemon.page("/server_info").unwrap(), daemon.stop()] {
        assert!(!page.contains(TOKEN), "{page}");
        assert!(!page.contains("aGVsbG8"), "{page}");
    }
}

#[test]
fn a_key_that_cannot_be_read_is_not_quoted() {
    let text = format!(
        "static_resources:
  clusters:
  - name: plane
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        common_tls_context:
          validation_context: {{system_root_certs: {{}}}}
          tls_certificates:
          - certificate_chain: {{inline_string: \"-----BEGIN CERTIFICATE-----\\n{KEY}\\n-----END CERTIFICATE-----\"}}
            private_key: {{inline_string: \"-----BEGIN PRIVATE KEY-----\\n{KEY}\\n-----END PRIVATE KEY-----\"}}
    load_assignment: {{cluster_name: plane, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 9}}}}}}}}]}}]}}
dynamic_resources:
  ads_config: {{api_type: GRPC, transport_api_version: V3, grpc_services: [{{envoy_grpc: {{cluster_name: plane}}}}]}}
"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bootstrap.yaml");
    std::fs::write(&path, text).unwrap();
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_xds-health"))
        .args(["validate".as_ref(), "-c".as_ref(), path.as_os_str()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(!said.contains(KEY), "{said}");
}
