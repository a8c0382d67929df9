//! What a reader of the coverage should know, in sentences, and how much each of them matters.

use serde::{Deserialize, Serialize};

/// How much a note matters to the reader of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteLevel {
    /// Something was lost, damaged or not written: figures lack it.
    Wrong,
    /// Figures are complete, but mean something else than they seem to.
    Note,
    /// True of most fleets, and of no consequence to most readers.
    Aside,
}

/// A sentence for readers of the coverage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// How much it matters.
    pub level: NoteLevel,
    /// Lower case, without a full stop.
    pub text: String,
}

impl Note {
    /// Something was lost, damaged or not written.
    pub fn wrong(text: impl Into<String>) -> Note {
        Note { level: NoteLevel::Wrong, text: text.into() }
    }

    /// Figures are complete, but mean something else than they seem to.
    pub fn caveat(text: impl Into<String>) -> Note {
        Note { level: NoteLevel::Note, text: text.into() }
    }

    /// True of most fleets.
    pub fn aside(text: impl Into<String>) -> Note {
        Note { level: NoteLevel::Aside, text: text.into() }
    }

    /// The same, with its subject in front.
    pub fn about(self, subject: &str) -> Note {
        Note { text: format!("{subject}: {}", self.text), ..self }
    }
}
