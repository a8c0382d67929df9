//! The picture of a scenario: all calls of the fault's run and of its near miss over time, and a breakdown of
//! their duration.

use super::PictureRun;
use spangap_model::Leg;
use spangap_model::duration::format_ns;
use spangap_report::cut::keep_start;
use spangap_report::svg::{Anchor, Picture, Rect, text};
use std::collections::HashSet;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 430.0;
/// Size of a panel, and the positions of both.
const PANEL: (f64, f64) = (400.0, 230.0);
const LEFTS: [f64; 2] = [64.0, 536.0];
const TOP: f64 = 58.0;
/// Position of the bars below them.
const BARS_TOP: f64 = 352.0;
const BAR_HEIGHT: f64 = 22.0;
const BARS_WIDTH: f64 = 740.0;
const BARS_LEFT: f64 = 150.0;
/// Intervals longer than this share of the run count as all of it: shading them says nothing.
const ALL_OF_IT: f64 = 0.9;
/// Minimum width of a bar segment with a label.
const NAMED_WIDTH: f64 = 92.0;
/// Width of a letter in such a label, with padding.
const LETTER_WIDTH: f64 = 6.4;

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:var(--text)}.small{font-size:11px;fill:var(--soft)}.title{font-weight:600;font-size:13px}\
.grid{stroke:var(--line)}.call{fill:var(--client);fill-opacity:.75}.hit{fill:var(--bad);fill-opacity:.85}\
.on{fill:var(--bad);fill-opacity:.12}.client{fill:var(--client)}.wire{fill:var(--network)}.server{fill:var(--server)}\
.mixed{fill:var(--mixed)}.part{fill-opacity:.45}.edge{stroke:var(--ground)}.in{font-size:11px}";

/// Self-contained SVG, for light and dark pages.
pub fn picture(fault: &PictureRun<'_>, near_miss: &PictureRun<'_>) -> String {
    let both = [fault, near_miss];
    let scale = Scale::of(&both);
    let mut svg = String::new();
    for (seen, left) in both.iter().zip(LEFTS) {
        svg += &panel(seen, left, &scale);
    }
    svg += &bars(&both);
    let label = format!("calls of {} and of its near miss", fault.truth.scenario);
    Picture { class: "", width: WIDTH, height: HEIGHT, label: &label }.file(STYLE, &svg)
}

/// Logarithmic scale, the same for both panels.
struct Scale {
    lowest: f64,
    decades: f64,
}

