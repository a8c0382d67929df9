//! Bytes that both taps saw twice: the first copy reached the receiver's tap, but not its TCP.
//!
//! Loss on the path leaves the receiver's tap with one copy. Two copies at both taps, with the first
//! unacknowledged, place the loss behind the receiver's tap: a filter, conntrack, a wrong checksum, a full socket
//! buffer or backlog. Look-alikes are excluded earlier: a receiver that had the bytes but whose acknowledgement
//! was lost answers the second copy with a DSACK or with the timestamp of the first one (see [`crate::causes`]),
//! and a packet that the path duplicated was sent once.
//!
//! The server's tap alone has both copies as well of a request, which a loss on the path would not leave there; that the
//! client sent twice is what its capture would have to show. Until then such a drop is only possible, and the loss is no
//! usual one. Of responses the client's tap alone says nothing: a tap whose end is unknown is taken for the client's.

use super::held::Events;
use crate::episode::{Copies, Episode};
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// Reclassifies the episodes about such bytes, at the taps of both ends by [`Side::index`]; `lone` is the end of the only
/// tap that has the call, if there is only one.
pub(crate) fn settle(episodes: &mut [Vec<Episode>; 2], lone: Option<Side>) {
    let twice = |episode: &Episode| super::is_loss(episode.cause) && episode.copies.are_both();
    if lone == Some(Side::Server) {
        let behind = |episode: &&mut Episode| twice(episode) && episode.sender == Side::Client;
        for episode in episodes[Side::Server.index()].iter_mut().filter(behind) {
            episode.cause = Cause::ReceiverDrop;
            episode.side = Some(Side::Server);
            episode.certainty = Certainty::Possible(Missing::SentOnce);
        }
        return;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode::PacketProofs;

    fn resent(sender: Side, copies: Copies) -> Episode {
        Episode {
            cause: Cause::TailLoss,
            certainty: Certainty::Shown,
            side: None,
            sender,
            from_ns: 0,
            to_ns: 1,
            start: 10,
            end: 20,
            stream_id: None,
            copies,
            evidence: PacketProofs::default(),
        }
    }

    /// The cause and its certainty, as one tap alone tells them.
    fn told(tap: Side, episode: Episode) -> (Cause, Option<Missing>) {
        let mut episodes = [Vec::new(), Vec::new()];
        episodes[tap.index()].push(episode);
        settle(&mut episodes, Some(tap));
        let episode = &episodes[tap.index()][0];
        (episode.cause, episode.certainty.missing())
    }

    #[test]
    fn the_servers_tap_alone_shows_no_usual_loss_where_the_first_copy_came_by() {
        let both = Copies::Both { told: true };
        let [client, server] = [Side::Client, Side::Server];
        assert_eq!(told(server, resent(client, both)), (Cause::ReceiverDrop, Some(Missing::SentOnce)));
        // The sender's tap sees nothing of the path, and one copy is what a loss on it leaves.
        assert_eq!(told(client, resent(client, both)), (Cause::TailLoss, None));
        assert_eq!(told(server, resent(server, both)), (Cause::TailLoss, None));
        assert_eq!(told(server, resent(client, Copies::One)), (Cause::TailLoss, None));
    }
}
