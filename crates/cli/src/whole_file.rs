//! Files that are written whole or not at all: beside the file first, then in its place by a rename. Whoever has a full disk
//! keeps the file that was there, and no half of the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file with the permissions of the one that it replaces, or those of any new file.
///
/// # Errors
/// As of [`fs::write`]; then the file is as it was.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    replace(path, 0o666, |file| file.write_all(content.as_ref()))
}

/// The same for a file that only its owner can read, on disk before the rename.
///
/// # Errors
/// As of [`write`].
pub fn write_private(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    replace(path, 0o600, |file| {
        file.write_all(content.as_ref())?;
        file.sync_all()
    })
}

fn replace(path: &Path, mode: u32, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let old = fs::symlink_metadata(path).ok();
    // A pipe or a device has no other half, and a link (`/dev/stdout` is one) may lead to either.
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return fill(&mut OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?);
    }
    let name = path.file_name().ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))?;
    let beside = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside) {
        Ok(file) => file,
        // A file may be open to somebody to whom its folder is not.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && old.is_some() => {
            return fill(&mut OpenOptions::new().write(true).truncate(true).open(path)?);
        }
        Err(error) => return Err(error),
    };
    let kept = old.filter(|_| mode == 0o666).map_or(Ok(()), |old| file.set_permissions(old.permissions()));
    let written = kept.and_then(|()| fill(&mut file)).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The error is reported; half a file is of no use.
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(folder: &Path) -> Vec<String> {
        let name =
            |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn what_cannot_be_written_whole_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let halfway = |file: &mut File| {
            file.write_all(b"half")?;
            Err(io::Error::from(ErrorKind::StorageFull))
        };
        assert_eq!(replace(&path, 0o666, halfway).unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(names(folder.path()), [] as [&str; 0]);
        write(&path, "old").unwrap();
        assert!(replace(&path, 0o666, halfway).is_err());
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), names(folder.path())),
            ("old".into(), vec!["trace".into()])
        );
    }

    #[test]
    fn a_file_keeps_its_permissions_and_a_link_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        write(&file, "new").unwrap();
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o640);
        symlink(&file, &link).unwrap();
        write(&link, "newer").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "newer");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        write_private(&file, "mine").unwrap();
        assert_eq!(mode(), 0o600);
        assert_eq!(names(folder.path()), ["file", "link"]);
    }

    #[test]
    fn a_device_is_written_to() {
        write(Path::new("/dev/null"), "gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
