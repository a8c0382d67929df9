//! The stack `raw` behind the common interface of targets.

use super::{Notice, TargetError, TargetReport, TargetSettings};
use crate::contract::CallRecord;
use crate::contract::message::Connection;
use crate::otlp::{CallSpan, Method, Side, SpanSink};
use crate::raw::server::{Observer, RawReport, RawSettings, RawTarget};
use std::net::SocketAddr;
use std::sync::Arc;

/// A target that listens but does not serve yet.
pub struct RawStack {
    target: RawTarget,
    spans: Option<SpanSink>,
}

/// Makes a SERVER span of every recorded call.
struct ToSpans(SpanSink);

impl Observer for ToSpans {
    fn records(&self) -> bool {
        true
    }
    fn connected(&self, _: &Connection) {}
    fn served(&self, call: &CallRecord, connection: &Connection) {
        let ends = Some((connection.local, connection.peer));
        self.0.record(CallSpan::of_record(Side::Server, Method::RawPing, call, ends));
    }
}

impl RawStack {
    pub fn bind(settings: &TargetSettings, spans: Option<SpanSink>) -> Result<Self, TargetError> {
        let target = RawTarget::bind(RawSettings {
            listen: settings.listen.clone(),
            response_bytes: settings.response_bytes,
            think_ns: settings.think_ns,
            nodelay: settings.nodelay,
        })?;
        Ok(RawStack { target, spans })
    }

    pub fn address(&self) -> SocketAddr {
        self.target.address()
    }

    pub async fn serve(
        self,
        stop: impl Future<Output = ()>,
        notice: &Notice,
    ) -> Result<TargetReport, TargetError> {
        let server = self.target.start(match self.spans {
            Some(spans) => Arc::new(ToSpans(spans)),
            None => Arc::new(()),
        })?;
        stop.await;
        let stopped = tokio::task::spawn_blocking(move || server.stop()).await;
        let report = stopped.map_err(|panicked| TargetError::Failed(panicked.to_string()))?;
        tell_of_connections(&report, notice);
        Ok(TargetReport {
            calls: report.calls,
            by_status: report.by_status,
            malformed_traceparent: report.malformed_traceparent,
            cut_off: report.cut_off,
            ..TargetReport::default()
        })
    }
}

fn tell_of_connections(report: &RawReport, notice: &Notice) {
    if report.malformed_connections > 0 {
        let last = report.last_malformed.as_deref().unwrap_or("unknown");
        let count = report.malformed_connections;
        notice(format!("{count} connections did not speak the raw protocol (the last one: {last})"));
    }
    if report.refused_connections > 0 {
        notice(format!("{} connections were refused as too many", report.refused_connections));
    }
}
