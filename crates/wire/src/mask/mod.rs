//! Removes the content of messages from packets: lengths, sequence numbers and times are kept, and so is
//! everything that `dissect` needs.
//!
//! Everything that is not known to be harmless becomes zero. A capture is processed twice: [`Masker::see`]
//! reassembles the bytes of each connection, and [`Masker::mask`] writes the part of each packet that may be
//! shown. In between, the frames of HTTP/2 and the heads of HTTP/1 are walked: their lengths are kept, and their
//! values are overwritten in place by others with the same encoded and decoded length, so that every HPACK table
//! stays valid. Nothing of an unknown protocol is shown.

mod hpack;
mod http1;
mod http2;
mod stream;
mod tls;
mod value;

use crate::app::detect::look;
use crate::app::http2::frame::PREFACE;
use crate::app::{Look, Spoken};
use crate::decode::Decoder;
use crate::packet::Packet;
use crate::segment::{Endpoint, Flags};
use http1::{ExpectedBody, Messages};
use http2::Frames;
use rustc_hash::FxHashMap;
use spangap_model::Side;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use stream::{Run, Stream};
use tls::Records;
use value::Masks;

/// Masks the packets of one capture.
#[derive(Debug, Default)]
pub struct Masker {
    masks: Masks,
    decoder: Decoder,
    /// Directions by network, sender and receiver: the current stream, and the sequence number of its SYN.
    current: FxHashMap<(u32, Endpoint, Endpoint), (usize, Option<u32>)>,
    streams: Vec<Stream>,
    /// The opposite direction of each stream.
    mates: Vec<Option<usize>>,
    /// Location of each packet's payload.
    places: VecDeque<Option<Place>>,
    joined: bool,
    /// Packets that may not be kept at all, because no TCP segment was found in them.
    pub left_out: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    stream: usize,
    offset: u64,
    /// Offset in the packet.
    from: usize,
    len: usize,
}

impl Masker {
    /// With a key: equal values have equal masks under the same key.
    pub fn new(key: RandomState) -> Masker {
        Masker { masks: Masks::new(key), ..Masker::default() }
    }

    /// Examines the next packet.
    pub fn see(&mut self, packet: &Packet<'_>) {
        let place = self.place(packet);
        self.left_out += u64::from(place.is_none());
        self.places.push_back(place);
    }

    fn place(&mut self, packet: &Packet<'_>) -> Option<Place> {
        let segment = self.decoder.decode(packet).ok()?;
        let from = begin(packet.data, segment.payload)?;
        let key = (segment.network, segment.source, segment.destination);
        let back = (segment.network, segment.destination, segment.source);
        let syn = segment.flags.has(Flags::SYN).then_some(segment.seq);
        let before = self.current.get(&key).copied();
        // A reused port.
        let again = before.is_none_or(|(_, began)| syn.is_some() && began != syn);
        let stream = match before.filter(|_| !again) {
            Some((stream, _)) => stream,
            None => {
                self.streams.push(Stream::new(syn.is_some()));
                self.mates.push(None);
                self.current.insert(key, (self.streams.len() - 1, syn));
                self.streams.len() - 1
            }
        };
        if let Some((mate, _)) = self.current.get(&back).copied()
            && self.mates[mate].is_none()
            && self.mates[stream].is_none()
            && mate != stream
        {
            self.mates[stream] = Some(mate);
            self.mates[mate] = Some(stream);
        }
        let seq = segment.seq.wrapping_add(u32::from(syn.is_some()));
        let offset = self.streams[stream].offset(seq);
        self.streams[stream].put(offset, segment.payload);
        Some(Place { stream, offset, from, len: segment.payload.len() })
    }

    /// Masks the packets that were seen, in the same order. `bytes` is a copy of the packet's data. Returns
    /// whether the packet may be kept at all.
    pub fn mask(&mut self, bytes: &mut [u8]) -> bool {
        if !std::mem::replace(&mut self.joined, true) {
            self.walk();
        }
        let Some(Some(place)) = self.places.pop_front() else { return false };
        let Some(rest) = bytes.get_mut(place.from..) else { return false };
        let (payload, padding) = rest.split_at_mut(place.len.min(rest.len()));
        self.streams[place.stream].masked(place.offset, payload);
        // Bytes after the segment are not part of a message, and are private as well.
        padding.fill(0);
        true
    }

