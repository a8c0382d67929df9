//! What users see: tables, histograms, JSON shapes, pages. Pure.
