//! What a blind judge sees of a run: only the evidence, under an opaque name.

use crate::LabError;
use crate::folder;
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the `number`th folder shown.
pub fn name(number: usize) -> String {
    format!("run-{number:04}")
}

/// How evidence gets into the folder that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Each file is a copy.
    Copy,
    /// Each file is the same one under another name, where the file system can do that: for judges that do not write.
    Link,
}

/// Shows the evidence of a run in a new folder below `scratch`, as far as it was recorded.
///
/// # Errors
/// Reading or writing fails.
pub fn show(run: &Path, scratch: &Path, number: usize, means: Means) -> Result<PathBuf, LabError> {
    let shown = scratch.join(name(number));
    evidence(run, &shown, means)?;
    let before = run.join(folder::BEFORE);
    if before.is_dir() {
        evidence(&before, &shown.join(folder::BEFORE), means)?;
    }
    Ok(shown)
}

/// Replaces a file that is shown, without touching the one that it may be another name of.
///
/// # Errors
/// Removing or writing fails.
pub fn replace(path: &Path, contents: &[u8]) -> Result<(), LabError> {
    fs::remove_file(path).map_err(LabError::file("remove", path))?;
    fs::write(path, contents).map_err(LabError::file("write", path))
}

fn evidence(of: &Path, shown: &Path, means: Means) -> Result<(), LabError> {
    fs::create_dir_all(shown).map_err(LabError::file("make", shown))?;
    for file in folder::EVIDENCE {
        let (from, to) = (of.join(file), shown.join(file));
        if means == Means::Link && fs::hard_link(&from, &to).is_ok() {
            continue;
        }
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
        for (number, means) in [(7, Means::Copy), (8, Means::Link)] {
            let shown = show(&run, root.path(), number, means).expect("a folder");
            assert_eq!(shown, root.path().join(format!("run-000{number}")));
            are_evidence_alone(&shown);
            // What is shown can be replaced; the run keeps what it has.
            replace(&shown.join(folder::TANK), b"other").expect("another file");
            assert_eq!(fs::read(run.join(folder::TANK)).expect("a file"), folder::TANK.as_bytes());
        }
    }

    fn are_evidence_alone(shown: &Path) {
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).expect("it is there");
            let mut names: Vec<_> = entries.map(|entry| entry.expect("one").file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(shown), ["before", "client.host", "tank.json"]);
        assert_eq!(names(&shown.join(folder::BEFORE)), ["client.host", "tank.json"]);
    }
}
