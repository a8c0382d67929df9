//! Masks TLS records: keeps their headers, and both hellos; the rest is ciphertext, or private.

use super::stream::Run;
use crate::app::tls;
use crate::app::{Look, Spoken};

const HEADER_BYTES: usize = 5;
const MAX_PAYLOAD_BYTES: usize = (1 << 14) + 2048;
/// Record types: change of cipher, alert, handshake, application data.
const KINDS: [u8; 4] = [20, 21, 22, 23];
/// Handshake message types that both sides send in the clear.
const HELLOS: [u8; 2] = [1, 2];

/// One direction.
#[derive(Debug)]
pub(super) struct Records {
    /// Remaining bytes of a record; `None` if record boundaries are unknown.
    left: Option<usize>,
}

impl Records {
    /// A direction whose first byte is the next one, or that was joined later.
    pub fn new(from_start: bool) -> Records {
        Records { left: from_start.then_some(0) }
    }

    /// Bytes are missing before the next run.
    pub fn hole(&mut self, len: u64) {
        let left = self.left.filter(|left| *left > 0).and_then(|left| (left as u64).checked_sub(len));
        self.left = left.map(|left| left as usize);
    }

    /// Masks a run.
    pub fn run(&mut self, run: &mut Run) {
        let mut at = 0;
        while at < run.bytes.len() {
            let Some(left) = self.left else {
                let is =
                    |begin: &&usize| tls::looks_like(&run.bytes[**begin..], true) == Look::Is(Spoken::Tls);
                let first = run.segments.partition_point(|begin| *begin < at);
                let Some(found) = run.segments[first..].iter().find(is) else { return };
                at = *found;
                self.left = Some(0);
                continue;
            };
            if left > 0 {
                let step = left.min(run.bytes.len() - at);
                at += step;
                self.left = Some(left - step);
                continue;
            }
            let header = run.bytes[at..].first_chunk::<HEADER_BYTES>();
            let Some([kind, 3, _, a, b]) = header.copied() else {
                self.left = None;
                at += 1;
                continue;
            };
            let len = usize::from(u16::from_be_bytes([a, b]));
            if !KINDS.contains(&kind) || len > MAX_PAYLOAD_BYTES {
                self.left = None;
                at += 1;
                continue;
            }
            run.show(at, at + HEADER_BYTES);
            at += HEADER_BYTES;
            let first = run.bytes.get(at).copied();
            let shown = match kind {
                22 if first.is_some_and(|first| HELLOS.contains(&first)) => len,
                22 => 4,
                20 => 1,
                21 => 2,
                _ => 0,
            };
            run.show(at, (at + shown.min(len)).min(run.bytes.len()));
            self.left = Some(len);
        }
    }
}
