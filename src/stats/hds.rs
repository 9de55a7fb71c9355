//! How the exchange with a health discovery service fares.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{Counter, Gauge, Sample};

/// The `hds_delegate.` stats, listed once there is a health discovery service.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct HdsStats {
    /// `requests`: specifiers that came.
    pub requests: Counter,
    /// `responses`: messages that were sent, the first of each stream included.
    pub responses: Counter,
    /// `errors`: streams that ended or could not be opened, and specifiers that were refused, in part at least.
    pub errors: Counter,
    /// `updates`: specifiers that were applied, in part at least. One that is the same as the one before it on
    /// its stream is none.
    pub updates: Counter,
    /// `xds_health.hds.reports_skipped`: reports left out because the server had not yet taken earlier ones.
    pub skipped: Counter,
    /// `xds_health.hds.connected_state`: 1 while a stream is open on which a specifier came.
    pub connected: Gauge,
    /// `xds_health.hds.report_bytes`: length of the last report.
    pub report_bytes: Gauge,
    in_use: AtomicBool,
}

impl HdsStats {
    /// There is a health discovery service, so the stats are to be listed.
    pub fn use_them(&self) {
        self.in_use.store(true, Relaxed);
        self.connected.set(0);
        self.report_bytes.set(0);
    }

    pub(super) fn samples(&self, to: &mut Vec<Sample>) {
        if !self.in_use.load(Relaxed) {
            return;
        }
        for (name, counter) in [
            ("hds_delegate.requests", &self.requests),
            ("hds_delegate.responses", &self.responses),
            ("hds_delegate.errors", &self.errors),
            ("hds_delegate.updates", &self.updates),
            ("xds_health.hds.reports_skipped", &self.skipped),
        ] {
            to.push(Sample::counter(name.to_owned(), counter));
        }
        for (name, gauge) in [
            ("xds_health.hds.connected_state", &self.connected),
            ("xds_health.hds.report_bytes", &self.report_bytes),
        ] {
            to.push(Sample::gauge(name.to_owned(), gauge));
        }
    }
}
