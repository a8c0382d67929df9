//! `google.rpc.Status` and the wish to be called again later: what OTLP/HTTP errors carry as their body and gRPC
//! errors in the trailer `grpc-status-details-bin`. Written by the receiver, read by the metric push.

use prost::Message;
use std::time::Duration;

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// `google.rpc.Status`
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    /// gRPC status code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// For people.
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`
#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

impl RpcStatus {
    /// With the delay after which the sender may try again, if it may.
    pub fn new(code: i32, message: &str, retry_after: Option<Duration>) -> RpcStatus {
        let detail = retry_after.map(|delay| {
            let delay = Delay {
                seconds: i64::try_from(delay.as_secs()).unwrap_or(i64::MAX),
                nanos: delay.subsec_nanos() as i32,
            };
            let value = RetryInfo { retry_delay: Some(delay) }.encode_to_vec();
            Any { type_url: RETRY_INFO.into(), value }
        });
        RpcStatus { code, message: message.into(), details: detail.into_iter().collect() }
    }

    /// The delay asked for; `None` when there is none, or one without sense.
    pub fn retry_after(&self) -> Option<Duration> {
        let info = self.details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
        let delay = RetryInfo::decode(&*info.value).ok()?.retry_delay.unwrap_or_default();
        let nanos = u32::try_from(delay.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
        Some(Duration::new(u64::try_from(delay.seconds).ok()?, nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_survives_the_wire_and_a_senseless_one_does_not_count() {
        let half_past_one = Duration::from_millis(1500);
        let sent = RpcStatus::new(14, "busy", Some(half_past_one)).encode_to_vec();
        assert_eq!(RpcStatus::decode(&sent[..]).unwrap().retry_after(), Some(half_past_one));
        assert_eq!(RpcStatus::new(14, "busy", None).retry_after(), None);
        let value = RetryInfo { retry_delay: Some(Delay { seconds: -1, nanos: 0 }) }.encode_to_vec();
        let back_in_time = vec![Any { type_url: RETRY_INFO.into(), value }];
        assert_eq!(RpcStatus { details: back_in_time, ..RpcStatus::default() }.retry_after(), None);
    }
}
