//! Settings in a TOML file of their own.

use anyhow::anyhow;
use serde::de::DeserializeOwned;
use std::path::Path;

/// Reads the settings. An error names file, line and key, and shows no more of the file: somebody may have written a
/// password into it.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error| {
        let file = path.display();
        let Some(at) = error.span().map(|span| span.start.min(text.len())) else {
            return anyhow!("{file}: {}", error.message());
        };
        let line = text[..at].matches('\n').count();
        let key = text.lines().nth(line).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
        let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
        anyhow!("{file}:{}: {key}{}", line + 1, error.message())
    })
}
