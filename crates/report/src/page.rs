//! Parts of the documents embedded in `--html` pages, which only lay out their text.

use serde::Serialize;

/// A table, as text.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TablePage {
    /// Heading above it.
    pub title: String,
    /// Column headings.
    pub head: Vec<&'static str>,
    /// Indices of numeric columns.
    pub figures: Vec<usize>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
    /// Note about what it omits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<String>,
}
