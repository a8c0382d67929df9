//! Lists of CPUs that fit into columns.

use spangap_model::Cpus;

/// Numbers in the kernel's format; four or more at equal distances as `0-62/2`: every second one from 0 to 62.
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

/// A list of CPUs in lines of at most `width` columns, each but the last ending with a comma. A longer element,
/// `100-500/100,`, gets a line of its own.
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

/// Parses the output of [`list`].
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_keep_their_width_and_lose_nothing(cpus in prop::collection::btree_set(0_u32..600, 0..80), width in 10_usize..40) {
            let cpus: Cpus = cpus.into_iter().collect();
            let lines = list_lines(&cpus, width);
            let one_part = |line: &str| !line.trim_end_matches(',').contains(',');
            prop_assert!(lines.iter().all(|line| line.len() <= width || one_part(line)), "{lines:?}");
            prop_assert_eq!(parse_list(&lines.concat()), Some(cpus.iter().collect()));
        }
    }

    #[test]
    fn equal_steps_are_put_together() {
        assert_eq!(list([0, 2, 4, 6, 7, 8, 20]), "0-6/2,7-8,20");
        assert_eq!(list([0, 1, 2, 9, 11, 13]), "0-2,9,11,13");
    }
}
