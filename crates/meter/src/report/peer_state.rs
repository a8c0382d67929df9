//! How another meter stands, in the coverage.

use serde::{Deserialize, Serialize};

/// Whether another meter answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerState {
    /// It does.
    Answers,
    /// It did, and may still run.
    Silent,
    /// It ended, or was taken off the list.
    Gone,
    /// Nobody has answered there yet.
    Unheard,
}
