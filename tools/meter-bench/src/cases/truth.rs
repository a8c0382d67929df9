//! One pass of a workload compared with its truth: in its own order, in a random one, and with every batch
//! sent twice.

use super::Bench;
use crate::BenchError;
use crate::generate::Random;
use crate::payload::{Payload, Wire};
use crate::send::{Exporter, IN_FLIGHT};
use crate::truth::Truth;
use crate::workload::Workload;

/// Order of the batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// As sent by exporters.
    InOrder,
    /// In a random order.
    Shuffled,
    /// Each one twice in succession.
    Twice,
}

/// Sends the workload to a fresh meter and returns every difference between its report and the truth.
///
/// # Errors
/// The meter fails or refuses a batch.
pub async fn run(
    bench: &Bench,
    workload: &Workload,
    truth: &Truth,
    arrival: Arrival,
    wire: Wire,
) -> Result<Vec<String>, BenchError> {
    let mut payloads: Vec<Payload> =
        workload.batches.iter().map(|batch| Payload::new(batch, 0, wire)).collect();
    let times = match arrival {
        Arrival::InOrder => 1,
        Arrival::Shuffled => {
            Random(7).shuffle(&mut payloads);
            1
        }
        Arrival::Twice => {
            payloads = payloads.into_iter().flat_map(|payload| [payload.clone(), payload]).collect();
            2
        }
    };
    let meter = bench.start(&[""; 0])?;
    let exporter = Exporter::connect(&meter, wire, IN_FLIGHT).await?;
    let sent = exporter.send_all(payloads.into_iter(), IN_FLIGHT).await?;
    let mut differences = truth.differences(&meter.pairs().await?, times);
    if sent.refused > 0 {
        differences.push(format!("refused requests: expected 0, found {}", sent.refused));
    }
    Ok(differences)
}
