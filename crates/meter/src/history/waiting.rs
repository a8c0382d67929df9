//! Closed minutes on their way from the engine to the disk. Until they are written (the disk may be full),
//! queries read them from here.

use crate::engine::PairMinute;
use spangap_model::{Histogram, PairStats};
use std::collections::VecDeque;
use std::sync::Arc;

/// Memory for waiting minutes: half an hour of a thousand pairs, with complete spans.
pub const MAX_BYTES: u64 = 128 << 20;

/// The minutes that one checkpoint took from the engine.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Counts up from 1; the database stores the number of its last batch.
    pub generation: u64,
    /// The minutes.
    pub minutes: Arc<Vec<PairMinute>>,
    bytes: u64,
}

impl Batch {
    /// A batch of these minutes.
    pub fn new(generation: u64, minutes: Vec<PairMinute>) -> Batch {
        let bytes = minutes.iter().map(bytes_of).sum();
        Batch { generation, minutes: Arc::new(minutes), bytes }
    }
}

/// Batches not known to be written; bounded, the oldest are dropped first.
#[derive(Debug)]
pub struct Waiting {
    batches: VecDeque<Batch>,
    taken: u64,
    written: u64,
    bytes: u64,
    max_bytes: u64,
    /// Rows dropped because the limit was exceeded.
    pub lost_rows: u64,
}

impl Waiting {
    /// An empty queue; the database already has the batches up to `written`.
    pub fn new(written: u64, max_bytes: u64) -> Waiting {
        Waiting { batches: VecDeque::new(), taken: written, written, bytes: 0, max_bytes, lost_rows: 0 }
    }

    /// Adds minutes just taken from the engine.
    pub fn push(&mut self, minutes: Vec<PairMinute>) {
        if minutes.is_empty() {
            return;
        }
        self.taken += 1;
        let batch = Batch::new(self.taken, minutes);
        self.bytes += batch.bytes;
        self.batches.push_back(batch);
        while self.bytes > self.max_bytes
            && let Some(dropped) = self.batches.pop_front()
        {
            self.bytes -= dropped.bytes;
            self.lost_rows += dropped.minutes.len() as u64;
        }
    }

    /// All waiting batches, oldest first; cheap.
    pub fn batches(&self) -> Vec<Batch> {
        self.batches.iter().cloned().collect()
    }

    /// Drops all waiting batches, which will be made again.
    pub fn discard(&mut self) {
        self.batches.clear();
        self.bytes = 0;
    }

    /// Removes the batches up to this one, which the database now has.
    pub fn written(&mut self, generation: u64) {
        self.written = self.written.max(generation);
        while let Some(first) = self.batches.front()
            && first.generation <= generation
        {
            self.bytes -= first.bytes;
            self.batches.pop_front();
        }
    }

    /// The last batch removed because the database has it.
    pub fn written_until(&self) -> u64 {
        self.written
    }

    /// Number of the last batch pushed.
    pub fn last(&self) -> u64 {
        self.taken
    }

    /// Number of waiting rows.
    pub fn rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.minutes.len() as u64).sum()
    }

    /// Approximate memory of the waiting rows.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Approximate memory of a row.
fn bytes_of(minute: &PairMinute) -> u64 {
    let PairStats { gap, client, server, request_leg, response_leg, mate_delay, worst, .. } = &minute.stats;
    let width = |histogram: &Histogram| {
        let mut used = histogram.buckets().map(|(index, _)| index);
        let first = used.next();
        first.map_or(0, |first| 8 * (used.last().unwrap_or(first) - first + 1) as u64)
    };
    let histograms: u64 =
        [gap, client, server, request_leg, response_leg, mate_delay].into_iter().map(width).sum();
    let sides = worst.iter().flat_map(|call| [&call.client, &call.server]);
    // A resource may be shared with other spans; it counts in full, because it may also be unshared.
    let spans: usize = sides.flat_map(|side| &side.whole).map(|w| w.span.len() + w.resource.len()).sum();
    (size_of::<PairMinute>() + worst.len() * 256 + spans) as u64 + histograms
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::PairKey;

    fn minute(unix_s: u64) -> PairMinute {
        let mut stats = PairStats::default();
        stats.gap.record(1);
        PairMinute { unix_s, key: PairKey { client: "a".into(), server: "b".into(), method: None }, stats }
    }

    #[test]
    fn the_newest_minutes_remain_and_dropped_ones_are_counted() {
        let one = bytes_of(&minute(0));
        let mut waiting = Waiting::new(4, 10 * one);
        (0..17).for_each(|i| waiting.push(vec![minute(60 * i)]));
        let firsts: Vec<u64> = waiting.batches().iter().map(|b| b.minutes[0].unix_s / 60).collect();
        assert_eq!(firsts, (7..17).collect::<Vec<_>>());
        assert_eq!((waiting.lost_rows, waiting.rows(), waiting.written_until()), (7, 10, 4));
        waiting.written(4 + 12);
        assert_eq!((waiting.rows(), waiting.bytes(), waiting.written_until()), (5, 5 * one, 4 + 12));
        waiting.written(waiting.last());
        assert_eq!((waiting.rows(), waiting.bytes(), waiting.lost_rows), (0, 0, 7));
    }
}
