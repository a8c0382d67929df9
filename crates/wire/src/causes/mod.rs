//! What holds bytes up, as one tap sees it: one cause, one file; each convicts only on its own evidence.
//!
//! A rule sees every segment of a connection after it was classified, and every exchange when it has finished.

use crate::episode::Episode;
use crate::exchange::Exchange;
use crate::tcp::{Handshake, SideState, Step};

/// What a rule may look at beside the step: the state of the connection after it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The tap's number of the connection.
    pub id: u32,
    /// What each side sent, by [`spangap_model::Side::index`].
    pub sides: &'a [SideState; 2],
    /// The handshake so far.
    pub handshake: &'a Handshake,
}

/// The rules' memory of one connection.
#[derive(Debug, Default)]
pub struct Causes {}

impl Causes {
    /// A segment was classified; episodes that ended with it go to `found`.
    #[inline]
    pub fn step(&mut self, step: &Step<'_>, view: View<'_>, found: &mut Vec<Episode>) {
        let _ = (step, view, found);
    }

    /// An exchange of the connection has finished.
    #[inline]
    pub fn exchange(&mut self, exchange: &Exchange, view: View<'_>, found: &mut Vec<Episode>) {
        let _ = (exchange, view, found);
    }

    /// The connection, or the capture, is over.
    pub fn finish(&mut self, view: View<'_>, found: &mut Vec<Episode>) {
        let _ = (view, found);
    }

    /// What is to be said of the connection as a whole, in sentences.
    pub fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
