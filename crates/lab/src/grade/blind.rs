//! What a blind judge sees of a run: only the evidence, under an opaque name.

use crate::LabError;
use crate::folder;
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the `number`th folder shown.
pub fn name(number: usize) -> String {
    format!("run-{number:04}")
}

/// Copies the evidence of a run into a new folder below `scratch`, as far as it was recorded.
///
/// # Errors
/// Reading or writing fails.
pub fn copy(run: &Path, scratch: &Path, number: usize) -> Result<PathBuf, LabError> {
    let shown = scratch.join(name(number));
    fs::create_dir_all(&shown).map_err(LabError::file("make", &shown))?;
    for file in folder::EVIDENCE {
        let (from, to) = (run.join(file), shown.join(file));
        match fs::copy(&from, &to) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(LabError::file("copy", &from)(error)),
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_evidence_is_shown() {
        let root = tempfile::tempdir().expect("a folder");
        let run = root.path().join("rto-1");
        fs::create_dir(&run).expect("a folder");
        for file in [folder::TRUTH, folder::README, folder::TANK, "client.host", "tank.err"] {
            fs::write(run.join(file), file).expect("a file");
        }
        let shown = copy(&run, root.path(), 7).expect("a copy");
        assert_eq!(shown, root.path().join("run-0007"));
        let mut names: Vec<_> =
            fs::read_dir(&shown).expect("it is there").map(|entry| entry.expect("one").file_name()).collect();
        names.sort();
        assert_eq!(names, ["client.host", "tank.json"]);
    }
}
