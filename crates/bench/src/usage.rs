//! Queries a target's usage so far, over a separate connection that is closed afterwards.

use crate::ping::ping_client::PingClient;
use crate::ping::{UsageRequest, UsageResponse};
use crate::raw;
use crate::status::describe;
use std::io;
use std::time::Duration;
use tonic::Code;
use tonic::transport::Endpoint;

/// Protocol of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, every stack but `raw`.
    Grpc,
    /// Frames over TCP.
    Raw,
}

/// Reason for an unknown usage.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// No runtime.
    #[error("cannot make a runtime to ask {target} with")]
    Runtime {
        /// The target.
        target: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// No connection.
    #[error("cannot connect to {target} to ask for its usage")]
    Connect {
        /// The target.
        target: String,
        /// Error of the transport.
        source: tonic::transport::Error,
    },
    /// Too slow.
    #[error("{target} did not report its usage within {timeout:?}")]
    TimedOut {
        /// The target.
        target: String,
        /// Time limit.
        timeout: Duration,
    },
    /// The call failed.
    #[error("{target} did not report its usage: {why}")]
    Status {
        /// The target.
        target: String,
        /// Status in words.
        why: String,
    },
    /// It does not speak the raw protocol.
    #[error(transparent)]
    Raw(#[from] raw::UsageError),
}

/// Queries `target`, which is `HOST:PORT`; `None` if it lacks the method, and so is not one of ours. `timeout`
/// covers everything, or in the raw protocol each step. Blocks, with a runtime of its own: must not be called
/// from async code.
///
/// # Errors
/// There is no response in time, or an unreadable one.
pub fn ask(protocol: Protocol, target: &str, timeout: Duration) -> Result<Option<UsageResponse>, UsageError> {
    match protocol {
        Protocol::Raw => Ok(Some(raw::usage(target, timeout)?)),
        Protocol::Grpc => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|source| UsageError::Runtime { target: target.into(), source })?;
            runtime.block_on(async {
                let late = || Err(UsageError::TimedOut { target: target.into(), timeout });
                tokio::time::timeout(timeout, ask_grpc(target)).await.unwrap_or_else(|_| late())
            })
        }
    }
}

async fn ask_grpc(target: &str) -> Result<Option<UsageResponse>, UsageError> {
    let unreachable = |source| UsageError::Connect { target: target.into(), source };
    let endpoint = Endpoint::from_shared(format!("http://{target}")).map_err(unreachable)?;
    let mut client = PingClient::new(endpoint.connect().await.map_err(unreachable)?);
    match client.usage(UsageRequest {}).await {
        Ok(usage) => Ok(Some(usage.into_inner())),
        Err(status) if status.code() == Code::Unimplemented => Ok(None),
        Err(status) => Err(UsageError::Status { target: target.into(), why: describe(&status) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn silent_and_missing_peers_are_distinguished() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap().to_string();
        let silent = ask(Protocol::Grpc, &target, Duration::from_millis(20));
        assert!(matches!(silent, Err(UsageError::TimedOut { .. })), "{silent:?}");
        let silent = ask(Protocol::Raw, &target, Duration::from_millis(20));
        assert!(matches!(silent, Err(UsageError::Raw(_))), "{silent:?}");
        drop(listener);
        for protocol in [Protocol::Grpc, Protocol::Raw] {
            let error = ask(protocol, &target, Duration::from_secs(60)).unwrap_err();
            assert!(error.to_string().contains(&target), "{error}");
        }
    }
}
