//! Which responses of a receiver allow a retry, by the OTLP specification.

use crate::rpc_status::retry_after;
use std::error::Error;
use std::time::Duration;
use tonic::{Code, Status};

/// Whether a request may be sent again, and after what delay if the receiver states one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Never.
    No,
    /// Yes; the sender chooses the delay.
    Yes,
    /// Yes, after this delay.
    After(Duration),
}

/// Classifies a response.
pub fn retry(status: &Status) -> Retry {
    let passes = match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        // Not a response: the connection broke.
        Code::Unknown => status.source().is_some_and(|source| source.is::<tonic::transport::Error>()),
        _ => false,
    };
    match retry_after(status.details()) {
        // Exhaustion is known to be temporary only when the receiver states a delay.
        Some(delay) if passes || status.code() == Code::ResourceExhausted => Retry::After(delay),
        None if passes => Retry::Yes,
        _ => Retry::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc_status::status;
    use prost::Message;

    fn with_delay(code: Code, delay: Duration) -> Status {
        let details = status(code as i32, "", Some(delay));
        Status::with_details(code, "", details.encode_to_vec().into())
    }

    #[test]
    fn the_specification_decides() {
        assert_eq!(retry(&Status::unavailable("")), Retry::Yes);
        assert_eq!(retry(&Status::invalid_argument("")), Retry::No);
        assert_eq!(retry(&Status::unauthenticated("")), Retry::No);
        assert_eq!(retry(&Status::resource_exhausted("")), Retry::No);
        assert_eq!(retry(&Status::unknown("")), Retry::No);
        let delay = Duration::from_millis(1500);
        assert_eq!(retry(&with_delay(Code::ResourceExhausted, delay)), Retry::After(delay));
        assert_eq!(retry(&with_delay(Code::Unavailable, delay)), Retry::After(delay));
        assert_eq!(retry(&with_delay(Code::InvalidArgument, delay)), Retry::No);
    }
}
