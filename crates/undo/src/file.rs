//! Journals on disk: written atomically, locked while in use, and set aside rather than deleted when damaged.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Error of a journal's file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {path}")]
pub struct FileError {
    /// Operation.
    pub what: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Error of the kernel.
    pub source: io::Error,
}

impl FileError {
    /// For `map_err`.
    pub fn of(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError + use<> {
        let path = path.to_owned();
        move |source| FileError { what, path, source }
    }
}

/// An exclusive lock on a folder until dropped.
#[derive(Debug)]
pub struct Lock {
    _folder: File,
}

/// Creates a folder that only its owner may enter, with its parents.
///
/// # Errors
/// It cannot be created.
pub fn make_folder(folder: &Path) -> Result<(), FileError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(FileError::of("make", folder))
}

/// Waits for the exclusive lock on a folder.
///
/// # Errors
/// It cannot be opened or locked.
pub fn lock_folder(folder: &Path) -> Result<Lock, FileError> {
    let file = File::open(folder).map_err(FileError::of("open", folder))?;
    file.lock().map_err(FileError::of("lock", folder))?;
    Ok(Lock { _folder: file })
}

/// Makes the names in a folder survive a power failure.
///
/// # Errors
/// It cannot be synced.
pub fn sync_folder(folder: &Path) -> Result<(), FileError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(FileError::of("write", folder))
}

/// Writes a file atomically: under a temporary name that ends in `ending`, then renamed. It is locked before it
/// gets its name.
///
/// # Errors
/// It cannot be written.
pub fn put(path: &Path, ending: &str, text: &str) -> Result<File, FileError> {
    let beside = path.with_extension(ending);
    let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside);
    let mut file = made.map_err(FileError::of("make", &beside))?;
    file.lock().map_err(FileError::of("lock", &beside))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(FileError::of("write", &beside))?;
    fs::rename(&beside, path).map_err(FileError::of("make", path))?;
    sync_folder(folder_of(path))?;
    Ok(file)
}

/// Creates a new file with this text, and locks it. Unlike with [`put`], a kill leaves no second name, but may
/// leave a truncated text.
///
/// # Errors
/// The file exists already, or cannot be written.
pub fn make(path: &Path, text: &str) -> Result<File, FileError> {
    loop {
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = new.map_err(FileError::of("make", path))?;
        file.lock().map_err(FileError::of("lock", path))?;
        // A process that undoes unlocked journals may have removed it before the lock.
        if !is_at(&file, path).map_err(FileError::of("lock", path))? {
            continue;
        }
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(FileError::of("write", path))?;
        sync_folder(folder_of(path))?;
        return Ok(file);
    }
}

/// Result of trying to lock a shared file.
#[derive(Debug)]
pub enum LockAttempt {
    /// Locked for us as long as this is open, here or in a child that has not called exec yet.
    Free(File),
    /// Locked by another process.
    Taken,
    /// The file does not, or no longer, exist.
    Gone,
}

/// Locks a file if it is free, without waiting.
///
/// # Errors
/// It cannot be opened or locked.
pub fn take(path: &Path) -> Result<LockAttempt, FileError> {
    held(path, |file| match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    })
}

/// Waits for the lock on a file; `None` if the file is gone, because it was undone.
///
/// # Errors
/// It cannot be opened or locked.
pub fn wait_for(path: &Path) -> Result<Option<File>, FileError> {
    match held(path, |file| file.lock().map(|()| true))? {
        LockAttempt::Free(file) => Ok(Some(file)),
        LockAttempt::Taken | LockAttempt::Gone => Ok(None),
    }
}

fn held(path: &Path, lock: impl Fn(&File) -> io::Result<bool>) -> Result<LockAttempt, FileError> {
    loop {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LockAttempt::Gone),
            file => file.map_err(FileError::of("open", path))?,
        };
        match lock(&file).map_err(FileError::of("lock", path)) {
            Err(error) if error.source.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(false) => return Ok(LockAttempt::Taken),
            // The file may have been removed or replaced during the wait.
            Ok(true) if is_at(&file, path).map_err(FileError::of("find", path))? => {
                return Ok(LockAttempt::Free(file));
            }
            Ok(true) => {}
        }
    }
}

/// Whether an open file is still the one at this path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let number = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        there => Ok(number(there?) == number(file.metadata()?)),
    }
}