impl Scale {
    fn of(both: &[&PictureRun<'_>]) -> Scale {
        let durations =
            || both.iter().flat_map(|seen| seen.calls.iter().map(|call| call.duration_ns().max(1) as f64));
        let lowest = durations().fold(f64::INFINITY, f64::min).log10().floor();
        let highest = durations().fold(1.0, f64::max).log10().ceil();
        // Without calls there is still a scale.
        let lowest = if lowest.is_finite() { lowest } else { 5.0 };
        Scale { lowest, decades: (highest - lowest).max(1.0) }
    }

    /// Position of a duration, from the top of the panel.
    fn y(&self, ns: u64) -> f64 {
        let share = ((ns.max(1) as f64).log10() - self.lowest) / self.decades;
        PANEL.1 * (1.0 - share.clamp(0.0, 1.0))
    }
}

fn panel(seen: &PictureRun<'_>, left: f64, scale: &Scale) -> String {
    let (width, height) = PANEL;
    let from = seen.calls.iter().map(|call| call.start_unix_ns).min().unwrap_or(0);
    let to = seen.calls.iter().map(|call| call.end_unix_ns).max().unwrap_or(from).max(from + 1);
    let length = (to - from) as f64;
    let x = |unix_ns: u64| (unix_ns.saturating_sub(from) as f64 / length).min(1.0) * width;
    let affected: HashSet<&str> = seen.truth.affected.iter().map(|call| call.trace_id.as_str()).collect();
    let hits = seen.calls.iter().filter(|call| affected.contains(call.trace_id.as_str())).count();
    let counted = format!("culprit: {}; {} calls, {hits} affected", seen.truth.culprit, seen.calls.len());
    let mut svg = text("title", left, 22.0, Anchor::Start, &seen.name);
    svg += &text("small", left, 40.0, Anchor::Start, &counted);
    svg += &format!("<g transform=\"translate({left} {TOP})\">\n");
    for active in &seen.truth.active {
        let (begin, end) = (x(active.from_unix_ns), x(active.to_unix_ns));
        if end > begin && end - begin < width * ALL_OF_IT {
            // At least a pixel wide, so that it is visible.
            let stretch = Rect { x: begin, y: 0.0, width: (end - begin).max(1.0), height };
            svg += &stretch.drawn("on", 0.0);
        }
    }
    for decade in 0..=scale.decades as u32 {
        let ns = 10_f64.powf(scale.lowest + f64::from(decade));
        let y = scale.y(ns as u64);
        svg += &format!("<line class=\"grid\" x1=\"0\" x2=\"{width}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n");
        svg += &text("small", -6.0, y + 4.0, Anchor::End, &decade_name(ns));
    }
    for share in [0.0, 0.5, 1.0] {
        let label = format!("{:.1} s", length * share / 1e9);
        svg += &text("small", width * share, height + 17.0, Anchor::Middle, &label);
    }
    for call in seen.calls {
        let class = if affected.contains(call.trace_id.as_str()) { "hit" } else { "call" };
        let (x, y) = (x(call.start_unix_ns), scale.y(call.duration_ns()));
        svg += &format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"/>\n");
    }
    svg + "</g>\n"
}

/// Breakdown of the mean call, both on one scale.
fn bars(both: &[&PictureRun<'_>]) -> String {
    let means: Vec<Vec<(String, f64)>> = both.iter().map(|seen| mean_legs(seen)).collect();
    let longest = means.iter().map(|legs| legs.iter().map(|leg| leg.1).sum::<f64>()).fold(1.0, f64::max);
    let heading = "mean call, leg by leg, as `spangap dissect` tells it:";
    let mut svg = text("small", LEFTS[0], BARS_TOP - 14.0, Anchor::Start, heading);
    for (number, (class, name)) in
        [("client", "client"), ("wire", "network"), ("server", "server")].iter().enumerate()
    {
        let (x, y) = (400.0 + number as f64 * 84.0, BARS_TOP - 14.0);
        svg += &Rect { x, y: y - 9.0, width: 10.0, height: 10.0 }.drawn(&format!("{class} part"), 0.0);
        svg += &text("small", x + 15.0, y, Anchor::Start, name);
    }
    for (row, (legs, name)) in means.iter().zip(["this fault", "near miss"]).enumerate() {
        let y = BARS_TOP + row as f64 * (BAR_HEIGHT + 10.0);
        svg += &text("", LEFTS[0], y + 15.0, Anchor::Start, name);
        let mut left = BARS_LEFT;
        for (leg, ns) in legs {
            let part = Rect { x: left, y, width: ns / longest * BARS_WIDTH, height: BAR_HEIGHT };
            let told = format!("{leg}: {}", format_ns(*ns as u64));
            svg += &part.told(&format!("{} part edge", class_of(leg)), 0.0, &told);
            if part.width >= NAMED_WIDTH {
                let name = keep_start(leg, (part.width / LETTER_WIDTH) as usize);
                svg += &text("in", left + 5.0, y + 15.0, Anchor::Start, &name);
            }
            left += part.width;
        }
        let total = legs.iter().map(|leg| leg.1).sum::<f64>() as u64;
        svg += &text("small", left + 6.0, y + 15.0, Anchor::Start, &format_ns(total));
    }
    svg
}

/// A SERVER span may start before the request is complete: the leg in between is then negative, and the overlap
/// of both sides is drawn once, so that the segments still sum to the call.
fn mean_legs(seen: &PictureRun<'_>) -> Vec<(String, f64)> {
    let calls = seen.dissected_calls.max(1) as f64;
    let (mut legs, mut overlap_ns) = (Vec::new(), 0);
    for leg in &seen.legs {
        let ns = leg.total_ns + overlap_ns;
        overlap_ns = ns.min(0);
        legs.push((leg.leg.clone(), ns.max(0) as f64 / calls));
    }
    legs
}

fn class_of(leg: &str) -> &'static str {
    let one = |name: &str| match Leg::ALL.into_iter().find(|leg| leg.name() == name) {
        Some(Leg::RequestWire | Leg::ResponseWire) => "wire",
        Some(Leg::ClientAppOut | Leg::ClientSend | Leg::ClientAppIn) => "client",
        Some(_) => "server",
        None => "mixed",
    };
    let mut classes = leg.split('+').map(one);
    let first = classes.next().unwrap_or("mixed");
    if classes.all(|class| class == first) { first } else { "mixed" }
}

