use super::*;
use proptest::prelude::*;
use serde_json::json;

/// A gap table of one pair, as printed by `spangap gaps --json`.
pub(crate) fn table(calls: u64, p99_ns: u64, ci95: Option<[u64; 2]>) -> Value {
    let mut gap = json!({"p50_ns": p99_ns / 4, "p90_ns": p99_ns / 2, "p95_ns": p99_ns / 4 * 3, "p99_ns": p99_ns,
        "p999_ns": p99_ns * 2, "max_ns": p99_ns * 3, "mean_ns": p99_ns / 3});
    if let Some(ci95) = ci95 {
        gap["p99_ci95_ns"] = json!(ci95);
    }
    json!({"pairs": [{"client": "frontend", "server": "cart", "calls": calls, "gap": gap}], "spans": {}})
}

#[test]
fn a_gap_table_with_its_own_interval_or_without() {
    let own = read(&table(10_000, 1_000_000, Some([900_000, 1_100_000]))).unwrap();
    assert_eq!(own.proof, Source::GapTable);
    assert_eq!(own.measured[0].p99, Some(Figure { ns: 1_000_000, ci95_ns: Some([900_000, 1_100_000]) }));
    let bracket = read(&table(10_000, 1_000_000, None)).unwrap();
    // Between p95 and p99.9, each off by at most a bucket.
    assert_eq!(bracket.measured[0].p99.unwrap().ci95_ns, Some([716_250, 2_090_000]));
    let few = read(&table(300, 1_000_000, Some([900_000, 3_000_000]))).unwrap();
    assert_eq!(few.measured[0].p99, Some(Figure { ns: 1_000_000, ci95_ns: None }));
    let none = read(&table(0, 0, None)).unwrap();
    assert_eq!((none.measured[0].p99, none.measured[0].max_ns), (None, None));
}

#[test]
fn saved_proof_is_read_back() {
    let proof = read(&table(10_000, 1_000_000, None)).unwrap();
    let written = serde_json::to_value(&proof).unwrap();
    assert_eq!(written["proof"], "gap_table");
    assert_eq!(read(&written).unwrap(), proof);
}

#[test]
fn other_documents_are_named_in_the_error() {
    let error = |text: &str| parse(text).unwrap_err().to_string();
    assert!(
        error("{\"cpus\": 1, \"findings\": []}").contains("an object with cpus, findings, expected a gap")
    );
    assert!(error("[]").contains("found a list"));
    assert!(error("").contains("found nothing"));
    assert!(error("{\"pairs\": [{}]}").contains("gap table of an unknown form"));
    assert!(error("{\"runs\": 3}").contains("tank's report of an unknown form"));
    assert!(error(&format!("{} {{", table(1, 1, None))).contains("document 2"));
    assert!(error(&format!("{} {{\"runs\": []}}", table(1, 1, None))).contains("in one"));
}

proptest! {
    #[test]
    fn no_figures_panic(calls in any::<u64>(), p50 in any::<u64>(), p99 in any::<u64>(), max in any::<u64>()) {
        let gap = json!({"p50_ns": p50, "p90_ns": p50, "p95_ns": p50, "p99_ns": p99, "p999_ns": max, "max_ns": max});
        let row = json!({"pairs": [{"client": "a", "server": "b", "calls": calls, "gap": gap}]});
        prop_assert!(read(&row).is_ok());
    }
}
