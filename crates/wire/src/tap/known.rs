//! What is asked of a tap long after its packets were read, kept apart from what reads them.
//!
//! A call is concluded when both captures are well beyond it, and its connection is asked for the episodes that held it
//! up. Whoever asks keeps a [`Known`], and brings it up to date with each [`Harvest`]: so the tap may be in another
//! thread and far ahead, and every answer is that of the packets harvested so far.

use crate::episode::Episode;
use crate::exchange::{Exchange, TextId};
use crate::segment::Endpoint;
use crate::tcp::ConnectionFacts;
use crate::tcp::connection::turn_around;
use crate::tcp::episodes::Episodes;
use crate::tcp::flows::{Key, Seed};
use crate::tcp::news::{EpisodeNews, Seen};
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::sync::Arc;

/// What some packets of a capture brought.
#[derive(Debug, Default)]
pub struct Harvest {
    /// Finished exchanges, in the order in which they finished.
    pub exchanges: Vec<Exchange>,
    /// Connections that are no longer followed, each once, with what the rules have to say of it as a whole.
    pub ended: Vec<(ConnectionFacts, Vec<String>)>,
    pub(super) with_exchanges: Vec<ConnectionFacts>,
    pub(super) episodes: Vec<EpisodeNews>,
    pub(super) changed: Vec<Seen>,
    pub(super) departed: Vec<(u32, Key)>,
    pub(super) texts: Vec<Arc<[u8]>>,
}

impl Harvest {
    /// Memory that it takes, roughly.
    pub fn memory_bytes(&self) -> usize {
        fn of<T>(items: &Vec<T>) -> usize {
            items.capacity() * size_of::<T>()
        }
        let texts: usize = self.texts.iter().map(|text| text.len()).sum();
        let facts = of(&self.ended) + of(&self.with_exchanges) + of(&self.changed) + of(&self.departed);
        of(&self.exchanges) + of(&self.episodes) + facts + of(&self.texts) + texts
    }
}

/// What is known of the connections of a capture, as of the latest harvest.
#[derive(Default)]
pub struct Known {
    followed: HashMap<Key, Seen, Seed>,
    /// Episodes by connection; most have none.
    episodes: FxHashMap<u32, Episodes>,
    /// Connections whose first exchange is in the latest harvest.
    with_exchanges: FxHashMap<u32, ConnectionFacts>,
    /// Those that ended in the latest harvest: they can still be asked for.
    ended: FxHashMap<u32, (Option<Episodes>, Vec<String>)>,
    texts: Vec<Arc<[u8]>>,
}

impl Known {
    /// Takes what is new, and leaves exchanges and ended connections to the caller.
    pub fn take(&mut self, harvest: &mut Harvest) {
        self.texts.append(&mut harvest.texts);
        for news in harvest.episodes.drain(..) {
            match news {
                EpisodeNews::Found(id, episode) => self.episodes.entry(id).or_default().push(episode),
                EpisodeNews::TurnedAround(id) => {
                    self.episodes.get_mut(&id).into_iter().flat_map(Episodes::iter_mut).for_each(turn_around);
                }
            }
        }
        self.ended.clear();
        for (id, key) in harvest.departed.drain(..) {
            if self.followed.get(&key).is_some_and(|seen| seen.id == id) {
                self.followed.remove(&key);
            }
            let episodes = self.episodes.remove(&id);
            self.ended.insert(id, (episodes, Vec::new()));
        }
        for seen in harvest.changed.drain(..) {
            let [a, b] = seen.ends;
            self.followed.insert(Key::of(&a, &b, seen.network), seen);
        }
        for (facts, notes) in &mut harvest.ended {
            if let Some(ended) = self.ended.get_mut(&facts.id) {
                ended.1 = std::mem::take(notes);
            }
        }
        self.with_exchanges.clear();
        self.with_exchanges.extend(harvest.with_exchanges.drain(..).map(|facts| (facts.id, facts)));
    }

    /// A connection whose first exchange came with the latest harvest.
    pub fn facts(&self, id: u32) -> Option<ConnectionFacts> {
        self.with_exchanges.get(&id).cloned()
    }

    /// The connection followed now between these ends.
    pub fn between(&self, [a, b]: [Endpoint; 2], network: u32) -> Option<&Seen> {
        self.followed.get(&Key::of(&a, &b, network))
    }

    /// The connections followed now, in no order.
    pub fn followed(&self) -> impl Iterator<Item = &Seen> {
        self.followed.values()
    }

    /// Recent episodes of a connection that held up bytes of `exchange`, oldest first. Kept for a while after the
    /// exchange has finished, since loss of a response shows only later.
    pub fn episodes_of(&self, exchange: &Exchange) -> Vec<Episode> {
        let id = exchange.connection;
        let of_ended = || self.ended.get(&id)?.0.as_ref();
        self.episodes.get(&id).or_else(of_ended).map(|found| found.of(exchange)).unwrap_or_default()
    }

    /// What the rules have to say as a whole of a connection that ended in the latest harvest, in sentences.
    pub fn notes(&self, id: u32) -> &[String] {
        self.ended.get(&id).map_or(&[], |ended| &ended.1)
    }

    /// A method or an authority.
    pub fn text(&self, id: TextId) -> Option<String> {
        let place = (id.0 as usize).checked_sub(1)?;
        Some(String::from_utf8_lossy(self.texts.get(place)?).into_owned())
    }
}
