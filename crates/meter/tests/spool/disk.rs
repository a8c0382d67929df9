//! Files that were damaged or truncated, and a full disk.

use crate::sent::{Sent, at, keep, names, open};
use spangap_meter::spool::SpoolFigures;
use spangap_meter::spool::block::Coding;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// All notes of the figures.
fn said(figures: &SpoolFigures) -> String {
    figures.notes.iter().map(|note| format!("{}\n", note.text)).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|file| !file.ends_with("lock")).collect();
    files.sort();
    files
}

/// Total size of all files.
pub fn bytes(folder: &Path) -> u64 {
    files(folder).iter().map(|file| fs::metadata(file).map_or(0, |file| file.len())).sum()
}

pub fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

pub fn clear(folder: &Path) {
    files(folder).iter().for_each(|file| fs::remove_file(file).unwrap());
}

/// Flips a bit of a byte of one of the files.
pub fn flip(folder: &Path, number: usize, byte: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(&files(folder)[number]).unwrap();
    let mut at = [0];
    file.read_exact_at(&mut at, byte).unwrap();
    file.write_all_at(&[at[0] ^ 4], byte).unwrap();
}

/// Three sealed segments, each with its own trace and a common one.
fn three_segments(folder: &Path) -> Arc<AtomicU64> {
    let now = Arc::new(AtomicU64::new(at(0)));
    for number in 0..3u8 {
        let spool = open(folder, 8 << 20, &now);
        keep(&spool, &Sent::new(number.into(), &[number + 1, 9]), Coding::Plain, now.load(Relaxed));
        spool.stop();
        now.fetch_add(60_000, Relaxed);
    }
    assert_eq!(files(folder).len(), 3);
    now
}

#[test]
fn nobody_else_on_the_machine_reads_it() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("spans");
    open(&folder, 8 << 20, &Arc::new(AtomicU64::new(at(0)))).stop();
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_flipped_bit_costs_at_most_one_segment_and_is_reported() {
    let whole = tempfile::tempdir().unwrap();
    let now = three_segments(whole.path());
    let size = fs::metadata(&files(whole.path())[1]).unwrap().len();
    let mut set_aside = 0;
    for byte in 0..size {
        let folder = tempfile::tempdir().unwrap();
        copy(whole.path(), folder.path());
        flip(folder.path(), 1, byte);
        let spool = open(folder.path(), 8 << 20, &now);
        let found = names(&spool.find(&[9; 16]));
        let others: Vec<&String> = found.iter().filter(|name| !name.starts_with("1-")).collect();
        assert_eq!(others, ["0-1", "2-1"], "byte {byte}");
        let figures = spool.figures();
        match found.len() {
            // Nothing is written between the blocks, and an index damaged at its end is rebuilt.
            3 => {
                let said = said(&figures);
                assert!(said.is_empty() || said.contains("cut off"), "byte {byte}: {said}");
                assert_eq!(figures.damaged_segments, 0, "byte {byte}");
            }
            _ => {
                set_aside += 1;
                let said = said(&figures);
                assert!(
                    figures.damaged_segments == 1 || said.contains("cut off"),
                    "byte {byte}: {figures:?}"
                );
                assert!(said.contains("000000000001"), "byte {byte}: {said}");
                // It is no longer read, and is dropped at the end of its retention.
                assert_eq!(names(&spool.find(&[2; 16])), Vec::<String>::new());
            }
        }
    }
    assert!(set_aside > 0);
}

#[test]
fn a_segment_moved_aside_counts_as_bytes_until_its_retention_ends() {
    let folder = tempfile::tempdir().unwrap();
    let now = three_segments(folder.path());
    fs::write(&files(folder.path())[0], "no segment at all").unwrap();
    let spool = open(folder.path(), 8 << 20, &now);
    assert!(files(folder.path())[0].extension().is_some_and(|ending| ending == "damaged"));
    assert!(spool.figures().bytes >= bytes(folder.path()));
    spool.stop();
    drop(spool);
    let spool = open(folder.path(), 8 << 20, &now);
    assert_eq!(
        (spool.figures().segments, spool.figures().damaged_segments),
        (3, 0),
        "it is not damaged anew"
    );
    now.store(at(40), Relaxed);
    keep(&spool, &Sent::new(7, &[7]), Coding::Plain, at(40));
    spool.flush();
    spool.stop();
    let left: Vec<bool> =
        files(folder.path()).iter().map(|file| file.extension().is_some_and(|e| e == "damaged")).collect();
    assert_eq!(left, [false]);
}

