//! Evidence in, a verdict out. Nothing here opens a file, asks a clock or knows an instrument: what is judged is
//! [`spangap_model::evidence`], and the same evidence gets the same verdict everywhere.

mod claims;
pub mod hunt;
mod verdict;

pub use hunt::{Question, hunt};
pub use verdict::{Answer, Verdict};
