//! Parts of the documents that stand in the pages of `--html`: text that is laid out there and no more.

use serde::Serialize;

/// A table, as text.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TablePage {
    /// What it is of.
    pub title: String,
    /// Heads of its columns.
    pub head: Vec<&'static str>,
    /// Columns that hold figures.
    pub figures: Vec<usize>,
    /// Its cells.
    pub rows: Vec<Vec<String>>,
    /// What it leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<String>,
}
