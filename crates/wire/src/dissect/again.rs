//! Reads the captures again once every clock is known, for calls that were not kept.
//!
//! The legs of a call between two clocks are known only when all bytes common to both captures were seen, and the
//! number of its connection only when all calls were counted. The first reading keeps the slowest calls until
//! then. The second reading takes the same steps, so that it produces the same calls from the same packets, each
//! complete as soon as it ends.

use super::pass::{Methods, Pass};
use super::{Dissection, OnProgress, Settings};
use crate::call::Call;
use crate::source::SourceError;
use std::ops::ControlFlow;

/// Passes every matching call of the captures to `each`, in the order in which they ended, as
/// [`Dissection::calls`] with [`Dissection::methods`]: `most` at a time, fewer at the end. Their previous
/// contents are restored afterwards. `settings` must be those of the dissection.
///
/// Reads no further than the first reading did, even if that was interrupted or a capture has grown since. If
/// captures were modified meanwhile, the calls may differ from those counted: [`Dissection::matching`] has that
/// count.
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
    let pass = Pass::second(&first, &dissection.captures, settings);
    let shown = (std::mem::take(&mut dissection.calls), std::mem::take(&mut dissection.methods));
    let flow = pass.map(|mut pass| {
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
        pass.read_again(&first, on_progress, &mut add)?;
        if dissection.calls.is_empty() { ControlFlow::Continue(()) } else { each(dissection) }
    });
    (dissection.calls, dissection.methods) = shown;
    dissection.rereading = first;
    flow
}
