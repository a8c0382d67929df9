//! The target's end of one connection without its socket: pings in, responses out, in order and when due.

use super::frame::{Context, FrameError, HEADER_BYTES, Head, Kind, Parameters, Skipping};
use crate::contract::CallRecord;
use crate::ping::{MAX_PAYLOAD_BYTES, MAX_THINK_NS};
use crate::trace::Ids;
use std::collections::VecDeque;
use tonic::Code;

/// Maximum number of waiting responses. At the limit, nothing is read until one has left: TCP then throttles
/// the caller.
const MAX_WAITING: usize = 65_536;
/// Size at which a batch is sent.
const BATCH_BYTES: usize = 256 << 10;

/// Arrival time on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub unix_ns: u64,
    pub monotonic_ns: u64,
}

/// Defaults for pings without parameters.
#[derive(Clone, Copy, Debug)]
pub struct PingDefaults {
    pub response_bytes: u64,
    pub think_ns: u64,
}

/// Pings that wait for their responses.
pub struct Pipeline {
    own: PingDefaults,
    /// Source of span ids for recorded pings with a trace context.
    ids: Option<Ids>,
    connection: u16,
    frames: Skipping,
    waiting: VecDeque<Answer>,
    pings_waiting: u64,
    /// Payload that a response still owes after its head.
    owed_bytes: u32,
    pub malformed_contexts: u64,
}

/// One response, or several equal ones.
#[derive(Debug)]
struct Answer {
    due_ns: u64,
    kind: Kind,
    code: u8,
    payload_bytes: u32,
    times: u64,
    /// Record of the call; a recorded response is never merged.
    record: Option<(Box<CallRecord>, u64)>,
}

/// Responses on their way to the socket.
#[derive(Default)]
pub struct Batch {
    pub bytes: Vec<u8>,
    /// Pings whose responses end in this batch, by status code.
    pub by_code: [u64; 17],
    pub records: Vec<CallRecord>,
}

impl Batch {
    pub fn pings(&self) -> u64 {
        self.by_code.iter().sum()
    }

    /// The responses never left: the calls end as `CANCELLED`.
    pub fn cancel(&mut self) {
        let pings = self.pings();
        self.by_code = [0; 17];
        self.by_code[Code::Cancelled as usize] = pings;
        self.records.iter_mut().for_each(|record| record.status = Code::Cancelled as u8);
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.by_code = [0; 17];
        self.records.clear();
    }
}

impl Pipeline {
    /// With `ids`, calls with a trace context are recorded.
    pub fn new(own: PingDefaults, ids: Option<Ids>, connection: u16) -> Self {
        let frames = Skipping::default();
        let waiting = VecDeque::new();
        Pipeline {
            own,
            ids,
            connection,
            frames,
            waiting,
            pings_waiting: 0,
            owed_bytes: 0,
            malformed_contexts: 0,
        }
    }

    /// Whether there is room for more.
    pub fn takes_more(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    /// Due time of the next response, on the monotonic clock.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.waiting.front().map(|answer| answer.due_ns)
    }

    /// Pings read whose responses have not been taken.
    pub fn pings_waiting(&self) -> u64 {
        self.pings_waiting
    }

    /// Takes all complete frames off `bytes`; the rest must be passed again with more bytes behind it.
    ///
    /// # Errors
    /// The caller does not speak the protocol.
    pub fn feed(&mut self, bytes: &mut &[u8], arrival: Arrival) -> Result<(), FrameError> {
        while let Some((head, times)) = self.frames.next(bytes)? {
            match head.kind {
                Kind::Ping => self.pings(&head, times, arrival),
                Kind::UsageRequest => self.waiting.push_back(Answer {
                    due_ns: arrival.monotonic_ns,
                    kind: Kind::UsageResponse,
                    code: 0,
                    payload_bytes: 0,
                    times,
                    record: None,
                }),
                kind => return Err(FrameError::Unexpected(kind)),
            }
        }
        Ok(())
    }

    /// Adds a run of equal pings.
    fn pings(&mut self, head: &Head, times: u64, arrival: Arrival) {
        self.pings_waiting += times;
        let asked = head.parameters.unwrap_or(Parameters { response_bytes: None, think_ns: None });
        let response_bytes = asked.response_bytes.unwrap_or(self.own.response_bytes);
        let think_ns = asked.think_ns.unwrap_or(self.own.think_ns);
        let possible = response_bytes <= MAX_PAYLOAD_BYTES && think_ns <= MAX_THINK_NS;
        let (code, payload_bytes, think_ns) = match possible {
            true => (Code::Ok, response_bytes as u32, think_ns),
            false => (Code::InvalidArgument, 0, 0),
        };
        let due_ns = arrival.monotonic_ns + think_ns;
        let code = code as u8;
        let answer = |times, record| Answer { due_ns, kind: Kind::Pong, code, payload_bytes, times, record };
        let valid = head.context.filter(Context::is_valid);
        if head.context.is_some() && valid.is_none() {
            self.malformed_contexts += times;
        }
        if let (Some(context), Some(ids)) = (valid, &mut self.ids) {
            for _ in 0..times {
                let record = CallRecord {
                    trace_id: context.trace_id,
                    span_id: ids.span_id(),
                    parent_span_id: context.span_id,
                    start_unix_ns: arrival.unix_ns,
                    duration_ns: 0,
                    lateness_ns: 0,
                    status: code,
                    measured: false,
                    slow: false,
                    stream: false,
                    connection: self.connection,
                };
                self.waiting.push_back(answer(1, Some((Box::new(record), arrival.monotonic_ns))));
            }
        } else if let Some(last) = self.waiting.back_mut()
            && (last.due_ns, last.kind, last.code, last.payload_bytes)
                == (due_ns, Kind::Pong, code, payload_bytes)
            && last.record.is_none()
        {
            last.times += times;
        } else {
            self.waiting.push_back(answer(times, None));
        }
    }

