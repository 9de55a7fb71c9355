//! Active health checking with Envoy's configuration.
