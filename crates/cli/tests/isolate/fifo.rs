//! A file of a machine that answers only on command, so that whoever writes it blocks exactly there.

use crate::process::PATIENCE;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A named pipe in place of a file.
pub struct Fifo {
    path: PathBuf,
    /// The value that readers get.
    pub value: String,
}

impl Fifo {
    /// Replaces a file, and keeps its value.
    pub fn in_place_of(path: PathBuf) -> Fifo {
        let value = fs::read_to_string(&path).expect("a file");
        fs::remove_file(&path).expect("it is ours");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a named pipe");
        Fifo { path, value }
    }

    /// Answers readers with the value until this process blocks in its write.
    pub fn until_written_by(&self, pid: u32) {
        let begun = Instant::now();
        loop {
            // Only a blocked process gets an answer: a reader that already has one would read the value
            // twice.
            if stands_still(pid) && !self.answer() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "nobody writes {}", self.path.display());
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
    }

    /// Answers a waiting reader, if there is one.
    fn answer(&self) -> bool {
        let Ok(pipe) = open(&self.path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
        else {
            return false;
        };
        // A reader that has just gone has got no answer.
        let _ = File::from(pipe).write_all(self.value.as_bytes());
        true
    }

    /// Takes what a blocked writer writes.
    fn take(&mut self) {
        let pipe = open(&self.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
        let mut text = String::new();
        File::from(pipe).read_to_string(&mut text).expect("text");
        if !text.is_empty() {
            self.value = text;
        }
    }

    /// Answers readers and takes writes until the process has ended.
    pub fn until_ended(&mut self, pid: u32) {
        let begun = Instant::now();
        while !has_ended(pid) {
            if stands_still(pid) && !self.answer() && !has_ended(pid) {
                self.take();
            }
            assert!(begun.elapsed() < PATIENCE, "process {pid} does not end");
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
    }

    /// Replaces it by a file with the value.
    pub fn remove(self) {
        fs::remove_file(&self.path).expect("it is ours");
        fs::write(&self.path, &self.value).expect("it is ours");
    }
}

/// Whether a process is waiting for the other end of a named pipe to be opened.
fn stands_still(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let waits =
        |thread: PathBuf| fs::read_to_string(thread.join("wchan")).unwrap_or_default() == "wait_for_partner";
    threads.map(|thread| thread.path()).any(waits)
}

fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    // A zombie only waits for its parent.
    stat.is_empty() || stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}
