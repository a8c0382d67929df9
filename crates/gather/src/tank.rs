//! What a tank's report states about the calls captured at the same time.

use crate::GatherError;
use serde::Deserialize;
use spangap_model::evidence::Evidence;
use std::path::Path;

/// The method by which a tank queries CPU and counts of its target, which is not part of the load.
const ITS_OWN: &str = "/spangap.ping.v1.Ping/Usage";

/// The warm-up times in `spangap tank --json`.
#[derive(Deserialize)]
struct Report {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    start_unix_ns: Option<i64>,
}

/// End of the first run's warm-up, Unix nanoseconds.
pub fn measured_from(path: &Path) -> Result<Option<i64>, GatherError> {
    let text = std::fs::read(path).map_err(|error| GatherError::Io(path.to_owned(), error))?;
    let report: Report =
        serde_json::from_slice(&text).map_err(|error| GatherError::Tank(path.to_owned(), error))?;
    Ok(report.runs.iter().find_map(|run| run.start_unix_ns))
}

/// Removes the tank's own queries.
pub fn leave_out_its_own(evidence: &mut Evidence) {
    evidence.calls.retain(|call| call.method.as_deref() != Some(ITS_OWN));
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::evidence::CallRecord;

    #[test]
    fn queries_of_the_tank_itself_are_removed() {
        let call = |method: &str| CallRecord { method: Some(method.into()), ..CallRecord::default() };
        let calls = vec![call(ITS_OWN), call("/shop.Cart/Usage"), CallRecord::default()];
        let mut evidence = Evidence { calls, ..Evidence::default() };
        leave_out_its_own(&mut evidence);
        assert_eq!(evidence.calls.len(), 2);
    }
}
