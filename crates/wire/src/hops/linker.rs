//! Calls that wait for the calls they contain, and for the one that contains them.

use super::LinkedBy;
use super::rules::{Facts, by_content, by_ids, nested};
use crate::align::Bounds;
use crate::segment::Endpoint;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// Maximum waiting calls; beyond it, the oldest is released.
const MAX_WAITING: usize = 20_000;
/// Time from the conclusion of a call until it looks for the calls that it contains, nanoseconds of capture time.
const RESOLVE_NS: i64 = 500_000_000;
/// Time until it is released: a proxy may hold a response for long.
const HOLD_NS: i64 = 60_000_000_000;
/// Number of calls with the same id or content, the latest ones, that a call is compared with.
const MAX_LOOKS: usize = 256;
/// Maximum calls examined for what a proxy may have waited for.
const MAX_UNLINKED: usize = 1024;
/// Maximum endpoints of unlinked calls that are counted separately.
const MAX_ENDPOINTS: usize = 10_000;

/// Waiting calls by lookup key, those of one key in order of arrival. At a busy server, thousands share one key,
/// and the oldest leaves first.
type Index = FxHashMap<u64, VecDeque<u64>>;

/// A call in the linker; `T` is the caller's payload.
#[derive(Debug)]
struct Waiting<T> {
    facts: Facts,
    payload: T,
    at_ns: i64,
    resolved: bool,
    ambiguous: bool,
    parent: Option<(u64, LinkedBy)>,
    children: Vec<u64>,
}

/// A released call with its hops.
#[derive(Debug)]
pub(crate) struct Tree<T> {
    pub facts: Facts,
    pub payload: T,
    /// In order of time; several are attempts.
    pub hops: Vec<(LinkedBy, Tree<T>)>,
}

/// Counts of linked and unlinked calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub links: [u64; 4],
    pub ambiguous: u64,
    /// Unlinked calls by server, and by the client's address.
    to: FxHashMap<Endpoint, u64>,
    from: FxHashMap<[u8; 16], u64>,
    /// Servers known to be proxies, and addresses from which proxies call.
    proxies: FxHashSet<Endpoint>,
    callers: FxHashSet<[u8; 16]>,
}

impl Counts {
    fn alone(&mut self, facts: &Facts) {
        if self.to.len() < MAX_ENDPOINTS || self.to.contains_key(&facts.server) {
            *self.to.entry(facts.server).or_default() += 1;
        }
        if self.from.len() < MAX_ENDPOINTS || self.from.contains_key(&facts.client.address) {
            *self.from.entry(facts.client.address).or_default() += 1;
        }
    }

    /// Number of calls to a proxy without a known inner call, and of calls by a proxy without a known outer call.
    pub fn unknown(&self) -> (u64, u64) {
        let outer =
            self.to.iter().filter(|(server, _)| self.proxies.contains(server)).map(|(_, calls)| calls);
        let inner = self.from.iter().filter(|(client, _)| self.callers.contains(*client)).map(|(_, n)| n);
        (outer.sum(), inner.sum())
    }
}

/// Links outer calls to their inner calls.
#[derive(Debug)]
pub(crate) struct Linker<T> {
    waiting: VecDeque<Option<Waiting<T>>>,
    /// Number of the first waiting call; calls are numbered in order of arrival.
    first: u64,
    /// Number of the first call that has not looked for its hops.
    unresolved: u64,
    count: usize,
    /// Calls offered so far.
    pub offered: u64,
    /// Whether links are possible: if not, calls are kept without being compared.
    pub looks: bool,
    by_id: Index,
    by_content: Index,
    /// Clock number of each capture.
    clocks: Vec<usize>,
    pub counts: Counts,
    /// Bounds between captures whose clocks only links compare, the lower number first.
    pub bounds: FxHashMap<(usize, usize), Bounds>,
    /// The latest link between two sections, for the outer and the inner call: section, capture, and start.
    pub latest: Option<[(usize, usize, i64); 2]>,
}

