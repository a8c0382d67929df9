//! What is said where neither question has an answer.

use super::{Excess, Hunt, Kind, Owner, Question};
use crate::hunt::population::{Population, Row, Slow, quantile};
use spangap_model::duration::format_ns;
use spangap_model::evidence::Evidence;

/// Noise explains few calls where it has nearly all of what they take: something else may have the rest.
const NEARLY_ALL: f64 = 0.75;

pub fn nothing(question: &Question<'_>, compared: bool, spread_ns: Option<f64>, usual_ns: u64) -> Hunt {
    let usual = format_ns(usual_ns);
    let words = match (question.slower, spread_ns) {
        (None, Some(ns)) => format!(
            "Nothing to explain: calls took {} longer, on average, than those of the reference, a little of it in every leg, as \
             two windows of the same programs differ. The median call takes {usual}.",
            format_ns(ns as u64)
        ),
        (Some(_), _) => format!(
            "Nothing to explain: too few calls are that slow, or they take no longer than others of their kind. The \
             median is {usual}."
        ),
        _ if compared => {
            format!("Nothing to explain: the median call takes {usual}, no longer than in the reference.")
        }
        _ => format!("Nothing stands out: the median call takes {usual}, and hardly any takes much longer."),
    };
    Hunt { question: if compared { "all" } else { "slow" }, words, ..Hunt::default() }
}

/// Streams last as long as their messages go on: a slow receiver makes them long, and so does a long story.
pub fn streams(population: &Population<'_>) -> Hunt {
    let durations = population.rows.iter().map(|row| (row.call.duration_ns, row.call.weight));
    Hunt {
        verdict: Kind::Unknown,
        question: "slow",
        words: format!(
            "None of these calls stands out from the others. All of them are streams, whose server works while it sends, \
             and they last {} (median). Only a reference can tell whether that is too long (`--against`).",
            format_ns(quantile(durations.collect(), 0.5))
        ),
        ..Hunt::default()
    }
}

/// Of calls that nobody saw, nobody says that nothing is wrong.
pub fn no_calls(evidence: &Evidence) -> Hunt {
    let words = match evidence.matching_calls {
        0 => {
            "The captures show no call: its connections may have been refused, or the packets may be of something else."
        }
        _ => "The captures show calls, but none of those that were asked for.",
    };
    Hunt {
        verdict: Kind::Unknown,
        question: "slow",
        words: words.into(),
        look_next: vec![
            "`spangap dissect` says which connections were opened, refused or not understood.".into(),
        ],
        ..Hunt::default()
    }
}

/// Calls that stand out, and too few of them to compare.
pub fn too_few(few: &Slow<'_, '_>) -> Hunt {
    let noise: f64 = few.rows.iter().map(|row| row.call.weight * of_noise(row)).sum();
    let mut hunt = of_few(few);
    if noise >= few.beyond_ns * NEARLY_ALL {
        hunt.verdict = Kind::Nothing;
        hunt.words = format!(
            "Nothing but the machine's own noise: few calls stand out, and while they lasted, threads waited for CPUs behind many \
             others, for {} in all.",
            format_ns(noise as u64)
        );
    }
    hunt
}

/// What noise has of a call, nanoseconds.
fn of_noise(row: &Row<'_>) -> f64 {
    let noise = row.account.iter().filter(|(owner, _)| matches!(owner, Owner::Noise(_)));
    noise.map(|(_, ns)| *ns as f64).sum()
}

fn of_few(few: &Slow<'_, '_>) -> Hunt {
    let (calls, each) = (few.calls.round(), format_ns((few.beyond_ns / few.calls.max(1.0)) as u64));
    let noun = if calls == 1.0 { "call took" } else { "calls took" };
    let ids = few.rows.iter().filter_map(|row| row.call.record.trace_id.clone());
    Hunt {
        verdict: Kind::Unknown,
        question: "slow",
        words: format!(
            "{calls} {noun} {each} longer than others of their kind: too few for a comparison to show why."
        ),
        look_next: vec!["`spangap dissect` shows the slowest calls one by one, packet by packet.".into()],
        trace_ids: ids.take(5).collect(),
        excess: Excess {
            slow_calls: calls as u64,
            total_ns: few.beyond_ns as u64,
            mean_ns: (few.beyond_ns / few.calls.max(1.0)) as u64,
            ..Excess::default()
        },
        ..Hunt::default()
    }
}
