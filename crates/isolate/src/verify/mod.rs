//! Whether what was applied holds: by reading it back, and by what it does; what it won, and what it costs.

pub mod cost;
pub mod drift;
pub mod effect;
pub mod gain;
pub mod order;
pub mod proof;
pub mod since;
pub mod status;
