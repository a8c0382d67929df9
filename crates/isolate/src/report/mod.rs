//! What users see: text, JSON, pictures; pure.

pub mod show;
