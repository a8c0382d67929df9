//! A temporary folder that does not outlive its process for long: the remains of a killed one are removed by
//! the next of its kind.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The folder. Its owner holds a lock on it, which the kernel releases when the process ends.
#[derive(Debug)]
pub struct Temporary {
    folder: TempDir,
    _lock: File,
}

impl Temporary {
    /// Creates `PREFIX...` in the system's folder for temporary files, readable only by this user, after
    /// removing those of the same prefix whose processes are gone. The prefix must be unique to such folders:
    /// without a lock, a folder in use is taken for an abandoned one.
    ///
    /// # Errors
    /// No folder can be created. One that cannot be removed is left alone.
    pub fn new(prefix: &str) -> io::Result<Temporary> {
        Temporary::below(&std::env::temp_dir(), prefix)
    }

    fn below(parent: &Path, prefix: &str) -> io::Result<Temporary> {
        for left in abandoned(parent, prefix) {
            let _ = fs::remove_dir_all(left.folder);
        }
        loop {
            let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
            let lock = File::open(folder.path())?;
            // Another process that starts now may mistake a folder without a lock for an abandoned one: then a
            // new one is created.
            if lock.try_lock().is_ok() && folder.path().exists() {
                return Ok(Temporary { folder, _lock: lock });
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// A folder without an owner, locked against other processes that would remove it as well.
struct AbandonedFolder {
    folder: PathBuf,
    _lock: File,
}

fn abandoned(parent: &Path, prefix: &str) -> Vec<AbandonedFolder> {
    let user = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)));
    // A link is not followed: it may lead anywhere.
    let own = named.filter(|entry| entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user));
    own.filter_map(|entry| {
        let lock = File::open(entry.path()).ok()?;
        lock.try_lock().ok()?;
        Some(AbandonedFolder { folder: entry.path(), _lock: lock })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_folders_of_dead_processes_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        let kept = Temporary::below(parent.path(), "cases-").unwrap();
        let also = Temporary::below(parent.path(), "cases-").unwrap();
        fs::create_dir_all(at("cases-killed/of/it")).unwrap();
        fs::write(at("cases-killed/of/it/file"), "left").unwrap();
        fs::create_dir(at("others-killed")).unwrap();
        fs::write(at("cases-file"), "no folder").unwrap();
        fs::create_dir(at("elsewhere")).unwrap();
        symlink(at("elsewhere"), at("cases-link")).unwrap();
        let new = Temporary::below(parent.path(), "cases-").unwrap();
        assert!(!at("cases-killed").exists());
        for left in [kept.path(), also.path(), new.path()] {
            assert!(left.is_dir(), "{left:?}");
        }
        for left in ["others-killed", "cases-file", "cases-link", "elsewhere"] {
            assert!(at(left).exists(), "{left}");
        }
        let was = kept.path().to_owned();
        drop(kept);
        assert!(!was.exists());
    }
}
