//! What a second reading of the captures needs of the first: the clocks of all sections, and how far the first one got.

use super::by_time::{Ids, Place};
use super::unsettled::{Settled, UnsettledCall};
use crate::call::Call;
use crate::hops::path::{AllClocks, path};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// State that the first reading passes to the second.
#[derive(Clone, Debug, Default)]
pub struct Rereading {
    pub(super) sections: Vec<Settled>,
    pub(super) clocks: AllClocks,
    /// Number of steps of the first reading.
    pub(super) steps: u64,
    /// Spans matched by time.
    pub(super) by_time: Rc<FxHashMap<Place, Ids>>,
}

impl Rereading {
    /// Completes a call.
    pub(super) fn call(&self, call: UnsettledCall) -> Call {
        let mut call = call.call(&self.sections);
        if !call.hops.is_empty() {
            call.path = path(&call, &self.clocks);
        }
        call
    }
}