fn hashed(of: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The lookup keys for calls with the same ids.
fn id_keys(facts: &Facts) -> [Option<u64>; 3] {
    [
        facts.trace.map(|trace| hashed((1_u8, trace.trace_id, trace.span_id))),
        facts.trace.map(|trace| hashed((2_u8, trace.trace_id))),
        (facts.request_id != 0).then(|| hashed((3_u8, facts.request_id))),
    ]
}

fn content_key(facts: &Facts) -> Option<u64> {
    facts.path.is_some().then(|| hashed((facts.request_bytes, facts.response_bytes, facts.status.code())))
}

impl<T> Linker<T> {
    /// `clocks` has a number for each capture, equal where both captures share a clock.
    pub fn new(clocks: Vec<usize>) -> Linker<T> {
        Linker {
            waiting: VecDeque::new(),
            first: 0,
            unresolved: 0,
            count: 0,
            offered: 0,
            looks: true,
            by_id: Index::default(),
            by_content: Index::default(),
            clocks,
            counts: Counts::default(),
            bounds: FxHashMap::default(),
            latest: None,
        }
    }

    /// Takes a call that was concluded at `now_ns` of capture time.
    pub fn offer(&mut self, facts: Facts, payload: T, now_ns: i64) {
        let id = self.first + self.waiting.len() as u64;
        for key in id_keys(&facts).into_iter().flatten() {
            self.by_id.entry(key).or_default().push_back(id);
        }
        if let Some(key) = content_key(&facts) {
            self.by_content.entry(key).or_default().push_back(id);
        }
        self.waiting.push_back(Some(Waiting {
            facts,
            payload,
            at_ns: now_ns,
            resolved: false,
            ambiguous: false,
            parent: None,
            children: Vec::new(),
        }));
        self.count += 1;
        self.offered += 1;
    }

    /// The longest waiting calls without a link; at most a sample.
    pub fn unlinked(&self) -> impl Iterator<Item = &Facts> {
        let waiting = self.waiting.iter().take(MAX_UNLINKED).flatten();
        waiting.filter(|call| call.parent.is_none() && call.children.is_empty()).map(|call| &call.facts)
    }

    /// Links the calls that are due, and releases the settled ones. `now_ns` is `None` while the relation of the
    /// captures' times is unknown: then only the number of calls counts.
    pub fn advance(&mut self, now_ns: Option<i64>, out: &mut Vec<Tree<T>>) {
        let past =
            |at_ns: i64, wait_ns: i64| now_ns.is_some_and(|now_ns| now_ns.saturating_sub(at_ns) > wait_ns);
        let end = self.first + self.waiting.len() as u64;
        while self.unresolved < end {
            let due = match self.get(self.unresolved) {
                None => true,
                Some(call) => past(call.at_ns, RESOLVE_NS) || end - self.unresolved > MAX_WAITING as u64 / 2,
            };
            if !due {
                break;
            }
            self.resolve(self.unresolved);
            self.unresolved += 1;
        }
        while let Some(front) = self.waiting.front() {
            if let Some(call) = front {
                if !call.resolved || !(past(call.at_ns, HOLD_NS) || self.count > MAX_WAITING) {
                    break;
                }
                // A hop leaves together with the call that it belongs to.
                self.release(self.outermost(self.first), out);
            }
            self.waiting.pop_front();
            self.first += 1;
        }
        self.unresolved = self.unresolved.max(self.first);
    }

    /// Releases everything: no more calls will arrive.
    pub fn finish(&mut self, out: &mut Vec<Tree<T>>) {
        let end = self.first + self.waiting.len() as u64;
        (self.first..end).for_each(|id| self.resolve(id));
        // No further lookups follow.
        self.by_id.clear();
        self.by_content.clear();
        for id in self.first..end {
            if self.get(id).is_some_and(|call| call.parent.is_none()) {
                self.release(id, out);
            }
        }
        self.first = end;
        self.waiting.clear();
    }

    fn outermost(&self, mut id: u64) -> u64 {
        while let Some((parent, _)) = self.get(id).and_then(|call| call.parent) {
            id = parent;
        }
        id
    }

    fn get(&self, id: u64) -> Option<&Waiting<T>> {
        self.waiting.get(id.checked_sub(self.first)? as usize)?.as_ref()
    }

    fn at(&mut self, id: u64) -> Option<&mut Waiting<T>> {
        self.waiting.get_mut(id.checked_sub(self.first)? as usize)?.as_mut()
    }

    /// Waiting calls that share an id with one, and how they are linked; `outer` tells whether that one contains
    /// them.
    fn akin(&self, id: u64, outer: bool) -> Vec<(u64, LinkedBy)> {
        let Some(call) = self.get(id) else { return Vec::new() };
        let mut found: Vec<(u64, LinkedBy)> = Vec::new();
        for key in id_keys(&call.facts).into_iter().flatten() {
            for other in self.by_id.get(&key).into_iter().flatten().rev().take(MAX_LOOKS) {
                if *other == id || found.iter().any(|(known, _)| known == other) {
                    continue;
                }
                let Some(their) = self.get(*other) else { continue };
                let (a, b) = if outer { (&call.facts, &their.facts) } else { (&their.facts, &call.facts) };
                if let Some(by) = by_ids(a, b).filter(|_| nested(a, b, &self.clocks)) {
                    found.push((*other, by));
                }
            }
        }
        found
    }

    /// Links the calls that a call contains as its hops.
    fn resolve(&mut self, id: u64) {
        match self.at(id) {
            Some(call) if !call.resolved => call.resolved = true,
            _ => return,
        }
        if !self.looks {
            return;
        }
        let mut inside = self.akin(id, true);
        // Shorter ones first: in a chain, each call takes the one directly below it.
        let duration = |id: &u64| self.get(*id).map_or(0, |call| call.facts.duration_ns);
        inside.sort_by_key(|(inner, _)| (duration(inner), *inner));
        for (inner, _) in &inside {
            if self.get(*inner).is_some_and(|call| !call.resolved) && !self.contains(*inner, id) {
                self.resolve(*inner);
            }
        }
        for (inner, by) in inside {
            if self.contains(inner, id) {
                // It is unknown which one is the inner call.
                continue;
            }
            let taken = self.get(inner).and_then(|call| call.parent);
            let holders = self.holders(inner, by);
            let rival =
                |other: &u64| *other != id && !self.contains(id, *other) && !self.contains(*other, id);
            if holders.iter().any(|(other, of)| *of < by && rival(other)) {
                continue;
            }
            let rivals = holders.iter().any(|(other, of)| *of == by && rival(other));
            match taken {
                // Another call contains it as well, and is not a hop of this one.
                Some((parent, known)) if rival(&parent) && known == by => self.part(inner),
                Some(_) => {}
                None if rivals => self.doubt(inner),
                None => self.link(id, inner, by),
            }
        }
        if self.get(id).is_some_and(|call| call.children.is_empty()) {
            self.by_content(id);
        }
        self.attempts(id);
    }

    /// The calls that contain a call and are linked to it at least as surely as `by`.
    fn holders(&self, inner: u64, by: LinkedBy) -> Vec<(u64, LinkedBy)> {
        let mut holders = self.akin(inner, false);
        holders.retain(|(_, of)| *of <= by);
        holders
    }

    fn contains(&self, outer: u64, inner: u64) -> bool {
        let (Some(a), Some(b)) = (self.get(outer), self.get(inner)) else { return false };
        by_ids(&a.facts, &b.facts).is_some()
            && nested(&a.facts, &b.facts, &self.clocks)
            && (!nested(&b.facts, &a.facts, &self.clocks) || a.facts.duration_ns > b.facts.duration_ns)
    }

    /// Links the only call with the same content that this one contains, if no other call contains that one.
    fn by_content(&mut self, id: u64) {
        // Only a call that was seen arriving at a host can be seen to be forwarded by it.
        let Some(call) = self.get(id).filter(|call| call.facts.at[1].is_some()) else { return };
        let Some(alike) = content_key(&call.facts).and_then(|key| self.by_content.get(&key)) else { return };
        let alike = || alike.iter().rev().take(MAX_LOOKS).copied().filter(|other| *other != id);
        let fits = |outer: u64, inner: u64| match (self.get(outer), self.get(inner)) {
            (Some(a), Some(b)) => by_content(&a.facts, &b.facts, &self.clocks),
            _ => false,
        };
        let inside: Vec<u64> = alike().filter(|inner| fits(id, *inner)).take(2).collect();
        let outside = |inner: u64| alike().filter(move |outer| *outer != inner && fits(*outer, inner));
        let found: Vec<(u64, Vec<u64>)> =
            inside.iter().map(|inner| (*inner, outside(*inner).take(2).collect())).collect();
        match &found[..] {
            [] => {}
            [(inner, others)] if others.is_empty() => {
                let inner = *inner;
                if self.get(inner).is_some_and(|call| call.parent.is_none()) {
                    self.link(id, inner, LinkedBy::Content);
                }
            }
            _ => {
                for (inner, _) in found {
                    match self.get(inner).and_then(|call| call.parent) {
                        Some((parent, LinkedBy::Content)) if parent != id => self.part(inner),
                        Some(_) => {}
                        None => self.doubt(inner),
                    }
                }
            }
        }
    }

    fn link(&mut self, outer: u64, inner: u64, by: LinkedBy) {
        // Two calls that may each contain the other: one has already been linked. A cycle of hops would have no
        // call that counts.
        if self.outermost(outer) == inner {
            return;
        }
        if let Some(call) = self.at(inner) {
            (call.parent, call.ambiguous) = (Some((outer, by)), false);
        }
        if let Some(call) = self.at(outer) {
            call.children.push(inner);
        }
        self.compare(outer, inner);
    }

    fn doubt(&mut self, inner: u64) {
        if let Some(call) = self.at(inner) {
            call.ambiguous = true;
        }
    }

    /// Removes a hop from its call.
    fn part(&mut self, inner: u64) {
        let Some((parent, _)) = self.at(inner).and_then(|call| call.parent.take()) else { return };
        if let Some(parent) = self.at(parent) {
            parent.children.retain(|child| *child != inner);
        }
        self.doubt(inner);
    }

    /// Derives clock bounds for two captures that no byte compares: the request arrived before it was forwarded,
    /// and so did the response.
    fn compare(&mut self, outer: u64, inner: u64) {
        let (Some(a), Some(b)) = (self.get(outer), self.get(inner)) else { return };
        let (Some((_, at)), Some((_, by))) = (a.facts.at_proxy(true), b.facts.at_proxy(false)) else {
            return;
        };
        let sections =
            [(a.facts.connection.0, at.capture, at.from_ns), (b.facts.connection.0, by.capture, by.from_ns)];
        let answered = by
            .answered_ns
            .zip(at.answered_ns)
            .filter(|_| a.facts.complete && b.facts.complete && a.facts.status == b.facts.status);
        if sections[0].0 != sections[1].0 {
            self.latest = Some(sections);
        }
        if self.clocks.get(at.capture) == self.clocks.get(by.capture) {
            return;
        }
        let bounds = self.bounds.entry((at.capture.min(by.capture), at.capture.max(by.capture))).or_default();
        let mut earlier = |first: bool, sent_ns, received_ns| match first {
            true => bounds.first_to_second(sent_ns, received_ns),
            false => bounds.second_to_first(sent_ns, received_ns),
        };
        earlier(at.capture < by.capture, at.from_ns, by.from_ns);
        if let Some((inner_ns, outer_ns)) = answered {
            earlier(by.capture < at.capture, inner_ns, outer_ns);
        }
    }

    /// Several hops of one call are attempts if they follow each other. Of simultaneous hops only the one with
    /// the call's answer counts (a mirrored or hedged call has others), or none.
    fn attempts(&mut self, id: u64) {
        let Some(call) = self.get(id).filter(|call| call.children.len() > 1) else { return };
        let mut hops: Vec<(u64, i64, i64)> = Vec::new();
        for child in &call.children {
            let Some(at) = self.get(*child).and_then(|call| call.facts.at_proxy(false)) else { continue };
            hops.push((*child, at.1.from_ns, at.1.to_ns));
        }
        hops.sort_by_key(|hop| hop.1);
        let in_turn = hops.windows(2).all(|pair| pair[0].2 <= pair[1].1);
        let order: Vec<u64> = hops.iter().map(|hop| hop.0).collect();
        if in_turn {
            if let Some(call) = self.at(id) {
                call.children = order;
            }
            return;
        }
        let (status, bytes) = (call.facts.status, call.facts.response_bytes);
        let answer = |child: &&u64| {
            self.get(**child).is_some_and(|hop| {
                hop.facts.complete && hop.facts.status == status && hop.facts.response_bytes == bytes
            })
        };
        let answers: Vec<u64> = order.iter().filter(answer).copied().collect();
        for child in order.into_iter().filter(|child| answers != [*child]) {
            self.part(child);
        }
    }

    /// Releases a call with its hops, unless it is a hop itself.
    fn release(&mut self, id: u64, out: &mut Vec<Tree<T>>) {
        if self.get(id).is_none_or(|call| call.parent.is_some()) {
            return;
        }
        if let Some((tree, ambiguous)) = self.take(id) {
            if tree.hops.is_empty() {
                match ambiguous {
                    true => self.counts.ambiguous += 1,
                    false => self.counts.alone(&tree.facts),
                }
            }
            out.push(tree);
        }
    }

    fn take(&mut self, id: u64) -> Option<(Tree<T>, bool)> {
        let place = id.checked_sub(self.first)? as usize;
        let Waiting { facts, payload, children, ambiguous, .. } = self.waiting.get_mut(place)?.take()?;
        self.count -= 1;
        for key in id_keys(&facts).into_iter().flatten() {
            forget(&mut self.by_id, key, id);
        }
        if let Some(key) = content_key(&facts) {
            forget(&mut self.by_content, key, id);
        }
        let mut hops = Vec::with_capacity(children.len());
        for child in children {
            let Some((_, by)) = self.get(child).and_then(|call| call.parent) else { continue };
            if let Some((hop, _)) = self.take(child) {
                self.counts.links[by as usize] += 1;
                self.counts.proxies.insert(facts.server);
                self.counts.callers.insert(hop.facts.client.address);
                hops.push((by, hop));
            }
        }
        Some((Tree { facts, payload, hops }, ambiguous))
    }
}

fn forget(index: &mut Index, key: u64, id: u64) {
    if let Some(ids) = index.get_mut(&key) {
        // They mostly leave in order of arrival; in any case the list is sorted.
        if let Ok(place) = ids.binary_search(&id) {
            ids.remove(place);
        }
        if ids.is_empty() {
            index.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::AtTap;
    use super::*;
    use rustix::time::{ClockId, clock_gettime};
    use spangap_model::CallStatus;

    /// CPU time of this thread until now; `schedstat` has it as of the last tick, which a list of 4,000 may end before.
    fn cpu_ns() -> u64 {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        used.tv_sec.unsigned_abs() * 1_000_000_000 + used.tv_nsec.unsigned_abs()
    }

    /// CPU time of releasing this many calls of one method, in sequence on one connection.
    fn finished_ns(calls: i64) -> u64 {
        let path: std::rc::Rc<str> = "/shop.Cart/Add".into();
        let mut linker = Linker::new(vec![0]);
        linker.looks = false;
        for n in 0..calls {
            let at = AtTap { capture: 0, from_ns: n * 10, answered_ns: Some(n * 10 + 5), to_ns: n * 10 + 6 };
            let facts = Facts {
                connection: (0, 1),
                client: Endpoint::v4([10, 0, 0, 1], 1),
                server: Endpoint::v4([10, 0, 0, 2], 2),
                at: [Some(at); 2],
                duration_ns: 6,
                trace: None,
                request_id: 0,
                path: Some(path.clone()),
                request_bytes: 10,
                response_bytes: Some(20),
                status: CallStatus::UNSET,
                complete: true,
            };
            linker.offer(facts, n, n * 10);
        }
        let (mut out, begun) = (Vec::new(), cpu_ns());
        linker.advance(Some(i64::MAX), &mut out);
        let took = cpu_ns() - begun;
        assert!(out.iter().map(|tree| tree.payload).eq(0..calls), "each once, in order");
        took
    }

    #[test]
    fn releasing_calls_takes_linear_time() {
        let least = |lists: u32, calls| {
            (0..3).map(|_| (0..lists).map(|_| finished_ns(calls)).sum::<u64>()).min().unwrap_or(0)
        };
        // The same total number of calls. If each release moved the calls that arrived with it, a single list
        // would take sixteen times as long.
        let (few, many) = (least(16, 4_000), least(1, 64_000));
        assert!(many < few * 6, "{few} ns for 16 lists of 4,000, {many} ns for one of 64,000");
    }
}
