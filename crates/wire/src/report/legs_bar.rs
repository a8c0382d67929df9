//! The legs of a call as a picture: each begins where the one before it ends, with a whisker for its bound.

use super::CallReport;
use super::words::leg_words;
use spangap_model::duration::format_ns;
use spangap_model::evidence::LegRecord;
use spangap_model::{Leg, Legs};
use spangap_report::figures::{bounded, percent_of};
use spangap_report::html::escaped;
use spangap_report::svg::{Anchor, Picture, Rect, text};

/// Width of the picture.
const WIDTH: f64 = 1_040.0;
/// Where bars begin and end.
const FROM: f64 = 250.0;
/// See [`FROM`].
const TO: f64 = 800.0;
/// Height of a row.
const ROW: f64 = 28.0;
/// Height of a bar.
const BAR: f64 = 14.0;

/// Whose time a leg is: the class that gives it its colour.
pub(super) fn place_of(legs: Legs) -> &'static str {
    let server = |leg: Leg| (Leg::ServerHostIn..=Leg::ServerSend).contains(&leg) || leg == Leg::NoResponse;
    match (legs.first, legs.last) {
        (Leg::ClientAppOut | Leg::ClientSend, Leg::ClientAppOut | Leg::ClientSend) => "client",
        (Leg::ClientAppIn, Leg::ClientAppIn) => "client",
        (first, last) if server(first) && server(last) => "server",
        (first, last) if first == last => "network",
        _ => "mixed",
    }
}

/// The picture.
pub(super) fn picture(call: &CallReport) -> String {
    let mut svg = String::new();
    let duration = call.duration_ns.max(1) as f64;
    let x = |ns: f64| FROM + (TO - FROM) * (ns / duration).clamp(0.0, 1.0);
    let bottom = ROW * call.legs.len() as f64;
    for tick in ticks(call.duration_ns) {
        let at = x(tick as f64);
        svg += &format!("<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{bottom:.0}\"/>");
        let time = if tick == 0 { "0".into() } else { format_ns(tick) };
        svg += &text("small", at, bottom + 18.0, Anchor::Middle, &time);
    }
    let mut from_ns = 0_i64;
    for (row, leg) in call.legs.iter().enumerate() {
        svg += &bar(leg, row as f64 * ROW, x(from_ns as f64), x(from_ns.saturating_add(leg.ns) as f64), call);
        svg += &whisker(leg, row as f64 * ROW, |ns| x(from_ns as f64 + ns));
        from_ns = from_ns.saturating_add(leg.ns);
    }
    let picture = Picture { class: "legs", width: WIDTH, height: bottom + 30.0, label: "Legs of the call" };
    picture.in_page(&svg)
}

fn bar(leg: &LegRecord, top: f64, from: f64, to: f64, call: &CallReport) -> String {
    let (y, text_y) = (top + (ROW - BAR) / 2.0, top + ROW / 2.0 + 4.0);
    let (left, wide) = (from.min(to), (to - from).abs().max(1.5));
    let row = Rect { x: left, y, width: wide, height: BAR };
    format!(
        "<text x=\"{:.0}\" y=\"{text_y:.0}\" text-anchor=\"end\">{}<title>{}</title></text>\n",
        FROM - 12.0,
        escaped(&leg_words(leg.legs)),
        escaped(&leg.legs.to_string())
    ) + &row.drawn(place_of(leg.legs), 2.0)
        + &text("figure", TO + 16.0, text_y, Anchor::Start, &bounded(leg.ns, leg.bound_ns))
        + &text("figure small", WIDTH, text_y, Anchor::End, &percent_of(leg.ns, call.duration_ns))
}

fn whisker(leg: &LegRecord, top: f64, x: impl Fn(f64) -> f64) -> String {
    if leg.bound_ns == 0 {
        return String::new();
    }
    let (low, high) = (x(leg.ns as f64 - leg.bound_ns as f64), x(leg.ns as f64 + leg.bound_ns as f64));
    if high - low < 2.0 {
        // Shorter than its own line is wide.
        return String::new();
    }
    let (y, cap) = (top + ROW / 2.0, 4.0);
    format!(
        "<path class=\"whisker\" d=\"M{low:.1} {:.1}v{:.1}M{low:.1} {y:.1}H{high:.1}M{high:.1} {:.1}v{:.1}\"/>\n",
        y - cap,
        2.0 * cap,
        y - cap,
        2.0 * cap
    )
}

/// Round times from zero to `most`, about five of them.
fn ticks(most_ns: u64) -> Vec<u64> {
    let mut step = 1_u64;
    'steps: loop {
        for factor in [1, 2, 5] {
            if step.saturating_mul(factor).saturating_mul(5) >= most_ns {
                step *= factor;
                break 'steps;
            }
        }
        step = step.saturating_mul(10);
    }
    (0..=5).map(|count: u64| count.saturating_mul(step)).filter(|tick| *tick <= most_ns).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(40_480_000), [0, 10_000_000, 20_000_000, 30_000_000, 40_000_000]);
        assert_eq!(ticks(480_000), [0, 100_000, 200_000, 300_000, 400_000]);
        assert_eq!(ticks(0), [0]);
        assert!(ticks(u64::MAX).len() <= 6, "{:?}", ticks(u64::MAX));
    }

    #[test]
    fn bounds_have_whiskers_and_places_their_colour() {
        let report = samples::report();
        let fast = picture(&report.calls[2]);
        assert_eq!(fast.matches("class=\"whisker\"").count(), 2, "{fast}");
        assert_eq!(fast.matches("class=\"network\"").count(), 2);
        assert_eq!(fast.matches("class=\"server\"").count(), 2);
        assert!(picture(&CallReport::default()).contains("</svg>"));
        assert_eq!(place_of(Legs { first: Leg::RequestWire, last: Leg::ResponseWire }), "mixed");
    }
}
