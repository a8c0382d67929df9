//! The arithmetic, against cases worked by hand, and what must hold for any.

use super::*;
use proptest::prelude::*;
use spangap_model::Side;

fn answer(text: &str) -> Answer {
    text.parse::<Culprit>().map_or(Answer::Unknown, Answer::Culprit)
}

fn judged(truth: &str, said: &str) -> JudgedRun {
    JudgedRun {
        truth: truth.parse::<Culprit>().expect("a culprit"),
        also_right: Vec::new(),
        looks_like: None,
        leg: None,
        answer: answer(said),
        answer_leg: None,
    }
}

fn near(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 5e-4
}

#[test]
fn wilson_by_hand() {
    // Brown, Cai and DasGupta's formula, worked out for small counts.
    for (count, of, low, high) in [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (19, 20, 0.7639, 0.9911),
        (1, 1, 0.2065, 1.0),
    ] {
        let share = Share::new(count, of);
        assert!(near(share.low, low) && near(share.high, high), "{share:?}");
    }
    let nothing = Share::new(0, 0);
    assert_eq!((nothing.share, nothing.low, nothing.high), (None, 0.0, 1.0));
}

#[test]
fn a_small_matrix_by_hand() {
    let score = score(&[
        judged("rto", "rto"),
        judged("rto", "rto"),
        judged("rto", "unknown"),
        judged("rto", "tail-loss"),
        judged("none", "rto"),
        judged("none", "none"),
        judged("run-queue (client)", "run-queue (server)"),
        judged("run-queue (client)", "run-queue"),
    ]);
    assert_eq!((score.right.count, score.right.of, score.unknown.count), (3, 8, 1));
    assert_eq!(score.matrix.rows, ["none", "rto", "run-queue (client)"]);
    assert_eq!(
        score.matrix.columns,
        ["none", "rto", "tail-loss", "run-queue", "run-queue (server)", "unknown"]
    );
    let runs: Vec<Vec<u64>> =
        score.matrix.cells.iter().map(|row| row.iter().map(|cell| cell.runs).collect()).collect();
    assert_eq!(runs, [[1, 1, 0, 0, 0, 0], [0, 2, 1, 0, 0, 1], [0, 0, 0, 1, 1, 0]]);
    let of = |name: &str| score.culprits.iter().find(|one| one.culprit == name).expect(name);
    let shares = |name: &str| {
        let one = of(name);
        (one.recall.count, one.recall.of, one.precision.count, one.precision.of, one.unknown)
    };
    // Of four, one unknown: that lowers recall. Named three times, once wrongly.
    assert_eq!(shares("rto"), (2, 4, 2, 3, 1));
    assert_eq!(shares("none"), (1, 2, 1, 1, 0));
    assert_eq!(shares("tail-loss"), (0, 0, 0, 1, 0));
    assert_eq!(shares("run-queue (client)"), (0, 2, 0, 0, 0));
    assert_eq!((score.false_alarms.count, score.false_alarms.of), (1, 2));
}

#[test]
fn other_names_are_right_too() {
    let mut run = judged("rto", "tail-loss (client)");
    assert!(!run.is_right());
    run.also_right = vec!["tail-loss".parse::<Culprit>().expect("one")];
    assert!(run.is_right());
    let score = score(&[run]);
    // No truth asks for the side, so it is no other verdict.
    assert_eq!(score.matrix.columns, ["tail-loss"]);
    assert_eq!(score.matrix.cells, [[Cell { runs: 1, right: 1 }]]);
    assert_eq!(score.culprits[0].recall.count, 1);
    assert_eq!((score.culprits[1].precision.count, score.culprits[1].precision.of), (1, 1));
}

#[test]
fn a_side_counts_where_the_truth_has_one() {
    assert!(judged("rto", "rto (server)").is_right());
    assert!(judged("run-queue (server)", "run-queue (server)").is_right());
    assert!(!judged("run-queue (server)", "run-queue").is_right());
}

