//! Clients that keep a few HTTP/1 connections to a server and use each for one call at a time: when all were
//! busy, and which call got the one that became free.
//!
//! Packets do not show whether a call waited for it. Its CLIENT span does, if it began while all were busy. A
//! thread that has a connection of its own and makes its next call after the last answer begins that call when
//! the connection is already free, and did not wait.

use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::segment::Endpoint;
use rustc_hash::FxHashMap;
use spangap_model::evidence::Certainty;
use spangap_model::{Cause, Side};

/// Maximum pools followed; further connections are ignored.
const MOST: usize = 65_536;
/// Maximum time until a connection handed to the next call is used again.
pub const GIVEN_ON_NS: i64 = 2_000_000;

/// A client's host, its server, their virtual network.
type Key = ([u8; 16], Endpoint, u32);

/// The connections between one host and one server.
#[derive(Debug, Default)]
struct Pool {
    open: u32,
    busy: u32,
    /// Since when all connections are busy.
    full_since: Option<(i64, u64)>,
    /// The last interval in which all were busy: start and end.
    last_full: Option<((i64, u64), i64)>,
}

impl Pool {
    /// Since when all were busy, if they were until shortly before this moment: several may become free at once.
    fn full_until(&self, at_ns: i64) -> Option<(i64, u64)> {
        let (from, until_ns) = self.last_full?;
        (0..=GIVEN_ON_NS).contains(&(at_ns - until_ns)).then_some(from)
    }
}

/// All pools of a capture.
#[derive(Debug, Default)]
pub struct Pools {
    pools: FxHashMap<Key, Pool>,
}

/// A connection's state in its pool.
#[derive(Clone, Copy, Debug, Default)]
pub enum Member {
    /// Nothing yet.
    #[default]
    Not,
    /// A call is in flight on it.
    Busy,
    /// Free since then.
    Free((i64, u64)),
}

impl Pools {
    /// A call begins on a connection, at this stream offset: returns the wait it may have had.
    #[cold]
    pub fn begins(&mut self, key: Key, member: &mut Member, at: (i64, u64), start: u64) -> Option<Episode> {
        if self.pools.len() >= MOST && !self.pools.contains_key(&key) {
            return None;
        }
        let pool = self.pools.entry(key).or_default();
        let mut waited = None;
        match *member {
            Member::Busy => return None,
            Member::Not => {
                // The pool may still be growing: nobody had to wait.
                pool.open += 1;
                (pool.full_since, pool.last_full) = (None, None);
            }
            Member::Free(free) => {
                // A call that takes a connection later than that found it free.
                waited = pool.full_until(at.0).map(|from| (from, free));
            }
        }
        *member = Member::Busy;
        pool.busy += 1;
        if pool.busy == pool.open {
            pool.full_since = Some(pool.full_until(at.0).filter(|_| waited.is_some()).unwrap_or(at));
        }
        let (from, free) = waited?;
        let shown = |(time_ns, packet), what| PacketProof { packet, time_ns, what };
        let connections = u64::from(pool.open);
        Some(Episode {
            cause: Cause::PoolWait,
            certainty: Certainty::Shown,
            side: Some(Side::Client),
            sender: Side::Client,
            from_ns: from.0,
            to_ns: free.0,
            start,
            end: start,
            stream_id: None,
            copies: Copies::One,
            evidence: PacketProofs::of(&[
                shown(
                    from,
                    What::with(
                        "each of the client's {} connections to the server has a call in flight",
                        connections,
                        0,
                    ),
                ),
                shown(free, What::text("this one is free")),
                shown(at, What::text("and the call is sent on it")),
            ]),
        })
    }

    /// The last call in flight on a connection ended.
    #[cold]
    pub fn ends(&mut self, key: Key, member: &mut Member, at: (i64, u64)) {
        let Some(pool) = self.pools.get_mut(&key).filter(|_| matches!(member, Member::Busy)) else { return };
        *member = Member::Free(at);
        pool.last_full = pool.full_since.take().map(|from| (from, at.0)).or(pool.last_full);
        pool.busy = pool.busy.saturating_sub(1);
    }

    /// A connection ended.
    pub fn leaves(&mut self, key: Key, member: &mut Member) {
        if matches!(member, Member::Not) {
            return;
        }
        let Some(pool) = self.pools.get_mut(&key) else { return };
        pool.busy = pool.busy.saturating_sub(u32::from(matches!(member, Member::Busy)));
        pool.open = pool.open.saturating_sub(1);
        (pool.full_since, pool.last_full) = (None, None);
        *member = Member::Not;
        if pool.open == 0 {
            self.pools.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn key() -> Key {
        ([1; 16], Endpoint::v4([10, 0, 0, 2], 80), 0)
    }

    /// Calls on connections (by index) begin (+) and end (-) at these milliseconds; returns start and end of the
    /// waits that they may have had.
    fn waits(told: &[(usize, char, i64)]) -> Vec<(i64, i64)> {
        let (mut pools, mut members) = (Pools::default(), [Member::Not; 3]);
        let mut waits = Vec::new();
        for (place, what, at_ms) in told {
            let (member, at) = (&mut members[*place], (at_ms * MS, 1));
            match what {
                '+' => {
                    waits.extend(pools.begins(key(), member, at, 7).map(|e| (e.from_ns / MS, e.to_ns / MS)))
                }
                '-' => pools.ends(key(), member, at),
                _ => pools.leaves(key(), member),
            }
        }
        waits
    }

    #[test]
    fn a_call_on_a_just_freed_connection_may_have_waited_since_all_were_busy() {
        let told = [(0, '+', 10), (1, '+', 12), (0, '-', 40), (0, '+', 40), (1, '-', 55), (1, '+', 56)];
        assert_eq!(waits(&told), [(12, 40), (12, 55)]);
        // Both become free at the same time, repeatedly.
        let at_once = [(0, '-', 40), (1, '-', 41), (0, '+', 41), (1, '+', 42)];
        assert_eq!(waits(&[&told[..2], &at_once[..]].concat()), [(12, 40), (12, 41)]);
        let again = [(1, '-', 60), (0, '-', 61), (1, '+', 61), (0, '+', 61)];
        let all = [&told[..2], &at_once[..], &again[..]].concat();
        assert_eq!(waits(&all), [(12, 40), (12, 41), (12, 60), (12, 61)]);
    }

    #[test]
    fn a_call_on_an_idle_or_new_connection_did_not_wait() {
        assert_eq!(waits(&[(0, '+', 10), (0, '-', 20), (0, '+', 50)]), []);
        let with_room = [(0, '+', 10), (1, '+', 11), (0, '-', 20), (1, '-', 22), (0, '+', 23), (1, '+', 23)];
        assert_eq!(waits(&with_room), [], "two were free");
        assert_eq!(
            waits(&[(0, '+', 10), (1, '+', 20), (0, '-', 25), (2, '+', 26)]),
            [],
            "another was opened"
        );
        assert_eq!(waits(&[(0, '+', 10), (1, '+', 12), (1, 'x', 20), (0, '-', 30), (0, '+', 30)]), []);
    }
}
