//! The clocks of two captures: what the packets allow the offset between them to be.
//!
//! With theta = clock of the second capture - clock of the first. A byte cannot arrive before it was sent, so every
//! byte seen at both taps bounds theta from one side; a straight line between these bounds gives the skew.

/// What the captures allow the clocks to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Clock {
    /// Stretches of time by the first capture's clock, in order, within each of which one straight line fits all
    /// bounds. More than one: a clock was stepped, or its rate changed.
    pub stretches: Vec<Stretch>,
}

/// One stretch: all lines `theta(t) = offset_ns + slope * (t - from_ns)` in the convex hull of these fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Its beginning by the first capture's clock, Unix nanoseconds.
    pub from_ns: i64,
    /// Its end.
    pub to_ns: i64,
    /// Corners of the set of lines that fit: `(offset_ns at from_ns, slope)`.
    pub corners: Vec<(f64, f64)>,
}

impl Clock {
    /// Lowest and highest possible offset at a time of the first capture's clock, nanoseconds; `None` where nothing
    /// bounds it.
    pub fn offset_ns(&self, at_ns: i64) -> Option<(i64, i64)> {
        let _ = at_ns;
        None
    }
}