#[test]
fn a_truncated_segment_keeps_its_complete_blocks() {
    let whole = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicU64::new(at(0)));
    let spool = open(whole.path(), 8 << 20, &now);
    for number in 0..4u8 {
        keep(&spool, &Sent::new(number.into(), &[number + 1]), Coding::Plain, at(0));
        spool.flush();
    }
    // As after a kill: without an index.
    let file = &files(whole.path())[0];
    let all = fs::read(file).unwrap();
    let mut found_before = 0;
    for len in 32..=all.len() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(file.file_name().unwrap()), &all[..len]).unwrap();
        let spool = open(folder.path(), 8 << 20, &now);
        let found = (1..=4).take_while(|trace| !names(&spool.find(&[*trace; 16])).is_empty()).count();
        assert!(found == found_before || found == found_before + 1, "{found} after {found_before} at {len}");
        assert_eq!(spool.figures().spans, found as u64);
        assert_eq!(spool.figures().damaged_segments, 0, "at {len}");
        found_before = found;
    }
    assert_eq!(found_before, 4);
}

/// The folder is on a file system of a megabyte, mounted privately for this test; needs root.
#[test]
fn a_full_disk_loses_the_oldest_then_new_spans_and_counts_both() {
    let folder = tempfile::tempdir().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(folder.path()).output();
    match mounted {
        Ok(done) if done.status.success() => {}
        Ok(done) => {
            return println!("not run: a full disk: {}", String::from_utf8_lossy(&done.stderr).trim());
        }
        Err(why) => return println!("not run: a full disk: {why}"),
    }
    let unmounted = Unmounted(folder.path());
    let now = Arc::new(AtomicU64::new(at(0)));
    // More than the size of the disk.
    let spool = open(folder.path(), 64 << 20, &now);
    let (mut seed, mut sent) = (5, 0);
    for number in 0..100usize {
        // A new segment every minute, so that there is an oldest one.
        now.store(at(0) + number as u64 * 61_000 / 10, Relaxed);
        keep(&spool, &Sent::incompressible(number, &[7; 20], &mut seed), Coding::Plain, now.load(Relaxed));
        spool.flush();
        sent += 20;
    }
    let figures = spool.figures();
    assert_eq!(figures.spans + figures.forgotten_spans + figures.not_kept_disk, sent, "{figures:?}");
    assert!(figures.forgotten_spans > 0 && figures.spans > 200, "{figures:?}");
    assert!(names(&spool.find(&[7; 16])).contains(&"99-19".into()), "the latest is there: {figures:?}");

    // Others take the remaining space, and everything that is freed.
    let ballast = folder.path().join("ballast");
    let mut number = 100;
    while spool.figures().not_kept_disk == 0 {
        let size = fs::metadata(&ballast).map_or(0, |file| file.len());
        let _ = fs::write(&ballast, vec![1; size as usize + (64 << 10)]);
        keep(&spool, &Sent::incompressible(number, &[8; 20], &mut seed), Coding::Plain, now.load(Relaxed));
        spool.flush();
        sent += 20;
        number += 1;
        assert!(number < 1_000, "{:?}", spool.figures());
    }
    let figures = spool.figures();
    assert_eq!(figures.spans + figures.forgotten_spans + figures.not_kept_disk, sent, "{figures:?}");
    assert!(said(&figures).contains("No space left"), "{figures:?}");

    // Writing resumes once there is room.
    fs::remove_file(&ballast).unwrap();
    keep(&spool, &Sent::new(2_000, &[9]), Coding::Plain, now.load(Relaxed));
    spool.flush();
    assert_eq!(names(&spool.find(&[9; 16])), ["2000-0"]);
    assert_eq!(said(&spool.figures()), "");
    spool.stop();
    drop(spool);
    drop(unmounted);
}

struct Unmounted<'a>(&'a Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}
