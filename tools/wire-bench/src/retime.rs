//! Rewrites a capture as if by another clock, with an offset and a skew.

use crate::frames::Pcap;
use spangap_wire::source::{Capture, SourceError};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

/// Failure of a rewrite.
#[derive(Debug, thiserror::Error)]
pub enum RetimeError {
    /// The capture cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The copy cannot be written.
    #[error("{0}")]
    Write(#[from] io::Error),
    /// The copy's format has one link type for all packets.
    #[error("packet {packet}: expected Ethernet as the others, found link type {found}")]
    LinkType {
        packet: u64,
        /// Its link type.
        found: u16,
    },
}

/// Rewrites the Ethernet packets of a capture; times are shifted by `offset_ns`, and by `skew_ppm` millionths of the
/// time since the first packet.
///
/// # Errors
/// [`RetimeError`]
pub fn retime(from: &Path, to: &Path, offset_ns: i64, skew_ppm: f64) -> Result<u64, RetimeError> {
    let mut capture = Capture::open(from)?;
    let mut copy = Pcap::create(BufWriter::new(File::create(to)?))?;
    let mut first_ns = None;
    while let Some(packet) = capture.next() {
        if packet.link.0 != 1 {
            return Err(RetimeError::LinkType { packet: packet.number, found: packet.link.0 });
        }
        let since_ns = packet.time_ns - *first_ns.get_or_insert(packet.time_ns);
        let time_ns = packet.time_ns + offset_ns + (since_ns as f64 * skew_ppm / 1e6).round() as i64;
        copy.raw(time_ns, packet.wire_len, packet.data)?;
    }
    Ok(copy.finish()?.0)
}
