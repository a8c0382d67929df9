//! What one look of an instrument yields.

use super::{Coverage, Finding, Version};
use serde::{Deserialize, Serialize};

/// What one look of an instrument yields. A JSON document of any instrument carries it under the key `evidence`, and
/// whoever reads that key has heard the instrument without knowing it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Testimony {
    /// The shapes' version.
    pub version: Version,
    /// What it shows.
    pub findings: Vec<Finding>,
    /// What it looked at.
    pub coverage: Vec<Coverage>,
}

impl Testimony {
    /// Of one look.
    pub fn new(coverage: Coverage, findings: Vec<Finding>) -> Testimony {
        Testimony { version: Version, findings, coverage: vec![coverage] }
    }
}
