//! Turns the episodes of both taps into findings of a call, each with its share of the call's time.

use super::{Explained, Way, covered_ns, is_loss, union};
use crate::call::{CallFinding, Halves, Note, When};
use crate::episode::{Episode, PacketProof};
use crate::exchange::{Exchange, Part};
use crate::legs::Moments;
use spangap_model::evidence::Certainty;
use spangap_model::{Cause, Side};

/// Maximum packets of evidence per finding.
const MAX_EVIDENCE: usize = 8;
/// Time that both hosts take until retransmitted bytes are acknowledged, in addition to the transit.
const RECOVERY_NS: i64 = 2_000_000;
/// The same with a delayed acknowledgement.
const DELAYED_NS: i64 = 50_000_000;
/// Data that waits for a hold to end is sent within this time after it.
const RELEASED_NS: i64 = 100_000;

/// An episode with its share of the call.
struct EpisodeShare<'a> {
    episode: &'a Episode,
    /// The end whose tap saw it.
    tap: Side,
    /// Its time, by the first capture's clock; `None` if it lies outside the known part of the call.
    taken: Option<(i64, i64)>,
}

/// Facts of a call other than its episodes.
pub(crate) struct About<'a> {
    pub halves: &'a Halves,
    pub moments: &'a Moments,
    pub duration_ns: u64,
    /// Second capture's clock minus first, approximately.
    pub offset_ns: i64,
    /// Minimum of both directions together on its connection so far, nanoseconds.
    pub least_path_ns: Option<u64>,
}

/// Findings from the episodes at the taps of both ends, by [`Side::index`]; adds the time that they explain to
/// `explained`.
pub(crate) fn findings(
    about: &About<'_>,
    episodes: &[Vec<Episode>; 2],
    explained: &mut Vec<Explained>,
) -> Vec<CallFinding> {
    let About { halves, moments, duration_ns, offset_ns, least_path_ns } = *about;
    let mut held: Vec<EpisodeShare<'_>> = Vec::new();
    for tap in [Side::Client, Side::Server] {
        let Some(exchange) = &halves.exchanges[tap.index()] else { continue };
        let window = window(halves, moments, tap, duration_ns);
        let ahead_ns = if halves.captures[tap.index()] == 0 { 0 } else { offset_ns };
        let shifted = |(begin, end): (i64, i64)| (begin - ahead_ns, end - ahead_ns);
        // When the client's span began, by this tap's clock.
        let span_ns = moments.0[0].map(|(start, _)| {
            let own = if halves.captures[Side::Client.index()] == 0 { 0 } else { offset_ns };
            start - own + ahead_ns
        });
        for episode in &episodes[tap.index()] {
            let taken = match before_the_wire(episode, exchange) {
                true if only_by_span(episode, exchange) => {
                    span_ns.and_then(|start| waited(episode, exchange, start)).map(Some)
                }
                true => Some(span_ns.and_then(|start| waited(episode, exchange, start))),
                false => {
                    let span = moments.0[0].zip(moments.0[9]).map(|((start, _), (end, _))| (start, end));
                    let behind = span.filter(|_| tap == Side::Client);
                    let behind = behind
                        .and_then(|span| behind_loss(episode, exchange, span, least_path_ns.unwrap_or(0)));
                    behind.map(Some).or_else(|| taken(episode, tap, exchange, window))
                }
            };
            if let Some(taken) = taken {
                held.push(EpisodeShare { episode, tap, taken: taken.map(shifted) });
            }
        }
    }
    let mut findings: Vec<CallFinding> = Vec::new();
    if let [only] = &held[..] {
        // There is nothing to compare it with.
        let capture = halves.captures[only.tap.index()];
        let evidence = only.episode.evidence.iter().map(|packet| (capture, *packet)).collect();
        findings.push(event_finding(about, only, &mut Vec::from_iter(only.taken), evidence, explained));
        return findings;
    }
    let mut done = vec![false; held.len()];
    let events = Events::of(held.iter().map(|held| (held.tap, held.episode)));
    for i in 0..held.len() {
        if done[i] {
            continue;
        }
        // Every episode of one event: the same bytes at the other tap, or the same cause again.
        let best = (i..held.len())
            .filter(|j| !done[*j] && same_event(&held[i], &held[*j]))
            .max_by_key(|j| rank(&held[*j]));
        let best = &held[best.unwrap_or(i)];
        let mut taken = Vec::new();
        let mut evidence: Vec<(u8, PacketProof)> = Vec::new();
        for j in i..held.len() {
            let other = &held[j];
            let same_cause =
                other.episode.cause == best.episode.cause && other.episode.side == best.episode.side;
            if done[j] || !(same_cause || same_event(best, other)) {
                continue;
            }
            done[j] = true;
            if other.tap == best.tap || !events.seen_at(best.tap, other.episode) {
                taken.extend(other.taken);
            }
            let capture = halves.captures[other.tap.index()];
            evidence.extend(other.episode.evidence.iter().map(|packet| (capture, *packet)));
        }
        evidence.truncate(MAX_EVIDENCE);
        findings.push(event_finding(about, best, &mut taken, evidence, explained));
    }
    opened_slowly(&mut findings, explained);
    too_large(&mut findings);
    findings
}

