//! Every input format becomes OTLP bytes and goes through one walk.

pub mod origins;
pub mod semconv;
pub mod walk;
pub mod wire;
