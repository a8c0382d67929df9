//! Writes packets from the ring to files.

use super::cannot_write;
use super::trigger::Slow;
use serde::Serialize;
use spangap_model::duration::format_ns;
use spangap_wire::source::ring::Ring;
use spangap_wire::source::write::{Origin, PcapngWriter};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Why packets are written.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// SIGUSR1.
    Signal,
    /// The end of the capture.
    End,
    /// A line in the slow log.
    SlowCall(Slow),
}

/// One file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Written {
    /// Its path.
    pub file: String,
    /// Why it was written.
    pub reason: Reason,
    /// Packets in it.
    pub packets: u64,
    pub bytes: u64,
    /// Time of its first packet.
    pub from_unix_ns: Option<i64>,
    /// Time of its last packet.
    pub to_unix_ns: Option<i64>,
    /// Packets dropped since the capture began, for lack of room.
    pub dropped: u64,
    /// Whether all packets since the beginning of the slow call were still in the ring.
    pub covers_call: Option<bool>,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Written { file, packets, dropped, .. } = self;
        if let Reason::SlowCall(slow) = &self.reason {
            write!(f, "call {} took {}: ", slow.trace_id, format_ns(slow.duration_ns))?;
        }
        write!(f, "{file}: {packets} packets")?;
        if let (Some(from), Some(to)) = (self.from_unix_ns, self.to_unix_ns) {
            write!(f, " of {}", format_ns(to.abs_diff(from)))?;
        }
        if *dropped > 0 {
            write!(f, ", {dropped} dropped so far")?;
        }
        match self.covers_call {
            Some(false) => write!(
                f,
                "; the call began before the first of them: a larger --ring reaches further \
            back"
            ),
            _ if *packets == 0 => write!(f, "; no packet passed the filter"),
            _ => Ok(()),
        }
    }
}

/// The files of one capture.
pub struct Files {
    path: PathBuf,
    filter: String,
    snap_bytes: u32,
    written: Vec<Written>,
}

impl Files {
    /// The first is `path` itself.
    pub fn new(path: PathBuf, filter: String, snap_bytes: u32) -> Files {
        Files { path, filter, snap_bytes, written: Vec::new() }
    }

    /// Checks that the first file can be written, while nothing is lost yet. Leaves nothing behind.
    pub fn try_out(&self) -> anyhow::Result<()> {
        let failed = cannot_write(&self.path);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path) {
            Ok(file) => {
                drop(file);
                std::fs::remove_file(&self.path).map_err(failed)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Opening a pipe would wait for its reader.
                let kind = std::fs::metadata(&self.path).map_err(&failed)?.file_type();
                match kind.is_file() || kind.is_dir() {
                    true => OpenOptions::new().write(true).open(&self.path).map(drop).map_err(failed),
                    false => Ok(()),
                }
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// All files so far.
    pub fn written(&self) -> &[Written] {
        &self.written
    }

    /// Writes the content of the ring, and empties it: the next file continues where this one ends.
    pub fn write(&mut self, ring: &mut Ring, reason: Reason) -> anyhow::Result<&Written> {
        let path = self.next_path();
        let failed = cannot_write(&path);
        ring.catch_up().map_err(&failed)?;
        let mut options = OpenOptions::new();
        // Packets contain what was said, so only the owner may read them.
        let file =
            options.write(true).create(true).truncate(true).mode(0o600).open(&path).map_err(&failed)?;
        let counts = ring.counts().map_err(&failed)?;
        let comment = match &reason {
            Reason::SlowCall(slow) => format!("trace {} took {} ns", slow.trace_id, slow.duration_ns),
            _ => format!("filter: {}", self.filter),
        };
        let interface = ring.interface();
        let origin = Origin {
            interface: &interface.name,
            link: interface.link,
            snap_bytes: self.snap_bytes,
            comment: &comment,
        };
        let mut writer =
            PcapngWriter::create(BufWriter::with_capacity(1 << 20, file), &origin).map_err(&failed)?;
        let (mut from_unix_ns, mut to_unix_ns) = (None, None);
        ring.packets(|packet| {
            from_unix_ns.get_or_insert(packet.time_ns);
            to_unix_ns = Some(packet.time_ns);
            writer.packet(packet)
        })
        .map_err(&failed)?;
        let (packets, bytes) = (writer.packets, writer.bytes);
        writer.finish(to_unix_ns.unwrap_or_default(), counts.received, counts.dropped).map_err(&failed)?;
        let covers_call = match &reason {
            Reason::SlowCall(slow) => Some(ring.complete_since_ns() <= slow.sent_unix_ns as i64),
            _ => None,
        };
        ring.release_all();
        let file = path.display().to_string();
        let dropped = counts.dropped;
        let written =
            Written { file, reason, packets, bytes, from_unix_ns, to_unix_ns, dropped, covers_call };
        self.written.push(written);
        Ok(&self.written[self.written.len() - 1])
    }

    fn next_path(&self) -> PathBuf {
        let number = self.written.len() + 1;
        if number == 1 {
            return self.path.clone();
        }
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let ending = self.path.extension().map(|ending| format!(".{}", ending.to_string_lossy()));
        self.path.with_file_name(format!("{stem}-{number}{}", ending.unwrap_or_default()))
    }
}
