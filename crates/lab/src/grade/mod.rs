//! Grading: what somebody says of runs, against what was the matter.
//!
//! [`plan`] says which runs and in which order, [`conduct()`] makes each (or takes folders that are there), asks the
//! [`ask::Judge`] about its folder, and [`score`] adds up. The judge is the one in `spangap_diagnose`, given the
//! same evidence as everywhere, unless another command is named.

pub mod ask;
pub mod baselines;
pub mod blind;
pub mod conclusion;
pub mod conduct;
pub mod folders;
pub mod plan;
pub mod report;
pub mod score;
pub mod take_away;
pub mod verdict;
pub mod yardstick;

pub use conduct::conduct;