/// Renames a damaged journal so that it no longer counts as open, and returns its new path. Never overwrites
/// another file.
///
/// # Errors
/// It cannot be renamed.
pub fn set_aside(path: &Path) -> Result<PathBuf, FileError> {
    for number in 1_u32.. {
        let aside = path.with_extension(format!("damaged-{number}"));
        match fs::hard_link(path, &aside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            linked => linked.map_err(FileError::of("set aside", path))?,
        }
        fs::remove_file(path).map_err(FileError::of("remove", path))?;
        sync_folder(folder_of(path))?;
        return Ok(aside);
    }
    unreachable!("there are not as many files as numbers")
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// A journal open for appending.
#[derive(Debug)]
pub struct Appender {
    path: PathBuf,
    file: File,
    /// Length of the complete lines on disk.
    len: u64,
}

impl Appender {
    /// Continues a new file after its initial text.
    pub fn new(path: PathBuf, file: File, written: &str) -> Appender {
        Appender { path, file, len: written.len() as u64 }
    }

    /// Opens an existing journal. An incomplete last line is cut off, because nothing it describes was begun;
    /// one that lacks only its newline gets it.
    ///
    /// # Errors
    /// It cannot be opened, read or written.
    pub fn open(path: &Path) -> Result<Appender, FileError> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let mut file = opened.map_err(FileError::of("open", path))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(FileError::of("read", path))?;
        let pieces = crate::seal::pieces(&bytes);
        let unfinished = pieces.last().filter(|piece| piece.kind == crate::seal::Kind::Unfinished);
        let len = unfinished.map_or(bytes.len(), |piece| piece.range.start);
        let end_of_line = if len > 0 && bytes[len - 1] != b'\n' { "\n" } else { "" };
        let cut = file
            .set_len(len as u64)
            .and_then(|()| file.seek(SeekFrom::Start(len as u64)))
            .and_then(|_| file.write_all(end_of_line.as_bytes()));
        cut.map_err(FileError::of("write", path))?;
        Ok(Appender { path: path.to_owned(), file, len: (len + end_of_line.len()) as u64 })
    }

    /// The journal that it appends to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends complete lines durably. After an error, none of them is in the file.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(&mut self, lines: &str) -> Result<(), FileError> {
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            // Half a line in the middle would be damage. If the truncation fails too, the original error is
            // returned.
            let _ = self.file.set_len(self.len).and_then(|()| self.file.seek(SeekFrom::Start(self.len)));
            return Err(FileError::of("write", &self.path)(source));
        }
        self.len += lines.len() as u64;
        Ok(())
    }

    /// For other crates' tests: the process is killed after part of a write.
    ///
    /// # Errors
    /// They cannot be written.
    #[doc(hidden)]
    pub fn write_some(&mut self, lines: &str, bytes: usize) -> io::Result<()> {
        self.file.write_all(&lines.as_bytes()[..lines.len().min(bytes)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::sealed;

    #[test]
    fn set_aside_never_overwrites() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("open.journal");
        for (number, text) in [(1, "one"), (2, "two")] {
            put(&path, "unfinished", text).expect("it is ours");
            let aside = set_aside(&path).expect("it is ours");
            assert_eq!(aside, folder.path().join(format!("open.damaged-{number}")));
            assert_eq!(fs::read_to_string(aside).expect("it is there"), text);
            assert!(!path.exists());
        }
    }

    #[test]
    fn lock_is_exclusive_and_a_waiter_sees_removal() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.journal");
        assert!(matches!(take(&path), Ok(LockAttempt::Gone)));
        assert!(wait_for(&path).expect("that is no error").is_none());
        let made = make(&path, "one\n").expect("it is ours");
        assert!(make(&path, "two\n").is_err(), "it is there");
        assert!(matches!(take(&path), Ok(LockAttempt::Taken)));
        // A duplicate of the file, as a child has it, keeps the lock as well.
        let copy = made.try_clone().expect("a copy");
        drop(made);
        assert!(matches!(take(&path), Ok(LockAttempt::Taken)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait_for(&path));
            fs::remove_file(&path).expect("it is ours");
            drop(copy);
            assert!(waiting.join().expect("it ends").expect("it is no error").is_none());
        });
        let again = make(&path, "three\n").expect("it is ours");
        drop(again);
        let Ok(LockAttempt::Free(_free)) = take(&path) else { panic!("nobody has it") };
        // A replacement is not the file that is locked.
        let other = put(&path, "unfinished", "four\n").expect("it is ours");
        assert!(matches!(take(&path), Ok(LockAttempt::Taken)));
        drop(other);
        assert!(wait_for(&path).expect("nobody has it").is_some());
    }

    #[test]
    fn journal_continues_after_its_last_complete_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.journal");
        let whole = sealed("{}");
        let go_on = |text: &str| {
            fs::write(&path, text).expect("it is ours");
            Appender::open(&path).expect("it is there").write("more\n").expect("it is ours");
            fs::read_to_string(&path).expect("it is text")
        };
        assert_eq!(go_on(&format!("{whole}\n")), format!("{whole}\nmore\n"));
        assert_eq!(go_on(&format!("{whole}\n{{\"half")), format!("{whole}\nmore\n"));
        assert_eq!(go_on(&whole), format!("{whole}\nmore\n"), "its checksum says that it is whole");
        assert_eq!(go_on("{}\n{\"half"), "{}\nmore\n");
        assert_eq!(go_on(""), "more\n");
    }
}
