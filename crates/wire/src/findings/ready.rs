//! Decides whether a response right behind a large one of another call on its connection waited for that one: it
//! was ready when its SERVER span ended.

use crate::episode::Episode;
use crate::legs::Moments;
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// Shorter times are normal between the end of a server's span and the wire.
const MIN_WAIT_NS: i64 = 1_000_000;

/// Settles episodes that lack only the time at which a response was ready, if the SERVER span has it: it waited
/// from then on, or it did not wait. A span that ends no sooner than the response leaves does not tell.
pub(crate) fn settle(moments: &Moments, episodes: &mut [Vec<Episode>; 2]) {
    let [at_client, at_server] = episodes;
    if !at_client.iter().chain(at_server.iter()).any(lacks) {
        return;
    }
    let at = |i: usize| moments.0[i].filter(|(_, side)| *side == Side::Server).map(|(at, _)| at);
    let Some((ready_ns, left_ns)) = at(5).zip(at(6)).filter(|(ready, left)| ready < left) else { return };
    if left_ns - ready_ns < MIN_WAIT_NS {
        at_client.retain(|episode| !lacks(episode));
        at_server.retain(|episode| !lacks(episode));
        return;
    }
    for episode in at_server.iter_mut().filter(|episode| lacks(episode)) {
        episode.from_ns = episode.from_ns.max(ready_ns);
        if episode.to_ns - episode.from_ns >= MIN_WAIT_NS {
            episode.certainty = Certainty::Shown;
        }
    }
}

fn lacks(episode: &Episode) -> bool {
    episode.cause == Cause::HeadOfLine
        && episode.sender == Side::Server
        && episode.certainty == Certainty::Possible(Missing::ResponseReady)
}
