//! Help texts that wrap at the terminal's width.
//!
//! The source breaks the closing text of a verb's help where its own lines end, and clap keeps such breaks: on a narrower
//! terminal every second line would be a stump. Prose is therefore joined before clap wraps it; commands stay lines.

use clap::Command;

/// Indentation from which on a line explains the command above it; lines between are commands.
const EXPLANATION: usize = 6;

/// The command line with the closing text of every verb's help free to wrap.
pub fn flowing(command: Command) -> Command {
    let text = command.get_after_help().map(|text| joined(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(flowing)
}

/// Joins consecutive lines of a paragraph, and of an explanation. A line that ends in a colon stays a heading.
fn joined(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let is_prose = |line: &str| {
        !line.trim().is_empty() && (indent(line) == 0 || indent(line) >= EXPLANATION) && !line.ends_with(':')
    };
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match lines.last_mut() {
            Some(last) if is_prose(last) && is_prose(line) && indent(last) == indent(line) => {
                last.push(' ');
                last.push_str(line.trim_start());
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    #[test]
    fn commands_stay_lines_and_prose_is_joined() {
        let text =
            "Examples:\n  spangap a\n      one\n      two\n  spangap b\n\nFirst\nsecond.\n\nFormats:\nx";
        let flows = "Examples:\n  spangap a\n      one two\n  spangap b\n\nFirst second.\n\nFormats:\nx";
        assert_eq!(joined(text), flows);
        assert_eq!(joined(flows), flows);
    }

    /// At any width, a line of prose is as full as the next word permits.
    #[test]
    fn every_help_fills_its_lines() {
        fn check(command: &mut Command, width: usize, seen: &mut usize) {
            let help = command.clone().term_width(width).render_long_help().to_string();
            let closing = help.lines().skip_while(|line| !line.starts_with("Example")).collect::<Vec<_>>();
            for pair in closing.windows(2) {
                let indent = |line: &str| line.len() - line.trim_start().len();
                let prose = |line: &str| !line.trim().is_empty() && !line.ends_with(':');
                let same = indent(pair[0]) == indent(pair[1]);
                let wraps = indent(pair[0]) == 0 || indent(pair[0]) >= EXPLANATION;
                if same && wraps && prose(pair[0]) && prose(pair[1]) {
                    let next = pair[1].split_whitespace().next().unwrap_or_default();
                    let name = command.get_name();
                    assert!(pair[0].len() + 1 + next.len() > width, "{name} at {width}: {pair:#?}");
                    *seen += 1;
                }
            }
            for command in command.get_subcommands_mut() {
                check(command, width, seen);
            }
        }
        for width in [60, 80, 100] {
            let mut seen = 0;
            let mut command = flowing(Cli::command());
            command.build();
            check(&mut command, width, &mut seen);
            assert!(seen > 50, "{seen} lines were looked at");
        }
    }
}
