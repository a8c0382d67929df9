//! The masked capture of a slice.

use crate::packets::Copied;
use bytes::Bytes;
use spangap_wire::mask::Masker;
use spangap_wire::packet::Packet;
use spangap_wire::source::write::{Origin, PcapngWriter};
use spangap_wire::source::{Capture, SourceError};
use std::collections::hash_map::RandomState;
use std::io::{self, Cursor, Write};

/// The capture cannot be masked; it is not sent then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MaskError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] SourceError),
    /// The masked one cannot be written.
    #[error("the capture cannot be masked: {0}")]
    Write(#[from] io::Error),
}

/// Comment in the file.
const COMMENT: &str = "A slice of the ring of `spangap agent`. Payloads are masked: lengths and frame headers are true, and \
                       those header fields that the analysis needs. TCP checksums are those of the wire";

/// Writes the same packets with masked payloads. Returns the number of omitted ones: fragments, whose headers cannot be
/// interpreted.
pub(crate) fn masked(copied: Copied, key: RandomState, out: impl Write) -> Result<u64, MaskError> {
    let (lost, to_ns) = (copied.lost, copied.to_ns);
    let mut masker = Masker::new(key);
    // Read twice, but stored once.
    let file = Bytes::from(copied.file);
    let open = || Capture::from_reader("the slice".into(), Box::new(Cursor::new(file.clone())));
    let mut capture = open()?;
    while let Some(packet) = capture.next() {
        masker.see(&packet);
    }
    let openings = capture.openings().to_vec();
    drop(capture);
    let origin = Origin { interface: "any", link: copied.link, snap_bytes: 0, comment: COMMENT };
    let mut writer = PcapngWriter::create(out, &origin)?;
    for opening in &openings {
        writer.opening(opening)?;
    }
    let mut capture = open()?;
    let mut bytes = Vec::new();
    while let Some(packet) = capture.next() {
        bytes.clear();
        bytes.extend_from_slice(packet.data);
        if masker.mask(&mut bytes) {
            writer.packet(&Packet { data: &bytes, ..packet })?;
        }
    }
    writer.finish(to_ns, copied.packets + lost, lost)?;
    Ok(masker.left_out)
}
