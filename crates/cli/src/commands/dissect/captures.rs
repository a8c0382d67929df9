//! Opening the captures: files, and pipes, which are copied to a file if they must be read twice.

use super::pipe::Pipe;
use crate::values::wrong_usage;
use anyhow::{Context, bail};
use spangap_wire::source::Capture;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

/// The captures, in the order given.
pub struct Opened {
    pub captures: Vec<Capture>,
    /// Copies of pipes: unnamed files, which disappear when closed.
    pub copies: Vec<File>,
    /// Whether Ctrl-C ended the copying.
    pub interrupted: bool,
}

/// Opens them. Pipes that must be read `twice` are copied.
pub fn open_all(paths: &[PathBuf], twice: bool, stop: &Arc<AtomicBool>) -> anyhow::Result<Opened> {
    let is_stdin = |path: &&PathBuf| path.as_os_str() == "-";
    if paths.iter().filter(is_stdin).count() > 1 {
        return Err(wrong_usage("standard input can be read once: \"-\" was given more than once").into());
    }
    let files: Vec<Option<PathBuf>> =
        paths.iter().map(|path| path.canonicalize().ok().filter(|path| path.is_file())).collect();
    for (place, file) in files.iter().enumerate() {
        if file.is_some() && files[..place].contains(file) {
            let path = paths[place].display();
            if paths.len() > 2 {
                return Err(wrong_usage(format!(
                    "{path}: given twice; expected captures of different places"
                ))
                .into());
            }
            bail!("{path}: given as both ends; expected the captures of two places");
        }
    }
    // With three captures or more, the connections that they have in common are determined first.
    if twice || paths.len() > 2 {
        return open_for_twice(paths, stop);
    }
    let open = |path: &PathBuf| match pipe(path, stop)? {
        Some(pipe) => Ok(Capture::from_reader(path.display().to_string(), Box::new(pipe))?),
        None => Ok(Capture::open(path)?),
    };
    let captures = paths.iter().map(open).collect::<anyhow::Result<Vec<Capture>>>()?;
    Ok(Opened { captures, copies: Vec::new(), interrupted: false })
}

/// Refuses to write the file of a `flag` over a capture.
pub fn not_over_a_capture(flag: &str, path: &Path, captures: &[PathBuf]) -> anyhow::Result<()> {
    let Ok(to) = path.canonicalize() else { return Ok(()) };
    if to.is_file()
        && captures.iter().any(|capture| capture.canonicalize().is_ok_and(|capture| capture == to))
    {
        let words = format!("{flag} {}: is one of the captures; expected another file", path.display());
        return Err(wrong_usage(words).into());
    }
    Ok(())
}

/// An input that can be read only once.
fn pipe(path: &Path, stop: &Arc<AtomicBool>) -> anyhow::Result<Option<Pipe>> {
    if path.as_os_str() == "-" {
        return Pipe::new(io::stdin(), stop.clone()).map(Some);
    }
    // A named pipe blocks for as long as its writer likes.
    if path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        return Pipe::new(file, stop.clone()).map(Some);
    }
    Ok(None)
}

fn open_for_twice(paths: &[PathBuf], stop: &Arc<AtomicBool>) -> anyhow::Result<Opened> {
    let pipes = paths.iter().map(|path| pipe(path, stop)).collect::<anyhow::Result<Vec<Option<Pipe>>>>()?;
    // All at the same time: if nobody reads from a writer, it loses packets.
    let copies: Vec<anyhow::Result<Option<File>>> = thread::scope(|scope| {
        let copy = |(path, pipe): (&PathBuf, Option<Pipe>)| {
            let name = path.display().to_string();
            pipe.map(|pipe| scope.spawn(move || copy(pipe, stop).with_context(|| about_copying(&name))))
        };
        let copying: Vec<_> = paths.iter().zip(pipes).map(copy).collect();
        let copied = copying.into_iter().map(|thread| {
            let Some(thread) = thread else { return Ok(None) };
            thread.join().unwrap_or_else(|_| bail!("a thread panicked")).map(Some)
        });
        copied.collect()
    });
    let mut opened = Opened { captures: Vec::new(), copies: Vec::new(), interrupted: false };
    for (path, copy) in paths.iter().zip(copies) {
        let capture = match copy? {
            Some(copy) => {
                let place = format!("/proc/self/fd/{}", copy.as_raw_fd());
                opened.copies.push(copy);
                Capture::open_as(path.display().to_string(), Path::new(&place))?
            }
            None => Capture::open(path)?,
        };
        opened.captures.push(capture);
    }
    // Ctrl-C ended the pipes; their content so far is still to be read.
    opened.interrupted = !opened.copies.is_empty() && stop.swap(false, Relaxed);
    Ok(opened)
}

fn about_copying(name: &str) -> String {
    let folder = std::env::temp_dir();
    format!(
        "cannot copy what comes from the pipe ({name}) to a temporary file in {} (TMPDIR names another folder)",
        folder.display()
    )
}

/// Copies everything that arrives to a file, until Ctrl-C.
fn copy(mut pipe: Pipe, stop: &AtomicBool) -> anyhow::Result<File> {
    let mut file = tempfile::tempfile()?;
    let mut piece = vec![0; 256 << 10];
    while !stop.load(Relaxed) {
        let len = pipe.read(&mut piece)?;
        if len == 0 {
            break;
        }
        file.write_all(&piece[..len])?;
    }
    Ok(file)
}
