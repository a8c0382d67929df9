//! Clock alignment of two captures: the offsets that their packets allow.
//!
//! Let theta = clock of the second capture - clock of the first. A byte cannot arrive before it was sent, so
//! every byte seen at both taps bounds theta from one side, and a straight line between these bounds gives the
//! skew (Moon, Skelly, Towsley 1999; Zhang, Liu, Xia 2002: there as a linear program for one line, here as the
//! whole set of lines that fit, so that what cannot be known stays an interval).
//!
//! Assumption: within a stretch, the rate of one clock relative to the other is constant. Nothing is assumed
//! about the path: a constant difference between the two directions cannot be distinguished from an offset, so
//! the interval includes it.

mod bounds;
mod polygon;
#[cfg(test)]
mod tests;

pub use bounds::Bounds;
use polygon::{Bound, MAX_SLOPE, Polygon};

/// Maximum stretches; beyond it, the bounds are considered contradictory.
const MAX_STRETCHES: usize = 64;
/// Number of bounds after an outlier that must fit without it, so that only that one is considered false.
const AFTER_AN_OUTLIER: usize = 8;
/// At most one in this many bounds may be false by itself (a packet that the sender's capture dropped and saw
/// only when it was retransmitted).
const OUTLIERS_ONE_IN: usize = 50;

/// The clock relations that the captures allow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clock {
    /// Stretches of time by the first capture's clock, in order, each with bounds that one straight line fits.
    /// Several: a clock was stepped, or its rate changed; neighbours overlap where the moment is unknown. None:
    /// the bounds contradict each other.
    pub stretches: Vec<Stretch>,
    /// Bounds that contradict all others around them, and were dropped.
    pub contradictions: u64,
}

/// A stretch: all lines `theta(t) = base_ns + offset + slope * (t - from_ns)` in the convex hull of the corners
/// fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Start by the first capture's clock, Unix nanoseconds.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// Base of the corners' offsets: Unix times of two distant clocks do not fit into an `f64`.
    pub base_ns: i64,
    /// Corners of the set of lines that fit: `(offset from base_ns at from_ns, slope)`. Empty when all bounds are
    /// from one side, so that the offset is unbounded.
    pub corners: Vec<(f64, f64)>,
}

impl Clock {
    /// Both captures use the same clock.
    pub fn same() -> Clock {
        let stretch =
            Stretch { from_ns: i64::MIN / 2, to_ns: i64::MAX / 2, base_ns: 0, corners: vec![(0.0, 0.0)] };
        Clock { stretches: vec![stretch], contradictions: 0 }
    }

    /// The lines that the bounds allow; `None` without bounds. `resolution_ns` is that of the coarser capture: a
    /// timestamp may be off by that much (truncated or rounded), so every bound is widened by it.
    pub fn fit(bounds: &Bounds, resolution_ns: u32) -> Option<Clock> {
        let mut points = bounds.points();
        if points.is_empty() {
            return None;
        }
        for (_, offset, upper) in &mut points {
            let wider = i64::from(resolution_ns.max(1));
            *offset = if *upper { offset.saturating_add(wider) } else { offset.saturating_sub(wider) };
        }
        Some(Fit { points: &points, contradictions: 0 }.clock())
    }

    /// Lowest and highest possible offset at a time of the first capture's clock, nanoseconds; `None` where it is
    /// unbounded.
    pub fn offset_ns(&self, at_ns: i64) -> Option<(i64, i64)> {
        let mut union = None;
        for i in (0..self.stretches.len()).filter(|i| self.covers(*i, at_ns)) {
            union = Some(wider(union, self.stretches[i].offset_ns(at_ns)?));
        }
        union
    }

    /// The times of the first capture's clock at which the second clock may have shown `at_ns`.
    pub fn first_at(&self, at_ns: i64) -> Option<(i64, i64)> {
        let mut union = None;
        for (i, stretch) in self.stretches.iter().enumerate() {
            let Some(range) = stretch.first_at(at_ns) else { continue };
            if self.covers(i, middle(range)) {
                union = Some(wider(union, range));
            }
        }
        // A stretch without bounds may apply, too.
        let near = middle(union?);
        let unbounded = |(i, stretch): (usize, &Stretch)| stretch.corners.is_empty() && self.covers(i, near);
        union.filter(|_| !self.stretches.iter().enumerate().any(unbounded))
    }