    /// Moves responses due at `now_ns` into the batch until it is full. `usage` makes the payload of a usage
    /// response. Returns whether more are due.
    pub fn fill(&mut self, batch: &mut Batch, now_ns: u64, usage: &dyn Fn() -> Vec<u8>) -> bool {
        while let Some(answer) = self.waiting.front_mut() {
            if answer.due_ns > now_ns {
                return false;
            }
            if batch.bytes.len() >= BATCH_BYTES {
                return true;
            }
            let mut done = 1;
            if self.owed_bytes > 0 {
                let part = (self.owed_bytes as usize).min(BATCH_BYTES - batch.bytes.len());
                batch.bytes.resize(batch.bytes.len() + part, 0);
                self.owed_bytes -= part as u32;
            } else if answer.kind == Kind::UsageResponse {
                let payload = usage();
                let payload_bytes = payload.len() as u32;
                Head { kind: Kind::UsageResponse, ..Head::ping(payload_bytes) }.encode(&mut batch.bytes);
                batch.bytes.extend_from_slice(&payload);
            } else {
                let pong = Head::pong(answer.code, answer.payload_bytes);
                let room = BATCH_BYTES - batch.bytes.len();
                let whole = room / (HEADER_BYTES + answer.payload_bytes as usize);
                if whole > 0 {
                    done = answer.times.min(whole as u64);
                    pong.encode_frames(done, &mut batch.bytes);
                } else {
                    pong.encode(&mut batch.bytes);
                    let part = room.saturating_sub(HEADER_BYTES);
                    batch.bytes.resize(batch.bytes.len() + part, 0);
                    self.owed_bytes = answer.payload_bytes - part as u32;
                }
            }
            if self.owed_bytes > 0 {
                continue;
            }
            if answer.kind == Kind::Pong {
                batch.by_code[usize::from(answer.code)] += done;
                self.pings_waiting -= done;
            }
            if let Some((record, start_ns)) = &answer.record {
                batch.records.push(CallRecord { duration_ns: now_ns - start_ns, ..**record });
            }
            answer.times -= done;
            if answer.times == 0 {
                self.waiting.pop_front();
            }
        }
        false
    }