/// The finding of an event, based on its `best` episode; all its episodes together took these intervals.
fn event_finding(
    about: &About<'_>,
    best: &EpisodeShare<'_>,
    taken: &mut [(i64, i64)],
    evidence: Vec<(u8, PacketProof)>,
    explained: &mut Vec<Explained>,
) -> CallFinding {
    let Episode { cause, sender, certainty, .. } = *best.episode;
    let shown = certainty == Certainty::Shown;
    explained.extend(taken.iter().map(|range| Explained { cause, sender, shown, range: *range }));
    let when = match (taken.iter().map(|range| range.0).min(), taken.iter().map(|range| range.1).max()) {
        (Some(from), Some(to)) => When::Between(from, to),
        _ => When::Unknown,
    };
    let cost_ns = union(taken).map(|ns| ns.min(about.duration_ns));
    let exchange = about.halves.exchanges[best.tap.index()].as_ref();
    let before = exchange.is_some_and(|exchange| before_the_wire(best.episode, exchange));
    let found = finding(best.episode, cost_ns, evidence, before);
    // Of a call that got no answer, nothing tells more: what is shown is that its bytes were sent again, for nothing.
    let tells_more = shown && about.halves.is_of_one_capture() && about.halves.ending().is_none();
    let open = best.episode.copies.leave_open(sender).filter(|_| tells_more);
    CallFinding { when, certainty: open.map_or(found.certainty, Certainty::Possible), ..found }
}

/// Removes losses of segments that are too large for the path: they are part of that finding.
fn too_large(findings: &mut Vec<CallFinding>) {
    let between = |finding: &CallFinding| match finding.when {
        When::Between(from, to) => Some((from, to)),
        _ => None,
    };
    let lost: Vec<(i64, i64)> =
        findings.iter().filter(|finding| finding.cause == Cause::PathMtu).filter_map(between).collect();
    findings.retain(|finding| {
        let within = |(from, _): (i64, i64)| lost.iter().any(|all| (all.0..=all.1).contains(&from));
        !is_loss(finding.cause) || !between(finding).is_some_and(within)
    });
}

/// Subtracts the causes that made a connection open late from the cost of opening one.
fn opened_slowly(findings: &mut [CallFinding], explained: &[Explained]) {
    let late = |span: &Explained| span.shown && matches!(span.cause, Cause::SynLoss | Cause::AcceptOverflow);
    if !explained.iter().any(late) {
        return;
    }
    let opening = explained.iter().filter(|span| span.cause == Cause::ConnectionPerCall);
    let late_ns: u64 = opening.map(|span| covered_ns(explained, span.range, late)).sum();
    for finding in findings.iter_mut().filter(|finding| finding.cause == Cause::ConnectionPerCall) {
        finding.cost_ns = finding.cost_ns.map(|cost_ns| cost_ns.saturating_sub(late_ns));
    }
}

