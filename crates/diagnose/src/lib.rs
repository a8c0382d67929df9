//! Evidence in, verdict out. Nothing here opens a file, reads a clock or knows an instrument: the only input is
//! [`spangap_model::evidence`], and the same evidence yields the same verdict everywhere.

#![warn(missing_docs)]

mod claims;
pub mod hunt;
mod verdict;

pub use hunt::{Question, hunt};
pub use verdict::{Answer, Verdict};
