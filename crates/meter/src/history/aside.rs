//! Moves a damaged history aside under another name, so that the meter can start a new one.

use super::file::APPLICATION_ID;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Damaged histories retained beside the new one; the oldest is deleted first. A failing disk must not fill
/// up with them.
const MAX_DAMAGED: usize = 3;
const PAGE: usize = 4096;
/// Pages examined to recognise a database whose header is gone.
const PAGES_EXAMINED: usize = 16;

/// Renames the database at `path` and its companion files. Returns the new name.
///
/// # Errors
/// When the directory refuses.
pub fn set_aside(path: &Path, now_unix_s: u64) -> io::Result<PathBuf> {
    let name = |number: u32| match number {
        0 => suffixed(path, &format!(".damaged-{now_unix_s}")),
        number => suffixed(path, &format!(".damaged-{now_unix_s}-{number}")),
    };
    let aside = (0..).map(name).find(|name| !name.exists()).unwrap_or_else(|| name(0));
    std::fs::rename(path, &aside)?;
    for part in ["-wal", "-shm"] {
        match std::fs::rename(suffixed(path, part), suffixed(&aside, part)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    forget_oldest(path);
    Ok(aside)
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Deletes the oldest damaged histories. Files that cannot be listed or removed stay; no caller could do
/// more.
fn forget_oldest(path: &Path) {
    let prefix = format!("{}.damaged-", path.file_name().unwrap_or_default().to_string_lossy());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut aside: Vec<PathBuf> = files
        .filter(|file| {
            let name = file.file_name().to_string_lossy().into_owned();
            name.starts_with(&prefix) && !name.ends_with("-wal") && !name.ends_with("-shm")
        })
        .map(|file| file.path())
        .collect();
    aside.sort();
    for old in &aside[..aside.len().saturating_sub(MAX_DAMAGED)] {
        for part in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(suffixed(old, part));
        }
    }
}

/// Whether the file at `path` is or was a history, as far as can still be determined; a foreign file of the
/// same name is left alone.
pub fn was_history(path: &Path) -> bool {
    let mut head = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take((PAGE * PAGES_EXAMINED) as u64).read_to_end(&mut head));
    if read.is_err() || head.len() < PAGE {
        return false;
    }
    if head[68..72] == APPLICATION_ID.to_be_bytes() {
        return true;
    }
    // The header is gone. Pages of a database begin with the type of a b-tree page or with the number of the
    // next overflow page, or are empty; text does neither. The second page is the pointer map.
    let is_page = |page: &[u8]| matches!(page[0], 0 | 2 | 5 | 10 | 13);
    let whole_pages = std::fs::metadata(path).is_ok_and(|file| file.len() % PAGE as u64 == 0);
    let foreign = head.starts_with(b"SQLite format 3\0");
    // Some of these pages may be damaged, too.
    let (pages, others): (Vec<_>, Vec<_>) = head.chunks_exact(PAGE).skip(2).partition(|page| is_page(page));
    whole_pages && !foreign && pages.len() > others.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_histories_are_moved_aside_and_their_number_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.sqlite");
        for foreign in [&b"my diary"[..], &b"a long letter ".repeat(2000), &[b'x'; 8 * PAGE]] {
            std::fs::write(&path, foreign).unwrap();
            assert!(!was_history(&path));
        }
        let mut damaged = vec![0; 8 * PAGE];
        damaged[..16].copy_from_slice(&[0xff; 16]);
        damaged[3 * PAGE] = 13;
        damaged[4 * PAGE] = b'x';
        for round in 0..6u64 {
            std::fs::write(&path, &damaged).unwrap();
            std::fs::write(suffixed(&path, "-wal"), "log").unwrap();
            assert!(was_history(&path));
            // Two within the same second do not overwrite each other.
            let aside = set_aside(&path, 1_700_000_000 + round / 2).unwrap();
            assert!(!path.exists() && !suffixed(&path, "-wal").exists());
            assert_eq!(std::fs::read(&aside).unwrap(), damaged);
        }
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 2 * MAX_DAMAGED);
    }
}
