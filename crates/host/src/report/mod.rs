//! What users see: tables, histograms, JSON shapes, pages. Pure.

pub mod check;
pub mod flame;
pub mod flame_picture;
pub mod flame_text;
pub mod offcpu;
pub mod offcpu_text;
pub mod thieves;
pub mod thieves_cpus;
pub mod thieves_html;
pub mod thieves_picture;
pub mod thieves_text;
mod thieves_words;
pub mod waits;
mod wrapped;
