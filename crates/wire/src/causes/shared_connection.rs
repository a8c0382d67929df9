//! The client's stack as the bottleneck of one connection: it writes calls in batches, and the wire is silent
//! between the last response of one batch and the first request of the next.
//!
//! The wire does not show whether calls waited in the client meanwhile: a client with nothing to do looks the
//! same. So the rule reports the pattern, and the evidence that would decide. It requires the pattern rather than
//! a single silence: most batches begin after one, and each silence takes a good part of its batch's time. A
//! connection with loss or a closed window is left alone, and so is one with single calls.

use super::{Rule, View, nanos};
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::exchange::Exchange;
use crate::tcp::{Kind, Step};
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};
use spangap_report::figures::percent;

/// Shorter silences are ordinary work of a client.
const SILENCE_NS: u64 = 100_000;
/// Silent batches required before anything is reported.
const BATCHES: u64 = 16;
/// Minimum share of batches that begin after a silence, per cent.
const MOST_PERCENT: u64 = 70;
/// Minimum number of calls per batch, on average.
const CALLS_PER_BATCH: u64 = 2;
/// Minimum silent share of the time from one batch to the next, per cent.
const SHARE_PERCENT: u64 = 20;
/// Starts of batches remembered until their exchanges finish.
const RECENT: usize = 4;

/// The client began to send after the server had sent.
#[derive(Clone, Copy, Debug, Default)]
struct Begin {
    time_ns: i64,
    packet: u64,
    quiet_from: (i64, u64),
    /// Offset of its first byte, and the time of its latest byte.
    start: u64,
    last_ns: i64,
    silent: bool,
    said: bool,
}

/// State of the rule for one connection.
#[derive(Debug, Default)]
pub struct Memory {
    begins: [Begin; RECENT],
    next: usize,
    /// The server's last bytes, until the client sends again.
    server_last: Option<(i64, u64)>,
    calls: u64,
    batches: u64,
    /// Batches that began after a silence, and the total of these silences.
    silences: u64,
    silent_ns: u64,
    /// Total time of those batches, from one to the next.
    batches_ns: u64,
    disturbed: u64,
}

impl Rule for Memory {
    #[inline]
    fn step(&mut self, step: &Step<'_>, view: View<'_>, _found: &mut Vec<Episode>) {
        if step.bytes.is_empty() {
            return;
        }
        let at = (step.segment.time_ns, step.segment.packet);
        match (step.kind, step.from) {
            (Kind::New, Side::Server) => self.server_last = Some(at),
            (Kind::New, Side::Client) => match self.server_last.take() {
                Some(quiet_from) => self.begin(at, quiet_from, step.bytes.start, view),
                None => self.begins[self.latest()].last_ns = at.0,
            },
            _ => self.disturbed += 1,
        }
    }

    #[inline]
    fn exchange(&mut self, exchange: &Exchange, view: View<'_>, found: &mut Vec<Episode>) {
        let request = &exchange.request;
        self.calls += 1;
        if !self.is_batched() {
            return;
        }
        let per_batch = self.calls / self.batches.max(1);
        let before = |begin: &&mut Begin| begin.packet != 0 && begin.packet <= request.first.packet;
        let begin = self.begins.iter_mut().filter(before).max_by_key(|begin| begin.packet);
        // All calls of a batch are reported together.
        let Some(begin) = begin.filter(|begin| begin.silent && !begin.said) else { return };
        begin.said = true;
        let (quiet_ns, quiet_packet) = begin.quiet_from;
        let silence_us = nanos(quiet_ns, begin.time_ns) / 1000;
        let since = What::with("the last response of a batch of about {} calls is in", per_batch, 0);
        let until = What::with("the next batch begins, after {us} of silence", silence_us, 0);
        found.push(Episode {
            cause: Cause::SharedConnection,
            certainty: Certainty::Possible(Missing::CallsWaiting),
            side: Some(Side::Client),
            sender: Side::Client,
            from_ns: quiet_ns,
            to_ns: begin.last_ns,
            start: begin.start,
            end: view.of(Side::Client).next,
            stream_id: None,
            copies: Copies::One,
            evidence: PacketProofs::of(&[
                PacketProof { packet: quiet_packet, time_ns: quiet_ns, what: since },
                PacketProof { packet: begin.packet, time_ns: begin.time_ns, what: until },
            ]),
        });
    }

