//! Which answers of a receiver mean "try again", by the OTLP specification.

use prost::Message;
use std::error::Error;
use std::time::Duration;
use tonic::{Code, Status};

/// `google.rpc.Status`, as gRPC carries it in the trailer `grpc-status-details-bin`.
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// Whether a request that was answered like this may be sent again, and after what delay if the receiver says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Never.
    No,
    /// Yes; the sender chooses the delay.
    Yes,
    /// Yes, after this delay.
    After(Duration),
}

/// Reads an answer.
pub fn retry(status: &Status) -> Retry {
    let passes = match status.code() {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        // Not an answer: the connection broke.
        Code::Unknown => status.source().is_some_and(|source| source.is::<tonic::transport::Error>()),
        _ => false,
    };
    match asked_delay(status.details()) {
        // Exhaustion is only known to pass when the receiver says when.
        Some(delay) if passes || status.code() == Code::ResourceExhausted => Retry::After(delay),
        None if passes => Retry::Yes,
        _ => Retry::No,
    }
}

fn asked_delay(details: &[u8]) -> Option<Duration> {
    let details = Details::decode(details).ok()?.details;
    let info = details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay.unwrap_or_default();
    let nanos = u32::try_from(delay.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(delay.seconds).ok()?, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_delay(code: Code, seconds: i64, nanos: i32) -> Status {
        let info = RetryInfo { retry_delay: Some(Delay { seconds, nanos }) }.encode_to_vec();
        let any = Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".into(), value: info };
        Status::with_details(code, "", Details { details: vec![any] }.encode_to_vec().into())
    }

    #[test]
    fn the_specification_decides() {
        assert_eq!(retry(&Status::unavailable("")), Retry::Yes);
        assert_eq!(retry(&Status::invalid_argument("")), Retry::No);
        assert_eq!(retry(&Status::unauthenticated("")), Retry::No);
        assert_eq!(retry(&Status::resource_exhausted("")), Retry::No);
        assert_eq!(retry(&Status::unknown("")), Retry::No);
        let half_past_one = Retry::After(Duration::from_millis(1500));
        assert_eq!(retry(&with_delay(Code::ResourceExhausted, 1, 500_000_000)), half_past_one);
        assert_eq!(retry(&with_delay(Code::Unavailable, 1, 500_000_000)), half_past_one);
        assert_eq!(retry(&with_delay(Code::InvalidArgument, 1, 0)), Retry::No);
        assert_eq!(retry(&with_delay(Code::Unavailable, -1, 0)), Retry::Yes, "no sense in it");
    }
}
