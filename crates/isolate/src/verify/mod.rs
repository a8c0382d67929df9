//! Whether an applied plan holds: by reading it back, and by its effects; its gain, and its cost.

pub mod cost;
pub mod counter_deltas;
pub mod drift;
pub mod effect;
pub mod gain;
pub mod order;
pub mod proof;
pub mod status;
