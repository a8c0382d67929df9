//! Bytes that both taps saw twice: the first copy came as far as the receiver's tap, and its TCP never had it.
//!
//! Loss on the path leaves the receiver's tap with one copy. Two copies at both taps, the first unacknowledged, put the
//! loss behind the receiver's tap: a filter, conntrack, a wrong checksum, a full socket buffer or backlog. What looks
//! like it is excluded before: a receiver that had the bytes while its acknowledgement was lost answers the second copy
//! with a DSACK or with the timestamp of the first one (see [`crate::causes`]), and a packet that the path doubled was
//! sent once.

use super::held::Events;
use crate::episode::{Copies, Episode};
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// Names the episodes, of the taps at both ends by [`Side::index`], that are of such bytes.
pub(crate) fn settle(episodes: &mut [Vec<Episode>; 2]) {
    let twice = |episode: &Episode| super::is_loss(episode.cause) && episode.copies != Copies::One;
    if !episodes.iter().all(|at_tap| at_tap.iter().any(twice)) {
        return;
    }
    let both = [Side::Client, Side::Server];
    let seen = both.iter().flat_map(|tap| episodes[tap.index()].iter().map(move |episode| (*tap, episode)));
    let events = Events::of(seen.filter(|(_, episode)| twice(episode)));
    for tap in both {
        for episode in episodes[tap.index()].iter_mut().filter(|episode| twice(episode)) {
            if !events.seen_at(tap.other(), episode) {
                continue;
            }
            episode.cause = Cause::ReceiverDrop;
            episode.side = Some(episode.sender.other());
            episode.certainty = match (episode.copies, episode.certainty) {
                (Copies::Both { told: false }, _) => Certainty::Possible(Missing::ReceiverSilent),
                (_, early @ Certainty::Possible(Missing::EndsEarly)) => early,
                // Why the sender sent again does not matter to where the first copy was lost.
                _ => Certainty::Shown,
            };
        }
    }
}
