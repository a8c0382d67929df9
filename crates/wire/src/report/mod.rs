//! What users see of a dissection: JSON, tables, ladders. Pure: a [`crate::dissect::Dissection`] in, text out.
