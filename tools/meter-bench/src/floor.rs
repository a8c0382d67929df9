//! Minimum cost of the work on this machine, measured in the same run: reading every byte, and the walk
//! alone.

use crate::workload::Workload;
use rustix::time::{ClockId, clock_gettime};
use spangap_meter::ingest::semconv::{Interest, RESPONSE_SIZE_ATTRIBUTES};
use spangap_meter::ingest::walk::{Batch, OriginSink, walk};
use std::hint::black_box;

/// CPU time per span in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    /// Reading every byte of the requests once.
    pub touch_us: f64,
    /// The zero-copy walk, ignoring its results.
    pub walk_us: f64,
}

struct NoOrigins;

impl OriginSink for NoOrigins {
    fn resource(&self, encoded: &[u8]) -> u32 {
        encoded.len() as u32
    }

    fn method(&self, resource: u32, _: &str) -> u32 {
        resource
    }
}

/// Processes the workload once in each way.
pub fn measure(workload: &Workload) -> Floor {
    let spans = workload.spans().max(1) as f64;
    let interest = Interest::new(false, &RESPONSE_SIZE_ATTRIBUTES);
    let mut batch = Batch::default();
    let touch = thread_cpu_us(|| {
        for request in &workload.batches {
            let words =
                request.bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default()));
            black_box(words.fold(0, u64::wrapping_add));
        }
    });
    let walked = thread_cpu_us(|| {
        for request in &workload.batches {
            let done = walk(&request.bytes, &interest, &NoOrigins, &mut batch);
            black_box((done.is_ok(), batch.spans.len()));
        }
    });
    Floor { touch_us: touch / spans, walk_us: walked / spans }
}

/// CPU time of some work on this thread, microseconds.
pub fn thread_cpu_us(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    };
    let start = now();
    work();
    now() - start
}