    /// The times that the second capture's clock may have shown when the first clock showed `at_ns`.
    pub fn second_at(&self, at_ns: i64) -> Option<(i64, i64)> {
        self.offset_ns(at_ns).map(|(low, high)| (at_ns.saturating_add(low), at_ns.saturating_add(high)))
    }

    /// Lowest and highest possible rate of the second clock relative to the first, minus one, around a time of
    /// the first clock; `None` where the offset is unbounded.
    pub fn slope(&self, at_ns: i64) -> Option<(f64, f64)> {
        let mut range: Option<(f64, f64)> = None;
        for (i, stretch) in self.stretches.iter().enumerate() {
            if self.covers(i, at_ns) {
                for (_, slope) in &stretch.corners {
                    let (low, high) = range.unwrap_or((*slope, *slope));
                    range = Some((low.min(*slope), high.max(*slope)));
                }
            }
        }
        range
    }

    /// Whether stretch `i` may apply at a time of the first clock: within it, in the gap next to it, or beyond
    /// the first or last one.
    fn covers(&self, i: usize, at_ns: i64) -> bool {
        let stretch = &self.stretches[i];
        let before = i.checked_sub(1).map(|i| self.stretches[i].to_ns.min(stretch.from_ns));
        let after = self.stretches.get(i + 1).map(|next| next.from_ns.max(stretch.to_ns));
        before.is_none_or(|before| at_ns >= before) && after.is_none_or(|after| at_ns <= after)
    }
}

/// The middle of a range.
fn middle((low, high): (i64, i64)) -> i64 {
    low + (high - low) / 2
}

/// The smallest range that contains both.
fn wider(union: Option<(i64, i64)>, (low, high): (i64, i64)) -> (i64, i64) {
    union.map_or((low, high), |(lowest, highest)| (lowest.min(low), highest.max(high)))
}

impl Stretch {
    fn offset_ns(&self, at_ns: i64) -> Option<(i64, i64)> {
        let at = at_ns.saturating_sub(self.from_ns) as f64;
        let (low, high) = self.range(|(offset, slope)| offset + slope * at)?;
        Some((self.base_ns.saturating_add(low), self.base_ns.saturating_add(high)))
    }

    fn first_at(&self, at_ns: i64) -> Option<(i64, i64)> {
        // Linear-fractional in (offset, slope), so its extremes over the polygon are at corners, too. It is
        // written as a small difference from an integer, because a time does not fit into an `f64`.
        let shown_ns = at_ns.saturating_sub(self.base_ns);
        let shown = shown_ns.saturating_sub(self.from_ns) as f64;
        let (low, high) = self.range(|(offset, slope)| (offset + slope * shown) / (1.0 + slope))?;
        Some((shown_ns.saturating_sub(high), shown_ns.saturating_sub(low)))
    }

    fn range(&self, value: impl Fn((f64, f64)) -> f64) -> Option<(i64, i64)> {
        let mut range = (f64::MAX, f64::MIN);
        for corner in &self.corners {
            let value = value(*corner);
            range = (range.0.min(value), range.1.max(value));
        }
        (!self.corners.is_empty()).then(|| (range.0.floor() as i64, range.1.ceil() as i64))
    }
}

/// Points `(at_ns, offset_ns, upper)` in order of time, and lines through them.
struct Fit<'a> {
    points: &'a [(i64, i64, bool)],
    contradictions: u64,
}