fn finding(
    episode: &Episode,
    cost_ns: Option<u64>,
    evidence: Vec<(u8, PacketProof)>,
    before: bool,
) -> CallFinding {
    let lasted_ns = episode.to_ns.saturating_sub(episode.from_ns).max(0) as u64;
    let note = match (cost_ns, episode.cause, before) {
        (Some(_), ..) => Note::None,
        (None, Cause::StreamLimit, _) => {
            Note::Text("only its CLIENT span tells how long the call waited for a stream".into())
        }
        (None, _, true) => Note::Time(
            "before the first byte of the call was on the wire, ",
            lasted_ns,
            " at most; only its CLIENT span tells how much of that the call waited",
        ),
        (None, Cause::ReceiverDrop, _) => Note::Time(
            "the bytes were at the tap ",
            lasted_ns,
            " before they came again; only its CLIENT span tells how much of that the call waited",
        ),
        _ => Note::Text("it lies outside what this capture shows of the call".into()),
    };
    let Episode { cause, certainty, side, .. } = *episode;
    CallFinding { cause, certainty, side, when: When::Unknown, cost_ns, note, evidence }
}

/// Attributes the transit of a response to the large one for which it waited at the server, if it also arrived
/// with the last bytes of that one at the client: then it was behind them all the way, in whatever queue there
/// is.
pub(crate) fn goes_on(
    found: &mut [CallFinding],
    way: &Way,
    beyond_ns: u64,
    about: &About<'_>,
    episodes: &[Vec<Episode>; 2],
) -> bool {
    let is_behind = |episode: &Episode| episode.cause == Cause::HeadOfLine && episode.sender == Side::Server;
    if way.from != Side::Server || !episodes.iter().all(|seen| seen.iter().any(is_behind)) {
        return false;
    }
    let waited = |finding: &&mut CallFinding| {
        finding.cause == Cause::HeadOfLine
            && finding.certainty == Certainty::Shown
            && finding.side == Some(Side::Server)
    };
    let Some(finding) = found.iter_mut().find(waited) else { return false };
    let When::Between(from, to) = finding.when else { return false };
    finding.when = When::Between(from, to.max(way.range(about.offset_ns).1));
    finding.cost_ns = finding.cost_ns.map(|cost_ns| (cost_ns + beyond_ns).min(about.duration_ns));
    true
}

/// Whether an episode ended when the first byte of the call left the client: its cost precedes everything that
/// the wire shows of the call.
fn before_the_wire(episode: &Episode, exchange: &Exchange) -> bool {
    let request = &exchange.request;
    match episode.cause {
        Cause::StreamLimit | Cause::SynLoss | Cause::AcceptOverflow => true,
        Cause::ConnectionPerCall | Cause::SharedConnection | Cause::PoolWait => true,
        cause if cause.is_of_opening() => true,
        Cause::NagleDelayedAck => {
            episode.sender == Side::Client
                && (episode.start..episode.end).contains(&request.start)
                && episode.to_ns <= request.first.seen_ns.saturating_add(RELEASED_NS)
        }
        _ => false,
    }
}

/// Whether only the call's span can prove that it waited. Every connection is opened once, and reused when it is
/// free; a slot for a stream may stay free for a while before a call takes it.
fn only_by_span(episode: &Episode, exchange: &Exchange) -> bool {
    match episode.cause {
        Cause::PoolWait => true,
        Cause::StreamLimit => episode.to_ns < exchange.request.first.seen_ns,
        cause => cause.is_of_opening(),
    }
}

/// How long the call waited for such an episode, given the start of its span.
fn waited(episode: &Episode, exchange: &Exchange, start_ns: i64) -> Option<(i64, i64)> {
    let first_ns = exchange.request.first.seen_ns;
    // A call that waits for a stream is not on the wire, so the episode does not know the start of the wait.
    let from_ns = if episode.cause == Cause::StreamLimit { start_ns } else { episode.from_ns };
    let range = (from_ns.max(start_ns), episode.to_ns.min(first_ns));
    (range.1 > range.0).then_some(range)
}

