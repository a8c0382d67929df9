//! A ring of complete spans: the bytes of waiting halves, so that a call among the worst can be shown with
//! both its spans. When the ring is full, the oldest bytes are overwritten; the join does not need them.

/// Positions are in units of 16 bytes, modulo 2^32.
const UNIT: usize = 16;
const HEADER: usize = 4;
/// Maximum size of a span in the ring; a longer one would displace hundreds of others.
pub const MAX_SPAN_BYTES: usize = 64 << 10;

/// The ring. Position 0 means "not kept".
#[derive(Debug)]
pub struct Keep {
    ring: Vec<u8>,
    /// Units written since the start, without wrapping; the ring contains the last `ring.len() / UNIT` of
    /// them.
    written: u64,
    refused: u64,
}

impl Keep {
    /// A ring of `bytes` (rounded down to a multiple of 16); the memory is touched on first use.
    pub fn new(bytes: u64) -> Keep {
        let units = usize::try_from(bytes).unwrap_or(0).min(u32::MAX as usize * 8) / UNIT;
        Keep { ring: vec![0; units * UNIT], written: 0, refused: 0 }
    }

    /// Size of the ring in bytes.
    pub fn bytes(&self) -> usize {
        self.ring.len()
    }

    /// Bytes written since the start.
    pub fn written_bytes(&self) -> u64 {
        self.written * UNIT as u64
    }

    fn units(&self) -> u64 {
        (self.ring.len() / UNIT) as u64
    }

    /// Spans rejected because they exceed [`MAX_SPAN_BYTES`].
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Stores a span's bytes; returns their position, or 0 if they exceed the ring or [`MAX_SPAN_BYTES`].
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> u32 {
        let need = (HEADER + bytes.len()).div_ceil(UNIT) as u64;
        let units = self.units();
        if need > units || bytes.len() > MAX_SPAN_BYTES {
            self.refused += 1;
            return 0;
        }
        // A record does not wrap: the remaining end of the ring stays unused.
        let left = units - self.written % units;
        if need > left {
            self.written += left;
        }
        // Position 0 means "not kept", so the unit with that number is skipped.
        if (self.written + 1) as u32 == 0 {
            self.written += 1;
            return self.put(bytes);
        }
        let at = (self.written % units) as usize * UNIT;
        let position = self.written as u32 + 1;
        self.ring[at..at + HEADER].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.ring[at + HEADER..at + HEADER + bytes.len()].copy_from_slice(bytes);
        self.written += need;
        position
    }

    /// The bytes at `position`, unless the ring has overwritten them. The position must be less than 2^32
    /// units old; the time to live ensures that.
    pub fn get(&self, position: u32) -> Option<&[u8]> {
        if position == 0 {
            return None;
        }
        let age = (self.written as u32).wrapping_sub(position - 1) as u64;
        let units = self.units();
        if age == 0 || age > units || age > self.written {
            return None;
        }
        let at = ((self.written - age) % units) as usize * UNIT;
        let (header, rest) = self.ring[at..].split_first_chunk::<HEADER>()?;
        rest.get(..u32::from_le_bytes(*header) as usize)
    }

    /// Whether the bytes at `position` are still available.
    pub fn holds(&self, position: u32) -> bool {
        self.get(position).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn available_bytes_equal_the_stored_ones(sizes in prop::collection::vec(0usize..300, 1..200)) {
            let mut keep = Keep::new(2048);
            let mut put = Vec::new();
            for (i, size) in sizes.into_iter().enumerate() {
                let bytes = vec![i as u8; size];
                put.push((keep.put(&bytes), bytes));
                let newest = put.last().unwrap();
                prop_assert_eq!(keep.get(newest.0), Some(&newest.1[..]));
            }
            // Everything still available is unchanged, and it is the newest part.
            let held: Vec<bool> = put.iter().map(|(at, bytes)| match keep.get(*at) {
                Some(got) => { assert_eq!(got, &bytes[..]); true }
                None => false,
            }).collect();
            prop_assert!(held.is_sorted());
        }
    }

    #[test]
    fn too_long_spans_are_rejected() {
        let mut keep = Keep::new(64);
        assert_eq!(keep.put(&[1; 100]), 0);
        assert_eq!(keep.get(0), None);
        assert_eq!(Keep::new(0).put(b"x"), 0);
    }
}
