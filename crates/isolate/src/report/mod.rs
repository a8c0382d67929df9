//! What users see: text, JSON, pictures; pure.

pub mod plan;
pub mod show;
pub mod status;
pub mod verify;
