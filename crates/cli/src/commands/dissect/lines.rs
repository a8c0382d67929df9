//! `dissect --calls`: every call as a line of JSON.

use super::captures::not_over_a_capture;
use anyhow::{Context, bail};
use spangap_wire::dissect::{Dissection, OnProgress, Settings, every_call};
use spangap_wire::report::CallReport;
use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Calls handled at once.
const CALLS: usize = 1 << 8;
/// With host recordings, which are read again for each such number of calls.
const CALLS_WITH_HOSTS: usize = 1 << 14;
/// Approximate number of bytes written at once.
const PIECE_BYTES: usize = 1 << 18;

/// Destination of the lines.
pub struct Lines {
    name: String,
    to: File,
    /// Whether it was empty at the start: standard output may be the end of a file.
    own: bool,
    /// Complete lines, not yet written.
    piece: Vec<u8>,
    piece_calls: u64,
    written_calls: u64,
    written_bytes: u64,
}

impl Lines {
    /// Opens the file, so that an error is reported before anything is read. Its content stays until there is
    /// something to write.
    pub fn create(path: &Path, captures: &[PathBuf]) -> anyhow::Result<Lines> {
        let own = path.as_os_str() != "-";
        let (name, to) = if !own {
            let to = io::stdout().as_fd().try_clone_to_owned();
            ("standard output".to_owned(), to.map(File::from))
        } else {
            not_over_a_capture("--calls", path, captures)?;
            let to = File::options().write(true).create(true).truncate(false).open(path);
            (path.display().to_string(), to)
        };
        let to = to.with_context(|| format!("cannot write the calls ({name})"))?;
        Ok(Lines { name, to, own, piece: Vec::new(), piece_calls: 0, written_calls: 0, written_bytes: 0 })
    }

    /// Writes the calls of all captures, split by host recordings. An early end is reported among the
    /// warnings.
    pub fn write(
        mut self,
        dissection: &mut Dissection,
        settings: &Settings,
        recordings: &[PathBuf],
        stop: &AtomicBool,
        on_progress: &mut OnProgress<'_>,
    ) -> anyhow::Result<()> {
        let matching = dissection.matching;
        let most = if recordings.is_empty() { CALLS } else { CALLS_WITH_HOSTS };
        let mut failed: Option<anyhow::Error> = None;
        let mut enough = false;
        if self.own && self.to.metadata()?.is_file() {
            self.to.set_len(0).with_context(|| format!("cannot write the calls ({})", self.name))?;
        }
        let flow = every_call(dissection, settings, most, on_progress, &mut |dissection| {
            let told = (dissection.caveats.len(), dissection.recordings.len());
            let laid = spangap_gather::hosts::split_legs(dissection, recordings);
            // The limits of recordings were reported for the calls shown.
            dissection.caveats.truncate(told.0);
            dissection.recordings.truncate(told.1);
            if let Err(error) = laid {
                failed = Some(error.into());
                return ControlFlow::Break(());
            }
            match self.add(dissection) {
                Ok(()) if !stop.load(Relaxed) => return ControlFlow::Continue(()),
                Ok(()) => {}
                // The reader has closed the pipe.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => enough = true,
                Err(error) => failed = Some(error.into()),
            }
            ControlFlow::Break(())
        })?;
        if failed.is_none() && !enough {
            match self.flush() {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => enough = true,
                other => failed = other.err().map(Into::into),
            }
        }
        let Lines { name, written_calls, .. } = self;
        if let Some(error) = failed {
            let context =
                format!("cannot write the calls ({name}): {written_calls} of {matching} were written");
            return Err(error.context(context));
        }
        if flow.is_break() && !enough {
            dissection.warnings.push(format!(
                "interrupted while writing the calls: {name} has {written_calls} of {matching}"
            ));
        } else if !enough && written_calls != matching {
            bail!(
                "{name}: has {written_calls} calls, but {matching} were counted: the captures changed while they \
                 were being read"
            );
        }
        Ok(())
    }

    fn add(&mut self, dissection: &Dissection) -> io::Result<()> {
        for call in &dissection.calls {
            serde_json::to_writer(&mut self.piece, &CallReport::new(call, dissection))?;
            self.piece.push(b'\n');
            self.piece_calls += 1;
            if self.piece.len() >= PIECE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Err(error) = self.to.write_all(&self.piece) {
            if self.own {
                // Half a line would not be JSON. A pipe cannot be truncated, and keeps it.
                let _ = self.to.set_len(self.written_bytes);
            }
            return Err(error);
        }
        self.written_bytes += self.piece.len() as u64;
        self.written_calls += std::mem::take(&mut self.piece_calls);
        self.piece.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_wire::dissect::dissect;
    use spangap_wire::source::Capture;

    #[test]
    fn a_signal_ends_the_writing_at_the_end_of_a_line_and_is_said() {
        let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures");
        let ends = ["client", "server"].map(|end| captures.join(format!("stream-limit.{end}.pcapng.zst")));
        let opened = ends.iter().map(|end| Capture::open(end).expect("the fixture")).collect();
        let settings = Settings::default();
        let mut go_on = |_| ControlFlow::Continue(());
        let mut dissection = dissect(opened, &settings, &mut go_on).expect("files");
        assert_eq!(dissection.matching, 800);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("calls.jsonl");
        let lines = Lines::create(&path, &ends).expect("a file");
        let stop = AtomicBool::new(true);
        lines.write(&mut dissection, &settings, &[], &stop, &mut go_on).expect("what is there is written");
        let written = std::fs::read_to_string(&path).expect("the lines");
        assert!(written.ends_with("}\n") && written.lines().count() == CALLS, "{}", written.lines().count());
        let said = format!("{} has {CALLS} of 800", path.display());
        assert!(
            dissection.warnings.iter().any(|warning| warning.ends_with(&said)),
            "{:?}",
            dissection.warnings
        );
    }
}
