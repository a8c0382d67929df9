//! Reasons for refusing a request, worded for its sender.

use super::access::Denied;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The requests in progress exhaust the budget. The sender should retry.
    #[error("overloaded: {in_flight} bytes of requests in hand, limit {limit}; retry")]
    Overloaded {
        /// Bytes in progress.
        in_flight: u64,
        /// The budget.
        limit: u64,
    },
    /// A single request exceeds the limit.
    #[error("request of {size} bytes, limit {limit}: send smaller batches or raise --max-request-bytes")]
    TooLarge {
        /// Its size, as far as it was read.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The body does not have the declared format.
    #[error("{0}")]
    Invalid(String),
    /// The encoding is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// The body missed its deadlines.
    #[error("request too slow: {0}")]
    TooSlow(String),
    /// The sender is not authorised.
    #[error("{0}")]
    Denied(Denied),
    /// Spans come from elsewhere, and these would be counted by other rules.
    #[error(
        "this meter takes its spans from Kafka (--kafka): send these to the brokers, or to another meter"
    )]
    Elsewhere,
    /// The connection ended within the body.
    #[error("connection lost inside the request body: {0}")]
    Lost(String),
}
