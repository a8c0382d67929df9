//! Figures and words that fit into columns.

use spangap_model::Cpus;
use std::fmt::Write;

/// Columns of the narrowest terminal that is written for.
pub(in crate::report) const NARROWEST: usize = 80;

/// A share as a number of percent: `0`, `<1`, `12`.
pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        none if none <= 0.0 => "0".to_owned(),
        little if little < 0.5 => "<1".to_owned(),
        some => format!("{some:.0}"),
    }
}

/// A rate in five columns at most: `0`, `0.2`, `812`, `12.3k`, `1.20M`.
pub(super) fn rate(per_s: f64) -> String {
    match per_s {
        none if none <= 0.0 => "0".to_owned(),
        little if little < 0.095 => "<0.1".to_owned(),
        some if some < 9.95 => format!("{some:.1}"),
        some if some < 9_999.5 => format!("{some:.0}"),
        many if many < 99_950.0 => format!("{:.1}k", many / 1e3),
        many if many < 999_500.0 => format!("{:.0}k", many / 1e3),
        many if many < 99.5e6 => format!("{:.1}M", many / 1e6),
        many => format!("{:.0}M", many / 1e6),
    }
}

/// `1 pod`, `2 pods`.
pub(in crate::report) fn counted(number: usize, what: &str) -> String {
    let plural = match (number, what.strip_suffix('y')) {
        (1, _) => what.to_owned(),
        (_, Some(head)) => format!("{head}ies"),
        (_, None) => format!("{what}s"),
    };
    format!("{number} {plural}")
}

/// Cuts a name that is longer than this many characters.
pub(in crate::report) fn short(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    let mut cut: String = name.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Numbers as the kernel writes them; from four on in equal steps as `0-62/2`: every second one from 0 to 62.
pub(super) fn list(numbers: impl IntoIterator<Item = u32>) -> String {
    const STEPS: usize = 4;
    let numbers: Vec<u32> = numbers.into_iter().collect();
    let mut parts = Vec::new();
    let mut rest = numbers.as_slice();
    while let [first, after @ ..] = rest {
        let step = after.first().map_or(0, |next| next - first);
        let run = 1 + rest.windows(2).take_while(|pair| pair[1] - pair[0] == step).count();
        let last = rest[run - 1];
        let (part, taken) = match (step, run) {
            (1, _) => (format!("{first}-{last}"), run),
            (_, many) if many >= STEPS => (format!("{first}-{last}/{step}"), run),
            _ => (first.to_string(), 1),
        };
        parts.push(part);
        rest = &rest[taken..];
    }
    parts.join(",")
}

/// A list of CPUs in lines of at most `width` columns, each but the last with a comma at its end. A part that is longer,
/// `100-500/100,`, has a line of its own.
pub(super) fn list_lines(cpus: &Cpus, width: usize) -> Vec<String> {
    let list = list(cpus.iter());
    let mut lines = vec![String::new()];
    let parts: Vec<&str> = list.split(',').collect();
    for (at, part) in parts.iter().enumerate() {
        let comma = if at + 1 < parts.len() { "," } else { "" };
        let last = lines.last_mut().expect("never empty");
        if last.is_empty() || last.len() + part.len() + comma.len() <= width {
            *last += &format!("{part}{comma}");
        } else {
            lines.push(format!("{part}{comma}"));
        }
    }
    lines
}

/// Reads what [`list`] writes.
#[cfg(test)]
pub(super) fn parse_list(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (range, step) = part.split_once('/').unwrap_or((part, "1"));
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
        numbers.extend((from..=to).step_by(step.parse().ok()?));
    }
    Some(numbers)
}

/// Words in lines of at most `width` columns. A word that is longer is cut into pieces.
pub(super) fn lines(words: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = vec![String::new()];
    let mut column = 0;
    for word in words.split(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        if column > 0 && column + 1 + rest.len() > width {
            lines.push(String::new());
            column = 0;
        }
        if column > 0 {
            lines.last_mut().expect("never empty").push(' ');
            column += 1;
        }
        while rest.len() > width - column {
            let tail = rest.split_off(width - column);
            lines.last_mut().expect("never empty").extend(rest);
            lines.push(String::new());
            (rest, column) = (tail, 0);
        }
        column += rest.len();
        lines.last_mut().expect("never empty").extend(rest);
    }
    lines
}

/// Words behind a head, further lines below the first.
pub(in crate::report) fn wrap(text: &mut String, head: &str, words: &str, width: usize) {
    let indent = head.chars().count();
    for (at, line) in lines(words, width.saturating_sub(indent)).iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = match at {
            0 => writeln!(text, "{}", format!("{head}{line}").trim_end()),
            _ => writeln!(text, "{:indent$}{line}", ""),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lines_keep_their_width_and_lose_nothing(words in "[a-zäß ]{0,80}", width in 8_usize..40) {
            let lines = lines(&words, width);
            prop_assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            let without = |text: &str| text.replace(' ', "");
            prop_assert_eq!(without(&lines.concat()), without(&words));
        }

        #[test]
        fn lists_keep_their_width_and_lose_nothing(cpus in prop::collection::btree_set(0_u32..600, 0..80), width in 10_usize..40) {
            let cpus: Cpus = cpus.into_iter().collect();
            let lines = list_lines(&cpus, width);
            let one_part = |line: &str| !line.trim_end_matches(',').contains(',');
            prop_assert!(lines.iter().all(|line| line.len() <= width || one_part(line)), "{lines:?}");
            prop_assert_eq!(parse_list(&lines.concat()), Some(cpus.iter().collect()));
        }

        #[test]
        fn rates_fit_into_five_columns(per_s in 0.0_f64..9e8) {
            prop_assert!(rate(per_s).len() <= 5, "{}", rate(per_s));
        }
    }

    #[test]
    fn figures() {
        assert_eq!(list([0, 2, 4, 6, 7, 8, 20]), "0-6/2,7-8,20");
        assert_eq!(list([0, 1, 2, 9, 11, 13]), "0-2,9,11,13");
        assert_eq!([0.0, 0.001, 0.124, 1.0].map(percent), ["0", "<1", "12", "100"]);
        assert_eq!(
            [0.0, 0.01, 0.2, 812.4, 12_345.0, 1_204_000.0].map(rate),
            ["0", "<0.1", "0.2", "812", "12.3k", "1.2M"]
        );
        assert_eq!([counted(1, "pod"), counted(3, "family")], ["1 pod", "3 families"]);
    }
}
