//! Causes of delay as seen at one tap: one file per cause; each rule convicts only on its own evidence.
//!
//! A rule sees every segment of a connection after classification, and every exchange when it finishes. It
//! reports `Shown` if the required evidence was seen and the look-alikes are excluded, `Possible` with the
//! missing evidence if only the picture fits, and otherwise nothing.

mod connection_per_call;
mod head_of_line;
mod nagle;
mod path_mtu;
mod receive_window;
mod retransmission;
mod shared_connection;
mod slow_after_loss;
pub mod syn;
mod tls_handshake;

#[cfg(test)]
mod quiet;
#[cfg(test)]
mod scene;

use crate::episode::Episode;
use crate::exchange::Exchange;
use crate::tcp::{Handshake, SideState, Step};
use spangap_model::Side;

/// The state of the connection after the step, as visible to a rule.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The tap's number for the connection.
    pub id: u32,
    /// State of both directions, by [`spangap_model::Side::index`].
    pub sides: &'a [SideState; 2],
    /// The handshake so far.
    pub handshake: &'a Handshake,
    /// Exchanges in flight. Set only while the connection closes; zero before.
    pub under_way: usize,
}

impl<'a> View<'a> {
    fn of(&self, side: Side) -> &'a SideState {
        &self.sides[side.index()]
    }

    /// Minimum time from this tap to an end and back, nanoseconds: from data of the other end to its
    /// acknowledgement, or from one part of the handshake to the next. An upper bound on the path's own time,
    /// since an end may be slow to answer.
    fn reach_ns(&self, end: Side) -> Option<u64> {
        let acknowledged = self.of(end.other()).rtt_min_ns;
        // If a part was sent more than once, it is unknown which one was answered (Karn's rule).
        let parts = match end {
            Side::Server if self.handshake.syns == 1 => (self.handshake.syn, self.handshake.syn_ack),
            Side::Client if self.handshake.syn_acks == 1 => (self.handshake.syn_ack, self.handshake.ack),
            _ => (None, None),
        };
        let shaken = match parts {
            (Some((from, _)), Some((to, _))) => Some(nanos(from, to)),
            _ => None,
        };
        match (acknowledged, shaken) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Minimum time from one end to the other and back, nanoseconds, as far as this tap knows it.
    fn round_trip_ns(&self) -> Option<u64> {
        Some(self.reach_ns(Side::Client)? + self.reach_ns(Side::Server)?)
    }

    /// Bytes in a full segment of a side; `None` if the handshake was not seen. Timestamps take 12 bytes of each
    /// segment that carries them (RFC 7323, appendix A).
    fn full_bytes(&self, side: Side, timestamps: bool) -> Option<u64> {
        let (own, peer) = (self.of(side), self.of(side.other()));
        // Neither end sends more than its own link carries, which is what it announces itself.
        let announced = match (own.mss_announced, peer.mss_announced) {
            (true, true) => own.mss.min(peer.mss),
            (true, false) => own.mss,
            _ => return None,
        };
        Some(u64::from(announced).saturating_sub(if timestamps { 12 } else { 0 }).max(1))
    }
}

/// Nanoseconds from one moment to another; zero if the capture has them in reverse order.
pub(crate) fn nanos(from_ns: i64, to_ns: i64) -> u64 {
    u64::try_from(to_ns.saturating_sub(from_ns)).unwrap_or(0)
}

/// Events that a rule may handle, all optional.
trait Rule {
    /// A segment was classified.
    #[inline]
    fn step(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        let _ = (step, view, found);
    }

    /// An exchange of the connection finished.
    #[inline]
    fn exchange(&mut self, exchange: &Exchange, view: View<'_>, found: &mut Vec<Episode>) {
        let _ = (exchange, view, found);
    }

    /// The connection or the capture ended.
    fn finish(&mut self, view: View<'_>, found: &mut Vec<Episode>) {
        let _ = (view, found);
    }

    /// Statements about the connection as a whole, in sentences.
    fn notes(&self, into: &mut Vec<String>) {
        let _ = into;
    }
}

macro_rules! rules {
    ($($rule:ident,)*) => {
        /// State of all rules for one connection.
        #[derive(Debug, Default)]
        pub struct Causes {
            $($rule: $rule::Memory,)*
        }

        #[cfg(test)]
        const RULES: &[&str] = &[$(stringify!($rule),)*];

        impl Causes {
            /// A segment was classified; episodes that ended with it go to `found`.
            #[inline]
            pub fn step(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
                $(self.$rule.step(step, view, found);)*
            }

            /// An exchange of the connection finished.
            #[inline]
            pub fn exchange(&mut self, exchange: &Exchange, view: View<'_>, found: &mut Vec<Episode>) {
                $(self.$rule.exchange(exchange, view, found);)*
            }

            /// The connection or the capture ended.
            pub fn finish(&mut self, view: View<'_>, found: &mut Vec<Episode>) {
                $(self.$rule.finish(view, found);)*
            }

            /// Statements about the connection as a whole, in sentences.
            pub fn notes(&self) -> Vec<String> {
                let mut notes = Vec::new();
                $(self.$rule.notes(&mut notes);)*
                notes
            }
        }
    };
}

// Every rule, in order of evaluation.
rules! {
    nagle,
    retransmission,
    slow_after_loss,
    syn,
    receive_window,
    head_of_line,
    connection_per_call,
    shared_connection,
    tls_handshake,
    path_mtu,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_a_registered_rule() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/causes");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("the folder of this file")
            .map(|entry| entry.expect("an entry").path())
            .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .filter(|name| !["mod", "scene", "quiet"].contains(&name.as_str()))
            .collect();
        files.sort();
        // The tests of a long rule are a folder of its name.
        files.dedup();
        let mut rules: Vec<&str> = RULES.to_vec();
        rules.sort_unstable();
        assert_eq!(files, rules);
    }

    #[test]
    fn the_state_per_connection_is_small() {
        let bytes = size_of::<Causes>();
        assert!(bytes <= 1536, "{bytes} bytes for each connection");
    }
}
