//! Index from traces to blocks of a segment: sorted words of a trace id's digest and the block's position.
//!
//! A digest has 40 bits. Two traces of a segment rarely share one; the cost is a useless look at a block,
//! since the spans themselves contain their trace ids. Sorted words are divided into buckets by their first
//! bits. A look-up reads one bucket, whose start and checksum are in memory (8 bytes for some 500 words).

use super::block::ALIGN;

/// Low bits of a word: start of the block, in units of [`ALIGN`].
const PLACE_BITS: u32 = 24;
const PLACES: u64 = 1 << PLACE_BITS;
/// Limit of the start offset of a block.
pub const MOST_BYTES: u64 = PLACES * ALIGN as u64;
/// Approximate number of words per bucket.
const BUCKET_WORDS: usize = 512;
/// Words sorted at a time.
const RUN: usize = 1 << 16;

/// Computes digests of trace ids; seeded, so that nobody can construct colliding ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digester(pub [u64; 2]);

impl Digester {
    /// The digest, in the high bits of a word; the others are zero. Never zero.
    #[inline]
    pub fn digest(&self, trace: [u64; 2]) -> u64 {
        let product = (trace[0] ^ self.0[0]) as u128 * (trace[1] ^ self.0[1]) as u128;
        let folded = (product as u64 ^ (product >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (folded ^ folded >> 32).max(PLACES) & !(PLACES - 1)
    }
}

/// The word of a trace in the block at `offset`.
#[inline]
pub fn word(digest: u64, offset: u64) -> u64 {
    digest | (offset / ALIGN as u64)
}

/// Start offsets of the blocks with this digest.
pub fn places(sorted: &[u64], digest: u64) -> impl Iterator<Item = u64> + '_ {
    let from = sorted.partition_point(|word| *word < digest);
    sorted[from..]
        .iter()
        .take_while(move |word| **word & !(PLACES - 1) == digest)
        .map(|word| (word & (PLACES - 1)) * ALIGN as u64)
}

/// Words of an unsealed segment, in sorted runs.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    whole: Vec<std::sync::Arc<[u64]>>,
    rest: Vec<u64>,
}

impl Runs {
    /// Adds the traces of one block.
    pub fn add(&mut self, digests: &[u64], offset: u64) {
        self.rest.extend(digests.iter().map(|digest| word(*digest, offset)));
        if self.rest.len() >= RUN {
            self.rest.sort_unstable();
            self.rest.dedup();
            self.whole.push(std::mem::take(&mut self.rest).into());
        }
    }

    /// Number of words.
    pub fn words(&self) -> usize {
        self.whole.iter().map(|run| run.len()).sum::<usize>() + self.rest.len()
    }

    /// Start offsets of the blocks with this digest, in order.
    pub fn places(&self, digest: u64) -> Vec<u64> {
        let of_rest = self.rest.iter().filter(|word| **word & !(PLACES - 1) == digest);
        let of_rest = of_rest.map(|word| (word & (PLACES - 1)) * ALIGN as u64);
        let mut found: Vec<u64> =
            self.whole.iter().flat_map(|run| places(run, digest)).chain(of_rest).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// All words, sorted.
    pub fn sorted(&self) -> Vec<u64> {
        let mut all = Vec::with_capacity(self.words());
        self.whole.iter().for_each(|run| all.extend_from_slice(run));
        all.extend_from_slice(&self.rest);
        // The stable sort, because it merges runs.
        all.sort();
        all.dedup();
        all
    }
}

/// Start positions and checksums of the buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// One more element than there are buckets.
    starts: Vec<u32>,
    sums: Vec<u32>,
}

impl Buckets {
    /// The buckets of these words.
    pub fn of(sorted: &[u64]) -> Buckets {
        let count = (sorted.len() / BUCKET_WORDS).max(1).next_power_of_two();
        let shift = 64 - count.trailing_zeros();
        let first_of = |bucket: usize| match bucket {
            0 => 0,
            bucket if bucket == count => sorted.len(),
            bucket => sorted.partition_point(|word| ((word >> shift) as usize) < bucket),
        };
        let starts: Vec<u32> = (0..=count).map(|bucket| first_of(bucket) as u32).collect();
        let sums = starts.windows(2).map(|ends| sum(&bytes_of(&sorted[ends[0] as usize..ends[1] as usize])));
        Buckets { sums: sums.collect(), starts }
    }

