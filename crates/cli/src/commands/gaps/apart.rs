//! Attributes that distinguish a pair's slow calls, in words.

use spangap_meter::explain::{Difference, Explanation, Rise};
use spangap_model::duration::format_ns;
use spangap_report::figures::counted;
use std::io::{self, Write};

/// Maximum number of equivalent attributes shown.
const SAME_SHOWN: usize = 3;

/// One paragraph per pair.
pub fn print(out: &mut impl Write, explanation: &Explanation) -> io::Result<()> {
    let Explanation { client, server, method, .. } = explanation;
    let method = method.as_deref().map_or(String::new(), |method| format!(", {method}"));
    writeln!(out, "\nWhat sets the slow calls of {client} -> {server}{method} apart:")?;
    let mut differs = explanation.differs.iter().peekable();
    while let Some(leader) = differs.next() {
        print_difference(out, leader)?;
        let followers = std::iter::from_fn(|| differs.next_if(|next| next.follows.is_some()));
        print_followers(out, &followers.collect::<Vec<_>>())?;
    }
    for rise in &explanation.rises_with {
        print_rise(out, rise)?;
    }
    let nothing = match explanation.differs.is_empty() && explanation.rises_with.is_empty() {
        true => "Nothing",
        false => "Nothing else",
    };
    writeln!(
        out,
        "  {nothing} of {} ({} tested, at most {:.0} % false discoveries), by {} of {}; the excess is {} beyond a gap \
         of {} for each.",
        counted(explanation.attributes, "attribute"),
        counted(explanation.tested, "value"),
        100.0 * explanation.false_discovery_rate,
        explanation.sampled,
        counted(explanation.calls, "call"),
        format_ns(explanation.excess_ns),
        format_ns(explanation.typical_gap_ns)
    )?;
    if explanation.without_spans > 0 {
        writeln!(
            out,
            "  {} could not be examined: one of its spans was no longer held whole.",
            counted(explanation.without_spans, "sampled call")
        )?;
    }
    Ok(())
}

fn print_difference(out: &mut impl Write, difference: &Difference) -> io::Result<()> {
    let Difference { attribute, value, share_of_excess: share, .. } = difference;
    let percent = |share: f64| format!("{:.0}", 100.0 * share);
    let medians = difference.median_gap_ns.zip(difference.median_gap_without_ns);
    let medians = medians.map_or(String::new(), |(with, without)| {
        format!("; median gap {} against {}", format_ns(with), format_ns(without))
    });
    writeln!(
        out,
        "  {attribute} = {value}: {} % [{}, {}] of the excess on {} % of the calls{medians}",
        percent(share.mid),
        percent(share.low),
        percent(share.high),
        percent(difference.share_of_calls)
    )?;
    if !difference.same_calls.is_empty() {
        let same = difference.same_calls.iter().take(SAME_SHOWN);
        let mut same: Vec<String> = same.map(|same| format!("{} = {}", same.attribute, same.value)).collect();
        let more = difference.same_calls.len().saturating_sub(SAME_SHOWN);
        if more > 0 {
            same.push(format!("{more} more"));
        }
        writeln!(out, "    the same calls: {}", same.join("; "))?;
    }
    Ok(())
}

/// Values that explain nothing without the one that leads, one line for each attribute.
fn print_followers(out: &mut impl Write, followers: &[&Difference]) -> io::Result<()> {
    let mut by_attribute: Vec<(&str, Vec<&str>)> = Vec::new();
    for Difference { attribute, value, .. } in followers {
        match by_attribute.iter_mut().find(|(other, _)| other == attribute) {
            Some((_, values)) => values.push(value),
            None => by_attribute.push((attribute, vec![value])),
        }
    }
    for (attribute, values) in by_attribute {
        writeln!(out, "    explains as well: {attribute} = {}", values.join(", "))?;
    }
    Ok(())
}

fn print_rise(out: &mut impl Write, rise: &Rise) -> io::Result<()> {
    let verb = if rise.correlation < 0.0 { "falls" } else { "rises" };
    writeln!(out, "  the gap {verb} with {} (rank correlation {:+.2})", rise.attribute, rise.correlation)?;
    let quarters = rise
        .quarters
        .iter()
        .map(|quarter| format!("{} to {}: {}", quarter.from, quarter.to, format_ns(quarter.median_gap_ns)));
    writeln!(out, "    median gap by quarters: {}", quarters.collect::<Vec<_>>().join("; "))
}
