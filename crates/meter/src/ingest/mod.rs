//! Input formats. Each is converted to OTLP bytes, which pass through one walk.

pub mod delivery;
mod documents;
pub mod file;
mod framing;
mod jaeger;
pub mod named;
pub mod origins;
pub mod otlp_json;
mod scan;
pub mod semconv;
mod source;
mod tags;
mod timed_span;
pub mod times;
pub mod versions;
pub mod walk;
pub mod wire;
mod zipkin;
