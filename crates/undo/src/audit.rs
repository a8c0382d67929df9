//! The audit log: who changed what, when, and with what result, as JSON Lines in a file that nothing here ever
//! truncates.

use crate::FileError;
use crate::file::make_folder;
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Appends a line durably. Several processes may write to one file, because a line is a single write.
///
/// # Errors
/// It cannot be written.
pub fn append(log: &Path, line: &impl Serialize) -> Result<(), FileError> {
    if let Some(folder) = log.parent().filter(|folder| !folder.exists()) {
        make_folder(folder)?;
    }
    let mut text = serde_json::to_vec(line).map_err(io::Error::other).map_err(FileError::of("write", log))?;
    text.push(b'\n');
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(log)
        .map_err(FileError::of("open", log))?;
    file.write_all(&text).and_then(|()| file.sync_data()).map_err(FileError::of("write", log))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn lines_are_added_and_never_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("a/audit.jsonl");
        for number in 0..3 {
            append(&log, &serde_json::json!({"number": number, "text": "a\nb"})).expect("it is written");
        }
        let text = std::fs::read_to_string(&log).expect("it is there");
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.lines().zip(0..).all(|(line, number)| line.contains(&format!("\"number\":{number}"))));
        assert_eq!(std::fs::metadata(&log).expect("it is there").permissions().mode() & 0o777, 0o600);
        let error = append(folder.path(), &1).expect_err("a folder is no file").to_string();
        assert!(error.contains(&folder.path().display().to_string()), "{error}");
    }
}
