//! Connections as seen by both captures: a link is one connection, known to one tap or to both.

use super::Facts;
use crate::segment::Endpoint;
use crate::tcp::ConnectionFacts;
use crate::totals::accum::Accum;
use rustc_hash::FxHashMap;

/// One connection.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Number in order of appearance, from 1, never reused.
    pub key: u32,
    /// The taps' numbers for it, by capture.
    pub connections: [Option<u32>; 2],
    /// Facts from the taps.
    pub facts: [Option<ConnectionFacts>; 2],
    /// Whether each tap reported its end.
    pub ended: [bool; 2],
    /// Number of calls, and openings, that place the client at that capture.
    pub votes: [u64; 2],
    /// Number of calls that do if the clocks run at the same rate.
    pub doubtful: [u64; 2],
    /// Waiting halves, and calls not yet counted.
    pub uses: u32,
    /// The link that it was merged into.
    united: Option<usize>,
    /// Sums over its calls.
    pub sums: Accum,
    /// Sums over its calls that are hops of others, which count elsewhere.
    pub inner: Accum,
    /// Minimum time of its bytes beyond the fastest path between the captures, by direction: 0 is first to
    /// second.
    pub detour_ns: [i64; 2],
    /// Minimum of both directions of a call together, over calls that have both.
    pub least_path_ns: Option<u64>,
    /// Whether its ends were recorded as addresses of the captures' hosts.
    pub ends_local: bool,
    /// Whether it was examined for a proxy.
    pub ends_noted: bool,
    /// Whether its opening was already reported.
    pub opening_told: bool,
    /// Statements about it as a whole, in addition to those of each end's rules.
    pub notes: Vec<String>,
}

impl Link {
    /// A connection without any observed call.
    pub fn without_calls(facts: [Option<ConnectionFacts>; 2]) -> Link {
        Link { facts, ..Link::default() }
    }

    /// Client and server, as seen by the client's tap if known, else by any tap.
    pub fn ends(&self) -> Option<[Endpoint; 2]> {
        let at_client = self.facts[self.client_capture().unwrap_or(0)].as_ref();
        Some(at_client.or(self.facts.iter().flatten().next())?.ends)
    }
}

/// All links in use.
#[derive(Debug, Default)]
pub(crate) struct Links {
    links: Vec<Link>,
    free: Vec<usize>,
    by_connection: [FxHashMap<u32, usize>; 2],
    recent: [Option<(u32, usize)>; 2],
    last_key: u32,
}

impl Links {
    /// The link of a tap's connection; creates it if needed.
    #[inline]
    pub fn of(&mut self, capture: usize, connection: u32, facts: &Facts<'_>) -> usize {
        if let Some((recent, link)) = self.recent[capture]
            && recent == connection
        {
            return link;
        }
        let link = match self.by_connection[capture].get(&connection) {
            Some(link) => self.resolved(*link),
            None => self.add(capture, connection, facts(capture, connection)),
        };
        self.recent[capture] = Some((connection, link));
        link
    }

    /// The link of a tap's connection, if it exists.
    pub fn known(&self, capture: usize, connection: u32) -> Option<&Link> {
        self.by_connection[capture].get(&connection).map(|link| self.get(self.resolved(*link)))
    }

    fn add(&mut self, capture: usize, connection: u32, facts: Option<ConnectionFacts>) -> usize {
        self.last_key += 1;
        let mut link = Link { key: self.last_key, detour_ns: [i64::MAX; 2], ..Link::default() };
        link.connections[capture] = Some(connection);
        link.facts[capture] = facts;
        let place = self.place(link);
        self.by_connection[capture].insert(connection, place);
        place
    }

    fn place(&mut self, link: Link) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.links[place] = link;
                place
            }
            None => {
                self.links.push(link);
                self.links.len() - 1
            }
        }
    }

    #[inline]
    pub fn get(&self, link: usize) -> &Link {
        &self.links[link]
    }

    #[inline]
    pub fn at(&mut self, link: usize) -> &mut Link {
        &mut self.links[link]
    }

    /// The link that now represents it.
    #[inline]
    pub fn resolved(&self, link: usize) -> usize {
        self.links[link].united.unwrap_or(link)
    }

    /// Merges two links of one connection: the younger into the older.
    pub fn unite(&mut self, a: usize, b: usize) -> usize {
        let (kept, gone) = if self.links[a].key < self.links[b].key { (a, b) } else { (b, a) };
        let other = &mut self.links[gone];
        other.united = Some(kept);
        let (connections, facts, ended) = (other.connections, std::mem::take(&mut other.facts), other.ended);
        let (sums, inner) = (std::mem::take(&mut other.sums), std::mem::take(&mut other.inner));
        let link = &mut self.links[kept];
        link.sums.add(&sums);
        link.inner.add(&inner);
        for (capture, facts) in facts.into_iter().enumerate() {
            if let Some(connection) = connections[capture] {
                link.connections[capture] = Some(connection);
                link.facts[capture] = facts;
                link.ended[capture] = ended[capture];
                self.by_connection[capture].insert(connection, kept);
            }
        }
        self.recent = [None; 2];
        self.free_if_united(gone);
        kept
    }

    /// A half under `link` stops waiting, or one of its calls is counted: returns the link that now represents
    /// it.
    #[inline]
    pub fn settle(&mut self, link: usize) -> usize {
        let state = &mut self.links[link];
        state.uses = state.uses.saturating_sub(1);
        let Some(united) = state.united else { return link };
        self.free_if_united(link);
        united
    }

    fn free_if_united(&mut self, link: usize) {
        if self.links[link].united.is_some() && self.links[link].uses == 0 {
            self.links[link] = Link::default();
            self.free.push(link);
        }
    }

    /// A tap's connection ended.
    pub fn end(&mut self, capture: usize, facts: ConnectionFacts) -> Option<usize> {
        let link = self.by_connection[capture].remove(&facts.id)?;
        if self.recent[capture].is_some_and(|(connection, _)| connection == facts.id) {
            self.recent[capture] = None;
        }
        let link = self.resolved(link);
        let state = &mut self.links[link];
        state.facts[capture] = Some(facts);
        state.ended[capture] = true;
        Some(link)
    }

    /// Removes a link if it has ended and nothing waits under it.
    pub fn take_if_over(&mut self, link: usize) -> Option<Link> {
        let state = &self.links[link];
        let open = (0..2).any(|i| state.connections[i].is_some() && !state.ended[i]);
        let over = state.uses == 0 && !open && state.united.is_none() && state.key != 0;
        over.then(|| {
            self.free.push(link);
            std::mem::take(&mut self.links[link])
        })
    }

    /// Removes every link.
    pub fn take_all(&mut self) -> Vec<Link> {
        self.by_connection = Default::default();
        self.recent = [None; 2];
        self.free.clear();
        std::mem::take(&mut self.links)
            .into_iter()
            .filter(|link| link.key != 0 && link.united.is_none())
            .collect()
    }
}
