//! Packets without what their messages say: lengths, sequence numbers and times stay.

use crate::decode::Decoder;
use crate::packet::Packet;

/// Masks the packets of one capture, in their order.
#[derive(Debug, Default)]
pub struct Masker {
    decoder: Decoder,
    /// Packets of which nothing may be kept: no TCP segment could be found in them.
    pub left_out: u64,
}

impl Masker {
    /// Masks a packet. `bytes` is a copy of its data. Gives whether the packet may be kept.
    pub fn packet(&mut self, packet: &Packet<'_>, bytes: &mut [u8]) -> bool {
        let payload = self.decoder.decode(packet).ok().map(|segment| segment.payload);
        let Some(at) = payload.and_then(|payload| place(packet.data, payload)) else {
            self.left_out += 1;
            return false;
        };
        // What stands behind the segment, padding, is no message, and nobody's business either.
        bytes[at..].fill(0);
        true
    }
}

/// Where a part of a packet begins; `None` for what was put together from fragments. An empty one may be anywhere.
fn place(packet: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(packet.len());
    }
    let at = (part.as_ptr() as usize).checked_sub(packet.as_ptr() as usize)?;
    (at + part.len() <= packet.len()).then_some(at)
}
