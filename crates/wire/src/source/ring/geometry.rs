//! Size and number of a ring's blocks, and how long it may be left alone.

/// If at most this is kept of a packet, 32 KiB are enough for it, its header and its neighbours.
const SMALL_SNAP: u32 = 16 << 10;
/// One block in this many is left to the kernel, at least two.
const FREE_SHARE: usize = 8;
/// Bytes that may come in a millisecond after a silence before any is lost: 2.5 Gbit/s of what is kept.
const SUDDEN_BYTES_PER_MS: usize = 312_500;

/// Size and number of the blocks: a power of two of pages. While packets are few, each block is closed by its timeout, so that
/// their number says how far a ring reaches back: one of 15 MiB has 480, which is 42 s.
///
/// A packet is in one block, so that `snap_bytes` of it need room there; 0: all of it.
pub(super) fn geometry(ring_bytes: u64, snap_bytes: u32) -> (usize, usize) {
    let least = match snap_bytes {
        1..=SMALL_SNAP => 32 << 10,
        _ => 128 << 10,
    };
    let block_bytes = (ring_bytes / 1024).next_power_of_two().clamp(least, 1 << 20) as usize;
    (block_bytes, (ring_bytes as usize / block_bytes).max(8))
}

/// Blocks that are left to the kernel.
pub(super) fn free_blocks(blocks: usize) -> usize {
    (blocks / FREE_SHARE).max(2)
}

/// Each look takes a moment from whoever runs on that CPU, so there are no more of them than needed: at the pace of the last pause, a
/// quarter of the free blocks is filled in the next one. From silence, packets may come at [`SUDDEN_BYTES_PER_MS`] at once.
pub(super) fn pause_ms(free_blocks: usize, block_bytes: usize, filled: usize, after_ms: i32) -> i32 {
    let free_bytes = free_blocks.saturating_mul(block_bytes);
    let longest_ms = (free_bytes / SUDDEN_BYTES_PER_MS).clamp(10, 40);
    let at_pace_ms = (free_blocks * after_ms.max(1) as usize).checked_div(4 * filled);
    at_pace_ms.unwrap_or(longest_ms).clamp(1, longest_ms) as i32
}

#[cfg(test)]
mod tests {
    use super::super::BLOCK_TIMEOUT_MS;
    use super::*;

    #[test]
    fn blocks_fill_the_ring() {
        for ring_bytes in [1u64, 1 << 20, 64 << 20, 256 << 20, 4 << 30] {
            let (block_bytes, blocks) = geometry(ring_bytes, 0);
            assert!(block_bytes.is_power_of_two() && block_bytes % 4096 == 0);
            assert!(blocks >= 8 && free_blocks(blocks) < blocks);
            let total = (block_bytes * blocks) as u64;
            assert!(
                total >= ring_bytes.max(1 << 20) - block_bytes as u64 && total <= ring_bytes.max(1 << 20)
            );
        }
    }

    #[test]
    fn a_ring_of_any_agent_reaches_back_half_a_minute_while_packets_are_few() {
        // An agent with the least memory keeps 12 MiB of packets.
        for ring_bytes in [12_u64 << 20, 31 << 20, 95 << 20, 400 << 20] {
            let (block_bytes, blocks) = geometry(ring_bytes, 16 << 10);
            let back_ms = (blocks - free_blocks(blocks)) as u64 * u64::from(BLOCK_TIMEOUT_MS);
            assert!(back_ms >= 30_000, "{ring_bytes}: {blocks} blocks reach back {back_ms} ms");
            // A packet of the usual snap length fits into one.
            assert!(block_bytes >= 32 << 10);
        }
    }

    #[test]
    fn looks_are_rare_while_packets_are_few_and_in_time_while_they_are_not() {
        for (ring_bytes, longest_ms) in [(64 << 10, 10), (1 << 20, 10), (96_u64 << 20, 40), (1 << 30, 40)] {
            let (block_bytes, blocks) = geometry(ring_bytes, 16 << 10);
            let free = free_blocks(blocks);
            assert_eq!(pause_ms(free, block_bytes, 0, longest_ms), longest_ms, "{ring_bytes}");
            // At any constant pace no pause fills the free blocks, once one was long enough to show it.
            for blocks_per_s in [1, 100, 1_000, 10_000, 50_000] {
                let (mut pause, mut fullest) = (longest_ms, 0);
                for round in 0..50 {
                    let filled = (pause as usize * blocks_per_s).div_ceil(1_000);
                    fullest = if round > 0 { fullest.max(filled) } else { 0 };
                    pause = pause_ms(free, block_bytes, filled, pause);
                }
                assert!(
                    fullest <= free / 2 + 1 || pause == 1,
                    "{ring_bytes}, {blocks_per_s}: {fullest} of {free}"
                );
            }
        }
    }
}
