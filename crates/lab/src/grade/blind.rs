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
    evidence(run, &shown)?;
    let before = run.join(folder::BEFORE);
    if before.is_dir() {
        evidence(&before, &shown.join(folder::BEFORE))?;
    }
    Ok(shown)
}

fn evidence(of: &Path, shown: &Path) -> Result<(), LabError> {
    fs::create_dir_all(shown).map_err(LabError::file("make", shown))?;
    for file in folder::EVIDENCE {
        let (from, to) = (of.join(file), shown.join(file));
        match fs::copy(&from, &to) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(LabError::file("copy", &from)(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_evidence_is_shown() {
        let root = tempfile::tempdir().expect("a folder");
        let run = root.path().join("rto-1");
        fs::create_dir(&run).expect("a folder");
        fs::create_dir(run.join(folder::BEFORE)).expect("a folder");
        for file in [folder::TRUTH, folder::README, folder::TANK, "client.host", "tank.err"] {
            fs::write(run.join(file), file).expect("a file");
            fs::write(run.join(folder::BEFORE).join(file), file).expect("a file");
        }
        let shown = copy(&run, root.path(), 7).expect("a copy");
        assert_eq!(shown, root.path().join("run-0007"));
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).expect("it is there");
            let mut names: Vec<_> = entries.map(|entry| entry.expect("one").file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&shown), ["before", "client.host", "tank.json"]);
        assert_eq!(names(&shown.join(folder::BEFORE)), ["client.host", "tank.json"]);
    }
}
