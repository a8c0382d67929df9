//! The real meter against workloads whose gaps are known exactly: every count, sum and largest gap equal, quantiles
//! within one bucket, the same worst calls; in order, shuffled, sent twice, and with servers missing.

use spangap_meter_bench::cases::Bench;
use spangap_meter_bench::cases::truth::{Arrival, run};
use spangap_meter_bench::gapload::Gapload;
use spangap_meter_bench::generate::{Shape, generate};
use spangap_meter_bench::payload::{Protocol, Wire};
use spangap_meter_bench::truth::Truth;
use spangap_meter_bench::workload::Workload;
use std::path::Path;

const SPANS: u64 = 65_536;
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

async fn holds(workload: &Workload, truth: &Truth, arrival: Arrival, wire: Wire) {
    let bench = Bench { binary: env!("CARGO_BIN_EXE_spangap").into(), meter_cpu: None, load_cpu: None };
    let differences =
        run(&bench, workload, truth, arrival, wire).await.expect("the meter to take the workload");
    assert_eq!(differences, [""; 0], "{arrival:?} over {}", wire.name());
}

#[tokio::test]
async fn complete_calls_over_every_transport() {
    let (workload, truth) = generate(&Shape { spans: SPANS, ..Shape::default() });
    for protocol in [Protocol::Grpc, Protocol::Http] {
        for gzip in [false, true] {
            holds(&workload, &truth, Arrival::InOrder, Wire { protocol, gzip }).await;
        }
    }
}

#[tokio::test]
async fn order_and_repetition_do_not_matter() {
    let (workload, truth) = generate(&Shape { spans: SPANS, ..Shape::default() });
    holds(&workload, &truth, Arrival::Shuffled, Wire::GRPC).await;
    holds(&workload, &truth, Arrival::Twice, Wire::GRPC).await;
}

#[tokio::test]
async fn missing_servers_are_counted_and_affect_nothing_else() {
    let shape = Shape { spans: SPANS, missing_servers: 0.1, ..Shape::default() };
    let (workload, truth) = generate(&shape);
    for arrival in [Arrival::InOrder, Arrival::Shuffled, Arrival::Twice] {
        holds(&workload, &truth, arrival, Wire::GRPC).await;
    }
}

/// The same against a generator that shares no code with this project.
#[tokio::test]
async fn an_independent_workload() {
    let project = Path::new(PROJECT);
    let tool = match Gapload::build(&project.join("../shared/workload"), &project.join("target/bench")) {
        Ok(tool) => tool,
        Err(reason) => {
            println!("not run: truth of the independent workload: {reason}");
            return;
        }
    };
    let spans = SPANS.to_string();
    for (name, missing) in [("truth-whole", "0"), ("truth-missing", "0.1")] {
        let arguments = ["-spans", &spans, "-orphan", missing];
        let (workload, truth) = tool.generate(name, &arguments).expect("the tool to make a workload");
        for arrival in [Arrival::InOrder, Arrival::Shuffled, Arrival::Twice] {
            holds(&workload, &truth, arrival, Wire::GRPC).await;
        }
    }
}
