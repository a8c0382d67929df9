//! Flow control (RFC 9113, 5.2 and 6.9): when a window was used up, and how long its sender had to be silent.
//!
//! At either tap, the windows counted here are at least as large as the sender's own, because the tap sees an
//! update before the sender does. So a window that is used up here is used up there; the converse does not hold,
//! and some stalls are missed at the receiver's end.

use super::reader::Frame;
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::exchange::Mark;
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// Window of a stream and of the connection before any SETTINGS or WINDOW_UPDATE (RFC 9113, 6.9.2).
const DEFAULT_WINDOW_BYTES: i64 = 65_535;
/// DATA that leaves later after the update than this fraction of the wait was not waiting for it.
const RELEASE: i64 = 4;
/// Maximum stalls of one direction remembered at once.
const MAX_STALLS: usize = 64;

/// A window that was used up.
#[derive(Clone, Copy, Debug)]
struct Stall {
    /// `None` for the connection's window.
    stream: Option<u32>,
    last: PacketProof,
    from_ns: i64,
    /// Stream of the frame that used it up.
    last_stream: u32,
    /// Whether the sender certainly has more to send, because it stopped inside a message.
    inside: bool,
    opened: Option<PacketProof>,
}

/// Windows for the data of one side.
#[derive(Debug)]
struct Sender {
    initial: i64,
    connection: i64,
    stalls: Vec<Stall>,
}

/// Windows of both directions, only for connections seen without a gap.
#[derive(Debug)]
pub struct FlowControl {
    known: bool,
    /// By sender.
    senders: [Sender; 2],
}

/// A completed DATA frame.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The sender.
    pub from: Side,
    /// When the tap saw its end.
    pub at: Mark,
    /// Whether the body stops inside a gRPC message.
    pub inside: bool,
}

impl FlowControl {
    /// For a connection seen from its start (`known`), or not.
    pub fn new(known: bool) -> FlowControl {
        let sender =
            || Sender { initial: DEFAULT_WINDOW_BYTES, connection: DEFAULT_WINDOW_BYTES, stalls: Vec::new() };
        FlowControl { known, senders: [sender(), sender()] }
    }

    /// Frames were missed: the windows are no longer known.
    pub fn lose(&mut self) {
        *self = FlowControl::new(false);
    }

    /// `receiver` announces the initial window of its streams.
    pub fn initial_window(&mut self, receiver: Side, bytes: u32) {
        let sender = &mut self.senders[receiver.other().index()];
        sender.initial = i64::from(bytes);
        // Which streams this opens is not tracked.
        sender.stalls.retain(|stall| stall.stream.is_none());
    }

    /// `receiver` allows more data: on a stream with this `credit` (in addition to the initial window), or on
    /// all.
    pub fn window_update(&mut self, receiver: Side, stream: Option<(u32, &mut i64)>, bytes: u32, at: Mark) {
        let sender = &mut self.senders[receiver.other().index()];
        let bytes = bytes & 0x7fff_ffff;
        let (id, window) = match stream {
            Some((id, credit)) => {
                *credit += i64::from(bytes);
                (Some(id), sender.initial + *credit)
            }
            None => {
                sender.connection += i64::from(bytes);
                (None, sender.connection)
            }
        };
        if window > 0 {
            let what = What::with("WINDOW_UPDATE of {} bytes", u64::from(bytes), 0);
            let evidence = PacketProof { packet: at.packet, time_ns: at.seen_ns, what };
            let stalls =
                sender.stalls.iter_mut().filter(|stall| stall.stream == id && stall.opened.is_none());
            stalls.for_each(|stall| stall.opened = Some(evidence));
        }
    }

    /// A DATA frame begins: reports the stalls that delayed it until now.
    #[inline]
    pub fn begins(&mut self, from: Side, frame: &Frame, found: &mut Vec<Episode>) {
        let sender = &mut self.senders[from.index()];
        if sender.stalls.is_empty() || frame.header.len == 0 {
            return;
        }
        sender.stalls.retain(|stall| {
            let this = stall.stream.is_none_or(|stream| stream == frame.header.stream);
            if let Some(opened) = stall.opened.filter(|_| this) {
                found.push(stall.episode(from, frame, opened));
            }
            !this
        });
    }

    /// A DATA frame ended; `credit` is that of its stream, if the stream is followed.
    #[inline]
    pub fn sent(&mut self, sent: Sent, frame: &Frame, credit: Option<&mut i64>) {
        if !self.known {
            return;
        }
        let sender = &mut self.senders[sent.from.index()];
        let bytes = i64::from(frame.header.len);
        sender.connection -= bytes;
        let mut left = [Some(sender.connection), None];
        if let Some(credit) = credit {
            *credit -= bytes;
            left[1] = Some(sender.initial + *credit);
        }
        if bytes > 0 && left.iter().flatten().any(|left| *left <= 0) {
            let streams = [None, Some(frame.header.stream)];
            for (_, stream) in left.iter().zip(streams).filter(|(left, _)| left.is_some_and(|left| left <= 0))
            {
                sender.used_up(sent, stream, frame);
            }
        }
    }
}

impl Sender {
    #[cold]
    fn used_up(&mut self, sent: Sent, stream: Option<u32>, frame: &Frame) {
        if self.stalls.len() >= MAX_STALLS {
            self.stalls.remove(0);
        }
        let level = if stream.is_some() { "stream" } else { "connection" };
        let text = match level {
            "stream" => "{} bytes of DATA use up the window of stream {}",
            _ => "{} bytes of DATA of stream {} use up the window of the connection",
        };
        let what = What::with(text, u64::from(frame.header.len), u64::from(frame.header.stream));
        let last = PacketProof { packet: sent.at.packet, time_ns: sent.at.seen_ns, what };
        self.stalls.retain(|stall| stall.stream != stream);
        let last_stream = frame.header.stream;
        let (from_ns, inside) = (sent.at.seen_ns, sent.inside);
        self.stalls.push(Stall { stream, last, from_ns, last_stream, inside, opened: None });
    }
}

impl Stall {
    /// Whether the same stream continues as soon as it is allowed to: it stopped exactly at the end of its
    /// window, so it had more to send all the while. A sender without data would not stop exactly there and
    /// continue exactly then.
    fn is_released(&self, frame: &Frame, opened: &PacketProof) -> bool {
        let waited_ns = frame.first.seen_ns.saturating_sub(self.from_ns);
        let later_ns = frame.first.seen_ns.saturating_sub(opened.time_ns);
        let same = self.last_stream == frame.header.stream;
        same && later_ns <= waited_ns / RELEASE
    }

    fn episode(&self, from: Side, frame: &Frame, opened: PacketProof) -> Episode {
        let what = What::with("DATA of stream {} goes on", u64::from(frame.header.stream), 0);
        let next = PacketProof { packet: frame.first.packet, time_ns: frame.first.seen_ns, what };
        Episode {
            cause: Cause::FlowControl,
            certainty: match self.inside || self.is_released(frame, &opened) {
                true => Certainty::Shown,
                false => Certainty::Possible(Missing::MoreToSend),
            },
            // The receiver grants too little, or too late.
            side: Some(from.other()),
            sender: from,
            from_ns: self.from_ns,
            to_ns: frame.first.seen_ns,
            start: frame.start,
            end: frame.start + u64::from(frame.header.len) + super::frame::HEADER_BYTES as u64,
            stream_id: self.stream,
            copies: Copies::One,
            evidence: PacketProofs::of(&[self.last, opened, next]),
        }
    }
}
