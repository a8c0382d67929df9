//! Spans in, gaps out: reads OTLP, joins CLIENT with SERVER spans, and keeps per-pair distributions.

pub mod export;
pub mod ingest;
pub mod report;
