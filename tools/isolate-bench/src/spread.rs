//! Summary of figures from several rounds.

use serde::Serialize;

/// Median, minimum and maximum.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    pub median: f64,
    /// The minimum.
    pub least: f64,
    /// The maximum.
    pub most: f64,
}

impl Spread {
    /// The spread of some figures; all `NaN` if there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Spread {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
        let middle = figures.len() / 2;
        let median = match figures.len() % 2 {
            1 => at(middle),
            _ => (at(middle) + at(middle.wrapping_sub(1))) / 2.0,
        };
        Spread { median, least: at(0), most: at(figures.len().wrapping_sub(1)) }
    }

    /// All values multiplied by a factor.
    pub fn times(self, factor: f64) -> Spread {
        Spread { median: self.median * factor, least: self.least * factor, most: self.most * factor }
    }
}
