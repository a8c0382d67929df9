//! Whether both halves of a call lie in one partition. Partitioning by trace id is a setting of the producers, off by
//! default; without it most calls never join. One trace id in sixteen is looked at.

use crate::ingest::semconv::SpanKind;
use crate::ingest::walk::SpanFacts;
use rustc_hash::FxHashMap;

/// Halves remembered in each of two generations.
const REMEMBERED: usize = 1 << 15;
const SAMPLED: u64 = 16;

/// Halves seen lately, and where.
#[derive(Debug, Default)]
pub struct Apart {
    recent: FxHashMap<([u64; 2], u64), (bool, i32)>,
    older: FxHashMap<([u64; 2], u64), (bool, i32)>,
    /// Mates in different partitions.
    pub apart: u64,
    /// Mates in one partition.
    pub together: u64,
}

impl Apart {
    /// Looks at the spans of one message.
    pub fn look(&mut self, partition: i32, spans: &[SpanFacts]) {
        for span in spans {
            let digest = (span.trace[0] ^ span.trace[1]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let call = match span.kind {
                SpanKind::Client => span.span,
                SpanKind::Server => span.parent,
                SpanKind::Other => 0,
            };
            if digest >> 32 & (SAMPLED - 1) == 0 && call != 0 {
                self.half((span.trace, call), span.kind == SpanKind::Client, partition);
            }
        }
    }

    fn half(&mut self, call: ([u64; 2], u64), is_client: bool, partition: i32) {
        match self.recent.remove(&call).or_else(|| self.older.remove(&call)) {
            Some((mate_is_client, its_partition)) if mate_is_client != is_client => {
                *(if its_partition == partition { &mut self.together } else { &mut self.apart }) += 1;
            }
            _ => {
                if self.recent.len() >= REMEMBERED {
                    self.older = std::mem::take(&mut self.recent);
                }
                self.recent.insert(call, (is_client, partition));
            }
        }
    }

    /// Share of the calls whose halves lie apart; `None` before the first call.
    pub fn share(&self) -> Option<f64> {
        let calls = self.apart + self.together;
        (calls > 0).then(|| self.apart as f64 / calls as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(trace: u64, kind: SpanKind) -> SpanFacts {
        let (span, parent) = if kind == SpanKind::Client { (trace + 1, 9) } else { (7, trace + 1) };
        SpanFacts { trace: [trace, 1], span, parent, kind, ..SpanFacts::default() }
    }

    #[test]
    fn mates_are_found_wherever_they_lie() {
        let mut apart = Apart::default();
        for trace in 0..20_000 {
            apart.look((trace % 4) as i32, &[half(trace, SpanKind::Client)]);
            // Every fifth call lies apart.
            apart.look((trace % 4) as i32 + (trace % 5 == 0) as i32, &[half(trace, SpanKind::Server)]);
        }
        let calls = apart.apart + apart.together;
        assert!((1_000..1_500).contains(&calls), "{calls} of 20,000 looked at");
        let share = apart.share().unwrap();
        assert!((0.15..0.25).contains(&share), "{share}");
        assert!(apart.recent.is_empty());
    }

    #[test]
    fn memory_is_bounded_and_a_further_attempt_is_no_mate() {
        let mut apart = Apart::default();
        for trace in 0..40 * REMEMBERED as u64 {
            apart.look(0, &[half(trace, SpanKind::Server)]);
            apart.look(1, &[half(trace, SpanKind::Server)]);
        }
        assert_eq!(apart.share(), None);
        assert!(apart.recent.len() <= REMEMBERED && apart.older.len() <= REMEMBERED);
    }
}
