//! Pressure between the two readings: of the whole machine, and of the processes' cgroups.

use super::Known;
use super::facts::memory::Memory;
use super::facts::pressure::Pressure;
use super::finding::NoVerdict;
use super::look::Inspection;
use spangap_model::duration::format_ns;

/// Stalled time on one level.
pub struct Stall {
    /// File it was read from.
    pub path: String,
    some_us: u64,
    full_us: u64,
    some_avg10: f64,
}

impl Stall {
    fn between(path: String, before: &Pressure, after: &Pressure) -> Stall {
        let full = after.full_us.zip(before.full_us);
        Stall {
            path,
            some_us: after.some_us.saturating_sub(before.some_us),
            full_us: full.map_or(0, |(after, before)| after.saturating_sub(before)),
            some_avg10: after.some_avg10,
        }
    }

    /// Share of the time between the readings.
    pub fn share(&self, seconds: f64) -> f64 {
        self.some_us as f64 / 1e6 / seconds
    }

    /// The figure in words, and its file.
    pub fn evidence(&self) -> (String, String) {
        let (some, full) = (format_ns(self.some_us * 1_000), format_ns(self.full_us * 1_000));
        (format!("some +{some}, full +{full}, avg10 {:.2} %", self.some_avg10), self.path.clone())
    }
}

type Machine<'a> = (&'a str, &'a Known<Pressure>, &'a Known<Pressure>);

/// The whole machine first, then those of the processes' cgroups that report pressure.
pub fn of(
    look: &Inspection,
    (path, before, after): Machine<'_>,
    of_group: &dyn Fn(&Memory) -> (String, Known<Pressure>),
) -> Result<Vec<Stall>, NoVerdict> {
    let mut stalls = Vec::new();
    let mut unknown = None;
    match (before, after) {
        (Ok(before), Ok(after)) => stalls.push(Stall::between(path.to_owned(), before, after)),
        (Err(error), _) | (_, Err(error)) => unknown = Some(error),
    }
    for (before, after) in look.memories() {
        let ((path, after), (_, before)) = (of_group(after), of_group(before));
        if let (Ok(before), Ok(after)) = (before, after) {
            stalls.push(Stall::between(path, &before, &after));
        }
    }
    match (stalls.is_empty(), unknown) {
        (true, Some(error)) if !error.is_absent() => Err(NoVerdict::from(error)),
        (true, _) => Err(NoVerdict::from(
            "this kernel has no pressure files: it is older than 4.20, or runs with psi=0",
        )),
        (false, _) => Ok(stalls),
    }
}