impl Fit<'_> {
    fn clock(mut self) -> Clock {
        let ends = self.ends();
        if ends.len() > MAX_STRETCHES {
            return Clock { stretches: Vec::new(), contradictions: self.contradictions };
        }
        // The start of each stretch: as early as its own bounds allow.
        let mut begins = vec![0];
        for pair in ends.windows(2) {
            let [(_, end), (_, next_end)] = pair else { continue };
            begins.push(self.earliest(*end, *next_end));
        }
        let mut stretches = Vec::with_capacity(ends.len());
        for (i, (skipped, end)) in ends.iter().enumerate() {
            let certain_from = if i == 0 { 0 } else { ends[i - 1].1 };
            // Points that may already belong to the next stretch must not bound this one.
            let certain_to = begins.get(i + 1).copied().unwrap_or(*end);
            let (from, to) =
                if certain_to > certain_from { (certain_from, certain_to) } else { (certain_from, *end) };
            stretches.push(self.stretch(begins[i], (from, to), *end, skipped));
        }
        Clock { stretches, contradictions: self.contradictions }
    }

    /// Ends (exclusive) of the longest runs of points that one line fits, with the points dropped from each.
    fn ends(&mut self) -> Vec<(Vec<usize>, usize)> {
        let mut ends = Vec::new();
        let mut begin = 0;
        while begin < self.points.len() && ends.len() <= MAX_STRETCHES {
            let mut polygon = self.whole(begin);
            let mut skipped = Vec::new();
            let mut i = begin;
            while i < self.points.len() {
                let bound = self.bound(begin, i);
                if polygon.admits(bound) {
                    polygon.clip(bound);
                } else if self.is_outlier(&polygon, begin, i)
                    && (self.contradictions as usize) < 1 + self.points.len() / OUTLIERS_ONE_IN
                {
                    self.contradictions += 1;
                    skipped.push(i);
                } else {
                    break;
                }
                i += 1;
            }
            ends.push((skipped, i));
            begin = i;
        }
        ends
    }

    /// Whether only point `i` does not fit: the bounds after it, some of the same kind among them, do.
    fn is_outlier(&self, polygon: &Polygon, begin: usize, i: usize) -> bool {
        let Some(next) = self.points.get(i + 1..i + 1 + AFTER_AN_OUTLIER) else { return false };
        if next.iter().filter(|point| point.2 == self.points[i].2).count() < 2 {
            return false;
        }
        let mut polygon = polygon.clone();
        for j in i + 1..=i + AFTER_AN_OUTLIER {
            polygon.clip(self.bound(begin, j));
        }
        !polygon.is_empty()
    }

    /// The earliest point from which a line fits up to `end`, including all of `certain..end`.
    fn earliest(&self, certain: usize, end: usize) -> usize {
        let mut polygon = self.whole(certain);
        for i in certain..end {
            let bound = self.bound(certain, i);
            if polygon.admits(bound) {
                polygon.clip(bound);
            }
        }
        let mut first = certain;
        while first > 0 && polygon.admits(self.bound(certain, first - 1)) {
            first -= 1;
            polygon.clip(self.bound(certain, first));
        }
        first
    }

    /// The stretch from point `first` until before point `end`, with the lines that points `within` bound.
    fn stretch(&self, first: usize, within: (usize, usize), end: usize, skipped: &[usize]) -> Stretch {
        let origin = first.min(within.0);
        let mut polygon = self.whole(origin);
        let mut kinds = [false; 2];
        for i in (within.0..within.1).filter(|i| !skipped.contains(i)) {
            polygon.clip(self.bound(origin, i));
            kinds[usize::from(self.points[i].2)] = true;
        }
        let corners = if kinds == [true; 2] { polygon.corners } else { Vec::new() };
        let (from_ns, base_ns, _) = self.points[origin];
        Stretch { from_ns, to_ns: self.points[end - 1].0, base_ns, corners }
    }

    fn bound(&self, origin: usize, i: usize) -> Bound {
        let (origin_ns, base_ns, _) = self.points[origin];
        let (at_ns, offset_ns, upper) = self.points[i];
        Bound {
            at: at_ns.saturating_sub(origin_ns) as f64,
            offset: offset_ns.saturating_sub(base_ns) as f64,
            upper,
        }
    }

    /// Every relevant line: no bound of either kind is looser than the loosest one overall.
    fn whole(&self, origin: usize) -> Polygon {
        let (first_ns, last_ns) = (self.points[0].0, self.points[self.points.len() - 1].0);
        let reach = last_ns.saturating_sub(first_ns) as f64 * MAX_SLOPE + 1.0;
        let base_ns = self.points[origin].1;
        let (mut low, mut high) = (0.0_f64, 0.0_f64);
        for (_, offset_ns, _) in self.points {
            let offset = offset_ns.saturating_sub(base_ns) as f64;
            (low, high) = (low.min(offset), high.max(offset));
        }
        Polygon::strip(low - reach, high + reach)
    }
}