/// How long a call waited in the client's buffer while earlier bytes were lost and retransmitted: until these are
/// acknowledged, a sender whose timer expired sends nothing new. `span` is the CLIENT span. Bytes that leave
/// later than with that acknowledgement waited for something else.
fn behind_loss(
    episode: &Episode,
    exchange: &Exchange,
    span: (i64, i64),
    least_path_ns: u64,
) -> Option<(i64, i64)> {
    let request = &exchange.request;
    let is_before = is_loss(episode.cause)
        && episode.sender == Side::Client
        && episode.certainty == Certainty::Shown
        && episode.stream_id.is_none()
        && episode.end <= request.start;
    let way_ns = i64::try_from(2 * least_path_ns).unwrap_or(i64::MAX);
    let later_ns = request.first.seen_ns.saturating_sub(episode.to_ns);
    if !is_before || span.0 >= episode.to_ns || !(0..=way_ns.saturating_add(DELAYED_NS)).contains(&later_ns) {
        return None;
    }
    // A delayed acknowledgement is a separate cause.
    let until_ns = request.first.seen_ns.min(episode.to_ns.saturating_add(way_ns + RECOVERY_NS));
    let range = (episode.from_ns.max(span.0), until_ns.min(span.1));
    (range.1 > range.0).then_some(range)
}

/// The call's time at a tap. The server's tap sees neither direction's transit: the sum of both is added on
/// either side, since that tap cannot tell which of them was held up.
fn window(halves: &Halves, moments: &Moments, tap: Side, duration_ns: u64) -> (i64, i64) {
    let of = |moment: Option<(i64, Side)>| moment.filter(|(_, side)| *side == tap).map(|(at, _)| at);
    if tap == Side::Client || halves.exchanges[0].is_none() {
        let first = moments.0.iter().copied().find_map(of);
        let last = moments.0.iter().rev().copied().find_map(of);
        return first.zip(last).unwrap_or_default();
    }
    let exchange = halves.exchanges[tap.index()].as_ref();
    let first = exchange.map_or(0, |exchange| exchange.request.first.seen_ns);
    let last = of(moments.0[7]).or(of(moments.0[3])).unwrap_or(first).max(first);
    let slack = i64::try_from(duration_ns).unwrap_or(i64::MAX).saturating_sub(last - first).max(0);
    (first.saturating_sub(slack), last.saturating_add(slack))
}

/// An episode's share of the call: `None` if it took none of it.
#[allow(clippy::option_option)]
fn taken(
    episode: &Episode,
    tap: Side,
    exchange: &Exchange,
    window: (i64, i64),
) -> Option<Option<(i64, i64)>> {
    let mut from_ns = episode.from_ns;
    let part: Option<&Part> = match episode.sender {
        Side::Client => Some(&exchange.request),
        Side::Server => exchange.response.as_ref(),
    };
    if let Some(part) = part
        && episode.stream_id.is_none()
        && episode.end > episode.start
        && episode.end <= part.start
    {
        // Bytes before those of the call: they cost it only the time that it then had to wait itself.
        if is_loss(episode.cause) {
            from_ns = from_ns.max(part.first.seen_ns);
        } else if !(0..=RELEASED_NS).contains(&(part.first.seen_ns - episode.to_ns)) {
            return None;
        }
    }
    // At their sender, bytes can be lost, or wait for lost ones, only once they were written.
    if let Some(part) = part.filter(|part| tap == episode.sender && episode.start <= part.start)
        && is_loss(episode.cause)
    {
        from_ns = from_ns.max(part.first.seen_ns);
    }
    let begin = from_ns.max(window.0);
    let end = episode.to_ns.min(window.1);
    if end > begin {
        return Some(Some((begin, end)));
    }
    // A server's tap alone cannot tell how long the last bytes of a response were delayed after they were first
    // sent.
    let after = is_loss(episode.cause) && episode.sender == Side::Server && episode.to_ns > window.1;
    after.then_some(None)
}

/// Whether two taps (or one tap twice) report the same delay of the same bytes.
fn same_event(a: &EpisodeShare<'_>, b: &EpisodeShare<'_>) -> bool {
    let (one, other) = (a.episode, b.episode);
    let alike = one.cause == other.cause || (is_loss(one.cause) && is_loss(other.cause));
    let len = |episode: &Episode| (episode.end - episode.start).max(1);
    let apart = u64::from((other.start as u32).wrapping_sub(one.start as u32));
    let back = u64::from((one.start as u32).wrapping_sub(other.start as u32));
    alike && one.sender == other.sender && (apart < len(one) || back < len(other))
}

