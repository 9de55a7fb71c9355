//! Fields that Envoy 1.40 has and the messages of the crate leave out, since nothing here depends on
//! them. A text may give them; they are passed over, with whatever is under them.

use super::suggest::camel_case;

/// Whether Envoy's `message` has a field `name`, in either spelling, that ours lacks.
pub(super) fn is_unused(message: &str, name: &str) -> bool {
    unused(message)
        .iter()
        .any(|&field| field == name || camel_case(field) == name)
}

/// The fields of Envoy's `message` that ours lacks.
pub(super) fn unused(message: &str) -> &'static [&'static str] {
    match UNUSED.binary_search_by_key(&message, |&(name, _)| name) {
        Ok(index) => UNUSED[index].1,
        Err(_) => &[],
    }
}

/// By message, in order of their names.
const UNUSED: &[(&str, &[&str])] = &[
    ("envoy.config.bootstrap.v3.Admin", &["access_log"]),
    (
        "envoy.config.bootstrap.v3.Bootstrap",
        &[
            "application_log_config",
            "bootstrap_extensions",
            "certificate_provider_instances",
            "config_sources",
            "default_config_source",
            "default_regex_engine",
            "default_socket_interface",
            "deferred_stat_options",
            "dns_resolution_config",
            "enable_dispatcher_stats",
            "enable_worker_cpu_affinity",
            "fatal_actions",
            "flags_path",
            "grpc_async_client_manager_config",
            "header_prefix",
            "inline_headers",
            "listener_manager",
            "memory_allocator_manager",
            "overload_manager",
            "perf_tracing_file_path",
            "stats_config",
            "stats_eviction_interval",
            "stats_flush_on_admin",
            "stats_server_version_override",
            "stats_sinks",
            "tracing",
            "use_tcp_for_dns_lookups",
            "watchdog",
            "watchdogs",
            "xds_config_tracker_extension",
            "xds_delegate_extension",
        ],
    ),
    (
        "envoy.config.bootstrap.v3.Bootstrap.StaticResources",
        &["listeners", "secrets"],
    ),
    (
        "envoy.config.bootstrap.v3.ClusterManager",
        &["outlier_detection"],
    ),
    (
        "envoy.config.cluster.v3.CircuitBreakers.Thresholds",
        &["retry_budget"],
    ),
    (
        "envoy.config.cluster.v3.Cluster",
        &[
            "common_http_protocol_options",
            "connection_pool_per_downstream_connection",
            "dns_resolution_config",
            "filters",
            "lb_subset_config",
            "least_request_lb_config",
            "lrs_report_endpoint_metrics",
            "lrs_server",
            "maglev_lb_config",
            "max_requests_per_connection",
            "original_dst_lb_config",
            "outlier_detection",
            "per_connection_buffer_high_watermark_timeout",
            "preconnect_policy",
            "protocol_selection",
            "queuing_policies",
            "ring_hash_lb_config",
            "round_robin_lb_config",
            "stats_matcher",
            "track_cluster_stats",
            "track_timeout_budgets",
            "transport_socket_matcher",
            "upstream_config",
            "upstream_http_protocol_options",
        ],
    ),
    (
        "envoy.config.cluster.v3.Cluster.CommonLbConfig",
        &[
            "consistent_hashing_lb_config",
            "locality_weighted_lb_config",
            "zone_aware_lb_config",
        ],
    ),
    (
        "envoy.config.cluster.v3.UpstreamConnectionOptions",
        &["happy_eyeballs_config"],
    ),
    (
        "envoy.config.core.v3.GrpcService.GoogleGrpc",
        &[
            "call_credentials_plugin",
            "channel_args",
            "channel_credentials_plugin",
            "config",
            "credentials_factory_name",
            "per_stream_buffer_limit_bytes",
        ],
    ),
    (
        "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials",
        &[
            "access_token",
            "from_plugin",
            "google_compute_engine",
            "google_iam",
            "google_refresh_token",
            "service_account_jwt_access",
            "sts_service",
        ],
    ),
    (
        "envoy.config.core.v3.Http1ProtocolOptions",
        &[
            "accept_http_10",
            "allow_absolute_url",
            "allow_chunked_length",
            "allow_custom_methods",
            "default_host_for_http_10",
            "enable_trailers",
            "header_key_format",
            "ignore_http_11_upgrade",
            "override_stream_error_on_invalid_http_message",
            "send_fully_qualified_url",
            "use_balsa_parser",
        ],
    ),
    (
        "envoy.config.core.v3.Http2ProtocolOptions",
        &[
            "allow_connect",
            "allow_metadata",
            "custom_settings_parameters",
            "disallow_obs_text",
            "enable_huffman_encoding",
            "hpack_table_size",
            "max_consecutive_inbound_frames_with_empty_payload",
            "max_header_field_size_kb",
            "max_inbound_priority_frames_per_stream",
            "max_inbound_window_update_frames_per_data_frame_sent",
            "max_metadata_size",
            "max_outbound_control_frames",
            "max_outbound_frames",
            "override_stream_error_on_invalid_http_message",
            "stream_error_on_invalid_http_messaging",
            "stream_reset_burst",
            "stream_reset_rate",
            "use_oghttp2_codec",
        ],
    ),
    (
        "envoy.config.core.v3.Http3ProtocolOptions",
        &[
            "allow_extended_connect",
            "allow_metadata",
            "disable_connection_flow_control_for_streams",
            "disable_qpack",
            "disallow_obs_text",
            "override_stream_error_on_invalid_http_message",
            "quic_protocol_options",
        ],
    ),
    (
        "envoy.config.core.v3.RetryPolicy",
        &[
            "host_selection_retry_max_attempts",
            "retry_host_predicate",
            "retry_on",
            "retry_priority",
        ],
    ),
    ("envoy.config.core.v3.TlvEntry", &["format_string"]),
    (
        "envoy.extensions.health_checkers.redis.v3.Redis",
        &["aws_iam"],
    ),
    (
        "envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext",
        &[
            "ca_certificate_provider_instance",
            "custom_validator_config",
            "require_signed_certificate_timestamp",
            "suppress_client_ca_list",
        ],
    ),
    (
        "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext",
        &[
            "combined_validation_context",
            "custom_handshaker",
            "custom_tls_certificate_selector",
            "key_log",
            "tls_certificate_certificate_provider",
            "tls_certificate_certificate_provider_instance",
            "tls_certificate_provider_instance",
            "tls_certificate_sds_secret_configs",
            "validation_context_certificate_provider",
            "validation_context_certificate_provider_instance",
            "validation_context_sds_secret_config",
        ],
    ),
    (
        "envoy.extensions.transport_sockets.tls.v3.TlsCertificate",
        &[
            "ocsp_staple",
            "pkcs12",
            "private_key_provider",
            "signed_certificate_timestamp",
            "tls_params",
        ],
    ),
    (
        "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        &["enforce_rsa_key_usage"],
    ),
    (
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        &[
            "common_http_protocol_options",
            "hash_policy",
            "header_validation_config",
            "http_filters",
            "outlier_detection",
            "request_mirror_policies",
            "retry_policy",
        ],
    ),
    (
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions.AutoHttpConfig",
        &["alternate_protocols_cache_options"],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::descriptor_pool;

    #[test]
    fn a_field_that_we_have_is_not_listed() {
        assert!(UNUSED.is_sorted_by_key(|(name, _)| name));
        for (name, fields) in UNUSED {
            let message = descriptor_pool()
                .get_message_by_name(name)
                .unwrap_or_else(|| panic!("{name} is not ours"));
            assert!(fields.is_sorted(), "{name}");
            for field in *fields {
                assert!(
                    message.get_field_by_name(field).is_none(),
                    "{name} has {field}"
                );
            }
        }
    }

    #[test]
    fn both_spellings_are_known() {
        let cluster = "envoy.config.cluster.v3.Cluster";
        assert!(is_unused(cluster, "ring_hash_lb_config"));
        assert!(is_unused(cluster, "ringHashLbConfig"));
        assert!(!is_unused(cluster, "health_checks"));
        assert!(!is_unused("envoy.config.cluster.v3.Custard", "x"));
    }
}
