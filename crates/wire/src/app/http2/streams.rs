//! The streams of a connection, and the exchanges that they produce.

use super::field::Head;
use super::reader::Frame;
use super::stream::{Body, Stream};
use crate::app::Sink;
use crate::exchange::{Ended, Ending, Exchange, Mark};
use rustc_hash::FxHashMap;
use spangap_model::Side;
use std::collections::VecDeque;

/// Maximum streams followed at once. Beyond it, streams whose end may have been missed are dropped, then new ones
/// refused.
const MAX_STREAMS: usize = 16_384;
/// Maximum plausible gap in stream numbers where frames may have been missed.
const MAX_SKIPPED: u32 = 1 << 14;
/// Maximum remembered streams whose response ended before their request.
const MAX_LATE: usize = 64;

/// The streams of a connection.
#[derive(Debug, Default)]
pub struct Streams {
    open: FxHashMap<u32, u32>,
    /// Stream and slot of the previous frame, which most often fit this one, too; stream 0 for none.
    last: (u32, u32),
    slots: Vec<Stream>,
    free: Vec<u32>,
    /// Streams that ended before their client ended its part: its remaining frames begin nothing.
    late: VecDeque<u32>,
    under_way: u32,
    /// Whether frames may have been missed: joined after the start, or after losing the position.
    gaps: bool,
    /// Whether frames were dropped, rather than only cut by the snap length.
    dropped: bool,
    /// Whether header blocks or frames were cut by the snap length.
    cut: bool,
    /// Owner of bytes without known frame boundaries, by sender, after the snap length cut the start of a frame.
    cut_places: [CutPlace; 2],
    /// Minimum and maximum number of a client's stream in the frames.
    numbers: Option<(u32, u32)>,
    /// Streams opened, followed or not.
    opened: u64,
}

/// Owner of bytes without known frame boundaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CutPlace {
    /// There are no such bytes.
    #[default]
    None,
    /// This stream: it was the only one when frame boundaries were last known.
    Of(u32),
    /// Possibly several streams: the open ones, and this one.
    OfSeveral(Option<u32>),
}

impl Streams {
    /// For a connection joined after its start, or not.
    pub fn new(joined: bool) -> Streams {
        Streams { gaps: joined, dropped: joined, ..Streams::default() }
    }

    /// The snap length cut a header block of a stream.
    pub fn cut_block(&mut self, id: u32) {
        self.cut = true;
        if let Some(stream) = self.get(id) {
            stream.exchange.doubts.cut = true;
        }
    }

    /// Whether unknown header fields were cut off: the connection is known from its start, and nothing else is
    /// missing.
    pub fn only_cut(&self) -> bool {
        self.cut && !self.dropped
    }

    /// Records a frame of a stream. Clients number theirs 1, 3, 5 and so on.
    #[inline]
    pub fn seen(&mut self, id: u32) {
        let (least, greatest) = self.numbers.unwrap_or((id, id));
        let within = (least..=greatest).contains(&id);
        if within && self.numbers.is_some() || id.is_multiple_of(2) {
            return;
        }
        // Where the position was lost, bytes that are not a frame may look like one, of any stream.
        if !self.gaps || id.saturating_sub(greatest) <= MAX_SKIPPED && least.saturating_sub(id) <= MAX_SKIPPED
        {
            self.numbers = Some((least.min(id), greatest.max(id)));
        }
    }

    /// Number of calls that only the stream numbers prove: their requests are not in the capture.
    pub fn unseen(&self) -> u64 {
        let all = self.numbers.map_or(0, |(least, greatest)| u64::from(greatest - least) / 2 + 1);
        if self.gaps { all.saturating_sub(self.opened) } else { 0 }
    }

    /// An open stream.
    #[inline]
    pub fn get(&mut self, id: u32) -> Option<&mut Stream> {
        let slot = self.slot(id)?;
        self.slots.get_mut(slot as usize)
    }

    /// Slot of an open stream.
    #[inline]
    fn slot(&mut self, id: u32) -> Option<u32> {
        if self.last.0 != id || id == 0 {
            self.last = (id, *self.open.get(&id)?);
        }
        Some(self.last.1)
    }

