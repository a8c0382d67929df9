//! What becomes of cases: one whose pursuit fails does not stay open, and what was fixed can come back.

use super::*;
use crate::report::{Measure, Trigger};

fn cases(folder: &std::path::Path) -> Arc<Cases> {
    let settings = CaseSettings {
        folder: folder.to_owned(),
        over_ns: None,
        slices_per_minute: 60,
        most_bytes: 1 << 20,
        slice_bytes: 1 << 20,
        slice_time: SLICE_TIME,
        experiment_block: EXPERIMENT_BLOCK,
        judge: None,
    };
    let meter = Arc::new(Meter::new(spangap_meter::engine::Settings::default()));
    Cases::open(meter, Arc::default(), Arc::default(), settings).expect("a folder")
}

fn begin(cases: &Cases, pair: &PairKey) -> String {
    cases.begin(pair, Trigger::Baseline, (Measure::Gap, None), Vec::new(), now_unix_ms()).expect("room")
}

#[tokio::test]
async fn a_case_whose_pursuit_panics_ends_and_its_pair_gets_another_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases = cases(folder.path());
    let pair = PairKey { client: "tank".into(), server: "target".into(), method: None };
    let id = begin(&cases, &pair);
    assert_eq!(begin(&cases, &pair), id, "a pair has one open case");
    cases.clone().see_through(id.clone(), async { panic!("as a bug would") }).await;
    let case = cases.case(&id).expect("it is kept");
    assert_eq!(case.row.state, State::Unknown);
    assert!(case.lacks.iter().any(|lack| lack.contains("a bug in spangap")), "{:?}", case.lacks);
    assert_eq!(cases.agents_report().refused.verdicts, 1);
    assert_ne!(begin(&cases, &pair), id);
}

#[tokio::test]
async fn what_was_fixed_regresses_though_a_person_asked_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases = cases(folder.path());
    let pair = |client: &str| PairKey { client: client.into(), server: "target".into(), method: None };
    let [sick, well] = [pair("tank"), pair("other")];
    let of_both = [begin(&cases, &sick), begin(&cases, &well)];
    let ended = |id: &str, state| cases.inner().cases.get_mut(id).expect("a case").row.state = state;
    of_both.iter().for_each(|id| ended(id, State::Fixed));
    let now_ms = now_unix_ms() + 1;
    let asked = cases.begin(&sick, Trigger::Person, (Measure::Gap, None), Vec::new(), now_ms).expect("room");
    ended(&asked, State::Unknown);
    cases.regressed(&sick, now_ms);
    let state = |id: &str| cases.case(id).expect("it is kept").row.state;
    assert_eq!(
        [&of_both[0], &of_both[1], &asked].map(|id| state(id)),
        [State::Regressed, State::Fixed, State::Unknown]
    );
    let line = cases.case(&of_both[0]).expect("it is kept").time_line;
    assert_eq!(line.iter().filter(|moment| moment.what.starts_with("regressed")).count(), 1, "{line:?}");
}