    /// The buckets of stored words: `bytes` is the output of [`Buckets::bytes`].
    pub fn read(bytes: &[u8], words: u32) -> Option<Buckets> {
        let all: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let count = all.len() / 2;
        let (starts, sums) = all.split_at_checked(count + 1)?;
        let is_whole = count.is_power_of_two()
            && bytes.len() == 4 * all.len()
            && sums.len() == count
            && starts.is_sorted()
            && starts.first() == Some(&0)
            && starts.last() == Some(&words);
        is_whole.then(|| Buckets { starts: starts.into(), sums: sums.into() })
    }

    /// Encoding for the disk.
    pub fn bytes(&self) -> Vec<u8> {
        self.starts.iter().chain(&self.sums).flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Range of word numbers that contains the words of this digest.
    pub fn range(&self, digest: u64) -> std::ops::Range<u32> {
        let bucket = self.bucket(digest);
        self.starts[bucket]..self.starts[bucket + 1]
    }

    /// Decodes the words of that range. `None` if they are damaged.
    pub fn words(&self, digest: u64, bytes: &[u8]) -> Option<Vec<u64>> {
        if sum(bytes) != self.sums[self.bucket(digest)] {
            return None;
        }
        Some(bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect())
    }

    fn bucket(&self, digest: u64) -> usize {
        let bits = self.sums.len().trailing_zeros();
        if bits == 0 { 0 } else { (digest >> (64 - bits)) as usize }
    }
}

/// Encoding of words for the disk.
pub fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn sum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const DIGESTER: Digester = Digester([0x1234_5678_9abc_def1, 0x0fed_cba9_8765_4321]);

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn every_block_of_a_trace_is_found_in_runs_and_in_buckets(
            blocks in prop::collection::vec(prop::collection::vec(0u64..400, 0..60), 0..30),
            copies in 1u64..8,
        ) {
            let mut model: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
            let mut runs = Runs::default();
            for (at, traces) in blocks.iter().enumerate() {
                let offset = (at * 4096 + 16) as u64;
                // Enough for several buckets.
                let ids = traces.iter().flat_map(|id| (0..copies).map(move |copy| id + copy * 1000));
                let digests: Vec<u64> = ids.map(|id| DIGESTER.digest([id, 7])).collect();
                digests.iter().for_each(|digest| { model.entry(*digest).or_default().insert(offset); });
                runs.add(&digests, offset);
            }
            let sorted = runs.sorted();
            let buckets = Buckets::of(&sorted);
            prop_assert_eq!(Buckets::read(&buckets.bytes(), sorted.len() as u32), Some(buckets.clone()));
            for id in (0..440).step_by(7) {
                let digest = DIGESTER.digest([id, 7]);
                let expected: Vec<u64> = model.get(&digest).into_iter().flatten().copied().collect();
                prop_assert_eq!(runs.places(digest), expected.clone());
                let range = buckets.range(digest);
                let bytes = bytes_of(&sorted[range.start as usize..range.end as usize]);
                let words = buckets.words(digest, &bytes).expect("they are as they were written");
                prop_assert_eq!(places(&words, digest).collect::<Vec<_>>(), expected);
                if let Some(first) = bytes.first() {
                    let mut changed = bytes.clone();
                    changed[0] = first ^ 1;
                    prop_assert_eq!(buckets.words(digest, &changed), None);
                }
            }
        }
    }

    #[test]
    fn digests_of_consecutive_ids_spread_over_the_buckets() {
        let mut sorted: Vec<u64> = (0..100_000).map(|id| word(DIGESTER.digest([0, id]), 0)).collect();
        sorted.sort_unstable();
        sorted.dedup();
        assert!(sorted.len() > 99_990, "{} of 100,000 digests differ", sorted.len());
        let buckets = Buckets::of(&sorted);
        let longest = buckets.starts.windows(2).map(|ends| ends[1] - ends[0]).max();
        assert!(longest < Some(3 * BUCKET_WORDS as u32), "{longest:?} words in one bucket");
    }
}
