//! Bytes that both taps saw twice: the first copy reached the receiver's tap, but not its TCP.
//!
//! Loss on the path leaves the receiver's tap with one copy. Two copies at both taps, with the first
//! unacknowledged, place the loss behind the receiver's tap: a filter, conntrack, a wrong checksum, a full socket
//! buffer or backlog. Look-alikes are excluded earlier: a receiver that had the bytes but whose acknowledgement
//! was lost answers the second copy with a DSACK or with the timestamp of the first one (see [`crate::causes`]),
//! and a packet that the path duplicated was sent once.

use super::held::Events;
use crate::episode::{Copies, Episode};
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// Reclassifies the episodes about such bytes, at the taps of both ends by [`Side::index`].
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
                // The reason for the retransmission does not matter for the place of the loss.
                _ => Certainty::Shown,
            };
        }
    }
}
