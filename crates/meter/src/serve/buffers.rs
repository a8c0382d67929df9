//! Buffers of large bodies, used again. New memory costs more page faults than it costs to copy a body into it: a third of the CPU
//! time of requests of 4 MB.

use bytes::{Bytes, BytesMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a body that arrive before it takes blocks: what is announced takes no memory, and what a block has more than was sent
/// remains in proportion.
const SMALL: usize = 64 << 10;
/// Size of a block: a batch of 512 spans fits into one.
const BLOCK: usize = 256 << 10;
/// Maximum memory of blocks that wait to be used again, and of buffers of several blocks.
const MAX_SPARE_BYTES: usize = 16 << 20;
/// Buffers of several blocks are a multiple of this.
const STEP: usize = 1 << 20;

/// Memory that waits to be used again.
#[derive(Debug, Default)]
pub struct Buffers {
    spare: Mutex<Spare>,
}

#[derive(Debug, Default)]
struct Spare {
    blocks: Vec<BytesMut>,
    /// Larger ones, the smallest first.
    large: Vec<BytesMut>,
}

/// What has arrived of a body.
#[derive(Debug)]
pub struct Gathered {
    /// Whether it will be kept beyond its request, and so takes no memory that others wait for.
    is_kept: bool,
    /// All of it, as long as there are no blocks.
    small: BytesMut,
    blocks: Vec<BytesMut>,
    len: usize,
}

impl Gathered {
    /// Nothing yet. `is_kept`: the whole body will be kept beyond its request.
    pub fn new(is_kept: bool) -> Gathered {
        Gathered { is_kept, small: BytesMut::new(), blocks: Vec::new(), len: 0 }
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Buffers {
    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn block(&self) -> BytesMut {
        let spare = self.spare().blocks.pop();
        spare.unwrap_or_else(|| BytesMut::with_capacity(BLOCK))
    }

    /// Adds a piece.
    pub fn add(&self, body: &mut Gathered, mut piece: &[u8]) {
        body.len += piece.len();
        if body.is_kept || body.len <= SMALL {
            return body.small.extend_from_slice(piece);
        }
        if body.blocks.is_empty() {
            let mut first = self.block();
            first.extend_from_slice(&std::mem::take(&mut body.small));
            body.blocks.push(first);
        }
        loop {
            let Some(block) = body.blocks.last_mut() else { return };
            let (fits, rest) = piece.split_at(piece.len().min(BLOCK - block.len()));
            block.extend_from_slice(fits);
            if rest.is_empty() {
                return;
            }
            piece = rest;
            body.blocks.push(self.block());
        }
    }

    /// The whole body in one piece, for use at once.
    pub fn whole(&self, mut body: Gathered) -> Bytes {
        if body.blocks.len() <= 1 {
            return body.blocks.pop().unwrap_or(body.small).freeze();
        }
        let mut whole = self.large(body.len);
        for block in body.blocks {
            whole.extend_from_slice(&block);
            self.keep(block);
        }
        whole.freeze()
    }

    fn large(&self, len: usize) -> BytesMut {
        let mut spare = self.spare();
        match spare.large.iter().position(|buffer| buffer.capacity() >= len) {
            Some(place) => spare.large.remove(place),
            None => BytesMut::with_capacity(len.next_multiple_of(STEP)),
        }
    }

    /// A body that is not needed any more. Whoever else has it keeps it.
    pub fn give_back(&self, body: Bytes) {
        if let Ok(buffer) = body.try_into_mut() {
            self.keep(buffer);
        }
    }

    fn keep(&self, mut buffer: BytesMut) {
        buffer.clear();
        let Spare { blocks, large } = &mut *self.spare();
        match buffer.capacity() {
            BLOCK if blocks.len() < MAX_SPARE_BYTES / BLOCK => blocks.push(buffer),
            // Not a connection's own, which may come here with a body that was not copied.
            bytes if bytes > 0 && bytes.is_multiple_of(STEP) && bytes <= MAX_SPARE_BYTES => {
                // A larger one does for a smaller one.
                while large.iter().map(BytesMut::capacity).sum::<usize>() + bytes > MAX_SPARE_BYTES {
                    large.remove(0);
                }
                let place = large.partition_point(|other| other.capacity() < bytes);
                large.insert(place, buffer);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spare_bytes(buffers: &Buffers) -> [usize; 2] {
        let spare = buffers.spare();
        [&spare.blocks, &spare.large].map(|list| list.iter().map(BytesMut::capacity).sum())
    }

    fn gathered(buffers: &Buffers, pieces: &[usize], is_kept: bool) -> Gathered {
        let mut body = Gathered::new(is_kept);
        for (at, piece) in pieces.iter().enumerate() {
            buffers.add(&mut body, &vec![at as u8; *piece]);
            let room = body.small.capacity() + body.blocks.len() * BLOCK;
            assert!(is_kept || room <= 5 * body.len().max(SMALL), "{room} for {}", body.len());
            assert!(is_kept || body.len() <= SMALL || room < body.len() + BLOCK);
        }
        body
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn bodies_are_whole_and_spare_memory_is_bounded(
            bodies in prop::collection::vec(
                (prop::collection::vec(1usize..400_000, 0..60), any::<bool>(), any::<bool>()), 1..8),
        ) {
            let buffers = Buffers::default();
            let mut held = Vec::new();
            for (pieces, is_kept, is_held) in &bodies {
                let body = gathered(&buffers, pieces, *is_kept);
                prop_assert_eq!(body.len(), pieces.iter().sum::<usize>());
                let body = buffers.whole(body);
                let mut rest = &body[..];
                for (at, piece) in pieces.iter().enumerate() {
                    prop_assert!(rest[..*piece].iter().all(|byte| *byte == at as u8));
                    rest = &rest[*piece..];
                }
                prop_assert!(rest.is_empty());
                if *is_held { held.push(body.clone()) }
                buffers.give_back(body);
                prop_assert!(spare_bytes(&buffers).iter().all(|bytes| *bytes <= MAX_SPARE_BYTES));
            }
            for body in held {
                let before = body.to_vec();
                // Others come and go.
                buffers.give_back(buffers.whole(gathered(&buffers, &[300_000; 20], false)));
                prop_assert!(before == body, "a body that someone has was overwritten");
            }
        }
    }

    #[test]
    fn a_body_uses_the_memory_of_the_one_before() {
        let buffers = Buffers::default();
        let pieces = [100_000; 40];
        let first = buffers.whole(gathered(&buffers, &pieces, false));
        let at = first.as_ptr();
        buffers.give_back(first);
        let all = [16 * BLOCK, 4 << 20];
        assert_eq!(spare_bytes(&buffers), all);
        let second = gathered(&buffers, &pieces, false);
        assert_eq!(spare_bytes(&buffers), [0, 4 << 20]);
        let second = buffers.whole(second);
        assert_eq!((second.as_ptr(), spare_bytes(&buffers)), (at, [16 * BLOCK, 0]));
        buffers.give_back(second);
        let one_block = buffers.whole(gathered(&buffers, &[100_000, 100_000], false));
        assert_eq!(spare_bytes(&buffers), [15 * BLOCK, 4 << 20], "it is not copied");
        buffers.give_back(one_block);
        assert_eq!(spare_bytes(&buffers), all);
        buffers.give_back(buffers.whole(gathered(&buffers, &[1000; 10], false)));
        buffers.give_back(buffers.whole(gathered(&buffers, &pieces, true)));
        assert_eq!(
            spare_bytes(&buffers)[0],
            all[0],
            "neither a small body nor one that is kept takes blocks"
        );
        let before = spare_bytes(&buffers);
        buffers.give_back(BytesMut::with_capacity(BLOCK + 9).freeze());
        buffers.give_back(Bytes::from(vec![0; BLOCK + 9]));
        buffers.give_back(Bytes::from_static(&[0; 9]));
        assert_eq!(spare_bytes(&buffers), before, "memory of others is theirs");
    }
}
