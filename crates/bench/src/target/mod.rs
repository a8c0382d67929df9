//! The server of the pair: answers pings. `rust` and `raw` are served by this process, the other stacks by a
//! program that it starts; all get the same settings and produce the same report.

mod answer;
mod calls;
mod counting;
mod error;
mod failing;
mod program;
mod raw;
mod rust;
mod think;
mod workers;

pub use answer::LIBRARY;
pub use error::TargetError;
pub use failing::{Failing, PREVIOUS_ATTEMPTS};

use crate::contract::{Nodelay, TargetStack};
use crate::otlp::{ExportSettings, Exporter, SpanCounts};
use crate::ping;
use crate::programs::Programs;
use program::ProgramTarget;
use raw::RawStack;
use rust::RustTarget;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Grace period for calls in progress at the end.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Windows that HTTP/2 permits: a connection's initial window is 65,535 bytes and can only be enlarged.
const WINDOWS: std::ops::RangeInclusive<u32> = 65_535..=(1 << 31) - 1;

/// Settings of a target.
#[derive(Clone, Debug)]
pub struct TargetSettings {
    /// Stack.
    pub stack: TargetStack,
    /// `HOST:PORT`; port 0 picks any free one.
    pub listen: String,
    /// Default payload of a response.
    pub response_bytes: u64,
    /// Default delay of a response, in nanoseconds.
    pub think_ns: u64,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`; `None` for the library's default.
    pub max_streams: Option<u32>,
    /// Serving threads; `rust` uses those of the runtime it is called in. `None` for the stack's default: one
    /// in `rust` and the programs, one per connection in `raw`.
    pub threads: Option<u32>,
    /// Maximum number of calls handled concurrently; more wait in a queue before their SERVER span starts.
    /// `None` for no limit.
    pub workers: Option<u32>,
    /// Occasional large responses, unless the request sets a size.
    pub large_response: Option<LargeResponse>,
    /// `TCP_NODELAY` of accepted connections.
    pub nodelay: Nodelay,
    /// HTTP/2 flow-control window of a connection and of each stream, in bytes; `None` for the library's
    /// default.
    pub window: Option<u32>,
    /// Injected failures of single pings.
    pub fail: Option<Failing>,
    /// Destination of spans.
    pub export: Option<ExportSettings>,
}

/// One response in a number of them has a different size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeResponse {
    /// Payload size.
    pub bytes: u64,
    /// Every how many responses; at least 1.
    pub every: u64,
}

impl TargetSettings {
    /// Checks that the stack supports the settings, and that the figures are within their limits.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&self) -> Result<(), TargetError> {
        let stack = self.stack;
        let unavailable = |setting, why| Err(TargetError::Unavailable { stack, setting, why });
        let largest = self.response_bytes.max(self.large_response.map_or(0, |large| large.bytes));
        match stack {
            TargetStack::Raw if self.max_streams.is_some() => {
                unavailable("concurrent streams", "the raw protocol has no streams")
            }
            TargetStack::Raw if self.threads.is_some() => {
                unavailable("threads", "each connection has a thread of its own")
            }
            TargetStack::Cpp if self.nodelay == Nodelay::Off => {
                unavailable("TCP_NODELAY off", "gRPC C++ sets it on every connection")
            }
            TargetStack::Raw | TargetStack::Cpp | TargetStack::Go if self.workers.is_some() => {
                unavailable("workers", "only the stack rust has a queue before its handler")
            }
            TargetStack::Raw | TargetStack::Cpp | TargetStack::Go if self.window.is_some() => {
                unavailable("the window", "only rust can be told")
            }
            TargetStack::Raw | TargetStack::Cpp | TargetStack::Go if self.fail.is_some() => {
                unavailable("calls that fail", "only rust can be told")
            }
            TargetStack::Rust if self.window.is_some_and(|window| !WINDOWS.contains(&window)) => {
                Err(TargetError::Window(self.window.unwrap_or(0)))
            }
            TargetStack::Raw | TargetStack::Cpp | TargetStack::Go if self.large_response.is_some() => {
                unavailable("large responses", "only the stack rust answers with two sizes")
            }
            _ if largest > ping::MAX_PAYLOAD_BYTES => Err(TargetError::Payload(largest)),
            _ if self.think_ns > ping::MAX_THINK_NS => Err(TargetError::Think(self.think_ns)),
            _ => Ok(()),
        }
    }
}

/// Receives messages for immediate display.
pub type Notice = Arc<dyn Fn(String) + Send + Sync>;

/// A listening target, as it reports itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Address, with the port that the kernel chose.
    pub listening: SocketAddr,
    /// Stack.
    pub stack: TargetStack,
    /// Library and version.
    pub library: String,
}

/// Totals of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetReport {
    /// Pings, single or in streams, including those that were cut off.
    pub calls: u64,
    /// The same by gRPC status name.
    pub by_status: BTreeMap<String, u64>,
    /// Calls with an unreadable trace context.
    pub malformed_traceparent: u64,
    /// Calls whose record found no room on its way to the spans.
    pub records_dropped: u64,
    /// Whether calls were cut off after the grace period.
    pub cut_off: bool,
    /// Spans sent by OTLP, if requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub spans: Option<SpanCounts>,
}

/// A listening target.
pub struct Target {
    listening: Listening,
    exporter: Option<Exporter>,
    notice: Notice,
    stack: Stack,
}

enum Stack {
    Rust(Box<RustTarget>),
    Raw(RawStack),
    Program(ProgramTarget),
}

impl Target {
    /// Checks the settings and listens. Calls wait until [`serve`](Self::serve), or are answered from now on if
    /// a program of `programs` serves.
    ///
    /// # Errors
    /// A setting is invalid, the address is unusable, or the program is missing or does not start.
    pub async fn bind(
        settings: TargetSettings,
        programs: &Programs,
        notice: Notice,
    ) -> Result<Self, TargetError> {
        settings.check()?;
        let program = programs.target(settings.stack)?;
        let exporter = match &settings.export {
            Some(export) => {
                let notice = notice.clone();
                Some(Exporter::start(export.clone(), move |text| notice(text))?)
            }
            None => None,
        };
        let spans = exporter.as_ref().map(Exporter::sink);
        let (stack, address, library) = match settings.stack {
            TargetStack::Rust => {
                let target = RustTarget::bind(&settings, spans).await?;
                let address = target.address();
                (Stack::Rust(Box::new(target)), address, answer::LIBRARY.into())
            }
            TargetStack::Raw => {
                let target = RawStack::bind(&settings, spans)?;
                let address = target.address();
                (Stack::Raw(target), address, crate::raw::LIBRARY.into())
            }
            TargetStack::Cpp | TargetStack::Go => {
                let (target, address, library) =
                    ProgramTarget::start(&settings, program, spans, notice.clone()).await?;
                (Stack::Program(target), address, library)
            }
        };
        let listening = Listening { listening: address, stack: settings.stack, library };
        Ok(Target { listening, exporter, notice, stack })
    }

    /// Address and stack.
    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    /// Serves until `stop` is ready; then tells clients to leave, waits for calls in progress, and sends the
    /// remaining spans.
    ///
    /// # Errors
    /// The server stops by itself.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<TargetReport, TargetError> {
        let served = match self.stack {
            Stack::Rust(target) => target.serve(stop).await,
            Stack::Raw(target) => target.serve(stop, &self.notice).await,
            Stack::Program(target) => target.serve(stop).await,
        };
        let spans = match self.exporter {
            Some(exporter) => Some(exporter.finish().await),
            None => None,
        };
        served.map(|report| TargetReport { spans, ..report })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_settings_are_refused_with_reasons() {
        let good = TargetSettings {
            stack: TargetStack::Raw,
            listen: "127.0.0.1:0".into(),
            response_bytes: 0,
            think_ns: 0,
            max_streams: None,
            threads: None,
            workers: None,
            large_response: None,
            nodelay: Nodelay::On,
            window: None,
            fail: None,
            export: None,
        };
        let large = |bytes| Some(LargeResponse { bytes, every: 50 });
        for stack in TargetStack::ALL {
            assert!(TargetSettings { stack: *stack, ..good.clone() }.check().is_ok());
        }
        let cases = [
            (TargetSettings { max_streams: Some(1), ..good.clone() }, "has no streams"),
            (TargetSettings { threads: Some(2), ..good.clone() }, "thread of its own"),
            (
                TargetSettings { stack: TargetStack::Cpp, nodelay: Nodelay::Off, ..good.clone() },
                "every connection",
            ),
            (TargetSettings { workers: Some(2), ..good.clone() }, "raw has no setting for workers"),
            (
                TargetSettings { stack: TargetStack::Go, large_response: large(1), ..good.clone() },
                "go has no setting for large responses",
            ),
            (
                TargetSettings {
                    stack: TargetStack::Rust,
                    large_response: large((64 << 20) + 2),
                    ..good.clone()
                },
                "67108866",
            ),
            (TargetSettings { response_bytes: (64 << 20) + 1, ..good.clone() }, "67108864"),
            (TargetSettings { window: Some(1 << 20), ..good.clone() }, "only rust"),
            (TargetSettings { fail: "UNAVAILABLE:1/2".parse().ok(), ..good.clone() }, "only rust"),
            (
                TargetSettings { stack: TargetStack::Rust, window: Some(65_534), ..good.clone() },
                "65535 to 2147483647",
            ),
            (TargetSettings { think_ns: 60_000_000_001, ..good }, "60000000000"),
        ];
        for (settings, expected) in cases {
            let error = settings.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
