//! Grading: verdicts on runs against their truth.
//!
//! [`plan`] orders the runs, [`conduct()`] makes each (or takes an existing one) and asks the [`ask::Judge`]
//! about its folder, and [`score`] sums up. Unless another command is given, the judge is the one in
//! `spangap_diagnose`, with the same evidence as everywhere.

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
