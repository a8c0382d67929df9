//! A culprit that the shares name.

use crate::hunt::Owner;
use crate::hunt::population::EFFECTIVE;
use crate::hunt::shares::Share;
use spangap_model::Culprit;

/// What hits all of a host at once has to have done so in this many moments: else it is what happened to happen.
pub const MOMENTS: f64 = EFFECTIVE;

/// A culprit whom the shares name, with its owner on the sheet.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Its row on the sheet.
    pub owner: Owner,
    /// Cause and side, as exact as the evidence allows.
    pub culprit: Culprit,
    /// Its share of the excess, with a 90 % interval.
    pub share: Share,
}
