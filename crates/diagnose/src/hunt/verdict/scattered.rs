//! Words for time that no culprit accounts for and that no single leg has: how much of it passed at one end is a fact all the same.

use super::read::MOST;
use crate::hunt::shares::Share;
use spangap_model::Side;
use std::collections::BTreeMap;

/// Noise that has less of it is not worth a sentence.
const WORTH_SAYING: f64 = 0.1;

/// A sentence that says neither more nor less than the shares of the ends and of noise do, where the ends of calls are known.
pub fn scattered(ends: &BTreeMap<Option<Side>, Share>, noise: Share, knows_ends: bool) -> String {
    let most = ends.iter().find(|(_, share)| knows_ends && share.low > MOST);
    let Some((end, share)) = most else {
        return "No single cause accounts for most of that, and it did not pass in one place.".into();
    };
    let at = match end {
        Some(side) => format!("at the {}", side.name()),
        None => "on the network between the hosts".into(),
    };
    let noise = match noise.mid {
        some if some >= WORTH_SAYING => {
            format!(" For {:.0} % of it, threads waited for CPUs behind many others.", some * 100.0)
        }
        _ => String::new(),
    };
    format!("No single cause accounts for most of that; {} of it passed {at}.{noise}", share.percent())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said if the server has so much, the client the rest, and noise as much as given.
    fn of(server: f64, noise: f64, knows_ends: bool) -> String {
        let share = |mid: f64| Share { low: mid - 0.08, mid, high: mid + 0.08 };
        let ends = [(Some(Side::Server), share(server)), (Some(Side::Client), share(1.0 - server))];
        scattered(&ends.into(), share(noise), knows_ends)
    }

    #[test]
    fn time_at_one_end_is_never_said_to_have_no_place() {
        let quiet = of(0.93, 0.02, true);
        assert!(quiet.ends_with("93 % (85 to 101 %) of it passed at the server."), "{quiet}");
        let noisy = of(0.72, 0.46, true);
        assert!(noisy.contains("72 % (64 to 80 %) of it passed at the server. For 46 % of it, "), "{noisy}");
        assert!(of(0.2, 0.0, true).ends_with("passed at the client."));
    }

    #[test]
    fn time_at_both_ends_or_of_an_unknown_begin_has_no_place() {
        for words in [of(0.55, 0.0, true), of(0.93, 0.0, false)] {
            assert!(words.ends_with("it did not pass in one place."), "{words}");
        }
    }
}
