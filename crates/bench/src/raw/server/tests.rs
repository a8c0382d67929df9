//! A server over real sockets.

use super::super::frame::{Context, Head, Kind, Parameters, Skipping};
use super::*;
use std::collections::VecDeque;

fn settings(think_ns: u64) -> RawSettings {
    RawSettings { listen: "127.0.0.1:0".into(), response_bytes: 0, think_ns, nodelay: Nodelay::On }
}

struct Caller {
    stream: TcpStream,
    frames: Skipping,
    /// Received but not taken yet.
    heads: VecDeque<Head>,
    buffer: Vec<u8>,
}

impl Caller {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Caller { stream, frames: Skipping::default(), heads: VecDeque::new(), buffer: Vec::new() }
    }

    fn send(&mut self, heads: &[Head]) {
        let mut bytes = Vec::new();
        for head in heads {
            head.encode(&mut bytes);
            bytes.resize(bytes.len() + head.payload_bytes as usize, 0);
        }
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next frame, or `None` if the connection has ended.
    fn receive(&mut self) -> Option<Head> {
        loop {
            if let Some(head) = self.heads.pop_front() {
                return Some(head);
            }
            let mut bytes = &self.buffer[..];
            while let Some((head, times)) = self.frames.next(&mut bytes).unwrap() {
                self.heads.extend((0..times).map(|_| head));
            }
            self.buffer = bytes.to_vec();
            if !self.heads.is_empty() {
                continue;
            }
            let mut piece = [0; 100_000];
            match self.stream.read(&mut piece) {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.buffer.extend_from_slice(&piece[..read]),
            }
        }
    }
}

#[derive(Default)]
struct Seen(Mutex<Vec<(CallRecord, SocketAddr)>>);

impl Observer for Seen {
    fn records(&self) -> bool {
        true
    }
    fn connected(&self, _: &Connection) {}
    fn served(&self, call: &CallRecord, connection: &Connection) {
        self.0.lock().unwrap().push((*call, connection.peer));
    }
}

fn start(think_ns: u64) -> (SocketAddr, RawServer, Arc<Seen>) {
    let target = RawTarget::bind(settings(think_ns)).unwrap();
    let (address, seen) = (target.address(), Arc::new(Seen::default()));
    (address, target.start(seen.clone()).unwrap(), seen)
}

fn asking(response_bytes: u64, think_ns: u64) -> Head {
    let parameters = Parameters { response_bytes: Some(response_bytes), think_ns: Some(think_ns) };
    Head { parameters: Some(parameters), ..Head::ping(100) }
}

#[test]
fn pings_of_every_size_are_answered_in_order_and_counted() {
    let (address, server, _) = start(0);
    let mut caller = Caller::connect(address);
    let sizes = [0, 1, 300_000, 5, MAX_PAYLOAD_BYTES, 0];
    caller.send(&sizes.map(|size| asking(size, 1_000)));
    caller.send(&[asking(MAX_PAYLOAD_BYTES + 1, 0)]);
    for size in sizes {
        assert_eq!(caller.receive(), Some(Head::pong(0, size as u32)));
    }
    assert_eq!(caller.receive(), Some(Head::pong(3, 0)));
    let report = server.stop();
    assert_eq!(caller.receive(), None);
    let by_status = [("OK".into(), 6), ("INVALID_ARGUMENT".into(), 1)].into();
    assert_eq!(report, RawReport { calls: 7, by_status, ..RawReport::default() });
}

#[test]
fn think_times_of_one_connection_overlap() {
    let (address, server, _) = start(0);
    let mut caller = Caller::connect(address);
    let begun = clock::monotonic_ns();
    caller.send(&[asking(0, 300_000_000); 200]);
    caller.send(&[Head { kind: Kind::UsageRequest, ..Head::ping(0) }]);
    for _ in 0..200 {
        assert_eq!(caller.receive(), Some(Head::pong(0, 0)));
    }
    assert!(clock::monotonic_ns() - begun >= 300_000_000);
    drop(caller);
    // Calls are counted after their responses have left, and each query of the peak resets it.
    let (mut peak, mut usage) = (0, crate::ping::UsageResponse::default());
    while usage.calls < 200 {
        usage = crate::raw::usage(&address.to_string(), Duration::from_secs(60)).unwrap();
        peak = peak.max(usage.peak_in_progress);
    }
    assert_eq!((usage.stack.as_str(), usage.calls, peak), ("raw", 200, 200));
    assert!(usage.cpu_ns > 0 && usage.pid == std::process::id());
    let usage = crate::raw::usage(&address.to_string(), Duration::from_secs(60)).unwrap();
    assert_eq!(usage.peak_in_progress, 0, "since the last time it was asked");
    assert_eq!(server.stop().calls, 200);
}

#[test]
fn malformed_frame_closes_the_connection_and_is_counted() {
    let (address, server, _) = start(0);
    let mut caller = Caller::connect(address);
    caller.stream.write_all(b"PRI * HTTP/2.0\r\n\r\n").unwrap();
    assert_eq!(caller.receive(), None);
    let mut other = Caller::connect(address);
    other.send(&[Head::ping(3)]);
    assert_eq!(other.receive(), Some(Head::pong(0, 0)));
    let report = server.stop();
    assert_eq!((report.malformed_connections, report.calls), (1, 1));
    assert!(report.last_malformed.unwrap().ends_with("frame of kind 42: expected 0 to 3"));
}

#[test]
fn a_caller_that_leaves_cancels_its_calls() {
    let (address, server, seen) = start(MAX_THINK_NS);
    let mut caller = Caller::connect(address);
    let context = Some(Context { trace_id: [1; 16], span_id: [2; 8] });
    caller.send(&[Head { context, ..Head::ping(0) }]);
    let local = caller.stream.local_addr().unwrap();
    caller.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(caller.receive(), None);
    let report = server.stop();
    assert_eq!(report.by_status, [("CANCELLED".into(), 1)].into());
    let seen = seen.0.lock().unwrap();
    let (record, peer) = &seen[0];
    assert_eq!((record.trace_id, record.parent_span_id, record.status), ([1; 16], [2; 8], 1));
    assert_eq!((seen.len(), *peer), (1, local));
}

#[test]
fn end_waits_for_calls_for_a_bounded_time() {
    for (think_ns, cut_off) in [(300_000_000, false), (MAX_THINK_NS, true)] {
        let (address, server, _) = start(0);
        let mut caller = Caller::connect(address);
        caller.send(&[asking(0, 0), asking(0, think_ns)]);
        assert_eq!(caller.receive(), Some(Head::pong(0, 0)));
        let report = server.stop();
        assert_eq!(caller.receive(), (!cut_off).then_some(Head::pong(0, 0)));
        let second = if cut_off { "CANCELLED" } else { "OK" };
        assert_eq!((report.cut_off, report.calls), (cut_off, 2));
        assert!(report.by_status.contains_key(second), "{report:?}");
    }
}

#[test]
fn address_in_use_is_reported() {
    let (address, _server, _) = start(0);
    let error = RawTarget::bind(RawSettings { listen: address.to_string(), ..settings(0) }).err().unwrap();
    assert_eq!(error.to_string(), format!("cannot listen on {address}"));
    assert!(RawTarget::bind(settings(MAX_THINK_NS + 1)).is_err());
}
