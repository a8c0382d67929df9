//! Spans in, gaps out: reads OTLP, joins CLIENT with SERVER spans, and maintains per-pair distributions.

mod addresses;
mod candidates;
pub mod clickhouse;
pub mod cluster;
pub mod engine;
pub mod entry;
pub mod evidence;
pub mod explain;
pub mod export;
pub mod history;
pub mod ingest;
pub mod join;
pub mod kafka;
pub mod keep;
pub mod offset;
pub mod pairs;
pub mod peers;
pub mod pending;
mod prefetch;
pub mod query;
pub mod report;
pub mod rpc_status;
pub mod samples;
pub mod serve;
pub mod spool;
pub mod usual;
pub mod window;
