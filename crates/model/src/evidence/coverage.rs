//! What an instrument examined, missed, and cannot see.

use super::{Instrument, Interval};
use crate::Side;
use serde::{Deserialize, Serialize};

/// What an instrument examined, and what it could not see. Without it, "nothing found" would mean nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// The instrument that looked.
    pub instrument: Instrument,
    /// File, process or host that it examined, in words.
    pub source: String,
    /// Side of the calls that it observed; `None` for both, or if unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub side: Option<Side>,
    /// Time covered; `None` if nothing has a time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub when: Option<Interval>,
    /// Number of items (calls, spans, events, sockets, traps) that it saw.
    pub seen: u64,
    /// Number of items that it is known to have missed.
    pub lost: u64,
    /// What it cannot show, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub cannot: Vec<String>,
}
