//! Reading the captures again, every clock being known: for calls that nobody had the room to keep.
//!
//! The legs of a call between two clocks are known once all bytes that both captures have are seen, and the number of its
//! connection once all calls are counted. The first reading keeps the slowest calls until then. The second one takes the
//! same steps, so that it makes the same calls of the same packets, and each is complete as soon as it is over.

use super::by_time::{Ids, Place};
use super::followed::{Followed, Settled};
use super::whole::{Methods, Whole};
use super::{Dissection, OnProgress, Settings};
use crate::call::Call;
use crate::hops::path::{AllClocks, path};
use crate::source::SourceError;
use rustc_hash::FxHashMap;
use std::ops::ControlFlow;
use std::rc::Rc;

/// What the first reading leaves for the second.
#[derive(Clone, Debug, Default)]
pub struct Rereading {
    pub(super) sections: Vec<Settled>,
    pub(super) clocks: AllClocks,
    /// Steps that the first reading took.
    pub(super) steps: u64,
    /// Spans found by their times.
    pub(super) by_time: Rc<FxHashMap<Place, Ids>>,
}

impl Rereading {
    /// A call, complete.
    pub(super) fn call(&self, call: Followed) -> Call {
        let mut call = call.call(&self.sections);
        if !call.hops.is_empty() {
            call.path = path(&call, &self.clocks);
        }
        call
    }
}

/// Gives `each` every call of the captures that fits `settings`, in the order in which they were over, as
/// [`Dissection::calls`] with [`Dissection::methods`]: `most` at once, fewer the last time. What these were before is there
/// again afterwards. `settings` are those of the dissection.
///
/// Reads no further than the first reading did, whether that was ended early or a capture has grown since. Of captures
/// that were changed meanwhile other calls may come than were counted: [`Dissection::matching`] tells how many there were.
///
/// # Errors
/// [`SourceError`] when a capture cannot be read twice: a pipe, or a file that went away.
pub fn every_call(
    dissection: &mut Dissection,
    settings: &Settings,
    most: usize,
    on_progress: &mut OnProgress<'_>,
    each: &mut dyn FnMut(&mut Dissection) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, SourceError> {
    let first = std::mem::take(&mut dissection.rereading);
    let whole = Whole::again(&first, &dissection.captures, settings);
    let shown = (std::mem::take(&mut dissection.calls), std::mem::take(&mut dissection.methods));
    let flow = whole.map(|mut whole| {
        let mut add = |call: Call, mut methods: Methods| {
            dissection.calls.push(call);
            dissection.methods.append(&mut methods);
            if dissection.calls.len() < most {
                return ControlFlow::Continue(());
            }
            let flow = each(dissection);
            dissection.calls.clear();
            dissection.methods.clear();
            flow
        };
        whole.read_again(&first, on_progress, &mut add)?;
        if dissection.calls.is_empty() { ControlFlow::Continue(()) } else { each(dissection) }
    });
    (dissection.calls, dissection.methods) = shown;
    dissection.rereading = first;
    flow
}
