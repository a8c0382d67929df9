//! One kit for everything that people read: figures in words, times, paragraphs and tables for a terminal,
//! pages and pictures. Nothing here opens a file, reads a clock or knows what the figures mean.

#![warn(missing_docs)]

pub mod cut;
pub mod figures;
pub mod html;
pub mod page;
pub mod palette;
pub mod svg;
pub mod table;
pub mod times;
pub mod wrap;