    fn notes(&self, into: &mut Vec<String>) {
        if self.is_batched() {
            let per_batch = self.calls as f64 / self.batches as f64;
            let share = percent(self.silent_ns as f64 / self.batches_ns as f64);
            into.push(format!(
                "Calls go out in batches ({per_batch:.1} on average), and {} of {} begin after 100 us or more of \
                 silence on an otherwise idle wire, {share} of their time: the client's stack on this one \
                 connection may be the limit. Not known: {}.",
                self.silences,
                self.batches,
                Missing::CallsWaiting.words()
            ));
        }
    }
}

impl Memory {
    fn latest(&self) -> usize {
        (self.next + RECENT - 1) % RECENT
    }

    /// A batch begins.
    fn begin(&mut self, at: (i64, u64), quiet_from: (i64, u64), start: u64, view: View<'_>) {
        let before = self.begins[self.latest()];
        // At the server's end, the round trip to the client does not count as the client's silence.
        let way_ns = view.reach_ns(Side::Client).unwrap_or(0);
        let silence_ns = nanos(quiet_from.0, at.0).saturating_sub(way_ns);
        let cycle_ns = nanos(before.time_ns, at.0);
        let silent = before.packet != 0
            && silence_ns >= SILENCE_NS
            && silence_ns.saturating_mul(100) >= cycle_ns.saturating_mul(SHARE_PERCENT);
        self.batches += 1;
        if silent {
            self.silences += 1;
            self.silent_ns = self.silent_ns.saturating_add(silence_ns);
            self.batches_ns = self.batches_ns.saturating_add(cycle_ns);
        }
        self.begins[self.next] =
            Begin { time_ns: at.0, packet: at.1, quiet_from, start, last_ns: at.0, silent, said: false };
        self.next = (self.next + 1) % RECENT;
    }

    /// Whether the traffic so far consists of batches with silence between them.
    #[inline]
    fn is_batched(&self) -> bool {
        self.silences >= BATCHES
            && self.calls >= CALLS_PER_BATCH * self.batches
            && self.silences * 100 >= self.batches * MOST_PERCENT
            && self.disturbed * 100 <= self.batches
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{CLIENT, SERVER, Scene, part};
    use super::*;

    /// Batches of calls, all answered 1 ms later in sequence, and the next batch after a pause.
    fn scene(mut scene: Scene, calls: u32, pause_us: i64) -> Scene {
        let mut now = 0;
        for _ in 0..40 {
            scene.at(now);
            let asked: Vec<_> = (0..calls).map(|_| (scene.data_and_ack(CLIENT, 60), scene.mark())).collect();
            for (n, (request, asked)) in (1..).zip(asked) {
                now += 1000 / i64::from(calls);
                scene.at(now);
                let response = scene.data_and_ack(SERVER, 60);
                let answered = scene.mark();
                scene.exchange(&Exchange {
                    request: part(request, asked, asked),
                    response: Some(part(response, answered, answered)),
                    in_flight: n,
                    ..Exchange::default()
                });
            }
            now += pause_us;
        }
        assert_eq!(scene.shown(), []);
        scene
    }

    #[test]
    fn batches_with_silence_between_them_are_reported_with_figures() {
        let scene = scene(Scene::at_client(), 10, 2000);
        assert!(scene.possible().contains(&Cause::SharedConnection));
        let notes = scene.notes();
        // Nothing was seen before the first batch, so it does not count.
        assert!(notes[0].contains("(10.3 on average), and 38 of 39 begin after"), "{notes:?}");
    }

    #[test]
    fn single_calls_or_no_silence_are_not_batches() {
        for scene in [scene(Scene::at_client(), 1, 2000), scene(Scene::at_client(), 10, 90)] {
            assert_eq!((scene.found.len(), scene.notes()), (0, vec![]));
        }
    }

    #[test]
    fn the_round_trip_to_the_client_is_not_silence() {
        // 1 ms away, as the handshake shows: the remaining silence is 90 us.
        let near = scene(Scene::at_server(), 10, 1090);
        assert_eq!((near.found.len(), near.notes()), (0, vec![]));
    }

    #[test]
    fn loss_makes_silence_ordinary() {
        let mut lossy = Scene::at_client();
        for _ in 0..3 {
            let lost = lossy.data(CLIENT, 100);
            lossy.bytes(Kind::Resent, CLIENT, lost);
            lossy.ack(SERVER);
        }
        let scene = scene(lossy, 10, 2000);
        assert!(!scene.possible().contains(&Cause::SharedConnection));
    }
}
