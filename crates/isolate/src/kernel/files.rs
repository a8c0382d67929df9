//! Files below a root, accessed the way kernel interfaces require: one value, one write.

use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

/// The folder that stands for `/`.
#[derive(Clone, Debug)]
pub struct Root {
    path: PathBuf,
    copy: bool,
}

impl Root {
    pub fn machine() -> Root {
        Root { path: PathBuf::from("/"), copy: false }
    }

    /// A copy below a folder.
    pub fn copy(path: impl Into<PathBuf>) -> Root {
        Root { path: path.into(), copy: true }
    }

    /// Folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a copy.
    pub fn is_copy(&self) -> bool {
        self.copy
    }

    /// Translates a path of the machine to the real one. Links inside a copy are not resolved here: only
    /// [`Root::read`] and [`Root::write`] guarantee to stay inside.
    pub fn real(&self, path: &str) -> io::Result<PathBuf> {
        Ok(self.path.join(below(path)?))
    }

    fn open(&self, path: &str, how: OFlags) -> io::Result<File> {
        let path = below(path)?;
        let how = how | OFlags::CLOEXEC;
        if !self.copy {
            let opened = rustix::fs::open(self.path.join(path), how, Mode::empty())?;
            return Ok(opened.into());
        }
        // A link in a copy that points to `/etc` means the copy's own `/etc`.
        let folder = rustix::fs::open(&self.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let opened = rustix::fs::openat2(folder, path, how, Mode::empty(), ResolveFlags::IN_ROOT)?;
        Ok(opened.into())
    }

    /// Content of a file without trailing white space; `None` if it does not exist.
    pub fn read(&self, path: &str) -> io::Result<Option<String>> {
        Ok(self.read_whole(path)?.map(|text| text.trim_end().to_owned()))
    }

    fn read_whole(&self, path: &str) -> io::Result<Option<String>> {
        let mut file = match self.open(path, OFlags::RDONLY) {
            Err(error) if is_absent(&error) => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        match file.read_to_end(&mut bytes) {
            // The cgroup or device was removed while its file was open.
            Err(error) if is_absent(&error) => Ok(None),
            read => read.map(|_| Some(String::from_utf8_lossy(&bytes).into_owned())),
        }
    }

    /// Writes a text and a newline in a single write, so that even an empty text reaches the kernel.
    pub fn write(&self, path: &str, text: &str) -> io::Result<()> {
        if self.copy { self.write_to_copy(path, text) } else { self.write_line(path, text) }
    }

    fn write_line(&self, path: &str, text: &str) -> io::Result<()> {
        let mut file = self.open(path, OFlags::WRONLY)?;
        all_at_once(&mut file, format!("{text}\n").as_bytes())
    }

    /// A single write, so that a kill leaves either the old value or the new one: newlines overwrite the rest
    /// of the old value, and are then truncated.
    fn write_to_copy(&self, path: &str, text: &str) -> io::Result<()> {
        let mut file = self.open(path, OFlags::WRONLY)?;
        if !file.metadata()?.is_file() {
            return all_at_once(&mut file, format!("{text}\n").as_bytes());
        }
        let old = self.read_whole(path)?.unwrap_or_default();
        let end = if old.is_empty() || old.ends_with('\n') { "\n" } else { "" };
        let new = format!("{text}{end}");
        let covering = format!("{new}{}", "\n".repeat(old.len().saturating_sub(new.len())));
        all_at_once(&mut file, covering.as_bytes())?;
        file.set_len(new.len() as u64)
    }
}

fn all_at_once(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let written = file.write(bytes)?;
    if written == bytes.len() {
        return Ok(());
    }
    Err(io::Error::other(format!("only {written} of {} bytes were taken", bytes.len())))
}

/// Whether a file, cgroup, device or thread does not, or no longer, exist.
pub fn is_absent(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::NXIO | Errno::SRCH)
    )
}

/// A path of the machine, relative to its root.
fn below(path: &str) -> io::Result<&Path> {
    let inside = path.strip_prefix('/').map(Path::new);
    let plain = |path: &&Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    inside.filter(plain).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "expected an absolute path without `..` in it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn copy() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("proc/irq/9")).expect("it is ours");
        let root = Root::copy(folder.path());
        (folder, root)
    }

    #[test]
    fn write_replaces_the_whole_value() {
        let (folder, root) = copy();
        let (path, real) =
            ("/proc/irq/9/smp_affinity_list", folder.path().join("proc/irq/9/smp_affinity_list"));
        for (old, new, left) in [
            ("0-3\n", "1", "1\n"),
            ("1\n", "0-3,5", "0-3,5\n"),
            ("\n", "2", "2\n"),
            ("7\n", "", "\n"),
            ("", "3", "3\n"),
            ("no newline", "4", "4"),
        ] {
            fs::write(&real, old).expect("it is ours");
            root.write(path, new).expect("it is there");
            assert_eq!(fs::read_to_string(&real).expect("it is there"), left, "{old:?} {new:?}");
            assert_eq!(root.read(path).expect("it is there").as_deref(), Some(new));
        }
    }

    #[test]
    fn missing_files_are_not_created() {
        let (folder, root) = copy();
        assert_eq!(root.read("/proc/irq/7/smp_affinity_list").expect("that is no error"), None);
        assert_eq!(root.read("/proc/irq/9/smp_affinity_list/x").expect("that is no error"), None);
        assert!(is_absent(&root.write("/proc/irq/9/new", "1").expect_err("it is not there")));
        assert!(!folder.path().join("proc/irq/9/new").exists());
    }

    #[test]
    fn copy_is_never_left() {
        let (folder, root) = copy();
        let outside = tempfile::NamedTempFile::new().expect("a file");
        symlink(outside.path(), folder.path().join("proc/absolute")).expect("a link");
        symlink("../../../../../../../../..", folder.path().join("proc/up")).expect("a link");
        fs::create_dir_all(folder.path().join("sys/devices/pci")).expect("it is ours");
        fs::write(folder.path().join("sys/devices/pci/value"), "1\n").expect("it is ours");
        symlink("/sys/devices/pci", folder.path().join("sys/short")).expect("a link");
        assert!(root.write("/proc/absolute", "1").is_err(), "in the copy there is no such file");
        let climbed = format!("/proc/up{}", outside.path().display());
        assert!(root.write(&climbed, "1").is_err());
        assert!(root.write("/proc/../x", "1").is_err());
        assert!(root.write("x", "1").is_err());
        root.write("/sys/short/value", "2").expect("a link inside");
        assert_eq!(root.read("/sys/devices/pci/value").expect("it is there").as_deref(), Some("2"));
        assert_eq!(fs::read_to_string(outside.path()).expect("it is there"), "");
    }
}