    fn walk(&mut self) {
        self.streams.iter_mut().for_each(Stream::join);
        for one in 0..self.streams.len() {
            match self.mates[one] {
                Some(other) if other > one => {
                    let (first, second) = self.streams.split_at_mut(other);
                    both(&mut first[one], &mut second[0], &self.masks);
                }
                None => both(&mut self.streams[one], &mut Stream::default(), &self.masks),
                Some(_) => {}
            }
        }
    }
}

/// Offset of a part of a packet, even an empty one: the bytes after it are not part of the segment. `None` if the
/// part was reassembled from fragments.
fn begin(packet: &[u8], part: &[u8]) -> Option<usize> {
    let at = (part.as_ptr() as usize).checked_sub(packet.as_ptr() as usize)?;
    (at + part.len() <= packet.len()).then_some(at)
}

/// The protocol of a direction, and whether it is the client.
fn spoken(stream: &Stream) -> Option<(Spoken, bool)> {
    let judge = |bytes: &[u8], joined: bool| {
        if bytes.starts_with(PREFACE) {
            return Some((Spoken::Http2, true));
        }
        match look(Side::Client, bytes, joined) {
            Look::Is(spoken) => Some((spoken, true)),
            Look::OtherWay => match look(Side::Server, bytes, joined) {
                Look::Is(spoken) => Some((spoken, false)),
                _ => None,
            },
            Look::More | Look::Unknown => None,
        }
    };
    if let Some(begin) = stream.begin() {
        let responds = |look| matches!(look, Look::Is(_));
        return judge(begin, false)
            .or_else(|| responds(look(Side::Server, begin, false)).then_some((Spoken::Unknown, false)));
    }
    let segments = stream
        .runs
        .iter()
        .flat_map(|run| (0..run.segments.len()).map(|place| &run.bytes[run.segment(place)]));
    segments.into_iter().find_map(|bytes| judge(bytes, true))
}

/// Masks both directions of a connection.
fn both(one: &mut Stream, other: &mut Stream, masks: &Masks) {
    let headers = [one.take_proxy_header(), other.take_proxy_header()];
    messages(one, other, masks);
    let [of_one, of_other] = headers;
    one.put_back(of_one);
    other.put_back(of_other);
}

/// Masks both directions, after the header of a proxy.
fn messages(one: &mut Stream, other: &mut Stream, masks: &Masks) {
    let known = |found: &Option<(Spoken, bool)>| found.is_some_and(|(spoken, _)| spoken != Spoken::Unknown);
    let found = [spoken(one), spoken(other)];
    let (spoken, one_is_client) = match found {
        [Some((spoken, client)), _] if known(&found[0]) => (spoken, client),
        [_, Some((spoken, client))] if known(&found[1]) => (spoken, !client),
        _ => return,
    };
    let (client, server) = if one_is_client { (one, other) } else { (other, one) };
    match spoken {
        Spoken::Http2 => {
            // Both begin with their first bytes, or neither does.
            let from_start = client.begin().is_some_and(|begin| begin.starts_with(PREFACE));
            let mut frames =
                [Frames::new(from_start, true), Frames::new(from_start && server.begin().is_some(), false)];
            let [there, back] = &mut frames;
            walk(client, there, Frames::hole, |frames, run| frames.run(run, 0, masks));
            walk(server, back, Frames::hole, |frames, run| frames.run(run, 0, masks));
        }
        Spoken::Http1 => {
            let mut there = Messages::new(client.begin().is_some(), VecDeque::new());
            walk(client, &mut there, Messages::hole, |messages, run| messages.run(run, masks));
            let from_start = client.begin().is_some() && server.begin().is_some();
            let expected: VecDeque<ExpectedBody> = if from_start { there.expected } else { VecDeque::new() };
            let mut back = Messages::new(server.begin().is_some(), expected);
            walk(server, &mut back, Messages::hole, |messages, run| messages.run(run, masks));
        }
        Spoken::Tls => {
            for stream in [client, server] {
                let mut records = Records::new(stream.begin().is_some());
                walk(stream, &mut records, Records::hole, |records, run| records.run(run));
            }
        }
        Spoken::Unknown => {}
    }
}

/// Processes the runs of a direction, and the holes between them.
fn walk<P>(stream: &mut Stream, parser: &mut P, hole: impl Fn(&mut P, u64), take: impl Fn(&mut P, &mut Run)) {
    let mut end = None;
    for run in &mut stream.runs {
        if let Some(missing) = end.map(|end| run.at - end) {
            hole(parser, missing);
        }
        take(parser, run);
        end = Some(run.at + run.bytes.len() as u64);
    }
}
