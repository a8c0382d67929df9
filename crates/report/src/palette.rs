//! The colours of pictures by meaning, on light and dark backgrounds. Pages have theirs in `web/src/style/`.
//!
//! Styles name a colour as `var(--name)`. A picture is a file of its own and contains the values instead,
//! because many programs that draw SVG do not support variables.

use std::fmt::Write;

/// A colour by what it means, with a value for either background.
#[derive(Clone, Copy, Debug)]
pub struct Colour {
    /// Meaning.
    pub name: &'static str,
    /// Value on a light background.
    pub light: &'static str,
    /// Value on a dark background.
    pub dark: &'static str,
}

const fn colour(name: &'static str, light: &'static str, dark: &'static str) -> Colour {
    Colour { name, light, dark }
}

/// All colours; equal meanings have equal colours in every picture and page.
pub const COLOURS: &[Colour] = &[
    // The page.
    colour("ground", "#ffffff", "#14181d"),
    colour("text", "#1c2128", "#e4e8ee"),
    colour("soft", "#5b6572", "#98a3b1"),
    colour("line", "#d8dee6", "#313a45"),
    colour("panel", "#f5f7fa", "#1c2229"),
    // Outcomes.
    colour("good", "#1f8a70", "#35a688"),
    colour("bad", "#c6303e", "#e96470"),
    colour("maybe", "#8792a0", "#76818e"),
    // Legs of a call.
    colour("client", "#3b6fd4", "#7da7f5"),
    colour("network", "#c98500", "#e3aa3d"),
    colour("server", "#1f8a70", "#4fc2a5"),
    colour("mixed", "#7d8794", "#8e99a6"),
    // Activities of a thread.
    colour("running", "#4c9f70", "#4c9f70"),
    colour("interrupted", "#c6303e", "#e96470"),
    colour("runnable", "#e8923a", "#e8923a"),
    colour("behind-interrupt", "#b35b8f", "#c678a5"),
    colour("throttled", "#7a5bb0", "#9d7fd1"),
    colour("stopped", "#555555", "#8b949e"),
    colour("blocked", "#d8dee6", "#313a45"),
    // Load, from idle to full.
    colour("heat-0", "#f5f7fa", "#242b31"),
    colour("heat-1", "#fde6c8", "#46351f"),
    colour("heat-2", "#fbc98f", "#70491d"),
    colour("heat-3", "#f0954a", "#a8621a"),
    colour("heat-4", "#cf4d1c", "#e58a35"),
    colour("heat-5", "#8e1f0a", "#ffc57d"),
    colour("tasks", "#3b6fd4", "#7da7f5"),
    colour("tasks-on-heat", "#a9d0ff", "#12457a"),
    // Assignment of a CPU.
    colour("for-network", "#00796b", "#3fd6c0"),
    colour("apart", "#6a3fb5", "#b79bff"),
];

const DARK: &str = "@media (prefers-color-scheme: dark)";

/// Replaces the variables of a style by their values, followed by the rules for dark backgrounds.
pub fn literal(css: &str) -> String {
    let light = COLOURS
        .iter()
        .fold(css.to_owned(), |css, colour| css.replace(&format!("var(--{})", colour.name), colour.light));
    let mut dark = String::new();
    for (selector, declarations) in css.split('}').filter_map(|rule| rule.split_once('{')) {
        let coloured: Vec<&str> = declarations.split(';').filter(|one| one.contains("var(--")).collect();
        if !coloured.is_empty() {
            let _ = write!(dark, "{}{{{}}}", selector.trim(), coloured.join(";").trim());
        }
    }
    let dark =
        COLOURS.iter().fold(dark, |css, colour| css.replace(&format!("var(--{})", colour.name), colour.dark));
    if dark.is_empty() { light } else { format!("{light}\n{DARK}{{{dark}}}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Relative luminance, as WCAG defines it.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    fn named(name: &str) -> Colour {
        *COLOURS.iter().find(|colour| colour.name == name).unwrap()
    }

    #[test]
    fn every_name_stands_for_one_colour() {
        let names: BTreeSet<&str> = COLOURS.iter().map(|colour| colour.name).collect();
        assert_eq!(names.len(), COLOURS.len());
    }

    #[test]
    fn words_can_be_read_on_their_ground() {
        let ground = named("ground");
        // Minimum contrasts of WCAG AA: text, and large or graphical elements.
        for (name, least) in
            [("text", 4.5), ("soft", 4.5), ("bad", 4.5), ("client", 3.0), ("network", 3.0), ("server", 3.0)]
        {
            let colour = named(name);
            for contrast in [contrast(colour.light, ground.light), contrast(colour.dark, ground.dark)] {
                assert!(contrast >= least, "{name}: {contrast:.2}");
            }
        }
    }

    #[test]
    fn a_file_of_its_own_has_values_for_both_grounds() {
        assert_eq!(
            literal("text{fill:var(--text);font-size:11px}\n.a{opacity:.4}"),
            "text{fill:#1c2128;font-size:11px}\n.a{opacity:.4}\n\
             @media (prefers-color-scheme: dark){text{fill:#e4e8ee}}"
        );
        assert_eq!(literal(".a{opacity:.4}"), ".a{opacity:.4}");
    }
}
