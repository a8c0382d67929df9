//! The client's stack as the limit of one connection: it writes calls in batches, and between the last response of
//! one batch and the first request of the next there is silence on a clean wire.
//!
//! Whether calls waited in the client meanwhile is not on the wire: a client that had nothing to do looks the same.
//! So the rule says what it saw, and what would tell. Nothing under way at the time of a silence excludes the
//! server's stream limit; a connection with loss or a closed window is left alone.

use super::{Rule, View, nanos};
use crate::episode::{Certainty, Episode, Evidence, EvidenceList, What};
use crate::exchange::Exchange;
use crate::tcp::{Kind, Step};
use spangap_model::{Cause, Side};

/// Shorter silences are the ordinary work of a client.
const SILENCE_NS: u64 = 100_000;
/// Batches before anything is said.
const BATCHES: u64 = 16;
/// Calls in a batch, on average, that make it one.
const CALLS_PER_BATCH: u64 = 2;
/// Part of the time in silence, per cent, from which it is worth a word.
const SHARE_PERCENT: u64 = 20;
/// Beginnings of batches remembered until one of their exchanges has finished.
const RECENT: usize = 4;

const MISSING: &str =
    "whether calls waited in the client meanwhile: its spans, or a second connection, would tell";

/// The client began to send after the server had.
#[derive(Clone, Copy, Debug, Default)]
struct Begin {
    time_ns: i64,
    packet: u64,
    quiet_from: (i64, u64),
}

/// The rule's memory of one connection.
#[derive(Debug, Default)]
pub struct Memory {
    begins: [Begin; RECENT],
    next: usize,
    /// The last bytes of the server, while the client has sent nothing since.
    server_last: Option<(i64, u64)>,
    first_ns: Option<i64>,
    last_ns: i64,
    calls: u64,
    /// Batches that began with nothing under way.
    batches: u64,
    silences: u64,
    silent_ns: u64,
    disturbed: u64,
}

impl Rule for Memory {
    #[inline]
    fn step(&mut self, step: &Step<'_>, _view: View<'_>, _found: &mut Vec<Episode>) {
        if step.bytes.is_empty() {
            return;
        }
        let at = (step.segment.time_ns, step.segment.packet);
        match (step.kind, step.from) {
            (Kind::New, Side::Server) => self.server_last = Some(at),
            (Kind::New, Side::Client) => {
                if let Some(quiet_from) = self.server_last.take() {
                    self.begins[self.next] = Begin { time_ns: at.0, packet: at.1, quiet_from };
                    self.next = (self.next + 1) % RECENT;
                }
            }
            _ => self.disturbed += 1,
        }
    }

    #[inline]
    fn exchange(&mut self, exchange: &Exchange, view: View<'_>, found: &mut Vec<Episode>) {
        let request = &exchange.request;
        self.calls += 1;
        let first_ns = *self.first_ns.get_or_insert(request.first.seen_ns);
        self.last_ns = self.last_ns.max(exchange.response.map_or(0, |response| response.last.seen_ns));
        // In flight counts the call itself: before this one there was nothing under way.
        if exchange.in_flight != 1 {
            return;
        }
        let Some(begin) = self.begins.iter().find(|begin| begin.packet == request.first.packet).copied()
        else {
            return;
        };
        self.batches += 1;
        // At the server's end, the way to the client and back is no silence of the client's.
        let way_ns = view.reach_ns(Side::Client).unwrap_or(0);
        let silence_ns = nanos(begin.quiet_from.0, begin.time_ns).saturating_sub(way_ns);
        if silence_ns < SILENCE_NS {
            return;
        }
        self.silences += 1;
        self.silent_ns += silence_ns;
        if !self.is_batched(nanos(first_ns, self.last_ns)) {
            return;
        }
        let since =
            What::with("the last response of a batch of about {} calls is in", self.calls / self.batches, 0);
        let until = What::with("the next batch begins, after {} us of silence", silence_ns / 1000, 0);
        let (quiet_ns, quiet_packet) = begin.quiet_from;
        found.push(Episode {
            cause: Cause::SharedConnection,
            certainty: Certainty::Possible { missing: MISSING },
            side: Some(Side::Client),
            sender: Side::Client,
            from_ns: quiet_ns,
            to_ns: begin.time_ns,
            start: request.start,
            end: request.end,
            stream_id: None,
            evidence: EvidenceList::of(&[
                Evidence { packet: quiet_packet, time_ns: quiet_ns, what: since },
                Evidence { packet: begin.packet, time_ns: begin.time_ns, what: until },
            ]),
        });
    }

    fn notes(&self, into: &mut Vec<String>) {
        let total_ns = nanos(self.first_ns.unwrap_or(0), self.last_ns);
        if self.is_batched(total_ns) {
            let per_batch = self.calls as f64 / self.batches as f64;
            let percent = 100.0 * self.silent_ns as f64 / total_ns as f64;
            into.push(format!(
                "Calls go out in batches ({per_batch:.1} on average), and in {percent:.0} % of the time nothing was \
                 under way for 100 us or more ({} silences on a clean wire): the client's stack on this one \
                 connection may be the limit. Not known: {MISSING}.",
                self.silences
            ));
        }
    }
}

impl Memory {
    /// Whether the picture so far is that of batches with silence between them.
    fn is_batched(&self, total_ns: u64) -> bool {
        self.batches >= BATCHES
            && self.calls >= CALLS_PER_BATCH * self.batches
            && self.silent_ns.saturating_mul(100) >= total_ns.saturating_mul(SHARE_PERCENT)
            && self.disturbed * 100 <= self.batches
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{CLIENT, SERVER, Scene, part};
    use super::*;

    /// Batches of calls, all answered 1 ms later one after the other, and the next batch after a pause.
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
    fn batches_with_silence_between_them_are_said_with_figures() {
        let scene = scene(Scene::at_client(), 10, 2000);
        assert!(scene.possible().contains(&Cause::SharedConnection));
        let notes = scene.notes();
        // Before the first batch nothing was seen, so that it does not count as one.
        assert!(notes[0].contains("(10.3 on average), and in 65 % of the time"), "{notes:?}");
    }

    #[test]
    fn one_call_at_a_time_or_no_silence_is_no_batch() {
        for scene in [scene(Scene::at_client(), 1, 2000), scene(Scene::at_client(), 10, 90)] {
            assert_eq!((scene.found.len(), scene.notes()), (0, vec![]));
        }
    }

    #[test]
    fn the_way_to_the_client_is_no_silence() {
        // 1 ms away, as the handshake shows: what is left is 90 us.
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
