//! The set of lines that fit: a convex polygon in the plane of (offset, slope).

/// Maximum difference between two clock rates: NTP slews by at most 500 ppm (adjtimex(2): MAXFREQ), and crystals
/// are off by less than 100 ppm each; this is twice the required value.
pub(super) const MAX_SLOPE: f64 = 1e-3;
/// Every bound is widened by this, nanoseconds: rounding of the corners must not exclude the true line.
const ROUNDING_NS: f64 = 0.25;

/// A bound on the offset at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bound {
    /// Time in nanoseconds from the polygon's origin.
    pub at: f64,
    /// The offset is at most (`upper`) or at least this, nanoseconds.
    pub offset: f64,
    /// Whether it is an upper bound.
    pub upper: bool,
}

/// All `(offset, slope)` that satisfy the bounds so far, as corners in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Polygon {
    pub corners: Vec<(f64, f64)>,
    spare: Vec<(f64, f64)>,
}

impl Polygon {
    /// Offsets in a range, with any slope.
    pub fn strip(low: f64, high: f64) -> Polygon {
        let corners = vec![(low, -MAX_SLOPE), (high, -MAX_SLOPE), (high, MAX_SLOPE), (low, MAX_SLOPE)];
        Polygon { corners, spare: Vec::new() }
    }

    /// Whether no line fits.
    pub fn is_empty(&self) -> bool {
        self.corners.is_empty()
    }

    /// Whether some line also satisfies `bound`.
    pub fn admits(&self, bound: Bound) -> bool {
        self.corners.iter().any(|corner| inside(*corner, bound) >= 0.0)
    }

    /// Keeps only the lines that satisfy `bound` (Sutherland and Hodgman's clipping by one half-plane).
    pub fn clip(&mut self, bound: Bound) {
        if self.corners.iter().all(|corner| inside(*corner, bound) >= 0.0) {
            return;
        }
        self.spare.clear();
        let Some(mut before) = self.corners.last().copied() else { return };
        let mut depth_before = inside(before, bound);
        for corner in self.corners.iter().copied() {
            let depth = inside(corner, bound);
            if (depth < 0.0) != (depth_before < 0.0) {
                let share = depth_before / (depth_before - depth);
                let between = |a: f64, b: f64| a + (b - a) * share;
                self.spare.push((between(before.0, corner.0), between(before.1, corner.1)));
            }
            if depth >= 0.0 {
                self.spare.push(corner);
            }
            (before, depth_before) = (corner, depth);
        }
        std::mem::swap(&mut self.corners, &mut self.spare);
    }
}

/// Distance of a line from the bound's limit, nanoseconds; negative when the line violates the bound.
fn inside((offset, slope): (f64, f64), bound: Bound) -> f64 {
    let theta = offset + slope * bound.at;
    let depth = if bound.upper { bound.offset - theta } else { theta - bound.offset };
    depth + ROUNDING_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipping_keeps_exactly_the_fitting_lines() {
        let mut polygon = Polygon::strip(-1e6, 1e6);
        polygon.clip(Bound { at: 0.0, offset: 100.0, upper: true });
        polygon.clip(Bound { at: 0.0, offset: 50.0, upper: false });
        polygon.clip(Bound { at: 1e6, offset: 100.0, upper: true });
        let highest = polygon.corners.iter().map(|(_, slope)| *slope).fold(f64::MIN, f64::max);
        assert!((highest - 50.5e-6).abs() < 1e-9, "{highest}");
        assert!(!polygon.admits(Bound { at: 1e6, offset: 2000.0, upper: false }));
        polygon.clip(Bound { at: 0.0, offset: 20.0, upper: true });
        assert!(polygon.is_empty());
    }
}
