//! Runs in order: configurations, their load points, and the repetitions of each.

use super::Run;
use super::fields::{Field, Load};

/// Direction of a sweep at a load point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Increasing load.
    Up,
    /// Decreasing load.
    Down,
}

/// Runs that differ only in load.
#[derive(Debug)]
pub struct Configuration<'a> {
    /// Values of the fields that vary in the report, in the order given.
    pub values: Vec<String>,
    /// Load points, in the order in which they first ran.
    pub points: Vec<Point<'a>>,
}

/// Runs with equal settings.
#[derive(Debug)]
pub struct Point<'a> {
    /// Load.
    pub load: Load,
    /// Known only if the configuration was swept both ways.
    pub direction: Option<Direction>,
    /// The repetitions, in the order in which they ran.
    pub runs: Vec<&'a Run>,
}

/// The runs by the fields that vary; configurations in the order in which they first ran.
pub fn configurations<'a>(runs: &'a [Run], varying: &[Field]) -> Vec<Configuration<'a>> {
    let mut found: Vec<(Vec<String>, Vec<&Run>)> = Vec::new();
    for run in runs {
        let values: Vec<String> = varying.iter().map(|field| field.of(&run.asked)).collect();
        match found.iter_mut().find(|(known, _)| *known == values) {
            Some((_, same)) => same.push(run),
            None => found.push((values, vec![run])),
        }
    }
    found.into_iter().map(|(values, runs)| Configuration { values, points: points(&runs) }).collect()
}

fn points<'a>(runs: &[&'a Run]) -> Vec<Point<'a>> {
    let loads: Vec<f64> = runs.iter().map(|run| Load::of(&run.asked).value()).collect();
    let mut points: Vec<Point> = Vec::new();
    for (run, direction) in runs.iter().zip(directions(&loads)) {
        let load = Load::of(&run.asked);
        let same = |point: &&mut Point| point.direction == direction && point.load == load;
        match points.iter_mut().find(same) {
            Some(point) => point.runs.push(run),
            None => points.push(Point { load, direction, runs: vec![run] }),
        }
    }
    points
}

/// Divides the loads, in the order in which they ran, into monotonic passes. Without passes of both kinds there
/// is no direction to distinguish.
fn directions(loads: &[f64]) -> Vec<Option<Direction>> {
    let mut directions = vec![None; loads.len()];
    let mut start = 0;
    while start < loads.len() {
        let towards = |at: usize| loads.get(at + 1).and_then(|next| next.partial_cmp(&loads[at]));
        let way = match towards(start) {
            Some(std::cmp::Ordering::Greater) => Some(Direction::Up),
            Some(std::cmp::Ordering::Less) => Some(Direction::Down),
            _ => None,
        };
        let mut end = start;
        while way.is_some() && towards(end) == towards(start) {
            end += 1;
        }
        directions[start..=end].fill(way);
        start = end + 1;
    }
    let both = [Direction::Up, Direction::Down].iter().all(|way| directions.contains(&Some(*way)));
    if both { directions } else { vec![None; loads.len()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_distinguished() {
        let ways = |loads: &[f64]| -> String {
            let letter = |way: &Option<Direction>| match way {
                Some(Direction::Up) => 'u',
                Some(Direction::Down) => 'd',
                None => '-',
            };
            directions(loads).iter().map(letter).collect()
        };
        assert_eq!(ways(&[8.0, 4.0, 1.0, 4.0, 8.0]), "ddduu");
        assert_eq!(ways(&[8.0, 4.0, 1.0, 1.0, 4.0, 8.0]), "ddduuu");
        assert_eq!(ways(&[1.0, 4.0, 8.0, 4.0, 1.0]), "uuudd");
        // Repeated passes of one kind, and adjacent repetitions, have no direction to distinguish.
        assert_eq!(ways(&[1.0, 4.0, 8.0, 1.0, 4.0, 8.0]), "------");
        assert_eq!(ways(&[1.0, 1.0, 4.0, 4.0]), "----");
        assert_eq!(ways(&[4.0, f64::NAN]), "--");
        assert_eq!(ways(&[]), "");
    }
}