#[test]
fn false_alarms() {
    let near_miss = |truth: &str, said: &str| {
        let looks_like = Some(Culprit::at(Cause::NagleDelayedAck, Side::Client));
        JudgedRun { looks_like, ..judged(truth, said) }
    };
    assert!(near_miss("none", "nagle-delayed-ack (client)").is_false_alarm());
    assert!(near_miss("none", "rto").is_false_alarm());
    assert!(!near_miss("none", "unknown").is_false_alarm());
    assert!(!near_miss("none", "none").is_false_alarm());
    assert!(near_miss("server-app", "nagle-delayed-ack (client)").is_false_alarm());
    // Wrong, and no alarm: something was wrong there, and it does not look like this.
    assert!(!near_miss("server-app", "rto").is_false_alarm());
    assert!(!near_miss("server-app", "server-app").is_false_alarm());
    assert!(!judged("rto", "tail-loss").could_alarm());
    let mut clock = judged("none", "clock");
    clock.also_right = vec![Culprit::of(Cause::Clock)];
    assert!(!clock.is_false_alarm());
}

#[test]
fn legs() {
    let run = |truth: Option<&str>, said: Option<&str>| JudgedRun {
        leg: truth.and_then(|legs: &str| legs.parse().ok()),
        answer_leg: said.and_then(|legs: &str| legs.parse().ok()),
        ..judged("server-app", "server-app")
    };
    assert_eq!(run(Some("server_app"), Some("server_app")).leg_is_right(), Some(true));
    assert_eq!(run(Some("server_host_in+server_app"), Some("server_app")).leg_is_right(), Some(true));
    assert_eq!(run(Some("server_app"), Some("server_host_in+server_app")).leg_is_right(), Some(false));
    assert_eq!(run(Some("server_app"), None).leg_is_right(), None);
    assert_eq!(run(None, Some("server_app")).leg_is_right(), None);
}

fn any_culprit() -> impl Strategy<Value = Culprit> {
    // Few causes, so that verdicts and truths meet.
    let cause = prop::sample::select(&Cause::ALL[..5]);
    (cause, prop::sample::select(vec![None, Some(Side::Client), Some(Side::Server)]))
        .prop_map(|(cause, side)| Culprit { cause, side: side.filter(|_| cause != Cause::None) })
}

fn any_run() -> impl Strategy<Value = JudgedRun> {
    let answer = prop_oneof![Just(Answer::Unknown), any_culprit().prop_map(Answer::Culprit)];
    let lists = (prop::collection::vec(any_culprit(), 0..3), prop::option::of(any_culprit()));
    (any_culprit(), lists, answer).prop_map(|(truth, (also_right, looks_like), answer)| JudgedRun {
        truth,
        also_right,
        looks_like,
        leg: None,
        answer,
        answer_leg: None,
    })
}

proptest! {
    #[test]
    fn nothing_is_lost_in_the_sums(runs in prop::collection::vec(any_run(), 0..60)) {
        let score = score(&runs);
        let cells = || score.matrix.cells.iter().flatten();
        let all = runs.len() as u64;
        prop_assert_eq!(cells().map(|cell| cell.runs).sum::<u64>(), all);
        prop_assert_eq!(cells().map(|cell| cell.right).sum::<u64>(), score.right.count);
        prop_assert_eq!(score.culprits.iter().map(|one| one.recall.of).sum::<u64>(), all);
        prop_assert_eq!(score.culprits.iter().map(|one| one.recall.count).sum::<u64>(), score.right.count);
        let named: u64 = score.culprits.iter().map(|one| one.precision.of).sum();
        prop_assert_eq!(named + score.unknown.count, all);
        prop_assert_eq!(score.culprits.iter().map(|one| one.precision.count).sum::<u64>(), score.right.count);
        prop_assert_eq!(score.culprits.iter().map(|one| one.unknown).sum::<u64>(), score.unknown.count);
        // Only what occurs.
        for row in &score.matrix.cells {
            prop_assert!(row.iter().any(|cell| cell.runs > 0));
        }
        for column in 0..score.matrix.columns.len() {
            prop_assert!(score.matrix.cells.iter().any(|row| row[column].runs > 0));
        }
        for run in &runs {
            prop_assert!(!(run.is_right() && run.is_false_alarm()));
            prop_assert!(!run.is_false_alarm() || run.could_alarm());
        }
    }

    #[test]
    fn an_interval_holds_its_share(of in 1..2000_u64, part in 0.0..=1.0_f64) {
        let count = (of as f64 * part) as u64;
        let share = Share::new(count, of);
        let value = share.share.expect("there are some");
        prop_assert!(0.0 <= share.low && share.low <= value && value <= share.high && share.high <= 1.0);
        let more = Share::new(count * 4, of * 4);
        prop_assert!(more.high - more.low < share.high - share.low);
    }
}
