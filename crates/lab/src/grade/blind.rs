//! What a judge sees of a run that must not know what was made: the evidence alone, under a name that says nothing.

use crate::LabError;
use crate::folder;
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the folder that is shown in the `number`th place.
pub fn name(number: usize) -> String {
    format!("run-{number:04}")
}

/// Copies the evidence of a run into a new folder below `scratch`; what was not recorded is not there either.
///
/// # Errors
/// When something cannot be read or written.
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
