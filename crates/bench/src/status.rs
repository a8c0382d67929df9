//! gRPC statuses in words.

use spangap_model::CallStatus;
use tonic::Code;

/// Reason of a failed call: the innermost one, since the outer ones only say "transport error". Without its
/// name.
pub(crate) fn reason(status: &tonic::Status) -> String {
    let mut innermost: Option<&dyn std::error::Error> = std::error::Error::source(status);
    while let Some(next) = innermost.and_then(|error| error.source()) {
        innermost = Some(next);
    }
    innermost.map_or_else(|| status.message().to_owned(), ToString::to_string)
}

/// A status in words: its name and the reason.
pub(crate) fn describe(status: &tonic::Status) -> String {
    let name = status_name(status.code());
    match reason(status) {
        reason if reason.is_empty() => name.to_owned(),
        reason => format!("{name}: {reason}"),
    }
}

/// gRPC's name of a code, such as `UNAVAILABLE`.
pub(crate) fn status_name(code: Code) -> &'static str {
    CallStatus::from_grpc(code as u64).name()
}
