use super::*;
use crate::place::Place;
use crate::verify::cost::cost;
use crate::verify::counter_deltas::CounterDeltas;
use crate::verify::drift::{Drift, Originator};
use crate::verify::effect::tests::{made_plan, made_topology};
use crate::verify::effect::{EffectInput, judge};
use crate::verify::gain::compare;
use crate::verify::proof::{read, tests::table};

/// One second on a machine where IRQ 40 arrived on `cpu`, and CPU 3 was half busy.
fn report(cpu: usize) -> VerifyReport {
    let (plan, before) = (made_plan(4, "2-3"), made_topology(4));
    let mut after = before.clone();
    after.load.iter_mut().for_each(|load| load.idle_ticks += if load.cpu == 3 { 50 } else { 100 });
    after.load[3].softirq_ticks += 50;
    after.load[3].net_rx += 340;
    after.irqs[0].counts[cpu] += 334;
    let since = CounterDeltas::new(Some(&before), &after);
    let effect = judge(&EffectInput { plan: &plan, now: &after, since: &since });
    VerifyReport::new(Status::nothing(None), effect, cost(&plan, &since))
}

#[test]
fn the_verdict_comes_first() {
    let mut holds = report(3);
    assert_eq!(holds.verdict, EffectVerdict::Holds);
    holds.gain = Some(compare(
        &read(&table(10_000, 51_900_000, Some([50_000_000, 54_000_000]))).unwrap(),
        &read(&table(9_000, 390_000, Some([380_000, 400_000]))).unwrap(),
    ));
    let text = holds.text(0, 100);
    let expected = [
        "Holds: 0 of 0 values as written, with the intended effect.\n",
        "\nEffect, in 1.0 s\n  holds       interrupts eth0    334 interrupts, all on CPUs 2-3 (2 of 3 had none)\n",
        "\nCost\n  2 of 4 CPUs are taken from applications (50 %): 2-3\n",
        "  interrupts and softirqs keep the busiest, CPU 3, busy for 50 % (+- 9.8 %): 50 % is left\n  each: CPU 2 0 %, CPU 3 50 %\n",
        "\nGain\n  frontend -> cart (10,000 calls before, 9,000 calls after)\n",
        "    p99 51.9 ms -> 390 us (133 times shorter; between 125 and 142)\n",
        "\nuneven\n  CPU 3 is busy 50 % (+- 9.8 %), CPU 2 only 0 % (+- 2.0 %)\n",
    ];
    for part in expected {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let json = serde_json::to_value(&holds).unwrap();
    assert_eq!(json["verdict"], "holds");
    assert_eq!(json["cost"]["findings"][0]["finding"], "uneven");
    assert_eq!(json["gain"]["gains"][0]["figures"][0]["verdict"], "shorter");
}

#[test]
fn failed_effects_are_named() {
    let lost = report(0);
    assert_eq!(lost.verdict, EffectVerdict::DoesNotHold);
    let words = "Does not hold: interrupts of eth0: 334 of 334 interrupts went elsewhere, to CPU 0.";
    assert_eq!(lost.summary, words);
    let mut status = Status::nothing(None);
    let drift = |who| Drift {
        place: Place::BannedIrqs,
        wanted: "40 41".into(),
        found: Some(String::new()),
        who,
        certain: false,
        why: "it was started anew".into(),
    };
    status.drift =
        vec![drift(Originator::Irqbalance), drift(Originator::Irqbalance), drift(Originator::Somebody)];
    let holds = report(3);
    let drifted = VerifyReport::new(status, holds.effect, holds.cost);
    let words = "Does not hold: 3 values no longer as written (probably irqbalance, somebody).";
    assert_eq!(drifted.summary, words);
    assert!(drifted.text(0, 80).contains("\nNo longer as written\n  * interrupts that irqbalance"));
}

#[test]
fn a_copy_stands_still() {
    let (plan, now) = (made_plan(4, "2-3"), made_topology(4));
    let since = CounterDeltas::new(None, &now);
    let effect = judge(&EffectInput { plan: &plan, now: &now, since: &since });
    let still = VerifyReport::new(Status::nothing(None), effect, cost(&plan, &since));
    assert_eq!(still.verdict, EffectVerdict::CannotTell);
    let words = "Effect unknown: 0 of 0 values as written.";
    assert_eq!(still.summary, words);
    let text = still.text(0, 100);
    assert!(text.contains("\nEffect\n") && text.contains("on a copy nothing runs"), "{text}");
    assert_eq!(still.cost.unknown, ["how busy they are: on a copy nothing runs"]);
}
