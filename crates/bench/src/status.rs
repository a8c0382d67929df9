//! gRPC statuses in words.

use spangap_model::CallStatus;
use tonic::Code;

/// A status in words, with the innermost reason: the outer ones only say "transport error".
pub(crate) fn describe(status: &tonic::Status) -> String {
    let mut innermost: Option<&dyn std::error::Error> = std::error::Error::source(status);
    while let Some(next) = innermost.and_then(|error| error.source()) {
        innermost = Some(next);
    }
    let name = status_name(status.code());
    match innermost {
        Some(reason) => format!("{name}: {reason}"),
        None if status.message().is_empty() => name.to_owned(),
        None => format!("{name}: {}", status.message()),
    }
}

/// gRPC's name of a code, such as `UNAVAILABLE`.
pub(crate) fn status_name(code: Code) -> &'static str {
    CallStatus::from_grpc(code as u64).name()
}
