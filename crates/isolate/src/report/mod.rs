//! Presentation: text, JSON, pictures. Pure.

pub mod plan;
pub mod show;
pub mod status;
pub mod verify;