    /// The caller is gone: all waiting calls end as `CANCELLED`.
    pub fn cancel(&mut self, batch: &mut Batch, now_ns: u64) {
        for answer in self.waiting.drain(..).filter(|answer| answer.kind == Kind::Pong) {
            batch.by_code[Code::Cancelled as usize] += answer.times;
            if let Some((record, start_ns)) = answer.record {
                let duration_ns = now_ns.saturating_sub(start_ns);
                batch.records.push(CallRecord { duration_ns, status: Code::Cancelled as u8, ..*record });
            }
        }
        self.pings_waiting = 0;
        self.owed_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWN: PingDefaults = PingDefaults { response_bytes: 3, think_ns: 0 };

    fn at(ns: u64) -> Arrival {
        Arrival { unix_ns: ns + 1_000_000, monotonic_ns: ns }
    }

    fn feed(pipeline: &mut Pipeline, head: &Head, ns: u64) {
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        bytes.resize(bytes.len() + head.payload_bytes as usize, 1);
        let mut left = &bytes[..];
        pipeline.feed(&mut left, at(ns)).unwrap();
        assert!(left.is_empty());
    }

    /// All responses due at `now_ns`, as frames.
    fn answers(pipeline: &mut Pipeline, now_ns: u64) -> (Vec<Head>, Vec<CallRecord>) {
        let (mut heads, mut records, mut frames) = (Vec::new(), Vec::new(), Skipping::default());
        loop {
            let mut batch = Batch::default();
            let more = pipeline.fill(&mut batch, now_ns, &|| vec![7; 5]);
            assert!(batch.bytes.len() < BATCH_BYTES + 100);
            let mut bytes = &batch.bytes[..];
            while let Some((head, times)) = frames.next(&mut bytes).unwrap() {
                heads.extend((0..times).map(|_| head));
            }
            records.extend(batch.records);
            if !more {
                return (heads, records);
            }
        }
    }

    fn asking(response_bytes: u64, think_ns: u64) -> Head {
        let (response_bytes, think_ns) = (Some(response_bytes), Some(think_ns));
        Head { parameters: Some(Parameters { response_bytes, think_ns }), ..Head::ping(2) }
    }

    #[test]
    fn think_times_overlap_and_answers_stay_in_order() {
        let mut pipeline = Pipeline::new(OWN, None, 0);
        feed(&mut pipeline, &asking(1, 100), 1000);
        feed(&mut pipeline, &asking(2, 10), 1001);
        feed(&mut pipeline, &Head { kind: Kind::UsageRequest, ..Head::ping(0) }, 1002);
        feed(&mut pipeline, &asking(4, 100), 1003);
        assert_eq!((pipeline.next_due_ns(), pipeline.pings_waiting()), (Some(1100), 3));
        assert_eq!(answers(&mut pipeline, 1099).0, []);
        let usage = Head { kind: Kind::UsageResponse, ..Head::ping(5) };
        assert_eq!(answers(&mut pipeline, 1100).0, [Head::pong(0, 1), Head::pong(0, 2), usage]);
        assert_eq!((answers(&mut pipeline, 1103).0, pipeline.pings_waiting()), (vec![Head::pong(0, 4)], 0));
    }

    #[test]
    fn impossible_requests_are_invalid_arguments() {
        let mut pipeline = Pipeline::new(OWN, None, 0);
        feed(&mut pipeline, &asking(MAX_PAYLOAD_BYTES + 1, 0), 0);
        feed(&mut pipeline, &asking(0, MAX_THINK_NS + 1), 0);
        feed(&mut pipeline, &Head::ping(0), 0);
        assert_eq!(answers(&mut pipeline, 0).0, [Head::pong(3, 0), Head::pong(3, 0), Head::pong(0, 3)]);
        let pong = [0, 0, 0, 0, 1, 0, 0, 0];
        let refused = pipeline.feed(&mut &pong[..], at(0));
        assert_eq!(refused, Err(FrameError::Unexpected(Kind::Pong)));
    }

    #[test]
    fn calls_with_a_context_are_recorded_one_by_one() {
        let mut pipeline = Pipeline::new(OWN, Some(Ids::new()), 9);
        let context = |trace| Some(Context { trace_id: [trace; 16], span_id: [5; 8] });
        feed(&mut pipeline, &Head { context: context(1), ..asking(0, 50) }, 10);
        feed(&mut pipeline, &Head { context: context(0), ..asking(0, 50) }, 10);
        feed(&mut pipeline, &Head { context: context(2), ..asking(0, 50) }, 10);
        let (heads, records) = answers(&mut pipeline, 70);
        assert_eq!((heads.len(), records.len(), pipeline.malformed_contexts), (3, 2, 1));
        assert_eq!(records[1].trace_id, [2; 16]);
        assert_eq!((records[0].parent_span_id, records[0].connection), ([5; 8], 9));
        assert_eq!((records[0].start_unix_ns, records[0].duration_ns), (1_000_010, 60));
        assert_ne!(records[0].span_id, records[1].span_id);

        // The same context twice still means two calls.
        let mut bytes = Vec::new();
        Head { context: context(4), ..asking(0, 50) }.encode_frames(2, &mut bytes);
        Head { context: context(0), ..asking(0, 50) }.encode_frames(3, &mut bytes);
        pipeline.feed(&mut &bytes[..], at(80)).unwrap();
        assert_eq!((pipeline.pings_waiting(), pipeline.malformed_contexts), (5, 4));
        let (heads, records) = answers(&mut pipeline, 130);
        assert_eq!((heads.len(), records.len()), (5, 2));
        assert_ne!(records[0].span_id, records[1].span_id);

        feed(&mut pipeline, &Head { context: context(3), ..asking(0, 50) }, 100);
        let mut batch = Batch::default();
        pipeline.cancel(&mut batch, 120);
        let record = batch.records[0];
        assert_eq!((batch.pings(), record.status, record.duration_ns), (1, Code::Cancelled as u8, 20));
    }

    proptest! {
        #[test]
        fn every_ping_gets_its_answer_whatever_the_sizes(
            runs in prop::collection::vec((prop_oneof![0u64..10, 200_000u64..800_000], 0u64..6), 0..15),
        ) {
            let mut pipeline = Pipeline::new(OWN, None, 0);
            let mut bytes = Vec::new();
            runs.iter().for_each(|&(size, times)| asking(size, 0).encode_frames(times, &mut bytes));
            pipeline.feed(&mut &bytes[..], at(5)).unwrap();
            let pongs = |&(size, times): &(u64, u64)| (0..times).map(move |_| Head::pong(0, size as u32));
            let expected: Vec<Head> = runs.iter().flat_map(pongs).collect();
            prop_assert_eq!(answers(&mut pipeline, 5).0, expected);
            prop_assert_eq!(pipeline.pings_waiting(), 0);
        }
    }
}
