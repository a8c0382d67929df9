//! What users see: tables, histograms, JSON shapes, pages. Pure.

pub mod check;
pub mod flame;
pub mod flame_picture;
pub mod flame_text;
