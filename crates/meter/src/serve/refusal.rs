//! Reasons for refusing a request, as its sender reads them.

use super::access::Denied;

/// Why a request is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The meter has all the requests in hand that it has memory for. The sender should try again.
    #[error("overloaded: {in_flight} bytes of requests in hand, limit {limit}; retry")]
    Overloaded {
        /// Bytes in hand.
        in_flight: u64,
        /// The budget.
        limit: u64,
    },
    /// One request is larger than allowed.
    #[error("request of {size} bytes, limit {limit}: send smaller batches or raise --max-request-bytes")]
    TooLarge {
        /// Its size, as far as it was read.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The body cannot be what it says it is.
    #[error("{0}")]
    Invalid(String),
    /// An encoding that is not known here.
    #[error("{0}")]
    Unsupported(String),
    /// The body does not arrive within its deadlines.
    #[error("request too slow: {0}")]
    TooSlow(String),
    /// The sender may not do that.
    #[error("{0}")]
    Denied(Denied),
    /// The connection ended inside the body.
    #[error("connection lost inside the request body: {0}")]
    Lost(String),
}
