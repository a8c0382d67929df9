//! The committed figures, and the table by commit.

use crate::CheckError;
use crate::measures::{Measured, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Header of the table.
const TABLE: &str = "| commit |";
/// Columns of the table: names of figures, with their headings in the document.
const COLUMNS: [&str; 8] = [
    "dissect dense-go, instructions a call",
    "dissect dense-java, instructions a call",
    "dissect dense-cpp, instructions a packet",
    "dissect dense-nginx / reading",
    "tshark / dissect",
    "meter over gRPC / walk",
    "raw tank / C loop, calls per CPU second",
    "host offcpu / nothing",
];

/// Figures of one commit on one machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    pub commit: String,
    pub compiler: String,
    pub cpu: String,
    /// By name.
    pub figures: BTreeMap<String, Value>,
}

impl Record {
    /// A record of measurements.
    pub fn of(measured: &[Measured]) -> Record {
        let figures =
            measured.iter().filter_map(|one| Some((one.name.clone(), one.value.clone()?))).collect();
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Record {
            commit: said(&["git", "describe", "--always", "--dirty"]),
            compiler: said(&["rustc", "--version"]),
            cpu: cpu.map(|(_, name)| name.to_owned()).unwrap_or_default(),
            figures,
        }
    }

    /// Merges newer figures; missing ones are retained.
    pub fn take(&mut self, newer: Record) {
        let mut figures = std::mem::take(&mut self.figures);
        figures.extend(newer.figures.clone());
        *self = Record { figures, ..newer };
    }

    /// Differences that make two records less comparable.
    pub fn differs(&self, now: &Record) -> Vec<String> {
        let pairs = [("compiler", &self.compiler, &now.compiler), ("CPU", &self.cpu, &now.cpu)];
        let differing = pairs.into_iter().filter(|(_, before, now)| before != now);
        differing
            .map(|(what, before, now)| {
                format!("the committed figures are of another {what} ({before}, now {now})")
            })
            .collect()
    }

    /// The row of the table.
    fn row(&self) -> String {
        let cell = |name: &&str| match self.figures.get(*name) {
            Some(Value::Instructions(count)) => format!("{count:.0}"),
            Some(Value::Ratios(ratios)) => {
                format!("{:.2}", median(ratios).unwrap_or(f64::NAN))
            }
            None => "not run".to_owned(),
        };
        let cells: Vec<String> = COLUMNS.iter().map(cell).collect();
        format!("| {} | {} |", self.commit, cells.join(" | "))
    }
}

/// The first line of a command's output; empty if there is none.
fn said(command: &[&str]) -> String {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// Reads the committed figures.
///
/// # Errors
/// When the file is missing or invalid.
pub fn read(path: &Path) -> Result<Record, CheckError> {
    let text = std::fs::read(path).map_err(|error| CheckError::File { path: path.to_owned(), error })?;
    serde_json::from_slice(&text)
        .map_err(|error| CheckError::Content { path: path.to_owned(), what: error.to_string() })
}

/// Writes figures.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, record: &Record) -> Result<(), CheckError> {
    let mut text = serde_json::to_string_pretty(record).unwrap_or_default();
    text.push('\n');
    std::fs::write(path, text).map_err(|error| CheckError::File { path: path.to_owned(), error })
}

/// Inserts the row of a record into the table of a document, replacing one of the same commit.
///
/// # Errors
/// When the document has no such table, or cannot be read or written.
pub fn write_row(path: &Path, record: &Record) -> Result<(), CheckError> {
    let file_error = |error| CheckError::File { path: path.to_owned(), error };
    let text = std::fs::read_to_string(path).map_err(file_error)?;
    let updated = with_row(&text, record).ok_or_else(|| CheckError::Content {
        path: path.to_owned(),
        what: format!("no table that begins with `{TABLE}`"),
    })?;
    std::fs::write(path, updated).map_err(file_error)
}

fn with_row(text: &str, record: &Record) -> Option<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let head = lines.iter().position(|line| line.starts_with(TABLE))?;
    let end = head + lines[head..].iter().take_while(|line| line.starts_with('|')).count();
    let row = record.row();
    let same = format!("| {} |", record.commit);
    match lines[head..end].iter().position(|line| line.starts_with(&same)) {
        Some(place) => lines[head + place] = &row,
        None => lines.insert(end, &row),
    }
    Some(lines.join("\n") + "\n")
}

pub fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_one_row() {
        let mut record = Record { commit: "abc".into(), ..Record::default() };
        let name = COLUMNS[0].to_owned();
        record.figures.insert(name.clone(), Value::Instructions(12_345.4));
        let text = "before\n\n| commit | x |\n|---|---|\n| old | 1 |\n\nafter\n";
        let once = with_row(text, &record).expect("a table");
        assert!(once.contains("| old | 1 |\n| abc | 12345 | not run |"), "{once}");
        record.figures.insert(name, Value::Instructions(9.0));
        let twice = with_row(&once, &record).expect("a table");
        assert!(twice.contains("| abc | 9 |") && twice.matches("| abc |").count() == 1, "{twice}");
        assert!(twice.ends_with("\n\nafter\n"));
        assert_eq!(with_row("no table", &record), None);
    }
}