fn decade_name(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{value:.0} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Call;
    use crate::page::LegTotal;
    use crate::page::tests::truth;
    use crate::truth::{Active, Affected};

    fn call(number: u64, duration_ns: u64) -> Call {
        let start_unix_ns = 1_000_000_000 + number * 10_000_000;
        Call {
            trace_id: format!("{number:032x}"),
            start_unix_ns,
            end_unix_ns: start_unix_ns + duration_ns,
            ok: true,
            server: Vec::new(),
        }
    }

    #[test]
    fn every_call_is_a_dot_and_the_affected_ones_are_marked() {
        let calls: Vec<Call> = (0..20).map(|number| call(number, 1_000_000 + number * 1_000_000)).collect();
        let mut bad = truth("a<b&c", false);
        bad.affected = vec![Affected { trace_id: calls[3].trace_id.clone(), cost_ns: None }];
        bad.active =
            vec![Active { from_unix_ns: calls[3].start_unix_ns, to_unix_ns: calls[4].start_unix_ns }];
        let legs = vec![
            LegTotal { leg: "client_app_out".into(), total_ns: 3_000_000 },
            LegTotal { leg: "server_host_in+server_app".into(), total_ns: 900_000_000 },
        ];
        let near = truth("a<b&c", true);
        let seen = |truth| PictureRun {
            name: "a<b&c".into(),
            truth,
            calls: &calls,
            legs: legs.clone(),
            dissected_calls: 20,
        };
        let svg = picture(&seen(&bad), &seen(&near));
        assert_eq!((svg.matches("class=\"call\"").count(), svg.matches("class=\"hit\"").count()), (39, 1));
        assert_eq!(svg.matches("class=\"on\"").count(), 1);
        assert!(svg.contains("a&lt;b&amp;c") && !svg.contains("a<b&c") && !svg.contains("NaN"));
        assert!(svg.contains("server_host_in+server_app"));
    }

    #[test]
    fn a_run_without_calls_has_a_picture() {
        let truth = truth("empty", false);
        let seen = || PictureRun {
            name: "empty".into(),
            truth: &truth,
            calls: &[],
            legs: Vec::new(),
            dissected_calls: 0,
        };
        let svg = picture(&seen(), &seen());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn overlap_is_drawn_once() {
        let truth = truth("early", false);
        let leg = |leg: &str, total_ns| LegTotal { leg: leg.into(), total_ns };
        let legs = vec![leg("client_send", 40), leg("server_host_in", -40), leg("server_app", 42)];
        let seen = PictureRun { name: "early".into(), truth: &truth, calls: &[], legs, dissected_calls: 2 };
        let parts: Vec<f64> = mean_legs(&seen).into_iter().map(|(_, ns)| ns).collect();
        assert_eq!(parts, [20.0, 0.0, 1.0]);
    }

    #[test]
    fn legs_have_the_colour_of_their_host() {
        assert_eq!(
            [
                "client_send",
                "response_wire",
                "server_app",
                "server_host_in+server_app",
                "client_send+request_wire"
            ]
            .map(class_of),
            ["client", "wire", "server", "server", "mixed"]
        );
    }
}