    fn open(&mut self, connection: u32, frame: &Frame, sink: &mut Sink) -> Option<&mut Stream> {
        let id = frame.header.stream;
        if id.is_multiple_of(2) || self.late.contains(&id) {
            return None;
        }
        self.opened += 1;
        if self.open.len() >= MAX_STREAMS {
            self.drop_doubtful(sink);
            if self.open.len() >= MAX_STREAMS {
                sink.counts.streams_refused += 1;
                return None;
            }
        }
        if let CutPlace::Of(before) = self.cut_places[Side::Server.index()] {
            // As far as can be seen here, the client sends the next request after the answer to the previous one.
            self.cut_places[Side::Server.index()] = CutPlace::OfSeveral(Some(before));
            if let Some(before) = self.get(before) {
                before.over = true;
            }
        }
        self.insert(id, Stream::new(connection, frame))
    }

    /// A request that came before HTTP/2 did: it is stream 1 (RFC 7540, 3.2).
    pub fn adopt(&mut self, request: Exchange) {
        self.seen(1);
        self.opened += 1;
        self.insert(1, Stream::adopted(request));
    }

    fn insert(&mut self, id: u32, mut stream: Stream) -> Option<&mut Stream> {
        self.under_way += 1;
        stream.under_way = true;
        stream.exchange.in_flight = self.under_way;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Stream::default());
            self.slots.len() as u32 - 1
        });
        self.open.insert(id, slot);
        let place = self.slots.get_mut(slot as usize)?;
        *place = stream;
        Some(place)
    }

    /// A header block from the side in the role of client or server, with its decoded fields. Returns whether it
    /// opened a stream.
    pub fn headers(
        &mut self,
        connection: u32,
        side: Side,
        frame: &Frame,
        (head, missing): (&Head, bool),
        (at, end): (Mark, u64),
        sink: &mut Sink,
    ) -> bool {
        let id = frame.header.stream;
        self.cut_places[side.index()] = CutPlace::None;
        let known = self.slot(id).is_some();
        let opens = !known && side == Side::Client && (head.request || head.unknown > 0);
        let stream = if opens { self.open(connection, frame, sink) } else { self.get(id) };
        let Some(stream) = stream else { return false };
        match side {
            Side::Client => stream.request_head(head),
            Side::Server => stream.response_head(head, frame),
        }
        stream.exchange.doubts.hole |= missing;
        stream.doubtful |= missing;
        stream.reaches(side, at, end);
        opens
    }

    /// A piece of a DATA frame.
    #[inline]
    pub fn data(&mut self, connection: u32, side: Side, body: &Body<'_>, cut: bool, sink: &mut Sink) {
        let id = body.frame.header.stream;
        if body.begins {
            self.cut_places[side.index()] = CutPlace::None;
        }
        let dropped = self.dropped;
        let mut slot = self.slot(id);
        if slot.is_none() && self.gaps && side == Side::Client && body.begins {
            // A stream that was opened before the capture, or in a hole.
            if let Some(stream) = self.open(connection, body.frame, sink) {
                stream.exchange.doubts.headers_unknown = true;
                stream.exchange.doubts.hole = dropped;
                stream.doubtful = true;
            }
            slot = self.open.get(&id).copied();
        }
        let Some(stream) = slot.and_then(|slot| self.slots.get_mut(slot as usize)) else { return };
        let mut turn = None;
        stream.body(side, body, &mut turn);
        stream.exchange.doubts.hole |= body.missing > 0 && !cut;
        stream.doubtful |= body.missing > 0 && !cut;
        if let Some(mut turn) = turn {
            blame_the_cut(&mut turn, self.cut && !dropped);
            sink.exchanges.push(turn);
            stream.exchange.in_flight = self.under_way + u32::from(!stream.under_way);
        }
        // Nothing is in flight between two turns.
        let idle = stream.is_answered();
        if stream.under_way == idle {
            stream.under_way = !idle;
            self.under_way = if idle { self.under_way.saturating_sub(1) } else { self.under_way + 1 };
        }
    }

    /// The side in the role of client or server ended its part of a stream.
    pub fn ended(&mut self, side: Side, id: u32, sink: &mut Sink) {
        match side {
            Side::Client => {
                if let Some(stream) = self.get(id) {
                    stream.request_ended = true;
                    stream.exchange.doubts.end_cut[Side::Client.index()] = false;
                }
            }
            Side::Server => self.close(id, Ended::Complete, None, sink),
        }
    }

    /// Ends a stream; an `ending` means that it has no complete response.
    pub fn close(&mut self, id: u32, ended: Ended, ending: Option<Ending>, sink: &mut Sink) {
        let Some(slot) = self.open.remove(&id) else { return };
        if self.last.0 == id {
            self.last = (0, 0);
        }
        self.free.push(slot);
        let Some(stream) = self.slots.get_mut(slot as usize) else { return };
        self.under_way -= u32::from(stream.under_way).min(self.under_way);
        if !stream.request_ended {
            if self.late.len() == MAX_LATE {
                self.late.pop_front();
            }
            self.late.push_back(id);
        }
        let mut exchange = stream.finish(ended);
        if exchange.ended == Ended::Complete {
            exchange.doubts.end_cut = [false; 2];
        } else {
            exchange.ending = ending;
            exchange.doubts.end_unknown = ending.is_none() && stream.doubtful;
        }
        blame_the_cut(&mut exchange, self.cut && !self.dropped);
        sink.exchanges.push(exchange);
    }

    /// Frames of one direction may have been missed, so the open streams may have ended. If only the snap length
    /// `cut` them, the known times are complete.
    pub fn lost_place(&mut self, side: Side, cut: bool) {
        self.cut_places[side.index()] = match cut {
            true => self.cut_place(side),
            false => CutPlace::None,
        };
        self.gaps = true;
        self.dropped |= !cut;
        self.cut |= cut;
        for slot in self.open.values() {
            let Some(stream) = self.slots.get_mut(*slot as usize) else { continue };
            stream.exchange.doubts.hole |= !cut;
            stream.exchange.doubts.cut |= cut;
            stream.doubtful = true;
            self.under_way -= u32::from(stream.under_way).min(self.under_way);
            stream.under_way = false;
        }
    }

    /// Owner of a side's bytes after frame boundaries are lost.
    fn cut_place(&self, side: Side) -> CutPlace {
        let open = self.open.iter().filter_map(|(id, slot)| Some((*id, self.slots.get(*slot as usize)?)));
        let mut senders = open.filter(|(_, stream)| stream.may_send(side));
        // The client's bytes may contain the start of another request, which may also be answered.
        let alone = |id: u32, stream: &Stream| match side {
            Side::Client => stream.inside_message(side),
            Side::Server => {
                let client = self.cut_places[Side::Client.index()];
                (client == CutPlace::None || client == CutPlace::Of(id)) && self.unseen() == 0
            }
        };
        match (senders.next(), senders.next()) {
            (Some((id, stream)), None) if alone(id, stream) => CutPlace::Of(id),
            _ => CutPlace::OfSeveral(None),
        }
    }

    /// Extends the only call that can own a side's bytes without frame boundaries, by sequence numbers; if
    /// several can, their ends are unknown. Returns whether the snap length is the reason.
    pub fn not_told_apart(&mut self, side: Side, at: Mark, end: u64) -> bool {
        match self.cut_places[side.index()] {
            CutPlace::None => return false,
            CutPlace::Of(id) => {
                if let Some(stream) = self.get(id).filter(|stream| stream.may_send(side)) {
                    stream.reaches(side, at, end);
                }
            }
            CutPlace::OfSeveral(before) => {
                let before = before.and_then(|id| self.open.get(&id)).copied();
                for slot in self.open.values() {
                    let Some(stream) = self.slots.get_mut(*slot as usize) else { continue };
                    if stream.may_send(side) || Some(*slot) == before {
                        stream.exchange.doubts.end_cut[side.index()] = true;
                    }
                }
            }
        }
        true
    }

    /// Ends all streams for which `which` is true, in the order of their numbers.
    pub fn close_all(
        &mut self,
        ended: Ended,
        ending: Option<Ending>,
        sink: &mut Sink,
        which: impl Fn(&Stream) -> bool,
    ) {
        let is = |slot: &u32| self.slots.get(*slot as usize).is_some_and(&which);
        let mut ids: Vec<u32> = self.open.iter().filter(|(_, slot)| is(slot)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.into_iter().for_each(|id| self.close(id, ended, ending, sink));
    }

    fn drop_doubtful(&mut self, sink: &mut Sink) {
        self.close_all(Ended::CaptureEnded, None, sink, |stream| stream.doubtful);
    }

    /// The sides were mistaken for each other: everything derived from their frames is wrong.
    pub fn clear(&mut self) {
        *self = Streams::new(true);
    }

    /// Number of open streams.
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Memory use.
    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Stream>() + self.open.capacity() * 8 + self.free.capacity() * 4
    }
}

/// Attributes unknown header fields to the cut, if bytes were only cut off, instead of to a missing start of the
/// connection.
fn blame_the_cut(exchange: &mut Exchange, only_cut: bool) {
    let doubts = &mut exchange.doubts;
    if only_cut && doubts.headers_unknown {
        doubts.headers_unknown = false;
        doubts.cut = true;
    }
}
