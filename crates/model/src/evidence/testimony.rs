//! Results of one run of an instrument.

use super::{Coverage, Finding, Version};
use serde::{Deserialize, Serialize};

/// Results of one run of an instrument. A JSON document of any instrument carries it under the key `evidence`,
/// so a reader of that key needs no knowledge of the instrument.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Testimony {
    /// Version of the shapes.
    pub version: Version,
    /// What it found, in no particular order.
    pub findings: Vec<Finding>,
    /// What it examined and what it could not see; one entry, unless several runs were put together.
    pub coverage: Vec<Coverage>,
}

impl Testimony {
    /// Testimony of one run.
    pub fn new(coverage: Coverage, findings: Vec<Finding>) -> Testimony {
        Testimony { version: Version, findings, coverage: vec![coverage] }
    }
}
