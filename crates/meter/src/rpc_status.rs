//! Retry delays in the `google.rpc.Status` that OTLP/HTTP errors carry as their body and gRPC errors in the
//! trailer `grpc-status-details-bin`. The receiver writes them, the metric push reads them.

use prost::Message;
use prost_types::Any;
use std::time::Duration;
use tonic_types::Status;
use tonic_types::pb::RetryInfo;

/// A status, with the delay before a retry if one is allowed.
pub fn status(code: i32, message: &str, retry_after: Option<Duration>) -> Status {
    let detail = retry_after.map(|delay| {
        // Delays are seconds here; a delay too long for protobuf is omitted.
        let info = RetryInfo { retry_delay: delay.try_into().ok() };
        Any { type_url: tonic_types::RetryInfo::TYPE_URL.into(), value: info.encode_to_vec() }
    });
    Status { code, message: message.into(), details: detail.into_iter().collect() }
}

/// The delay in an encoded status; `None` if it has none, or a negative one.
pub fn retry_after(status: &[u8]) -> Option<Duration> {
    let details = Status::decode(status).ok()?.details;
    let info = details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    RetryInfo::decode(&*info.value).ok()?.retry_delay.unwrap_or_default().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_survives_the_wire_and_an_invalid_one_is_ignored() {
        let half_past_one = Duration::from_millis(1500);
        let sent = status(14, "busy", Some(half_past_one)).encode_to_vec();
        assert_eq!(retry_after(&sent), Some(half_past_one));
        assert_eq!(retry_after(&status(14, "busy", None).encode_to_vec()), None);
        let mut back_in_time = status(14, "busy", Some(half_past_one));
        let delay = prost_types::Duration { seconds: -1, nanos: 0 };
        back_in_time.details[0].value = RetryInfo { retry_delay: Some(delay) }.encode_to_vec();
        assert_eq!(retry_after(&back_in_time.encode_to_vec()), None);
    }
}