/// Index of the bytes that each tap reports, so that a long call with a thousand episodes does not compare each
/// with all.
pub(crate) struct Events {
    /// Origin of the byte offsets, since those of two taps agree only in their low halves.
    origin: u32,
    /// Event and tap, first byte, and the maximum end among those of that event and tap so far; sorted.
    entries: Vec<(Event, i64, i64)>,
}

/// The reporting tap, the sender of the bytes, and the cause; all kinds of loss share one.
type Event = (Side, Side, Cause);

impl Events {
    /// Builds the index from episodes, each with its tap.
    pub(crate) fn of<'a>(episodes: impl Iterator<Item = (Side, &'a Episode)>) -> Events {
        let mut origin = None;
        let range = |(tap, episode): (Side, &Episode)| {
            let origin = *origin.get_or_insert(episode.start as u32);
            let (start, end) = range(episode, origin);
            (event(tap, episode), start, end)
        };
        let mut entries: Vec<(Event, i64, i64)> = episodes.map(range).collect();
        entries.sort_unstable();
        for i in 1..entries.len() {
            if entries[i - 1].0 == entries[i].0 {
                entries[i].2 = entries[i].2.max(entries[i - 1].2);
            }
        }
        Events { origin: origin.unwrap_or(0), entries }
    }

    /// Whether this tap reports the same event: [`same_event`] for any of its episodes.
    pub(crate) fn seen_at(&self, tap: Side, other: &Episode) -> bool {
        let (start, end) = range(other, self.origin);
        let event = event(tap, other);
        let before = self.entries.partition_point(|entry| (entry.0, entry.1) < (event, end));
        before
            .checked_sub(1)
            .is_some_and(|last| self.entries[last].0 == event && self.entries[last].2 > start)
    }
}

fn event(tap: Side, episode: &Episode) -> Event {
    (tap, episode.sender, if is_loss(episode.cause) { Cause::Rto } else { episode.cause })
}

/// The bytes of an episode, at least one; those of a call are within 2^31 of each other.
fn range(episode: &Episode, origin: u32) -> (i64, i64) {
    let start = i64::from((episode.start as u32).wrapping_sub(origin) as i32);
    (start, start + (episode.end - episode.start).max(1) as i64)
}

/// Which of two reports takes precedence: the surer one, then that of the sender's tap, which saw what was sent;
/// for bytes that the receiver dropped, its own, which saw for how long.
fn rank(held: &EpisodeShare<'_>) -> (bool, bool, bool) {
    let at_sender = held.tap == held.episode.sender;
    let near = at_sender != (held.episode.cause == Cause::ReceiverDrop);
    (held.episode.certainty == Certainty::Shown, held.taken.is_some(), near)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::{Copies, PacketProofs};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_index_finds_the_same_events_as_a_full_comparison(
            drawn in prop::collection::vec((any::<bool>(), any::<bool>(), 0usize..4, 0u64..300, 0u64..30), 1..80),
            origin in prop::sample::select(vec![0, 1 << 31, (1 << 32) - 100]),
        ) {
            let causes = [Cause::Rto, Cause::TailLoss, Cause::ReceiveWindow, Cause::NagleDelayedAck];
            let side = |server: bool| if server { Side::Server } else { Side::Client };
            let episode = |(_, sender, cause, start, len): (bool, bool, usize, u64, u64)| Episode {
                cause: causes[cause],
                certainty: Certainty::Shown,
                side: None,
                sender: side(sender),
                from_ns: 0,
                to_ns: 0,
                start: origin + start,
                end: origin + start + len,
                stream_id: None,
                copies: Copies::One,
                evidence: PacketProofs::default(),
            };
            let episodes: Vec<Episode> = drawn.iter().map(|drawn| episode(*drawn)).collect();
            let held: Vec<EpisodeShare<'_>> = drawn
                .iter()
                .zip(&episodes)
                .map(|(drawn, episode)| EpisodeShare { episode, tap: side(drawn.0), taken: None })
                .collect();
            let events = Events::of(held.iter().map(|held| (held.tap, held.episode)));
            for other in &held {
                for tap in [Side::Client, Side::Server] {
                    let each = held.iter().any(|h| h.tap == tap && same_event(h, other));
                    prop_assert_eq!(events.seen_at(tap, other.episode), each);
                }
            }
        }
    }
}
