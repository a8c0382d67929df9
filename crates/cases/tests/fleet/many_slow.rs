//! More pairs become slow at once than the budget of slices permits to examine.

use super::meter::Served;
use spangap_cases::report::PairRow;
use std::time::UNIX_EPOCH;

/// Windows of a pair until it has a baseline, followed by those until it leaves it.
const QUIET: u64 = 7;
const PAIRS: usize = 40;

/// Forty pairs leave their baselines at once, each losing more than the one before; the budget permits two
/// cases and reserves one for a person. Those that lose the most are examined, the rest is reported, and a
/// person does not have to wait.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_slow_pairs_the_worst_are_examined_and_the_rest_reported() {
    let folder = tempfile::tempdir().unwrap();
    let meter =
        Served::still(folder.path(), Default::default(), |settings| settings.slices_per_minute = 6).await;
    let names: Vec<String> = (0..PAIRS).map(|number| format!("service-{number:02}")).collect();
    let slots = |slots: u64, gap_ms: &dyn Fn(usize) -> u64| {
        for _ in 0..slots {
            for (number, name) in names.iter().enumerate() {
                meter.calls_of([name, "target"], ["10.88.0.1", "10.88.0.2"], 30, gap_ms(number));
            }
            meter.cases.slot(UNIX_EPOCH.elapsed().unwrap().as_millis() as u64);
        }
    };
    slots(QUIET, &|_| 1);
    slots(2, &|number| 20 + 5 * number as u64);
    let report = meter.get("/api/v1/cases").await;
    let of: Vec<String> = report["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["pair"]["client"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(of.len(), 2, "{report:#}");
    assert!(of.contains(&names[PAIRS - 1]) && of.contains(&names[PAIRS - 2]), "the worst: {of:?}");
    assert_eq!(report["waiting_pairs"], PAIRS as u64 - 2, "{report:#}");
    let first: PairRow = serde_json::from_value(report["waiting"][0].clone()).unwrap();
    assert_eq!(first.client, names[PAIRS - 3], "the worst of those that wait");
    // Two slices are left for a person.
    let (status, answer) = meter.post_pair([&names[0], "target"], &[]).await;
    assert_eq!(status, 202, "{answer}");
    let (status, answer) = meter.post_pair([&names[1], "target"], &[]).await;
    assert_eq!(status, 429, "{answer}");
}

/// Noise has opened an inconclusive case, and before the pair is back, it becomes much slower.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_pair_that_becomes_much_slower_gets_another_case() {
    let meter = Served::start().await;
    let slots = |slots: u64, gap_ms: u64| {
        for _ in 0..slots {
            meter.calls_of(["tank", "target"], ["10.88.0.1", "10.88.0.2"], 30, gap_ms);
            meter.cases.slot(UNIX_EPOCH.elapsed().unwrap().as_millis() as u64);
        }
    };
    let cases = async || meter.get("/api/v1/cases").await["cases"].as_array().unwrap().clone();
    slots(QUIET, 1);
    slots(2, 6);
    let first = cases().await;
    assert_eq!(first.len(), 1, "{first:#?}");
    let id = first[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(meter.concluded(&id).await["state"], "unknown");
    slots(2, 8);
    assert_eq!(cases().await.len(), 1, "hardly worse");
    slots(2, 60);
    let both = cases().await;
    assert_eq!(both.len(), 2, "{both:#?}");
    assert_ne!(both[0]["id"], id.as_str(), "the newest first");
}
